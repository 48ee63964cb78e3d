"""Queries of every shape over nothing: on all engines they end without rows and without an error.

A query has no rows if its capture is empty or has no packets, if WHERE keeps no row, or if the capture lacks the kind
of rows. The tests can catch an operator, a task or a partition that requires a first row.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from highlevel.inline.engine import InlineRun, Input
from highlevel.plan.plan import Plan
from queries.gsql import compile_query
from tests.harness.stream_steps import same_rows
from tests.references import small_captures
from tests.references.pcap_bytes import NS, pcap_bytes

WINDOWS = {
    "whole input": "",
    "sliding": "[RANGE 10 s, SLIDE 5 s]",
    "many panes": "[RANGE 1 hour, SLIDE 1 s]",
    "late": "[RANGE 10 s, LATE EMIT]",
    "landmark": "[RANGE ALL, SLIDE 5 s, CAP 3]",
    "session": "[SESSION 5 s]",
    "rows": "[RANGE 3 rows, SLIDE 2 rows]",
    "long rows": "[RANGE 10000 rows, SLIDE 2000 rows]",
    "partitions": "[RANGE 3 rows, PA srcIP, IDLE 1 minute]",
    "by rows": "[RANGE 5 s, SLIDE 1 row]",
    "by rank": "[RANGE 5 s, SLIDE 3 rows, SATTR rank(ts)]",
}
AGGREGATES = {
    "bounded": "count(*), sum(len), avg(len), min(ts), stddev(len), first(len), bit_or(len)",
    "all values": "count(DISTINCT destIP), median(len), mode(srcIP), entropy(len), top(destIP, 2)",
    "sketches": "approx_count_distinct(destIP), approx_quantile(len, 0.5), approx_top(destIP, 2)",
}
REFUSED = {("late", "all values"), ("late", "sketches"), ("session", "all values")} | {
    (window, "sketches") for window in WINDOWS if window not in ("whole input", "sliding", "many panes")
}
MINUTES = "(SELECT srcIP, count(*) AS n FROM A [RANGE 1 s] {where} GROUP BY srcIP) v"
PAIR = "A a [RANGE 3 s], B b [RANGE 2 s] {where} AND a.srcIP = b.srcIP"
GRAPHS = {
    "rows": "SELECT ts, srcIP, len FROM A {where}",
    "everything": "SELECT * FROM A {where}",
    "distinct": "SELECT DISTINCT ts/60 AS minute, srcIP FROM A {where}",
    "union": "SELECT ts, srcIP FROM A UNION B {where}",
    "union of queries": "SELECT srcIP, count(*) FROM ((SELECT ts, srcIP FROM A {where}) UNION (SELECT ts, srcIP FROM B "
    "{where})) [RANGE 1 s] GROUP BY srcIP",
    "union of rows": "SELECT ts, srcIP FROM A {where} UNION SELECT ts, destIP FROM B {where}",
    "intersection": "SELECT srcIP FROM A {where} INTERSECT SELECT destIP FROM B {where}",
    "difference of windows": "SELECT srcIP FROM A [RANGE 1 s] {where} GROUP BY srcIP EXCEPT SELECT destIP FROM B "
    "[RANGE 1 s] {where} GROUP BY destIP ORDER BY srcIP LIMIT 3",
    "merge": "SELECT ts, srcIP FROM (MERGE A.ts : B.ts) {where}",
    "of a query": f"SELECT max(n) AS m FROM {MINUTES}",
    "of a query by window": f"SELECT max(n), median(n) FROM {MINUTES} [RANGE 1 minute, WA ts]",
    "landmark of a query": f"SELECT max(n) FROM {MINUTES} [RANGE ALL, SLIDE 1 minute, WA ts]",
    "sessions of a query": f"SELECT srcIP, max(n) FROM {MINUTES} [SESSION 1 minute, WA ts] GROUP BY srcIP",
    "selections of a query": f"SELECT n, count(*) FROM {MINUTES} [RANGE 1 minute] GROUP BY n HAVING heavy(0.1)",
    "three levels": f"SELECT m, count(*) FROM (SELECT n, count(*) AS m FROM {MINUTES} [RANGE 2 s] GROUP BY n) w "
    "[RANGE 4 s] GROUP BY m",
    "pairs": f"SELECT a.ts, b.ts FROM {PAIR}",
    "left": "SELECT a.ts, b.ts FROM A a [RANGE 3 s] LEFT JOIN B b [RANGE 2 s] ON a.srcIP = b.srcIP {where}",
    "full": "SELECT a.ts, b.ts FROM A a [RANGE 3 s] FULL JOIN B b [RANGE 2 s] ON a.srcIP = b.srcIP {where}",
    "semi": "SELECT a.ts FROM A a [RANGE 3 s] SEMI JOIN B b [RANGE 2 s] ON a.srcIP = b.srcIP {where}",
    "anti": "SELECT a.ts FROM A a [RANGE 3 s] ANTI JOIN B b [RANGE 2 s] ON a.srcIP = b.srcIP {where}",
    "tumbling join": "SELECT count(*) FROM A a, B b [RANGE TUMBLING 5 s] {where} AND a.srcIP = b.destIP",
    "three items": "SELECT a.ts FROM A a [RANGE 1 s], B b [RANGE 1 s], A c [RANGE 1 s] {where} AND a.srcIP = b.srcIP "
    "AND b.srcIP = c.srcIP",
    "groups of pairs": "SELECT b.len, count(*), sum(a.len) [RANGE 20 s, SLIDE 10 s, WA a.ts] "
    f"FROM {PAIR} GROUP BY b.len",
    "groups by both times": f"SELECT a.ts, b.ts, count(*), median(a.len) FROM {PAIR} GROUP BY a.ts, b.ts",
    "pairs of queries": "WITH v AS (SELECT srcIP, count(*) AS n FROM A [RANGE 1 s] {where} GROUP BY srcIP) "
    "SELECT v.n, p.len FROM v "
    "[RANGE 1 s, WA ts], B p [RANGE 1 s, WA ts] WHERE v.n = p.ttl",
    "filter join": "SELECT ts FROM A {where} AND seen_within('30 seconds', srcIP = destIP)",
}
OTHERS = {
    "flows": "SELECT exporter, sum(bytes) FROM flows [RANGE 1 minute, SPREAD] GROUP BY exporter",
    "samples": "SELECT count(*) FROM samples [RANGE 1 minute]",
    "flow rows": "SELECT * FROM flows",
    "selected groups": "SELECT srcIP, count(*) FROM A [RANGE 1 s] {where} GROUP BY srcIP HAVING top(3, sum(len))",
    "having": "SELECT srcIP, count(*) FROM A [RANGE 1 s] GROUP BY srcIP HAVING count(*) > 1000000000",
}
GROUPED = {
    f"{window}, {kind}": f"SELECT srcIP, {aggregates} FROM A {clause} {{where}} GROUP BY srcIP"
    for window, clause in WINDOWS.items()
    for kind, aggregates in AGGREGATES.items()
    if (window, kind) not in REFUSED
}
SHAPES = GROUPED | GRAPHS | OTHERS


def shape(name: str, comparison: str) -> str:
    """Return the text of a query. `len >= 0` selects all rows, and `len < 0` selects no row."""
    item = "a." if "A a" in SHAPES[name] else ""
    return SHAPES[name].format(where=f"WHERE {item}len {comparison} 0")


NOT_STREAMED = ("flows", "flow rows", "samples", "filter join")
"""Queries that the stream engine reads from spools alone."""

ALL, NONE = {name: shape(name, ">=") for name in SHAPES}, {name: shape(name, "<") for name in SHAPES}


def empty(path: Path) -> Path:
    path.write_bytes(pcap_bytes([]))
    return path


def without_packets(path: Path) -> Path:
    path.write_bytes(pcap_bytes([(second * NS, bytes(12) + b"\x08\x06" + bytes(28)) for second in range(5)]))
    return path


def busy(path: Path) -> Path:
    frames = [(second, small_captures.udp("10.0.0.1", f"10.0.0.{second % 3}", 1, 2, 60)) for second in range(20)]
    return small_captures.write(path, frames)


CASES = {"empty captures": (ALL, empty), "no packets": (ALL, without_packets), "nothing is kept": (NONE, busy)}


def inputs_of(folder: Path, *writes: Callable[[Path], Path]) -> list[Input]:
    return [Input(name, write(folder / f"{name}.pcap"), name) for name, write in zip("AB", writes, strict=True)]


def plans_of(texts: dict[str, str]) -> list[Plan]:
    return [compile_query(sql, name) for name, sql in texts.items()]


def inline(plans: list[Plan], inputs: list[Input]) -> dict[str, pa.Table]:
    """The answer of each query, by name."""
    found = {plan.name: [plan.schema.empty_table()] for plan in plans}
    run = InlineRun(plans, inputs)
    for number, batch in run.results():
        found[plans[number].name].append(pa.Table.from_batches([batch]))
    run.samples()
    return {name: pa.concat_tables(tables) for name, tables in found.items()}


@pytest.mark.parametrize("case", CASES)
def test_inline_queries_of_nothing_have_no_rows(case: str, tmp_path: Path) -> None:
    texts, write = CASES[case]
    plans = plans_of(texts)
    for name, answer in inline(plans, inputs_of(tmp_path, write, write)).items():
        assert answer.num_rows == 0, name


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("case", CASES)
def test_the_tasks_of_spark_have_no_rows(case: str, parts: int, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from tests.harness.spark_tasks import batch_answers, stream_answers

    texts, write = CASES[case]
    plans, inputs, random = plans_of(texts), inputs_of(tmp_path, write, write), Random(case)
    streamed = stream_answers(plans, inputs, parts, tmp_path / "state", random)
    answers = batch_answers(plans, inputs, parts, random)
    for plan in plans:
        assert streamed[plan.name].equals(plan.schema.empty_table()), plan.name
        assert answers[plan.name].equals(plan.schema.empty_table()), plan.name


@pytest.mark.parametrize("empty_side", ["A", "B"])
def test_queries_with_one_empty_input_have_the_same_rows_on_all_engines(empty_side: str, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from tests.harness.spark_tasks import batch_answers, stream_answers

    plans = plans_of({name: sql for name, sql in ALL.items() if re.search(r"\bB\b", sql)})
    inputs = inputs_of(tmp_path, *((empty, busy) if empty_side == "A" else (busy, empty)))
    want = inline(plans, inputs)
    assert {name for name, answer in want.items() if answer.num_rows} == (
        {"union", "union of queries", "union of rows", "merge"}
        | ({"left", "full", "anti", "difference of windows"} if empty_side == "B" else set())
    )
    streamed = stream_answers(plans, inputs, 2, tmp_path / "state", Random(empty_side))
    answers = batch_answers(plans, inputs, 2, Random(empty_side))
    for plan in plans:
        assert same_rows(streamed[plan.name], want[plan.name]), plan.name
        assert same_rows(answers[plan.name], want[plan.name]), plan.name


@pytest.mark.spark
def test_a_session_of_spark_has_no_rows(spark, tmp_path: Path) -> None:
    from highlevel.spark.batch import BatchRun
    from highlevel.spark.stream import StreamRun
    from tests.harness.spark_results import read_results

    texts, write = CASES["nothing is kept"]
    inputs = inputs_of(tmp_path, write, write)
    plans = [plan for plan in plans_of(texts) if plan.name not in NOT_STREAMED]
    run = StreamRun(spark, plans, inputs, tmp_path / "run", partitions=2)
    run.start()
    try:
        assert run.wait()
    finally:
        run.stop()
    for plan in plans:
        assert read_results(tmp_path / "run", plan).num_rows == 0, plan.name
    batch = BatchRun(
        spark, [compile_query(texts[name], name) for name in ("sliding, bounded", "three levels", "pairs")], inputs
    )
    assert batch.run() == [plan.schema.empty_table() for plan in batch.plans]
