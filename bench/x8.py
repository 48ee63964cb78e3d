"""The highest rate of a link without losses, by flush policy (Li 2008, Figure 8-7 and Table 8-1), on the real table.

count(*) by (srcIP, destIP): each window has packets of all groups in random order, and ends at once for all of them.
The CPU time of the table is measured for each chunk: the minimum of three turns. The policies take turns, so that a
slow phase of the machine affects all of them. If the unordered policies still differ, all take more turns. The cost of
a partial after the table (its columns, its message in a segment) is measured once and added for each partial. From
these times `bench.ring_queue` computes the largest rate at which a ring of RING packets never overflows, and the load
of the core at this rate.

Windows contain PER_GROUP packets for each group at every rate. This is less than a minute of traffic, so flushes are a
larger part of the work than on a link.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.one_core import on_one_core
from bench.plots import curves
from bench.report import Report
from bench.ring_queue import LossFreeRate, find_loss_free_rate
from bench.setting import Setting
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.plan import Key, LowLevelPlan
from lowlevel.subaggregates import INT_MAX, Kind, SubAggregate
from lowlevel.table.flushing import Flushing, Policy
from lowlevel.table.flushing_table import make_table
from lowlevel.table.query_tables import QueryTables
from lowlevel.table.table import Table

MILLION = 1_000_000
PER_GROUP = 8
"""Packets of each of three windows, at least LEAST_PACKETS. A short part of a fourth window follows."""

MIN_PACKETS = MILLION

CHUNK = 1024
RING = 1 << 16
"""Packets: a ring of 8 MiB with 128 bytes of each."""

GROUPS = {"66K": 1 << 16, "130K": 1 << 17, "260K": 1 << 18, "520K": 1 << 19}
SIZES = {"1/2": 0.5, "1": 1.0, "2": 2.0}
MAX_TURN_FACTOR = 3
"""Largest factor by which the number of turns grows if the unordered policies differ."""

MIN_EQUAL_RATIO = 0.9
"""Smallest ratio of the slowest to the fastest unordered policy that counts as equal. These policies do the same work
at different times.
"""

FLUSHINGS = (
    Flushing(Policy.AT_ONCE),
    Flushing(Policy.IOP_SLOW),
    Flushing(Policy.IOP_TWO_SLOT),
    Flushing(Policy.LAZY),
    Flushing(Policy.SLOW, every=160),
    Flushing(Policy.PACED),
)
IN_ORDER = (Policy.IOP_SLOW, Policy.IOP_TWO_SLOT)
OUT_OF_ORDER = (Policy.LAZY, Policy.SLOW, Policy.PACED)
SUBAGGREGATE = SubAggregate("packets", Kind.COUNT)


@dataclass(frozen=True)
class Run:
    """A policy on a table: its speed, and the maximum entries that were evicted for 64 packets or for a watermark."""

    found: LossFreeRate
    burst: int


def make_stream(groups: int, packets: int, flood: bool) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return key words and ts of three windows of `packets` packets and a short part of a fourth. A window has 1000 ns.

    If `flood`, only the first window has all groups, and the others have five.
    """
    random = np.random.default_rng(groups)
    names = random.integers(1 << 62, size=groups)
    count = (3 * packets + 64 * CHUNK) // CHUNK * CHUNK
    numbers = random.integers(groups, size=count, dtype=np.int32)
    if flood:
        numbers[packets:] %= 5
    return names[numbers], np.arange(count) * 1000 // packets


