"""Queries over Arrow tables and data frames.

The rows of a capture as a table must give the answers of the capture. The tests can find a wrong conversion of types, a
watermark that closes a window too early, and a name in FROM that reads other rows.
"""

import asyncio
import datetime as dt
from pathlib import Path
from random import Random

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import wiretide
from capture.errors import InputError
from highlevel.inline import tables
from queries.catalogue.catalogue import CATALOGUE
from queries.text.errors import QueryError
from tests.references.catalogue_answers import CASES
from tests.references.small_captures import icmp, udp, write

QUERIES = [
    "SELECT srcIP, count(*) AS n, sum(len) AS bytes FROM packets GROUP BY srcIP",
    "SELECT destIP, count(DISTINCT srcIP) AS n FROM packets [RANGE 10 seconds] GROUP BY destIP",
    "SELECT max(len) AS n, min(ts) AS first FROM packets [RANGE 20 seconds, SLIDE 5 seconds]",
    "SELECT ts, srcIP, destPort FROM packets WHERE destPort = 53",
    "SELECT count(*) AS n FROM packets [RANGE 10 seconds] WHERE srcIP = '10.0.0.1' OR destPort IS NULL",
    "SELECT mask(srcIP, 24) AS net, count(*) AS n FROM packets GROUP BY mask(srcIP, 24)",
    "SELECT srcIP, count(*) AS n FROM packets [RANGE 1 minute] GROUP BY srcIP ORDER BY n DESC LIMIT 1",
    "SELECT DISTINCT destPort FROM packets",
    "SELECT ts, len FROM packets WHERE len >= (SELECT max(len) FROM packets) AND srcIP IN (SELECT srcIP FROM packets)",
    "SELECT a.ts, b.len FROM packets a JOIN packets b [RANGE TUMBLING 2 s, WA ts] ON a.srcIP = b.srcIP AND b.ts > a.ts",
    "WITH n AS (SELECT count(*) AS n FROM packets [RANGE 10 seconds]) SELECT max(n) AS most FROM n [RANGE 30 seconds]",
]
COLUMNS = ["ts", "srcIP", "destIP", "destPort", "len", "link"]


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    random = Random(14)
    packets = []
    for _ in range(500):
        source, port = f"10.0.{random.randrange(2)}.{random.randrange(1, 6)}", random.choice([53, 80])
        six = icmp("2001:db8::1", "2001:db8::2")
        packets.append((random.randrange(100), random.choice([udp(source, "10.0.0.9", 1, port), six])))
    return write(tmp_path / "M.pcap", packets)


def rows(table: pa.Table) -> list[tuple]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


@pytest.mark.parametrize("sql", QUERIES)
@pytest.mark.parametrize("batch_rows", [7, tables.BATCH_ROWS])
def test_a_table_gives_the_answer_of_the_capture(
    capture: Path, sql: str, batch_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "BATCH_ROWS", batch_rows)
    table = pa.Table.from_batches(wiretide.packets(capture, COLUMNS))
    expected = wiretide.query(sql, capture)
    answer = wiretide.query(sql, table)
    assert answer.schema == expected.schema
    assert rows(answer) == rows(expected) != []
    assert rows(wiretide.query(sql, streams={"Packets": table.sort_by("ts")})) == rows(expected)


OF_PACKETS = [name for name in CASES if CATALOGUE[name].input == "packets"]
ONLY_OF_CAPTURES = ["payload", "seen_within", "inner."]
"""Words in queries that tables cannot answer."""


