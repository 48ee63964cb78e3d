"""Partitions that are counted anew after a silence (`IDLE`), with every aggregate, against lists of packets.

Windows of different counts of a partition have equal bounds. The tests detect two such windows that become one row, and
values of one count that reach another. They detect a result that depends on the engine, the batches or the partitions.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from dataclasses import dataclass
from functools import reduce
from ipaddress import ip_address
from operator import and_, or_, xor
from pathlib import Path
from random import Random
from typing import Any

import pytest

from highlevel.aggregation import DetailFunction
from highlevel.inline.engine import InlineRun, Input
from highlevel.windows.kind import TupleWindow
from queries.gsql import compile_query
from tests.references import small_captures
from tests.references.holistic_twin import twin
from tests.references.tuple_windows_twin import lives, windows_of

NS = 10**9


@dataclass(frozen=True)
class Packet:
    """A packet: `ts` in ns, two addresses, its destination port (None for ICMP), and its length."""

    ts: int
    source: str
    destination: str
    port: int | None
    length: int


def random_packets(random: Random) -> list[Packet]:
    """Packets of few sources in the order of the file: disordered, with equal times and with silences."""
    sources = random.sample(["10.0.0.1", "10.0.0.2", "2001:db8::1"], random.randint(1, 3))
    second, found = 1000, []
    for _ in range(random.choice([0, 1, 3, 40, 120])):
        second += random.choice([0, 0, 1, 2, 30])
        source = random.choice(sources)
        destination = f"10.0.0.{random.randint(1, 3)}" if "." in source else f"2001:db8::{random.randint(1, 3)}"
        port = None if random.random() < 0.2 else random.randrange(1, 4)
        ts = (second - random.choice([0, 0, 0, 12])) * NS
        found.append(Packet(ts, source, destination, port, random.randrange(60, 66)))
    return found


def write(path: Path, packets: list[Packet]) -> Path:
    frames = [
        (
            each.ts // NS,
            small_captures.icmp(each.source, each.destination, each.length)
            if each.port is None
            else small_captures.udp(each.source, each.destination, 9, each.port, each.length),
        )
        for each in packets
    ]
    return small_captures.write(path, frames)


def fold(function: Any, values: list[int]) -> int | None:
    return reduce(function, values) if values else None


def ports(rows: list[Packet]) -> list[int]:
    return [row.port for row in rows if row.port is not None]


def lengths(rows: list[Packet]) -> list[int]:
    return [row.length for row in rows]


def variance(values: list[int]) -> float | None:
    return statistics.variance(values) if len(values) > 1 else None


def interpolated(values: list[int], share: float) -> float | None:
    return twin(DetailFunction.QUANTILE, share, values)


AGGREGATES: dict[str, Any] = {
    "count(*)": len,
    "count(destPort)": lambda rows: len(ports(rows)),
    "sum(len)": lambda rows: sum(lengths(rows)),
    "min(destPort)": lambda rows: min(ports(rows), default=None),
    "max(len)": lambda rows: max(lengths(rows)),
    "avg(destPort)": lambda rows: statistics.fmean(ports(rows)) if ports(rows) else None,
    "variance(len)": lambda rows: variance(lengths(rows)),
    "bit_and(len)": lambda rows: fold(and_, lengths(rows)),
    "bit_or(destPort)": lambda rows: fold(or_, ports(rows)),
    "bit_xor(len)": lambda rows: fold(xor, lengths(rows)),
    "first(len)": lambda rows: min((row.ts, row.length) for row in rows)[1],
    "last(len)": lambda rows: max((row.ts, row.length) for row in rows)[1],
    "count(DISTINCT len)": lambda rows: len(set(lengths(rows))),
    "count(DISTINCT destIP)": lambda rows: len({row.destination for row in rows}),
    "median(len)": lambda rows: interpolated(lengths(rows), 0.5),
    "quantile(destPort, 0.9)": lambda rows: interpolated(ports(rows), 0.9),
    "mode(destPort)": lambda rows: twin(DetailFunction.MODE, 0, ports(rows)),
    "entropy(len)": lambda rows: twin(DetailFunction.ENTROPY, 0, lengths(rows)),
    "top(destPort, 2)": lambda rows: twin(DetailFunction.TOP, 2, ports(rows)),
}


@dataclass(frozen=True)
class Question:
    """A query, and the same as a window, the columns of GROUP BY behind the partition, and aggregates."""

    sql: str
    window: TupleWindow
    by_port: bool
    names: list[str]


def random_question(random: Random) -> Question:
    length, slide, idle = random.randint(1, 6), random.randint(1, 4), random.choice([1, 3, 10, 25])
    by_port = random.random() < 0.4
    names = random.sample(list(AGGREGATES), random.randint(1, 8))
    select = ", ".join(f"{name} AS a{place}" for place, name in enumerate(names))
    sql = (
        f"SELECT srcIP, {'destPort, ' if by_port else ''}{select} "
        f"FROM M [RANGE {length} rows, SLIDE {slide} rows, WA row-num, PA srcIP, IDLE {idle} s]"
        f"{' GROUP BY srcIP, destPort' if by_port else ''}"
    )
    return Question(sql, TupleWindow(length, slide, True, idle * NS), by_port, names)


def expected(question: Question, packets: list[Packet]) -> list[tuple]:
    found = []
    for source, life in lives(question.window, ((each.source, each.ts, each) for each in packets)):
        for start, end, rows in windows_of(question.window, life):
            groups = defaultdict(list)
            for row in rows:
                groups[(row.port,) if question.by_port else ()].append(row)
            for group, seen in groups.items():
                values = [AGGREGATES[name](seen) for name in question.names]
                found.append((start, end, ip_address(source).packed, *group, *values))
    return found


def same(got: list[tuple], want: list[tuple]) -> bool:
    """Whether rows are equal in any order, and floats nearly: variances are differences of sums."""

    def order(row: tuple) -> str:
        return str([f"{value:.6g}" if isinstance(value, int | float) else value for value in row])

    def near(one: Any, other: Any) -> bool:
        return one == other or (isinstance(one, float) and math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9))

    got, want = sorted(got, key=order), sorted(want, key=order)
    return len(got) == len(want) and all(
        all(near(one, other) for one, other in zip(*pair, strict=True)) for pair in zip(got, want, strict=True)
    )


def rows_of(table) -> list[tuple]:
    return [tuple(row.values()) for row in table.to_pylist()]


def test_two_counts_of_a_partition_are_two_rows(tmp_path: Path) -> None:
    packets = [Packet(ts * NS, "10.0.0.1", "10.0.0.2", 1, length) for ts, length in ((100, 42), (200, 142), (50, 242))]
    plan = compile_query(
        "SELECT srcIP, median(len), count(DISTINCT len), count(*) FROM packets "
        "[RANGE 2 rows, SLIDE 2 rows, WA row-num, PA srcIP, IDLE 10 s]"
    )
    run = InlineRun([plan], [Input("M", write(tmp_path / "M.pcap", packets))])
    source = ip_address("10.0.0.1").packed
    assert sorted(row for _, batch in run.results() for row in rows_of(batch)) == [
        (0, 2, source, 42.0, 1, 1),
        (0, 2, source, 192.0, 2, 2),
    ]


@pytest.mark.parametrize("seed", range(40))
def test_every_aggregate_is_of_one_count_inline(seed: int, tmp_path: Path) -> None:
    random = Random(f"idle {seed}")
    packets = random_packets(random)
    path = write(tmp_path / "M.pcap", packets)
    questions = [random_question(random) for _ in range(6)]
    plans = [compile_query(question.sql, str(place)) for place, question in enumerate(questions)]
    got: list[list[tuple]] = [[] for _ in plans]
    run = InlineRun(plans, [Input("M", path)], threads=1, block_records=random.choice([1, 7, 1000]))
    for number, batch in run.results():
        got[number] += rows_of(batch)
    for question, rows in zip(questions, got, strict=True):
        assert same(rows, expected(question, packets)), (seed, question.sql)


@pytest.mark.parametrize("seed", range(10))
def test_every_aggregate_is_of_one_count_in_the_tasks_of_spark(seed: int, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from tests.harness.spark_tasks import batch_answer, stream_answers

    random = Random(f"idle on Spark {seed}")
    packets = random_packets(random)
    inputs = [Input("M", write(tmp_path / "M.pcap", packets), "M")]
    questions = [random_question(random) for _ in range(5)]
    plans = [compile_query(question.sql, str(place)) for place, question in enumerate(questions)]
    parts = random.choice([1, 2, 3])
    streamed = stream_answers(plans, inputs, parts, tmp_path / "state", random)
    for question, plan in zip(questions, plans, strict=True):
        want = expected(question, packets)
        assert same(rows_of(batch_answer(plan, inputs, parts, random)), want), (seed, question.sql)
        assert same(rows_of(streamed[plan.name]), want), (seed, question.sql)