def feed_table(
    flushing: Flushing, slots: int, words: npt.NDArray[np.int64], times: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Table]:
    """Feed a new table. Return the CPU time in ns and the partials of each chunk, and the table."""
    table = make_table(1, [SUBAGGREGATE], slots, CHUNK, flushing)
    step_time, left = np.empty((2, len(words) // CHUNK), np.int64)
    clock = time.thread_time_ns
    for position in range(len(step_time)):
        first = position * CHUNK
        table.words[0, :CHUNK] = words[first : first + CHUNK]
        instants = times[first : first + CHUNK]
        before = clock()
        table.update(instants, None, 1000, 0, INT_MAX)
        partials = len(table.take_evicted())
        if flushing.policy is Policy.AT_ONCE and (position == 0 or times[first - 1] // 1000 < instants[-1] // 1000):
            partials += sum(len(some) for some in table.flush(int(instants[-1]) // 1000))
        step_time[position] = clock() - before
        left[position] = partials
    return step_time, left, table


def cost_of_a_partial() -> float:
    """Return the cost of an entry after the table in ns: columns of a batch, and a message of a segment."""
    count = 1 << 16
    keys = (Key("srcIP", Column("srcIP", Type.INT)),)
    query = QueryTables("link", LowLevelPlan(None, keys, (SUBAGGREGATE,), 1000), count, CHUNK)
    layout, table = query._table_for(())
    entries = np.random.default_rng(1).integers(1 << 30, size=(count, table.width))
    step_time = []
    for _ in range(9):
        before = time.thread_time_ns()
        for batch in query._to_partials(layout, table, entries):
            batch.serialize()
        step_time.append((time.thread_time_ns() - before) / count)
    return float(np.median(step_time))


def measure(per_group: int, least: int, runs: int) -> tuple[float, float, dict[tuple[str, str, Policy], Run]]:
    """Measure all policies on all tables, and the flood (groups "flood") on a table of as many slots as groups.

    Returns the cost of a partial (ns), the share of the core that the measurement had, and the runs.
    """
    began = time.perf_counter(), time.process_time()
    partial = cost_of_a_partial()
    found = {}
    for name, groups in [*GROUPS.items(), ("flood", GROUPS["520K"])]:
        words, times = make_stream(groups, max(least, per_group * groups), name == "flood")
        for size, factor in SIZES.items():
            if name == "flood" and size != "1":
                continue
            best: dict[Policy, npt.NDArray[np.int64]] = {}
            for turn in range(1, MAX_TURN_FACTOR * runs + 1):
                for flushing in FLUSHINGS:
                    step_time, left, table = feed_table(flushing, int(groups * factor), words, times)
                    least_took = best[flushing.policy] = np.minimum(step_time, best.get(flushing.policy, step_time))
                    services = (least_took + partial * left) / 1e9
                    found[name, size, flushing.policy] = Run(
                        find_loss_free_rate(services, CHUNK, RING), table.tally.burst
                    )
                rates = [found[name, size, policy].found.rate for policy in OUT_OF_ORDER]
                if turn >= runs and min(rates) >= MIN_EQUAL_RATIO * max(rates):
                    break
    share = (time.process_time() - began[1]) / (time.perf_counter() - began[0])
    return partial, share, found


def run(setting: Setting) -> Report:
    """Compare the policies."""
    sizes = (0, 50_000) if setting.quick else (PER_GROUP, MIN_PACKETS)
    partial, share, found = on_one_core(measure, *sizes, setting.runs(3))
    report = Report("X8")
    policies = [flushing.policy for flushing in FLUSHINGS]
    report.table(
        "largest loss-free rate in M packets/s (busy), by groups and slots for each group",
        ("groups", "table", *policies),
        [
            (name, size, *(rate_text(found[name, size, policy].found) for policy in policies))
            for name in GROUPS
            for size in SIZES
        ],
    )
    report.table(
        "most entries that left for 64 packets or for one watermark",
        ("groups", "table", *policies),
        [
            (name, size, *(f"{found[name, size, policy].burst:,}" for policy in policies))
            for name, size in dict.fromkeys((name, size) for name, size, _ in found)
        ],
    )
    report.notes.append(f"a partial costs {partial:.0f} ns behind the table; the ring holds {RING:,} packets")
    report.notes.append("flood: 520K groups in the first window, five after it")
    report.notes.append(f"the core was ours for {share:.0%} of the time")
    judge(report, found, judged=not setting.quick)
    if setting.plots:
        for size in SIZES:
            curves(
                setting.plots / f"X8-{size.replace('/', '-')}.svg",
                f"loss-free rate, table of {size} x groups",
                list(GROUPS),
                {policy: [found[name, size, policy].found.rate / MILLION for name in GROUPS] for policy in policies},
                ("groups", "M packets/s"),
            )
    return report


def rate_text(found: LossFreeRate) -> str:
    """Return a rate and the load of the core at this rate as text."""
    return f"{found.rate / MILLION:5.1f} ({found.utilisation:3.0%})"


def judge(report: Report, found: dict[tuple[str, str, Policy], Run], judged: bool) -> None:
    """Compare the policies with the criteria, and report if other processes used the core. Times are CPU times."""
    for size in ("1", "2"):
        runs = {policy: found["520K", size, policy].found for policy in Policy}
        report.add_criterion(
            f"iop busy, 520K groups, table x{size}", runs[Policy.IOP_SLOW].utilisation, "<= 0.75", judged
        )
        best = max(runs[policy].rate for policy in OUT_OF_ORDER)
        most = max(runs[policy].rate for policy in IN_ORDER)
        report.add_criterion(f"oop/iop, 520K groups, table x{size}", best / most, ">= 1.5", judged)
    others = (Policy.LAZY, Policy.SLOW)
    tables = {(name, size) for name, size, _ in found}
    ratios = [
        found[name, size, Policy.PACED].found.rate / max(found[name, size, policy].found.rate for policy in others)
        for name, size in tables
    ]
    report.add_criterion(
        "loss-free rate, paced / the faster of lazy and slow, the least", min(ratios), ">= 0.7", judged
    )
    bursts = [
        found[name, size, Policy.PACED].burst
        / min(found[name, size, policy].burst for policy in Policy if policy is not Policy.PACED)
        for name, size in tables
    ]
    name = "largest burst, paced / the least of the others, on any table"
    report.add_criterion(name, max(bursts), "<= 1", judged)
