"""The state of a union of skewed links, out of order and in order (Li 2008, Figure 8-8, Q8-2).

count(*) by (srcIP, destIP) for each minute over two links; the second is late by 0 to 40 s. The thesis has 110,000
packets/s on each link, and 65,536 groups. This bench has a fifteenth of both, so the ratio of waiting tuples to groups
is the same. Four plans over the same events:

    Meld, Aggregate           without order
    Merge, Aggregate          in order, with the same hash table after Merge, which is the best possible operator
    Merge, buffering          in order, as in earlier systems: a window is stored as tuples, and scanned
    Aggregate below Merge     in order; each link is counted separately, and Merge orders counts instead of packets
"""

from __future__ import annotations

from collections.abc import Callable

from bench.disorder import SECOND
from bench.held import PlanState, add_tables, check_equal_results, feed_plan
from bench.links import Link, packets
from bench.one_core import on_one_core
from bench.plots import curves
from bench.report import Report
from bench.setting import Setting
from bench.steps import ByWindow, Step, WindowOfWindow
from highlevel.baselines.buffering import BufferingAggregate
from highlevel.baselines.merge import OrderedMerge
from highlevel.operators.meld import Meld
from highlevel.sliding.aggregate import Aggregate
from highlevel.windows.kind import SlidingWindow
from lowlevel.subaggregates import Kind, SubAggregate

SCALE = 15
RATE, GROUPS = 110_000 // SCALE, 65_536 // SCALE
WINDOW = SlidingWindow(60 * SECOND, 60 * SECOND)
SKEWS = (0, 10, 20, 30, 40)
KEYS = ["srcIP", "destIP"]
COUNT = [SubAggregate("packets", Kind.COUNT)]
OUT_OF_ORDER, IN_ORDER, BUFFERING, BELOW = "Meld", "Merge", "Merge, buffering", "Merge of counts"


def without_order() -> Step:
    """Return the plan of Meld and then the aggregate of Wiretide."""
    return Step(Aggregate(KEYS, COUNT), Step(ByWindow(WINDOW), Step(Meld(2), 0, 1)))


def in_order() -> Step:
    """Return the plan of Merge and then the same aggregate, which receives the watermarks of Merge."""
    return Step(Aggregate(KEYS, COUNT), Step(ByWindow(WINDOW), Step(OrderedMerge(2), 0, 1)))


def buffering() -> Step:
    """Return the plan of Merge and then windows of tuples."""
    return Step(BufferingAggregate(KEYS, COUNT, WINDOW), Step(OrderedMerge(2), 0, 1))


def below() -> Step:
    """Return the plan that counts each link separately, and then merges the counts in the order of windows."""
    counts = [Step(Aggregate(KEYS, COUNT), Step(ByWindow(WINDOW), link)) for link in (0, 1)]
    return Step(Aggregate(KEYS, COUNT), Step(WindowOfWindow(), Step(OrderedMerge(2, "wid"), *counts)))


PLANS: dict[str, Callable[[], Step]] = {
    OUT_OF_ORDER: without_order,
    IN_ORDER: in_order,
    BUFFERING: buffering,
    BELOW: below,
}


def measure(seconds: int, rate: int, groups: int, skews: tuple[int, ...]) -> dict[int, dict[str, PlanState]]:
    """Run all plans at all skews."""
    links = [packets(seconds, rate, groups, seed) for seed in (1, 2)]
    found = {}
    for skew in skews:
        behind: list[Link] = [links[0], links[1].with_delay(skew * SECOND)]
        found[skew] = {
            name: feed_plan(make(), behind, seconds, 100 * SECOND, "packets") for name, make in PLANS.items()
        }
        check_equal_results(found[skew])
    return found


def run(setting: Setting) -> Report:
    """Compare the plans."""
    seconds, rate, groups = (125, 200, 120) if setting.quick else (225, RATE, GROUPS)
    skews = SKEWS[::4] if setting.quick else SKEWS
    found = on_one_core(measure, seconds, rate, groups, skews)
    report = Report("X9")
    title = f"a minute's count over two links of {rate:,} packets/s, {groups:,} groups; the second behind"
    add_tables(report, title, "skew", found)
    free = [each[OUT_OF_ORDER].max_bytes for each in found.values()]
    grown = found[skews[-1]][IN_ORDER].max_bytes / found[0][IN_ORDER].max_bytes
    waiting = found[skews[-1]][IN_ORDER].max_items - found[0][IN_ORDER].max_items
    judged = not setting.quick
    report.add_criterion("out of order, bytes, most / least of any skew", max(free) / min(free), "<= 2", judged)
    report.add_criterion("in order, bytes, skew of 40 s / none", grown, ">= 3", judged)
    report.add_criterion("in order, tuples more at 40 s / those of 40 s", waiting / (40 * rate), ">= 0.9", judged)
    if setting.plots:
        lines = {name: [found[skew][name].max_bytes / 1e6 for skew in skews] for name in PLANS}
        labels = ("skew, s", "MB at most")
        curves(
            setting.plots / "x9.svg",
            "A minute's count of two skewed links",
            [str(skew) for skew in skews],
            lines,
            labels,
        )
    return report