@pytest.mark.usefixtures("indicators")
@pytest.mark.parametrize("name", [name for name in OF_PACKETS if CASES[name].capture != "attacks"])
def test_a_ready_query_over_a_table_answers_as_over_the_capture(name: str, captures: Path) -> None:
    case = CASES[name]
    path = captures / "pcap" / case.capture
    table = pa.Table.from_batches(wiretide.packets(path))
    if any(word in CATALOGUE[name].text for word in ONLY_OF_CAPTURES):
        with pytest.raises(QueryError):
            wiretide.query(f"@{name}", table, params=case.params)
        return
    answer, expected = (rows(wiretide.query(f"@{name}", source, params=case.params)) for source in (table, path))
    assert len(expected) >= case.least
    assert [tuple(map(rounded, row)) for row in answer] == [tuple(map(rounded, row)) for row in expected]


def rounded(value: object) -> object:
    return round(value, 6) if isinstance(value, float) else value


def test_frames_and_relations_are_tables(capture: Path) -> None:
    table = pa.Table.from_batches(wiretide.packets(capture, COLUMNS))
    expected = rows(wiretide.query(QUERIES[1], capture))
    assert rows(wiretide.query(QUERIES[1], table.to_pandas())) == expected
    assert rows(wiretide.query(QUERIES[1], pl.from_arrow(table))) == expected
    assert rows(wiretide.query(QUERIES[1], table.to_batches()[0])) == expected
    with duckdb.connect() as connection:
        assert rows(wiretide.query(QUERIES[1], connection.from_arrow(table))) == expected


def test_a_result_can_be_queried_again(capture: Path) -> None:
    per_window = wiretide.query("SELECT srcIP, count(*) AS n FROM p [RANGE 10 seconds] GROUP BY srcIP", capture)
    table = wiretide.query(
        "SELECT srcIP, sum(n) AS n FROM r [RANGE 1 minute, WA window_start] GROUP BY srcIP", per_window
    )
    expected = wiretide.query("SELECT srcIP, count(*) AS n FROM p [RANGE 1 minute] GROUP BY srcIP", capture)
    assert rows(table) == rows(expected)


def test_every_type_is_read_with_its_nulls() -> None:
    day = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
    table = pa.table(
        {
            "Host": pa.array(["a", None, "b"]).dictionary_encode(),
            "seen": pa.array([day, None, day], pa.timestamp("ms", "UTC")),
            "day": pa.array([day.date()] * 3),
            "small": pa.array([1, None, 3], pa.uint8()),
            "ratio": pa.array([0.5, None, 1.5], pa.float32()),
            "ok": [True, None, False],
            "srcMAC": ["00:11:22:33:44:55", None, "00:11:22:33:44:56"],
            "left out": [b"bytes", None, b""],
        }
    )
    answer = wiretide.query("SELECT * FROM t", table)
    assert answer.column_names == table.column_names[:-1]
    assert [tuple(row.values()) for row in answer.to_pylist()] == [
        ("a", pd.Timestamp(day), pd.Timestamp(day), 1, 0.5, True, "00:11:22:33:44:55"),
        (None, None, pd.Timestamp(day), None, None, None, None),
        ("b", pd.Timestamp(day), pd.Timestamp(day), 3, 1.5, False, "00:11:22:33:44:56"),
    ]
    sums = wiretide.query("SELECT sum(small) AS s, avg(ratio) AS r, count(srcMAC) AS m FROM t WHERE host <> 'c'", table)
    assert sums.to_pylist() == [{"s": 4, "r": 1.0, "m": 2}]
    days = wiretide.query("SELECT count(*) AS n FROM t [RANGE 1 day, WA day]", table)
    assert days["n"].to_pylist() == [3]
    with pytest.raises(QueryError, match="seen"):  # a time with NULL has no windows
        wiretide.query("SELECT count(*) AS n FROM t [RANGE 1 day, WA seen]", table)


