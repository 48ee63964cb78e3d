"""Queries whose windows slide by rows, on all engines, against a plain loop over the rows that were written.

The tests detect rows that reach the operator in another order than they arrived in, and partitions that number their
rows separately. They detect a low-level watermark that is too high for rows outside tables, and counters that differ
between engines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from highlevel.inline.engine import InlineRun, Input
from highlevel.metrics import LATE_ROWS, OUTSIDE_WINDOWS, PARTIALS_RECEIVED, RESULT_ROWS, WINDOWS_CLOSED
from highlevel.plan.plan import Plan
from queries.explain.plan import explain
from queries.gsql import compile_query
from tests.references import small_captures

NS = 10**9
MINUTE = 60 * NS
LINKS = {"Main": 400, "Second": 150, "Third": 1}


@dataclass(frozen=True)
class Packet:
    """A packet that was written: ts in ns, its source, its length, whether it is UDP."""

    ts: int
    source: str
    length: int
    udp: bool


def packets(name: str) -> list[Packet]:
    """The packets of a link, as they arrive: late by up to 40 seconds, many at one time, and a gap of years."""
    random = Random(name)
    arriving = []
    for number in range(LINKS[name]):
        seconds = random.randrange(900) + (400_000_000 if number % 5 == 0 else 0)
        source = random.choice(["10.0.0.1", "10.0.0.2", "10.0.0.3", "2001:db8::1"])
        packet = Packet(seconds * NS, source, random.randrange(60, 100), random.random() < 0.8)
        arriving.append((seconds + random.randrange(40), number, packet))
    return [packet for _, _, packet in sorted(arriving)]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> list[Input]:
    folder = tmp_path_factory.mktemp("rows")
    found = []
    for name in LINKS:
        frames = []
        for each in packets(name):
            destination = "10.0.0.9" if ip_address(each.source).version == 4 else "2001:db8::9"
            if each.udp:
                frame = small_captures.udp(each.source, destination, 1, 2, each.length)
            else:
                frame = small_captures.icmp(each.source, destination, each.length)
            frames.append((each.ts // NS, frame))
        found.append(Input(name, small_captures.write(folder / f"{name}.pcap", frames)))
    return found


def windows(rows: list[Packet], ids: Iterable[int], length: int) -> Iterable[tuple[int, int, list[Packet]]]:
    for wid in sorted(set(ids)):
        yield wid - length + 1, wid + 1, [row for row in rows if wid - length < row.ts <= wid]


def printed_each() -> Counter[tuple]:
    rows = packets("Main")
    return Counter(
        (start, end, max(row.length for row in seen))
        for start, end, seen in windows(rows, (row.ts for row in rows), 5 * MINUTE)
    )


def printed_rank() -> Counter[tuple]:
    rows = packets("Main")
    ids = sorted(row.ts for row in rows)[4::5]
    return Counter((start, end, len(seen)) for start, end, seen in windows(rows, ids, 5 * MINUTE))


def arrival() -> Counter[tuple]:
    rows = packets("Main")
    found: Counter[tuple] = Counter()
    for start, end, seen in windows(rows, [row.ts for row in rows][2::3], 20 * NS):
        for source in {row.source for row in seen}:
            found[start, end, source, min(row.length for row in seen if row.source == source)] += 1
    return found


def grouped() -> Counter[tuple]:
    rows = [row for name in LINKS for row in packets(name) if row.udp]
    found: Counter[tuple] = Counter()
    for start, end, seen in windows(rows, (row.ts for row in rows), 30 * NS):
        for source in {row.source for row in seen}:
            lengths = [row.length for row in seen if row.source == source]
            if len(lengths) > 1:
                found[start, end, source, len(lengths), sum(lengths) / len(lengths)] += 1
    return found


QUERIES: dict[str, tuple[str, Callable[[], Counter[tuple]]]] = {
    "printed_each": (
        """SELECT max(length)
                 [RANGE 5 minutes, RATTR ts, SLIDE 1 row, SATTR row-num]
           FROM Main""",
        printed_each,
    ),
    "printed_rank": (
        """SELECT count(*)
                 [RANGE 5 minutes, RATTR ts, SLIDE 5 rows, SATTR rank(ts)]
           FROM Main""",
        printed_rank,
    ),
    "arrival": (
        "SELECT srcIP, min(len) FROM Main [RANGE 20 s, RATTR ts, SLIDE 3 rows, SATTR row-num] GROUP BY srcIP",
        arrival,
    ),
    "grouped": (
        """SELECT srcIP, count(*), avg(len) FROM packets [RANGE 30 seconds, SLIDE 1 row]
           WHERE protocol = 17 GROUP BY srcIP HAVING count(*) > 1""",
        grouped,
    ),
}
PLANS = {name: compile_query(sql, name) for name, (sql, _) in QUERIES.items()}
COUNTERS = (PARTIALS_RECEIVED, OUTSIDE_WINDOWS, WINDOWS_CLOSED, RESULT_ROWS, LATE_ROWS)


def answer(table: pa.Table) -> Counter[tuple]:
    return Counter(
        tuple(str(ip_address(value)) if isinstance(value, bytes) else value for value in row.values())
        for row in table.to_pylist()
    )


def inline(plan: Plan, inputs: list[Input]) -> tuple[pa.Table, InlineRun]:
    run = InlineRun([plan], inputs)
    return pa.Table.from_batches([batch for _, batch in run.results()], plan.schema), run


def of(plan: Plan, inputs: list[Input]) -> list[Input]:
    return inputs if plan.leaves[0].reads_all_links else inputs[:1]


@pytest.mark.parametrize("name", QUERIES)
def test_the_inline_engine_says_what_the_loop_says(name: str, inputs: list[Input]) -> None:
    want = QUERIES[name][1]()
    table, run = inline(PLANS[name], of(PLANS[name], inputs))
    assert answer(table) == want
    assert len(want) > 50
    samples = run.samples()
    assert samples.total(WINDOWS_CLOSED) >= len({row[:2] for row in want})
    assert samples.total(LATE_ROWS) == 0


def test_a_row_that_no_window_holds_is_counted(inputs: list[Input]) -> None:
    _, run = inline(PLANS["arrival"], inputs[:1])
    rows = packets("Main")
    ids = [row.ts for row in rows][2::3]
    outside = sum(not any(wid - 20 * NS < row.ts <= wid for wid in ids) for row in rows)
    assert run.samples().total(OUTSIDE_WINDOWS) == outside > 0


@pytest.mark.spark
@pytest.mark.parametrize("name", QUERIES)
def test_spark_batch_says_and_counts_the_same(name: str, spark, inputs: list[Input]) -> None:
    from highlevel.spark.batch import BatchRun

    plan = PLANS[name]
    batch = BatchRun(spark, [plan], of(plan, inputs))
    assert answer(batch.run()[0]) == QUERIES[name][1]()
    samples = inline(plan, of(plan, inputs))[1].samples()
    assert [batch.samples.total(each) for each in COUNTERS] == [samples.total(each) for each in COUNTERS]


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(2))
def test_spark_streams_say_and_count_the_same(seed: int, spark, inputs: list[Input], tmp_path: Path) -> None:
    """All queries run over the first link, in small blocks and micro-batches.

    Over all links run those that read them.
    """
    from highlevel.spark.stream import StreamRun
    from tests.harness.spark_results import read_results

    linked = of(PLANS["grouped"] if seed else PLANS["arrival"], inputs)
    plans = [plan for plan in PLANS.values() if plan.leaves[0].reads_all_links or not seed]
    run = StreamRun(spark, plans, linked, tmp_path, partitions=1 + seed, block_records=50, max_blocks=2)
    run.start()
    try:
        assert run.wait()
    finally:
        run.stop()
    for plan in plans:
        table, alone = inline(plan, linked)
        assert answer(read_results(tmp_path, plan)) == answer(table)
        if linked == of(plan, inputs):
            assert answer(table) == QUERIES[plan.name][1]()
        want = alone.samples()
        for each in COUNTERS:
            labelled = {key: value for key, value in run.samples.items() if key[0] == each.name}
            mine = sum(value for (_, labels), value in labelled.items() if labels[0] == plan.name)
            assert mine == want.total(each), f"{plan.name}: {each.name}"


def test_explain_says_what_a_row_has() -> None:
    told = [explain(PLANS[name]) for name in ("printed_each", "printed_rank", "arrival")]
    for text, windows_said in zip(
        told,
        ("up to each row", "up to one row in 5, in the order of ts", "up to one row in 3, as they arrive"),
        strict=True,
    ):
        assert windows_said in text
        assert "is passed on unchanged" in text
