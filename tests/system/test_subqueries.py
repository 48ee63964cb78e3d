"""Sub-queries outside FROM over files, against plain Python over the rows.

The tests detect a value that is computed over other rows or in another layer, a list that loses or gains members, NULL
as a member, and a live input that a sub-query would consume.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import wiretide
from dashboards import subqueries
from highlevel.inline.engine import InlineRun
from highlevel.results.user_types import readable
from queries.plans import subquery_values
from tests.harness.links import write_links

Row = dict[str, Any]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return [each.path for each in write_links(tmp_path_factory.mktemp("captures"), 3)]


@pytest.fixture(scope="module")
def rows(paths: list[Path]) -> list[Row]:
    found: list[Row] = wiretide.query("SELECT ts, srcIP, destIP, srcPort, srcMAC, len FROM packets", *paths).to_pylist()
    return found


def values(sql: str, paths: list[Path], **options: Any) -> list[tuple]:
    return [tuple(row.values()) for row in wiretide.query(sql, *paths, **options).to_pylist()]


def test_one_value(paths: list[Path], rows: list[Row]) -> None:
    mean = sum(row["len"] for row in rows) / len(rows)
    expected = sum(row["len"] > mean for row in rows)
    assert 0 < expected < len(rows)
    assert values("SELECT count(*) FROM packets WHERE len > (SELECT avg(len) FROM packets)", paths) == [(expected,)]


@pytest.mark.parametrize("column", ["ts", "srcIP", "srcMAC"])
def test_values_of_other_types(column: str, paths: list[Path], rows: list[Row]) -> None:
    last = max(rows, key=lambda row: (row["ts"], row["len"]))
    inner = f"SELECT {column} FROM packets WHERE ts = (SELECT max(ts) FROM packets) ORDER BY len DESC LIMIT 1"
    found = values(f"SELECT count(*) FROM packets WHERE {column} = ({inner})", paths)
    assert found == [(sum(row[column] == last[column] for row in rows),)]


@pytest.mark.parametrize("threads", [1, 3])
def test_a_list_of_groups(threads: int, paths: list[Path], rows: list[Row]) -> None:
    counts = Counter(row["srcIP"] for row in rows)
    middle = sorted(counts.values())[len(counts) // 2]
    often = {address for address, count in counts.items() if count > middle}
    inner = f"(SELECT srcIP FROM packets GROUP BY srcIP HAVING count(*) > {middle})"
    sql = "SELECT destIP, count(*) FROM packets WHERE srcIP {} {} GROUP BY destIP"
    for word, kept in (("IN", lambda row: row["srcIP"] in often), ("NOT IN", lambda row: row["srcIP"] not in often)):
        expected = Counter(row["destIP"] for row in rows if kept(row))
        assert dict(values(sql.format(word, inner), paths, threads=threads)) == expected
        assert expected


def test_null_is_no_member_and_an_empty_list_has_none(paths: list[Path], rows: list[Row]) -> None:
    ports = {row["srcPort"] for row in rows}
    assert None in ports
    known = sum(row["srcPort"] is not None for row in rows)
    sql = "SELECT count(*) FROM packets WHERE srcPort IN (SELECT srcPort FROM packets WHERE len > {})"
    assert values(sql.format(0), paths) == [(known,)]
    assert values(sql.format(100_000), paths) == []
    assert values(sql.format(100_000).replace(" IN ", " NOT IN "), paths) == [(len(rows),)]


def test_in_the_select_list_in_having_and_in_other_sub_queries(paths: list[Path], rows: list[Row]) -> None:
    total, counts = sum(row["len"] for row in rows), Counter(row["srcIP"] for row in rows)
    found = values(
        "WITH n AS (SELECT srcIP, count(*) AS packets FROM packets GROUP BY srcIP) "
        "SELECT srcIP, sum(len) * 1000 / (SELECT sum(len) FROM packets) AS share FROM packets GROUP BY srcIP "
        "HAVING count(*) = (SELECT max(packets) FROM n WHERE packets < (SELECT max(packets) FROM n))",
        paths,
    )
    second = sorted(set(counts.values()))[-2]
    expected = {
        (address, sum(row["len"] for row in rows if row["srcIP"] == address) * 1000 // total)
        for address, count in counts.items()
        if count == second
    }
    assert set(found) == expected
    assert expected


@pytest.mark.parametrize("condition, exists", [("len > 0", True), ("len > 100000", False)])
def test_exists(condition: str, exists: bool, paths: list[Path], rows: list[Row]) -> None:
    sql = f"SELECT count(*) FROM packets WHERE EXISTS (SELECT ts, len FROM packets WHERE {condition})"
    assert values(sql, paths) == ([(len(rows),)] if exists else [])
    assert values(sql.replace("EXISTS", "NOT EXISTS"), paths) == ([] if exists else [(len(rows),)])


def test_the_streams_of_the_sub_query_are_bound_too(paths: list[Path]) -> None:
    streams = {"A": [str(paths[0])], "B": [str(paths[1])]}
    sql = "SELECT count(*) FROM A WHERE srcIP IN (SELECT srcIP FROM B)"
    first, second = (wiretide.query("SELECT srcIP FROM p", path).to_pylist() for path in paths[:2])
    there = {row["srcIP"] for row in second}
    assert wiretide.query(sql, streams=streams).to_pylist() == [{"count": sum(row["srcIP"] in there for row in first)}]


@pytest.mark.parametrize(
    "condition, problem",
    [
        ("len > (SELECT len FROM packets)", "a sub-query with several rows; expected one value"),
        ("len > (SELECT len * 0 FROM packets)", "a sub-query with several rows; expected one value"),
        ("len > (SELECT avg(len) FROM packets q WHERE q.srcIP = p.srcIP)", "a correlated sub-query without a window"),
        ("EXISTS (SELECT ts FROM packets q WHERE q.len > (SELECT max(q.len) FROM packets r))", "'q.len', a column of"),
        ("len > (SELECT max(len), min(len) FROM packets)", "with the columns max_len, min_len; expected one column"),
        ("len > (SELECT max(len) FROM packets WHERE len > 100000)", "a sub-query without rows; expected one value"),
        ("len > (SELECT max(vlan) FROM packets)", "a sub-query with the value NULL; expected a value"),
        ("len IN (SELECT srcIP FROM packets)", "IN over integer got a value of type text"),
        ("len > (SELECT max(lenn) FROM packets)", "unknown column 'lenn'"),
        ("len > (SELECT max(len) FROM packets p, packets q)", "a join without a window"),
    ],
)
def test_a_wrong_sub_query(condition: str, problem: str, paths: list[Path]) -> None:
    with pytest.raises(wiretide.QueryError) as caught:
        wiretide.query(f"SELECT count(*) FROM packets p WHERE {condition}", *paths)
    assert problem in str(caught.value)
    assert str(caught.value).startswith("line 1, column ")


def test_an_input_that_can_be_read_only_once_is_refused_before_it_is_read() -> None:
    sql = "SELECT count(*) FROM packets WHERE len > (SELECT avg(len) FROM packets)"
    result = CliRunner().invoke(wiretide.app, ["query", "-", sql], input=b"")
    assert isinstance(result.exception, wiretide.QueryError)
    assert "a sub-query outside FROM over -, which can be read only once" in str(result.exception)


def test_a_sub_query_stops_when_its_rows_decide(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that is too long, and a value with many rows, must not be read into memory to the end."""
    monkeypatch.setattr(subquery_values, "MAX_VALUES", 10)
    read: list[int] = []

    def counted(batch: pa.RecordBatch, times: Collection[str]) -> pa.RecordBatch:
        read.append(batch.num_rows)
        return readable(batch, times)

    monkeypatch.setattr(subqueries, "readable", counted)
    with pytest.raises(wiretide.QueryError, match="more than 10 values after IN"):
        wiretide.query("SELECT count(*) FROM packets WHERE ts IN (SELECT ts FROM packets)", *paths)
    with pytest.raises(wiretide.QueryError, match="several rows"):
        wiretide.query("SELECT count(*) FROM packets WHERE ts = (SELECT ts FROM packets)", *paths)
    assert len(read) == 2
    sql = "SELECT count(*) FROM packets WHERE protocol IN (SELECT protocol FROM packets)"
    assert wiretide.query(sql, *paths).num_rows == 1


