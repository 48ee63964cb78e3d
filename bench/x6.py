"""A join without order compared with a join whose results are sorted in a buffer (Li 2008, Figure 7-6, Q7-2).

Two streams of a flow in opposite directions, RANGE n s of both, then a count for each minute of the left's time. Rows
match one in 4000, so a row has n partners. OPOB-Join is OA-Join and a sort of its results. In addition to the rows of
OA-Join it stores results of 3/4 n seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from bench.disorder import SECOND, Numbers
from bench.held import PlanState, check_equal_results, feed_plan
from bench.links import Link, flows
from bench.one_core import on_one_core
from bench.plots import curves
from bench.report import Report
from bench.setting import Setting
from bench.steps import ByWindow, Step
from highlevel.baselines.opib_join import OpibJoin
from highlevel.baselines.opob_join import OpobJoin
from highlevel.joins.oa_join import OAJoin
from highlevel.joins.spec import JoinSpec, Side
from highlevel.joins.window import Band
from highlevel.sliding.aggregate import Aggregate
from highlevel.windows.kind import SlidingWindow
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.subaggregates import Kind, SubAggregate

RANGES = (1, 3, 5, 7, 9)
RATE, KEYS = 2000, 4000
SETTLED = 20
"""Seconds after which the number of stored rows is constant, for all ranges."""

MINUTE = SlidingWindow(60 * SECOND, 60 * SECOND)
KEY = Column("key", Type.INT)
Joins = dict[str, Callable[[JoinSpec], OAJoin | OpobJoin | OpibJoin]]
JOINS: Joins = {"OA": OAJoin, "OPOB": OpobJoin}


@dataclass(frozen=True)
class Figures:
    """The state of a join with a count after it, and the median delay of a pair in seconds."""

    held: PlanState
    latency: float


def spec_of(seconds: int) -> JoinSpec:
    """Return a join with two equal ranges."""
    schema = flows(1, 1, 1, 0).rows.schema
    left = Side(schema, "ts", (("ts", "left_ts"), ("number", "left")))
    right = Side(schema, "ts", (("ts", "right_ts"), ("number", "right")))
    return JoinSpec(left, right, Band(seconds * SECOND, seconds * SECOND), ((KEY, KEY),))


def run_join_and_count(make: Callable[[], object], links: list[Link], seconds: int) -> Figures:
    """Run a join with the count after it, and run it without the count to measure the delay of its rows."""
    join = Step(make(), 0, 1)
    counted = Step(Aggregate([], [SubAggregate("packets", Kind.COUNT)]), Step(ByWindow(MINUTE, "left_ts"), join))
    held = feed_plan(counted, links, seconds, SETTLED * SECOND, "packets", sampled=join)
    delays: list[Numbers] = []

    def seen(now: int, pairs: pa.RecordBatch) -> None:
        there = np.maximum(pairs.column("left_ts").to_numpy(), pairs.column("right_ts").to_numpy())
        if SETTLED * SECOND < now < (SETTLED + 10) * SECOND:  # pairs that are returned at the end have not waited
            delays.append(now - there)

    feed_plan(Step(make(), 0, 1), links, SETTLED + 10, SETTLED * SECOND, "left_ts", seen)
    return Figures(held, float(np.median(np.concatenate(delays))) / SECOND)


def measure(joins: Joins, ranges: tuple[int, ...], seconds: int, rate: int, keys: int) -> dict[int, dict[str, Figures]]:
    """Run some joins with all ranges."""
    links = [flows(seconds, rate, keys, seed) for seed in (1, 2)]
    found = {}
    for each in ranges:
        spec = spec_of(each)
        found[each] = {name: run_join_and_count(partial(make, spec), links, seconds) for name, make in joins.items()}
        check_equal_results({name: figures.held for name, figures in found[each].items()})
    return found


def workload_sizes(setting: Setting) -> tuple[tuple[int, ...], int, int, int]:
    """Return the ranges, the seconds, rows/s and the number of keys."""
    return (RANGES[:2], 31, 100, 200) if setting.quick else (RANGES, 80, RATE, KEYS)


def add_tables(
    report: Report, found: dict[int, dict[str, Figures]], other: str, rate: int, model: dict[int, float]
) -> None:
    """Add the table that compares a join with OA-Join."""
    report.table(
        f"OA-Join and {other}-Join, RANGE n s of both, {rate:,} rows/s on each; then a count of each minute",
        (
            *("n", "rows, OA", "(model)", f"rows, {other}", "(model)", "KB, OA", f"KB, {other}", "s to leave, OA"),
            *(f"s to leave, {other}", "ns for a row, OA", f"ns for a row, {other}"),
        ),
        [
            (
                str(n),
                *(f"{each['OA'].held.max_items:,}", f"{2 * n * rate:,}"),
                *(f"{each[other].held.max_items:,}", f"{model[n]:,.0f}"),
                *(f"{each[name].held.max_bytes / 1e3:,.0f}" for name in ("OA", other)),
                *(f"{each[name].latency:.2f}" for name in ("OA", other)),
                *(f"{each[name].held.processor / each[name].held.rows * 1e9:,.0f}" for name in ("OA", other)),
            )
            for n, each in found.items()
        ],
    )


def plot(setting: Setting, name: str, found: dict[int, dict[str, Figures]], title: str) -> None:
    """Draw memory and delay by n."""
    if setting.plots is None:
        return
    positions = [str(n) for n in found]
    joins = list(found[min(found)])
    rows = {join: [found[n][join].held.max_items / 1e3 for n in found] for join in joins}
    curves(setting.plots / f"{name}.svg", title, positions, rows, ("RANGE, s", "thousand rows at most"))
    waits = {join: [found[n][join].latency for n in found] for join in joins}
    curves(setting.plots / f"{name}latency.svg", title, positions, waits, ("RANGE, s", "s until a pair leaves, median"))


def run(setting: Setting) -> Report:
    """Compare the joins."""
    found = on_one_core(measure, JOINS, *workload_sizes(setting))
    report = Report("X6")
    _, _, rate, _ = workload_sizes(setting)
    add_tables(report, found, "OPOB", rate, {n: (2 * n + 0.75 * n * n) * rate for n in found})
    first, last = found[min(found)], found[max(found)]
    ratios = [each["OPOB"].held.max_items / each["OA"].held.max_items for each in found.values()]
    linear = last["OA"].held.max_items / first["OA"].held.max_items / RANGES[-1]
    growing = min(later / before for before, later in pairwise(ratios))
    judged = not setting.quick
    report.add_criterion("rows, OPOB / OA, at n = 9 s", ratios[-1], ">= 3", judged)
    report.add_criterion("rows, OPOB / OA, growth from n to the next, the least", growing, ">= 1.1", judged)
    report.add_criterion("rows, OA, n = 9 s / nine times those of 1 s", linear, "<= 1.1", judged)
    plot(setting, "x6", found, "Joins of two streams, RANGE of both")
    return report
