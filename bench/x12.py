"""The state of sliding windows over a union with a late link (Li 2008, Figure 8-11, Q8-5).

count(*) by (srcIP, destIP) over 5 minutes, every minute, of M1 U M2 U C; C is late by 0 to 10 s. The thesis has 4000
packets/s on M1 and M2, and less than one on C; this bench has half of it on M1 and M2. The plans are those of X9: out
of order, in order with the same panes after Merge, and in order with windows of tuples.
"""

from __future__ import annotations

from collections.abc import Callable

from bench.disorder import SECOND
from bench.held import PlanState, add_tables, check_equal_results, feed_plan
from bench.links import packets
from bench.one_core import on_one_core
from bench.plots import curves
from bench.report import Report
from bench.setting import Setting
from bench.steps import ByWindow, Step
from bench.x9 import COUNT, KEYS
from highlevel.baselines.buffering import BufferingAggregate
from highlevel.baselines.merge import OrderedMerge
from highlevel.operators.meld import Meld
from highlevel.sliding.aggregate import Aggregate
from highlevel.windows.kind import SlidingWindow

RATES = (2000, 2000, 1)
GROUPS = 1000
WINDOW = SlidingWindow(300 * SECOND, 60 * SECOND)
LATE = (0, 2, 4, 6, 8, 10)
OUT_OF_ORDER, IN_ORDER, BUFFERING = "Meld", "Merge", "Merge, buffering"
PLANS: dict[str, Callable[[], Step]] = {
    OUT_OF_ORDER: lambda: Step(Aggregate(KEYS, COUNT), Step(ByWindow(WINDOW), Step(Meld(3), 0, 1, 2))),
    IN_ORDER: lambda: Step(Aggregate(KEYS, COUNT), Step(ByWindow(WINDOW), Step(OrderedMerge(3), 0, 1, 2))),
    BUFFERING: lambda: Step(BufferingAggregate(KEYS, COUNT, WINDOW), Step(OrderedMerge(3), 0, 1, 2)),
}


def measure(scale: float, late: tuple[int, ...], seconds: int) -> dict[int, dict[str, PlanState]]:
    """Run all plans with each lateness of C in `late`. Sample after a whole RANGE has passed."""
    links = [packets(seconds, max(1, round(rate * scale)), GROUPS, seed) for seed, rate in enumerate(RATES)]
    found = {}
    for each in late:
        behind = [*links[:2], links[2].with_delay(each * SECOND)]
        found[each] = {
            name: feed_plan(make(), behind, seconds, 315 * SECOND, "packets") for name, make in PLANS.items()
        }
        check_equal_results(found[each])
    return found


def run(setting: Setting) -> Report:
    """Compare the plans."""
    late = LATE[::5] if setting.quick else LATE
    found = on_one_core(measure, *((0.02, late, 320) if setting.quick else (1.0, late, 435)))
    report = Report("X12")
    title = f"count over 5 minutes each minute of M1 U M2 U C, {RATES[0]} packets/s on the mains, {GROUPS:,} groups"
    add_tables(report, title, "C late by", found)
    first, last = found[late[0]], found[late[-1]]
    grown = {name: last[name].mean_bytes / first[name].mean_bytes for name in PLANS}
    waiting = (last[IN_ORDER].mean_items - last[OUT_OF_ORDER].mean_items) / (late[-1] * sum(RATES[:2]))
    judged = not setting.quick
    report.add_criterion("bytes in the mean, out of order, 10 s late / none", grown[OUT_OF_ORDER], "<= 1.3", judged)
    report.add_criterion("bytes in the mean, in order, 10 s late / none", grown[IN_ORDER], ">= 1.5", judged)
    report.add_criterion("tuples that wait in order / those of 10 s", waiting, ">= 0.9", judged)
    if setting.plots:
        lines = {name: [found[each][name].mean_bytes / 1e6 for each in late] for name in (OUT_OF_ORDER, IN_ORDER)}
        labels = ("C late by, s", "MB in the mean")
        curves(
            setting.plots / "x12.svg", "Sliding counts with a late link", [str(each) for each in late], lines, labels
        )
    return report
