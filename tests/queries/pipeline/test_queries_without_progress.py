"""Queries that never have results, or never free their state, in a pipeline: each is refused with reason and remedy.

The test finds a query that would wait for the end of an endless input without a message.
"""

from pathlib import Path

import pytest

from queries.pipeline.file import parse_pipeline
from queries.pipeline.sections import PipelineError

WINDOW = "expected for example [RANGE 1 minute, SLIDE 1 minute, WA ts]"
EACH = "[RANGE n, WA ts] after each item"
STUCK = [
    ("SELECT srcIP, count(*) FROM M GROUP BY srcIP", "has no window", WINDOW),
    ("SELECT len / 100 AS c, count(*) FROM M GROUP BY c", "has no window", WINDOW),
    ("SELECT DISTINCT srcIP FROM M", "has no window", WINDOW),
    ("SELECT srcIP FROM M UNION SELECT destIP FROM M", "has no window", WINDOW),
    ("SELECT srcIP FROM M EXCEPT SELECT destIP FROM M", "has no window", WINDOW),
    ("SELECT sum(n) FROM (SELECT count(*) AS n FROM M)", "has no window", WINDOW),
    ("SELECT ts, len FROM M ORDER BY len", "sorts rows without windows", WINDOW),
    ("SELECT ts, rank() OVER (ORDER BY len) AS r FROM M", "has OVER over rows without windows", WINDOW),
    ("SELECT a.ts FROM M a JOIN M b ON a.srcIP = b.srcIP", "every row would be stored until the end", EACH),
    ("SELECT a.ts FROM M a [RANGE 5 s, WA ts] JOIN M b ON a.srcIP = b.srcIP", "a join without a window for b", EACH),
    ("SELECT count(*) FROM M GROUP BY srcIP CLOSING WHEN count(*) > 5", "CLOSING WHEN without windows", "[RANGE 10"),
    (
        "SELECT count(*) FROM M p WHERE EXISTS (SELECT 1 FROM M q WHERE q.srcIP = p.srcIP)",
        "a correlated sub-query without a window",
        "without a window",
    ),
    ("SELECT ts FROM M WHERE srcIP IN (SELECT destIP FROM M)", "a sub-query in WHERE", "`wiretide query` with files"),
]
PROGRESSING = [
    "SELECT DISTINCT srcIP FROM M [RANGE 1 minute]",
    "SELECT ts, lag(len) OVER (PARTITION BY srcIP ORDER BY ts) AS before FROM M",
    "SELECT ts / 60 AS minute, count(*) FROM M GROUP BY minute",
    "SELECT a.ts FROM M a [RANGE 5 s, WA ts] JOIN M b [RANGE 5 s, WA ts] ON a.srcIP = b.srcIP",
    "SELECT srcIP, len FROM M WHERE len > 1000",
]


def plans_of(sql: str) -> list:
    return parse_pipeline(f"[links]\nM = 'm.pcap'\n[queries.q]\nsql = '''{sql}'''\n", Path("/")).plans()


@pytest.mark.parametrize(("sql", "reason", "remedy"), STUCK, ids=[sql for sql, *_ in STUCK])
def test_a_query_without_progress_is_refused(sql: str, reason: str, remedy: str) -> None:
    with pytest.raises(PipelineError) as error:
        plans_of(sql)
    assert "queries.q.sql" in str(error.value)
    assert reason in str(error.value)
    assert remedy in str(error.value)


@pytest.mark.parametrize("sql", PROGRESSING)
def test_a_similar_query_with_progress_is_accepted(sql: str) -> None:
    (plan,) = plans_of(sql)
    assert plan.waiting_reason is None


@pytest.mark.parametrize("rows", ["ONE ROW", "ALL ROWS"])
def test_rows_of_runs_with_a_file_of_arcs_are_refused_because_a_new_version_would_be_another_query(
    tmp_path: Path, rows: str
) -> None:
    file = tmp_path / "first.arcs"
    file.write_text("ARC s TO f WHEN len > 99")
    clauses = f"ORDER BY ts {rows} PER MATCH START s FINAL f ARCS FROM '{file}' WITHIN 1 minute"
    sql = f"SELECT * FROM (SELECT ts, len FROM M) AUTOMATON ({clauses})"
    pipeline = parse_pipeline(f'[links]\nM = "m.pcap"\n[queries.q]\nsql = """{sql}"""\n', tmp_path)
    if rows == "ONE ROW":
        assert len(pipeline.plans()) == 1
    else:
        with pytest.raises(PipelineError, match=r"queries\.q\.sql: got ALL ROWS.*first\.arcs.*expected ONE ROW"):
            pipeline.plans()
