"""Correlated sub-queries from the text to the rows: other sub-queries within them, inputs that are read once, names.

The tests detect a sub-query that is computed first although it refers to the outer query, an input that is read
twice, names of columns that a join changes, and a pipeline that refuses them. Conformance tests compare values.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import wiretide
from queries.pipeline.file import parse_pipeline
from tests.conformance.traffic import generate_links
from tests.harness.command_line import run
from tests.harness.links import write_links

Row = dict[str, Any]
SECOND = 10**9
INNER = "FROM packets q [RANGE 10 s] WHERE q.srcIP = p.destIP"


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return [each.path for each in write_links(tmp_path_factory.mktemp("captures"), 3)]


@pytest.fixture(scope="module")
def rows(paths: list[Path]) -> list[Row]:
    found: list[Row] = wiretide.query("SELECT ts, srcIP, destIP, srcPort, len FROM packets", *paths).to_pylist()
    return found


def windows_of(rows: list[Row]) -> dict[int, list[Row]]:
    found = defaultdict(list)
    for row in rows:
        found[row["ts"].value // (10 * SECOND)].append(row)
    return found


def count(condition: str, paths: list[Path]) -> int:
    """Return the number of packets in windows of 10 s that a condition keeps."""
    sql = f"SELECT count(*) AS n FROM packets p [RANGE 10 s] WHERE {condition}"
    return sum(row["n"] for row in wiretide.query(sql, *paths).to_pylist())


def test_sub_queries_within_a_correlated_one_are_computed_first(paths: list[Path], rows: list[Row]) -> None:
    mean = sum(row["len"] for row in rows) / len(rows)
    expected = 0
    for window in windows_of(rows).values():
        large = {row["srcIP"] for row in window if row["len"] > mean}
        expected += sum(row["destIP"] in large for row in window)
    assert 0 < expected < len(rows)
    assert count(f"EXISTS (SELECT 1 {INNER} AND q.len > (SELECT avg(len) FROM packets))", paths) == expected
    assert count(f"NOT EXISTS (SELECT 1 {INNER} AND q.len > (SELECT avg(len) FROM packets))", paths) == (
        len(rows) - expected
    )


@pytest.mark.slow("two processes")
def test_a_capture_through_a_pipe_has_the_answer_of_the_file(tmp_path: Path) -> None:
    (path, *_), _ = generate_links(tmp_path)
    sql = f"SELECT destIP, count(*) AS n FROM packets p [RANGE 10 s] WHERE len > (SELECT avg(q.len) {INNER}) "
    sql += f"AND srcPort NOT IN (SELECT q.destPort {INNER}) GROUP BY destIP ORDER BY destIP"
    expected = run("query", str(path), sql, "--format", "csv", cwd=tmp_path)
    assert run("query", "-", sql, "--format", "csv", cwd=tmp_path, input=path.read_bytes()) == expected
    assert expected[0] == 0
    assert len(expected[1].splitlines()) > 5


def test_columns_have_the_names_of_a_query_without_a_join(paths: list[Path]) -> None:
    def names(sql: str) -> list[str]:
        return wiretide.query(sql, *paths).schema.names

    value = f"(SELECT max(q.len) {INNER})"
    plain = names("SELECT * FROM packets")
    assert names(f"SELECT * FROM packets p [RANGE 10 s] WHERE len > {value}") == plain
    assert names(f"SELECT * FROM packets p [RANGE 10 s] WHERE EXISTS (SELECT * {INNER})") == plain
    selected = f"SELECT srcIP, {value}, {value} + len, {value} AS most FROM packets p [RANGE 10 s]"
    assert names(selected) == ["srcIP", "column_2", "column_3", "most"]
    grouped = "SELECT srcIP, count(*), sum(len) FROM packets p [RANGE 10 s] {} GROUP BY srcIP"
    assert names(grouped.format(f"WHERE len > {value}")) == names(grouped.format(""))


def test_windows_with_another_origin_that_are_equal(paths: list[Path]) -> None:
    sql = "SELECT count(*) AS n FROM packets p [RANGE 10 s, ORIGIN {}] WHERE EXISTS "
    sql += "(SELECT 1 FROM packets q [RANGE 10 s, ORIGIN {}] WHERE q.srcIP = p.destIP)"
    first, second = (wiretide.query(sql.format(SECOND, other), *paths) for other in (SECOND, 31 * SECOND))
    assert first.num_rows > 0
    assert first == second
    with pytest.raises(wiretide.QueryError, match="another window"):
        wiretide.query(sql.format(SECOND, 2 * SECOND), *paths)


def test_a_table_is_the_input() -> None:
    times = pa.array([1, 2, 61, 62], pa.timestamp("s"))
    table = pa.table({"ts": times, "k": [1, 2, 1, 2], "v": [5, 6, 7, None]})
    sql = "SELECT k, (SELECT max(b.v) FROM t b WHERE b.time/60 = a.time/60) AS most FROM t a "
    sql += "WHERE v NOT IN (SELECT b.v FROM t b WHERE b.time/60 = a.time/60 AND b.k = a.k + 1)"
    found = wiretide.query(sql, streams={"t": table}).to_pylist()
    assert sorted(tuple(row.values()) for row in found) == [(1, 6), (2, 6), (2, 7)]


def test_a_pipeline_has_correlated_sub_queries_over_its_queries(tmp_path: Path) -> None:
    text = """
        [links.uplink]
        capture = "interface:eth0"
        spool = "spool"
        [queries.talkers]
        sql = "SELECT srcIP, sum(len) AS bytes FROM uplink [RANGE 1 minute] GROUP BY srcIP"
        [queries.largest]
        sql = '''SELECT a.window_end, a.srcIP FROM talkers a
                 WHERE a.bytes = (SELECT max(b.bytes) FROM talkers b WHERE b.window_end = a.window_end)'''
    """
    plan = next(plan for plan in parse_pipeline(text, tmp_path).plans() if plan.name == "largest")
    assert plan.root.time_columns == ("window_end",)
