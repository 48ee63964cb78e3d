"""WITH CONSISTENCY and EMIT: each spelling as its plan, and each refusal with its position.

The tests detect an option that is read as another, a plan without provisional partials, and a query whose results
cannot be corrected.
"""

import pytest

from highlevel.plan.nodes import ChangingWindows, Windowed
from highlevel.speculation.consistency import FOREVER, Consistency
from queries.explain.lines import parts_of_line
from queries.explain.plan import explain
from queries.gsql import compile_query
from queries.text.errors import QueryError

SECOND = 10**9
QUERY = "SELECT srcIP, count(*) AS n [RANGE 10 seconds] FROM packets GROUP BY srcIP "

ANTI = "SELECT p.ts FROM packets p [RANGE 1 s] ANTI JOIN packets q [RANGE 1 s] ON p.srcIP = q.destIP"
SAMPLE = (
    "SELECT tb, srcIP, count(*) FROM M GROUP BY time/60 AS tb, srcIP SUPERGROUP tb CLEANING WHEN true CLEANING BY true"
)

CHANGES = [
    ("EMIT CHANGES", Consistency()),
    ("emit changes;", Consistency()),
    ("WITH CONSISTENCY (WAIT 2 seconds) EMIT CHANGES", Consistency(2 * SECOND)),
    ("EMIT CHANGES WITH CONSISTENCY (REMEMBER 1 hour, WAIT 2 s)", Consistency(2 * SECOND, 3600 * SECOND)),
    ("WITH CONSISTENCY (WAIT 0, GRACE 5 s) EMIT CHANGES", Consistency(0, 5 * SECOND)),
    ("WITH CONSISTENCY (WAIT 0 seconds, REMEMBER 0) EMIT CHANGES", Consistency(0, 0)),
    ("WITH CONSISTENCY (WAIT FOREVER, REMEMBER 5 s) EMIT CHANGES", Consistency(None, 5 * SECOND)),
    ("WITH CONSISTENCY (EARLY 500 ms, REMEMBER FOREVER) EMIT CHANGES", Consistency(0, FOREVER, SECOND // 2)),
    ("WITH CONSISTENCY (GRACE PERIOD 5 s, EARLY FIRE 500 ms) EMIT CHANGES", Consistency(0, 5 * SECOND, SECOND // 2)),
    ("WITH CONSISTENCY (EARLY_FIRE 2 s) EMIT CHANGES", Consistency(early=2 * SECOND)),
    ("WITH STRONG CONSISTENCY EMIT CHANGES", Consistency(wait=None)),
    ("WITH MIDDLE CONSISTENCY EMIT CHANGES", Consistency()),
    ("EMIT CHANGES WITH WEAK CONSISTENCY", Consistency(remember=0)),
]


@pytest.mark.parametrize(("clauses", "consistency"), CHANGES, ids=[clauses for clauses, _ in CHANGES])
def test_changes_have_the_consistency_that_the_clauses_state(clauses: str, consistency: Consistency) -> None:
    plan = compile_query(QUERY + clauses)
    assert isinstance(plan.root, ChangingWindows)
    assert plan.root.consistency == consistency
    assert plan.root.merges_partials
    assert plan.has_changes
    assert plan.schema.names == ["window_start", "window_end", "srcIP", "n", "weight", "final"]
    (leaf,) = plan.leaves
    assert (leaf.low.provisional, leaf.low.slack) == (True, consistency.remember)
    assert not leaf.low.has_record_watermarks
    assert not leaf.low.is_divisible


def test_final_results_without_options_are_the_ordinary_plan() -> None:
    assert compile_query(QUERY + "EMIT FINAL").root == compile_query(QUERY).root


def test_a_query_that_emits_on_window_close_emits_final_rows() -> None:
    assert compile_query(QUERY + "EMIT ON WINDOW CLOSE").root == compile_query(QUERY).root
    join = "SELECT emit.ts FROM packets p [RANGE 1 s] JOIN packets emit [RANGE 1 s] ON p.srcIP = emit.destIP"
    assert compile_query(join).schema.names == ["ts"]


LATE = "SELECT srcIP, count(DISTINCT destIP) AS n [RANGE 10 seconds{}] FROM packets GROUP BY srcIP "


@pytest.mark.parametrize(
    ("clauses", "equal"),
    [
        ("EMIT CHANGES", "WITH CONSISTENCY (REMEMBER FOREVER) EMIT CHANGES"),
        ("WITH CONSISTENCY (WAIT 1 s) EMIT CHANGES", "WITH CONSISTENCY (WAIT 1 s, REMEMBER FOREVER) EMIT CHANGES"),
        ("WITH CONSISTENCY (REMEMBER 1 h) EMIT CHANGES", "WITH CONSISTENCY (REMEMBER 1 h) EMIT CHANGES"),
        ("WITH WEAK CONSISTENCY EMIT CHANGES", "WITH WEAK CONSISTENCY EMIT CHANGES"),
    ],
)
def test_late_emit_with_changes_remembers_all_rows(clauses: str, equal: str) -> None:
    sub_query = "SELECT max(n) AS n FROM ({}) [RANGE 1 minute] "
    for text in ("{}", sub_query):
        changing = compile_query(text.format(LATE.format(", LATE EMIT")) + clauses)
        assert changing.root == compile_query(text.format(LATE.format("")) + equal).root
        assert "late" not in changing.schema.names


def test_late_emit_without_changes_returns_additional_rows() -> None:
    late = LATE.format(", LATE EMIT").replace("DISTINCT ", "")
    assert compile_query(late + "EMIT FINAL").schema.names[-1] == "late"


def test_final_results_with_a_memory_have_the_watermarks_of_the_rows() -> None:
    plan = compile_query(QUERY + "WITH CONSISTENCY (REMEMBER 2 seconds) EMIT FINAL")
    assert type(plan.root) is Windowed
    assert plan.is_by_arrival
    assert not plan.has_changes
    assert plan.leaves[0].low.slack == 2 * SECOND


def test_having_top_loses_the_order_that_it_implies() -> None:
    plan = compile_query(
        "SELECT srcIP [RANGE 10 seconds] FROM packets GROUP BY srcIP HAVING top(2, count(*)) EMIT CHANGES"
    )
    assert plan.schema.names == ["window_start", "window_end", "srcIP", "weight", "final"]


def test_emit_and_with_keep_their_other_meanings() -> None:
    assert compile_query("SELECT srcIP, count(*) [RANGE 1 s, LATE EMIT WA ts] FROM packets GROUP BY srcIP")
    names = compile_query("SELECT srcIP AS emit FROM packets").schema.names
    assert names == ["emit"]
    inner = "WITH consistency AS (SELECT srcIP, ts FROM packets) SELECT srcIP FROM consistency"
    assert compile_query(inner).schema.names == ["srcIP"]


REFUSED = [
    (QUERY + "EMIT NOW", "got 'EMIT'", "EMIT NOW"),
    (QUERY + "EMIT CHANGES EMIT FINAL", "EMIT is given twice", "EMIT FINAL"),
    (QUERY + "WITH CONSISTENCY WAIT 2 s", "got 'WAIT'", "WAIT 2"),
    (QUERY + "WITH CONSISTENCY (DELAY 2 s)", "got 'DELAY' in WITH CONSISTENCY", "DELAY"),
    (QUERY + "WITH CONSISTENCY (WAIT 2 s, WAIT 3 s)", "WAIT is given twice", "WAIT 3"),
    (QUERY + "WITH CONSISTENCY (WAIT 2 rows)", "WAIT 2 rows", "2 rows"),
    (QUERY + "WITH CONSISTENCY (WAIT 2 s; REMEMBER 3 s)", "got ';' in WITH CONSISTENCY", "; REM"),
    (QUERY + "WITH CONSISTENCY (WAIT 3 s, REMEMBER 2 s)", "WAIT is longer than REMEMBER", "3 s"),
    (QUERY + "WITH CONSISTENCY (WAIT FOREVER, EARLY 2 s)", "EARLY together with WAIT FOREVER", "EARLY 2"),
    (QUERY + "WITH CONSISTENCY (EARLY 0 s)", "EARLY 0", "0 s"),
    (QUERY + "ORDER BY n EMIT CHANGES", "EMIT CHANGES together with ORDER BY without LIMIT", "EMIT"),
    (f"SELECT n FROM ({QUERY}) LIMIT 3 EMIT CHANGES", "LIMIT over all windows", "EMIT"),
    (f"SELECT max(n) FROM ({QUERY}) EMIT CHANGES", "groups of the whole input over provisional results", "EMIT"),
    (f"SELECT max(n) FROM ({QUERY}) [RANGE ALL, SLIDE 5 s] EMIT CHANGES", "RANGE ALL over provisional results", "EMIT"),
    (f"SELECT n, count(*) FROM (SELECT n FROM ({QUERY})) GROUP BY n EMIT CHANGES", "groups of the whole input", "EMIT"),
    (f"SELECT DISTINCT n FROM ({QUERY}) EMIT CHANGES", "groups of the whole input over provisional results", "EMIT"),
    (
        f"SELECT n, row_number() OVER (ORDER BY n) FROM ({QUERY}) EMIT CHANGES",
        "OVER of results without their time",
        "EMIT",
    ),
    (f"SELECT n AS final FROM ({QUERY}) EMIT CHANGES", "a column 'final'", "EMIT"),
    (f"SELECT n FROM (SELECT n AS weight, n FROM ({QUERY})) EMIT CHANGES", "a column 'weight'", "EMIT"),
    (f"{ANTI} WITH CONSISTENCY (EARLY 1 s) EMIT CHANGES", "EARLY of rows without windows", "WITH"),
    (f"{SAMPLE} EMIT CHANGES", "SUPERGROUP or CLEANING", "EMIT"),
    ("SELECT srcIP FROM packets EMIT CHANGES", "rows without groups", "EMIT"),
    (f"SELECT * FROM ({QUERY} EMIT CHANGES)", "EMIT CHANGES in a sub-query", "EMIT"),
    ("SELECT count(*) FROM packets EMIT CHANGES", "EMIT CHANGES together with a query without windows of time", "EMIT"),
    ("SELECT count(*) [RANGE 5 rows] FROM packets EMIT CHANGES", "a query without windows of time", "EMIT"),
    (QUERY + "WITH WEAK CONSISTENCY EMIT ON WINDOW", "got the end of the query", ""),
    (QUERY + "EMIT ON CLOSE", "got 'EMIT'", "EMIT ON"),
    ("SELECT count(*) [RANGE 5 s, SPREAD] FROM flows EMIT CHANGES", "EMIT CHANGES together with SPREAD", "EMIT"),
    ("SELECT count(*) AS weight [RANGE 5 s] FROM packets EMIT CHANGES", "a column 'weight'", "EMIT"),
    (
        "SELECT approx_count_distinct(srcIP) [RANGE 5 s] FROM packets WITH WEAK CONSISTENCY EMIT CHANGES",
        "EMIT CHANGES together with approximate aggregates",
        "WITH WEAK",
    ),
]


@pytest.mark.parametrize(("sql", "message", "start"), REFUSED, ids=[message for _, message, _ in REFUSED])
def test_a_query_that_cannot_be_corrected_is_refused(sql: str, message: str, start: str) -> None:
    with pytest.raises(QueryError) as refused:
        compile_query(sql)
    assert message in refused.value.message
    assert sql[refused.value.position :].startswith(start)
    assert refused.value.expected


def explained(sql: str) -> dict[str, list[str]]:
    """Return the lines about WAIT and REMEMBER of each node."""
    lines: dict[str, list[str]] = {}
    for text in explain(compile_query(sql)).splitlines():
        if text and not text.startswith(" "):
            name = text.partition(":")[0]
        heading, content = parts_of_line(text) if text.startswith("  ") else ("", "")
        if heading in ("wait (B)", "remember (M)"):
            lines.setdefault(name, []).append(f"{heading}: {content}")
    return lines


def test_an_explanation_has_wait_and_remember_at_each_node() -> None:
    memory = "remember (M): rows up to 1 minute older than the newest row of their link"
    stated = "WITH CONSISTENCY (WAIT 2 s, REMEMBER 1 minute) EMIT CHANGES"
    assert explained(f"SELECT max(n) [RANGE 1 minute] FROM ({QUERY}) {stated}") == {
        "leaf": [memory],
        "changingwindows": [
            memory,
            "wait (B): a window is returned when the newest row is 2 seconds later than its end",
        ],
        "changingresults": [
            "wait (B): a window is returned when the input has reached its end",
            "remember (M): rows and results, until the watermark of window_end is later",
        ],
    }
    assert explained(f"{ANTI} {stated}") == {
        "leaf 1": [memory],
        "leaf 2": [memory],
        "changingjoin": [
            "wait (B): a result is returned when the newest row is 2 seconds later than its p.ts",
            "remember (M): rows of both sides, until no later change can affect a result of them",
        ],
    }
