"""`seen_within` from GSQL to rows: by hand over captures on all engines that can, refused by those that cannot."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from capture.errors import InputError
from capture.files.blocks import BLOCK_RECORDS
from capture.files.scan import scan
from capture.open import open_capture
from highlevel.inline.engine import InlineRun, Input
from highlevel.plan.plan import Plan
from lowlevel.expressions.tree import SeenWithin
from lowlevel.metrics import FILTER_JOIN_BYTES, FILTER_JOIN_EVICTIONS, FILTER_JOIN_KEYS
from lowlevel.node.filter_join import MAX_KEYS, count_filter_join_bytes, list_filter_joins
from lowlevel.node.memory import max_table_bytes
from lowlevel.node.node import Node
from lowlevel.spool.fingerprint import fingerprint
from lowlevel.table.flushing import Flushing
from queries.explain.plan import explain
from queries.gsql import compile_query
from queries.text.errors import QueryError
from queries.text.printer import expression_text
from tests.harness.links import write_links
from tests.references.packet_rows import decode_file

SEEN = "seen_within('10 seconds', srcIP = destIP, protocol = 17 AND destPort = 53)"
SQL = "SELECT srcIP, count(*) AS n FROM packets WHERE {} GROUP BY srcIP"
DURATION = 10_000_000_000
NAMES = ("ts", "srcIP", "destIP", "protocol", "destPort")


def seen_by_hand(rows: list[dict[str, Any]]) -> list[bool]:
    """For each row whether one before it had its source for a target, no longer ago than DURATION."""
    newest: dict[Any, int] = {}
    found: list[bool] = []
    for row in rows:
        found.append(newest.get(row["srcIP"], -1) >= row["ts"] - DURATION)
        if row["protocol"] == 17 and row["destPort"] == 53:
            newest[row["destIP"]] = max(newest.get(row["destIP"], -1), row["ts"])
    return found


def by_source(paths: list[Path], wanted: bool) -> Counter[bytes]:
    """Rows of each source for which the predicate is TRUE, or FALSE; each capture on its own."""
    found: Counter[bytes] = Counter()
    for path in paths:
        rows = decode_file(path, names=NAMES)[0]
        for row, seen in zip(rows, seen_by_hand(rows), strict=True):
            found[row["srcIP"].packed] += seen is wanted
    return +found


def counts(plan: Plan, inputs: list[Input], **how: Any) -> Counter[bytes]:
    batches = InlineRun([plan], inputs, **how).results()
    return Counter({row["srcIP"]: row["n"] for _, batch in batches for row in batch.to_pylist()})


@pytest.mark.parametrize("threads", [1, 2])
def test_rows_are_kept_whose_key_was_seen(tmp_path: Path, threads: int) -> None:
    inputs = write_links(tmp_path, 5)
    paths = [each.path for each in inputs]
    for where, wanted in ((SEEN, True), (f"NOT {SEEN}", False)):
        plan = compile_query(SQL.format(where))
        assert not plan.leaves[0].low.is_divisible
        for records in (64, BLOCK_RECORDS):
            found = counts(plan, inputs, threads=threads, block_records=records)
            assert found == by_source(paths, wanted) != Counter(), (where, records)


def test_two_queries_remember_the_same_once_and_each_kind_its_own(tmp_path: Path) -> None:
    path = write_links(tmp_path, 5)[0].path
    lows = [
        compile_query(SQL.format(SEEN)).leaves[0].low,
        compile_query(SQL.format(f"len > 100 AND {SEEN}").replace("count(*)", "sum(len)")).leaves[0].low,
        compile_query(SQL.format(SEEN.replace("10 seconds", "11 seconds"))).leaves[0].low,
        compile_query(SQL.format(SEEN).replace("packets WHERE", "frames WHERE")).leaves[0].low,
    ]
    assert len(list_filter_joins(lows[:3])) == 2
    node = Node("a", open_capture(path), lows)
    assert [len(stream.filter_joins.seen_keys) for stream in node.streams] == [2, 1]
    width = 8 * (1 + 2 + 1)  # a time, an address and its version
    assert count_filter_join_bytes(lows) == 3 * MAX_KEYS * width
    assert (
        max_table_bytes(1024, lows, Flushing())
        - max_table_bytes(1024, [compile_query(SQL.format("len > 1")).leaves[0].low], Flushing())
        > 3 * MAX_KEYS * width
    )
    for block in scan(open_capture(path), 64).blocks:
        for _ in node.process(block):
            pass
    samples = node.samples([(str(number),) for number in range(4)])
    assert samples.total(FILTER_JOIN_BYTES) == 3 * MAX_KEYS * width
    assert samples.total(FILTER_JOIN_KEYS, kind="packets") == 2 * samples.total(FILTER_JOIN_KEYS, kind="frames") > 0
    assert samples.total(FILTER_JOIN_EVICTIONS) == 0


def test_it_prints_as_it_compiles_and_is_told_apart() -> None:
    where = compile_query(SQL.format(SEEN)).leaves[0].low.where
    assert isinstance(where, SeenWithin)
    assert expression_text(where) == SEEN
    texts = [
        SEEN,
        SEEN.replace("10 seconds", "1 second"),
        SEEN.replace("= 53", "= 80"),
        SEEN.replace("srcIP", "destIP"),
    ]
    texts.append("seen_within('10 seconds', srcIP = destIP)")
    lows = [compile_query(SQL.format(text)).leaves[0].low for text in texts]
    assert len({fingerprint(low) for low in lows}) == len(lows)
    for low, text in zip(lows[:3], texts[:3], strict=True):
        assert low.where is not None
        assert expression_text(low.where) == text
    told = explain(compile_query(SQL.format(SEEN)))
    assert (
        "  remembers       keys for seen_within: 262,144 at most, 8,388,608 bytes; one reader for each capture" in told
    )


WRONG = [
    (
        "seen_within(30, srcIP = destIP)",
        42,
        "got an argument that is not a duration; expected seen_within('30 seconds', this = that AND …",
    ),
    ("seen_within('soon', srcIP = destIP)", 42, "'soon' is not a duration"),
    ("seen_within('1 s')", 30, "seen_within with 1 argument; expected seen_within('30 seconds', "),
    (
        "seen_within('1 s', srcIP)",
        49,
        "seen_within of an expression that is not an equality; expected columns or expressions on both",
    ),
    (
        "seen_within('1 s', srcIP = destIP OR srcPort = destPort)",
        49,
        "seen_within of an expression that is not an equality",
    ),
    ("seen_within('1 s', srcIP = '10.0.0.1')", 49, "seen_within of a constant"),
    ("seen_within('1 s', srcIP = len)", 57, "= between address and integer"),
    ("seen_within('1 s', srcIP = destIP, len)", 65, "seen_within where integer; expected a condition"),
    ("seen_within('1 s', link = link)", 49, "seen_within of values of type text and text; expected address or integer"),
    ("seen_within('1 s', len = len / 2.0)", 49, "seen_within of values of type integer and float"),
    ("seen_within('1 s', srcIP = destIP, seen_within('1 s', srcIP = destIP))", 65, "seen_within within seen_within"),
]


@pytest.mark.parametrize(("where", "column", "problem"), WRONG, ids=[where for where, _, _ in WRONG])
def test_what_is_wrong_is_told_with_its_place(where: str, column: int, problem: str) -> None:
    with pytest.raises(QueryError) as raised:
        compile_query(f"SELECT count(*) FROM M WHERE {where}")
    first = str(raised.value).splitlines()[0]
    assert problem in first
    assert first.startswith(f"line 1, column {column}: "), first


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT srcIP FROM M GROUP BY srcIP HAVING seen_within('1 s', srcIP = destIP)",
        "SELECT count(*) FROM M GROUP BY seen_within('1 s', srcIP = destIP)",
    ],
)
def test_it_is_refused_outside_where(sql: str) -> None:
    with pytest.raises(QueryError, match=r"seen_within in .*; expected the function in WHERE, over rows of a link"):
        compile_query(sql)


JOINED = "SELECT A.ts FROM M A [RANGE 3 s, WA ts], M B [RANGE 3 s, WA ts] WHERE A.srcIP = B.destIP AND "
READ = "WITH t AS (SELECT ts, srcIP, destIP FROM M) SELECT {} FROM t {} WHERE seen_within('1 s', srcIP = destIP) {}"


@pytest.mark.parametrize(
    "sql",
    [
        JOINED + "seen_within('1 s', A.srcIP = B.destIP)",
        JOINED + "(A.len > B.len OR seen_within('1 s', A.srcIP = A.destIP))",
        READ.format("ts, srcIP", "", ""),
        READ.format("srcIP, count(*)", "[RANGE 1 s, SLIDE 1 s, WA ts]", "GROUP BY srcIP"),
    ],
)
def test_nothing_above_the_low_level_remembers(sql: str) -> None:
    with pytest.raises(QueryError, match="seen_within over pairs of a join, or over results of a query") as raised:
        compile_query(sql)
    assert f"column {sql.index('seen_within') + 1}:" in str(raised.value)


def test_each_side_of_a_join_remembers_for_itself(tmp_path: Path) -> None:
    plan = compile_query(f"{JOINED}seen_within('10 seconds', A.srcIP = A.destIP) AND B.destPort = 53")
    assert [leaf.low.depends_on_earlier_rows for leaf in plan.leaves] == [True, False]
    assert "\n  remembers       keys for seen_within: 262,144 at most, " in explain(plan)
    only = compile_query("SELECT ts, srcIP FROM M WHERE seen_within('10 seconds', srcIP = destIP, destPort = 53)")
    inputs = write_links(tmp_path, 5)
    found = Counter(row["srcIP"] for _, batch in InlineRun([only], inputs).results() for row in batch.to_pylist())
    wanted: Counter[bytes] = Counter()
    for each in inputs:
        rows = decode_file(each.path, names=NAMES)[0]
        wanted.update(row["srcIP"].packed for row, seen in zip(rows, seen_by_hand(rows), strict=True) if seen)
    assert found == wanted != Counter()


@pytest.mark.spark
def test_spark_batch_reads_a_capture_in_one_task_and_the_stream_engine_refuses(spark, tmp_path: Path) -> None:
    from highlevel.spark.batch import run_batch
    from highlevel.spark.stream import StreamRun

    inputs = write_links(tmp_path, 5)
    plan = compile_query(SQL.format(SEEN))
    answer = run_batch(spark, plan, inputs)
    found = Counter({row["srcIP"]: row["n"] for row in answer.to_pylist()})
    assert found == by_source([each.path for each in inputs], True)
    with pytest.raises(
        InputError, match="seen_within depends on earlier rows, but tasks read parts of a file: expected a link with"
    ):
        StreamRun(spark, [plan], inputs, tmp_path / "state")
