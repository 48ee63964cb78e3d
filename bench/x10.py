"""The state of a join of two unions, out of order and in order (Li 2008, Figure 8-9, Q8-3).

A tumbling join of 10 s of (A U B) with (C U D). B is 0 to 100 s later than A, and D is later than C by the same time.
The thesis has 10 000 packets/s on each link, this bench a fifth. Three plans over the same events:

    Meld, OA-Join       without order
    Merge, IOP join     in order: rows wait in the merges as received, and the join stores only chains
    Merge, OA-Join      in order, with the join of the first plan
"""

from __future__ import annotations

from collections.abc import Callable

from bench.disorder import SECOND
from bench.held import PlanState, add_tables, add_wait_table, check_equal_results, run_join
from bench.links import flows
from bench.one_core import on_one_core
from bench.plots import curves
from bench.report import Report
from bench.setting import Setting
from bench.steps import Step
from highlevel.baselines.iop_join import IopJoin
from highlevel.baselines.merge import OrderedMerge
from highlevel.joins.oa_join import OAJoin
from highlevel.joins.spec import JoinSpec, Side
from highlevel.joins.window import Tumbling
from highlevel.operators.meld import Meld
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type

RATE = 10_000 // 5
KEYS = 200_000
SKEWS = (0, 10, 20, 40, 60, 80, 100)
NEGLIGIBLE = 20
"""Skews below this number of seconds have no effect in the thesis."""

LINK = flows(1, 1, 1, 0).rows.schema
KEY = Column("key", Type.INT)
SPEC = JoinSpec(
    Side(LINK, "ts", (("ts", "left_ts"), ("key", "key"), ("number", "left"))),
    Side(LINK, "ts", (("ts", "right_ts"), ("number", "right"))),
    Tumbling(10 * SECOND),
    ((KEY, KEY),),
)
OUT_OF_ORDER, IN_ORDER, MIXED = "Meld, OA-Join", "Merge, IOP join", "Merge, OA-Join"
PLANS: dict[str, Callable[[], Step]] = {
    OUT_OF_ORDER: lambda: Step(OAJoin(SPEC), Step(Meld(2), 0, 1), Step(Meld(2), 2, 3)),
    IN_ORDER: lambda: Step(IopJoin(SPEC), Step(OrderedMerge(2), 0, 1), Step(OrderedMerge(2), 2, 3)),
    MIXED: lambda: Step(OAJoin(SPEC), Step(OrderedMerge(2), 0, 1), Step(OrderedMerge(2), 2, 3)),
}


def measure(rate: int, skews: tuple[int, ...]) -> dict[int, dict[str, PlanState]]:
    """Run all plans at all skews, each until three windows have passed in the steady state."""
    found = {}
    for skew in skews:
        seconds = skew + 50
        links = [flows(seconds, rate, KEYS, seed) for seed in range(4)]
        links = [link.with_delay(skew * SECOND) if position % 2 else link for position, link in enumerate(links)]
        settled = (skew + 20) * SECOND
        found[skew] = {name: run_join(make(), links, seconds, settled) for name, make in PLANS.items()}
        check_equal_results(found[skew])
    return found


def run(setting: Setting) -> Report:
    """Compare the plans."""
    rate, skews = (40, SKEWS[::6]) if setting.quick else (RATE, SKEWS)
    found = on_one_core(measure, rate, skews)
    report = Report("X10")
    title = f"tumbling join of 10 s of two unions of two links of {rate:,} rows/s; two are behind"
    add_tables(report, title, "skew", found)
    add_wait_table(report, title, "skew", found)
    each_row = {name: found[skews[-1]][name].max_bytes / found[skews[-1]][name].max_items for name in PLANS}
    told = ", ".join(f"{name} {each:.0f}" for name, each in each_row.items())
    report.notes.append(f"bytes for a row at the greatest skew: {told}; a row itself has 24")
    ratios = [each[OUT_OF_ORDER].max_items / each[IN_ORDER].max_items for each in found.values()]
    furthest = max(max(each, 1 / each) for each in ratios)
    best = [min(each[IN_ORDER].max_bytes, each[MIXED].max_bytes) for each in found.values()]
    more = max(each[OUT_OF_ORDER].max_bytes / least for each, least in zip(found.values(), best, strict=True))
    thesis = {skew: each[OUT_OF_ORDER].max_bytes / each[IN_ORDER].max_bytes for skew, each in found.items()}
    judged = not setting.quick
    most, less = max(thesis.values()), max(ratio for skew, ratio in thesis.items() if skew < NEGLIGIBLE)
    report.add_criterion(
        "bytes at most, out of order / Merge and IOP join, the most of any skew", most, "<= 1.25", judged
    )
    report.add_criterion("bytes at most, out of order / Merge and IOP join, below 20 s", less, "<= 1", judged)
    report.add_criterion("rows at most, out of order / in order, furthest from 1", furthest, "<= 1.05", judged)
    report.add_criterion(
        "bytes at most, out of order / the better in order, the most of any skew", more, "<= 1.6", judged
    )
    if setting.plots:
        lines = {name: [found[skew][name].max_bytes / 1e6 for skew in skews] for name in PLANS}
        curves(
            setting.plots / "x10.svg",
            "A tumbling join of two unions of skewed links",
            [str(skew) for skew in skews],
            lines,
            ("skew, s", "MB at most"),
        )
    return report