def test_several_tables_have_names() -> None:
    when = pa.array([0, 10**9, 2 * 10**9], pa.timestamp("ns"))
    people = pa.table({"ts": when, "id": [1, 2, 3], "name": ["x", "y", "z"]})
    scores = pa.table({"ts": when, "id": [3, 1, 1], "score": [5, 6, 7]})
    sql = "SELECT p.name, s.score FROM people p JOIN scores s [RANGE TUMBLING 10 seconds, WA ts] ON p.id = s.id"
    with wiretide.open(streams={"people": people, "scores": scores}) as inputs:
        assert rows(inputs.query(sql).arrow()) == [("x", 6), ("x", 7), ("z", 5)]
        with pytest.raises(InputError, match="no table for others; bound are: people, scores"):
            inputs.query("SELECT ts FROM others")
    with pytest.raises(InputError, match="no table for t; bound are: table"):
        wiretide.query("SELECT ts FROM t.flows", people)


def test_windows_of_a_sorted_table_are_final_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "BATCH_ROWS", 10)
    table = pa.table({"ts": pa.array(range(100), pa.int64()).cast(pa.timestamp("s"))})
    sql = "SELECT count(*) AS n FROM t [RANGE 10 seconds]"
    result = wiretide.open(table).query(sql)
    assert "leaf: the rows of table, in batches" in result.explain()
    assert [window["n"].to_pylist() for window in result] == [[10]] * 10
    assert next(result.windows())["n"].to_pylist() == [10]

    async def windows() -> int:
        return sum([window["n"][0].as_py() async for window in result])

    assert asyncio.run(windows()) == 100
    assert wiretide.query("SELECT ts FROM t LIMIT 3", table).num_rows == 3
    assert wiretide.query(sql, table.slice(0, 0)).num_rows == 0


def test_wrong_tables_are_refused(capture: Path) -> None:
    good = pa.table({"a": [1]})
    for columns, message in (
        ({"ts": [1]}, "column ts: got int64, expected a time"),
        ({"link": [1]}, "column link: got int64, expected a text"),
        ({"a": [1], "A": [2]}, "column A: got two columns with this name"),
        ({".a": [1]}, "column .a: got a name that begins with a dot"),
        ({"a": [b"bytes"]}, "got a table with the columns .'a'., expected numbers"),
        ({"srcIP": ["no address"]}, "column srcIP: got a value that is no address"),
        ({"a": pa.array([2**64 - 1], pa.uint64())}, "column a: got a value that is no integer"),
    ):
        with pytest.raises(ValueError, match=message):
            wiretide.query("SELECT a FROM t", pa.table(columns))
    for arguments, options in (
        ([good, capture], {}),
        ([good, good], {}),
        ([good], {"streams": {"a": good}}),
        ([], {"streams": {"a": good, "b": [str(capture)]}}),
    ):
        with pytest.raises(ValueError, match="got a table together with other inputs"):
            wiretide.query("SELECT a FROM t", *arguments, **options)
    with pytest.raises(ValueError, match="got options of captures together with a table"):
        wiretide.query("SELECT a FROM t", good, threads=2)
    with pytest.raises(ValueError, match=r"two tables with the name T \(case is ignored\)"):
        wiretide.query("SELECT a FROM t", streams={"t": good, "T": good})
    with pytest.raises(ValueError, match="got ChunkedArray, expected a table with named columns"):
        wiretide.query("SELECT a FROM t", good["a"])
    for sql in ("SELECT b FROM nope", "SELECT a FROM t WHERE a IN (SELECT b FROM nope)"):
        with pytest.raises(InputError, match="no table for nope; bound are: t"):
            wiretide.query(sql, streams={"t": good})


def test_a_large_unsorted_table_keeps_all_rows() -> None:
    random = Random(3)
    seconds = [random.randrange(10_000) for _ in range(3 * tables.BATCH_ROWS)]
    table = pa.table({"when": pa.array(seconds, pa.int64()).cast(pa.timestamp("s")), "x": seconds})
    answer = wiretide.query("SELECT count(*) AS n, sum(x) AS x FROM t [RANGE 1000 seconds]", table)
    assert (answer.num_rows, pc.sum(answer["n"]).as_py(), pc.sum(answer["x"]).as_py()) == (
        10,
        len(seconds),
        sum(seconds),
    )