def test_a_sub_query_reads_in_the_threads_of_the_query(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int | None] = []

    class Run(InlineRun):
        def __init__(self, *args: Any, threads: int | None = None, **options: Any) -> None:
            used.append(threads)
            super().__init__(*args, threads=threads, **options)

    monkeypatch.setattr(subqueries, "InlineRun", Run)
    sql = "SELECT count(*) FROM packets WHERE len >= (SELECT min(len) FROM packets)"
    wiretide.query(sql, *paths, threads=1)
    result = CliRunner().invoke(wiretide.app, ["query", "--threads", "2", *map(str, paths), sql])
    assert result.exit_code == 0, result.output
    assert used == [1, 2]


def test_an_interrupted_sub_query_closes_its_files(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []

    class Run(InlineRun):
        def close(self) -> None:
            closed.append(len(self.shards))
            super().close()

    def interrupted(batch: pa.RecordBatch, times: Collection[str]) -> pa.RecordBatch:
        raise KeyboardInterrupt

    monkeypatch.setattr(subqueries, "InlineRun", Run)
    monkeypatch.setattr(subqueries, "readable", interrupted)
    with pytest.raises(KeyboardInterrupt):
        wiretide.query("SELECT count(*) FROM packets WHERE len > (SELECT max(len) FROM packets)", *paths)
    assert len(closed) == 1
