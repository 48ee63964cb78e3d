"""The state of a join with an input that is a union with a late link (Li 2008, Figure 8-10, Q8-4).

A tumbling join of a minute of M1 with (M2 U C); C is late by 0 to 10 s. The thesis has 4000 packets/s on M1 and M2, and
less than one on C; this bench has an eighth on M1 and M2. In order, the rows of M2 wait in the merge for C. Out of
order, they are joined with M1 when they arrive, and are removed with their window, because M1 is not late. M1 waits for
C in both plans.
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
from bench.x10 import KEY, LINK
from highlevel.baselines.iop_join import IopJoin
from highlevel.baselines.merge import OrderedMerge
from highlevel.joins.oa_join import OAJoin
from highlevel.joins.spec import JoinSpec, Side
from highlevel.joins.window import Tumbling
from highlevel.operators.meld import Meld

RATES = (500, 500, 1)
KEYS = 30_000
LATE = (0, 2, 4, 6, 8, 10)
WINDOW = 60
SPEC = JoinSpec(
    Side(LINK, "ts", (("ts", "left_ts"), ("key", "key"), ("number", "left"))),
    Side(LINK, "ts", (("ts", "right_ts"), ("number", "right"))),
    Tumbling(WINDOW * SECOND),
    ((KEY, KEY),),
)
OUT_OF_ORDER, IN_ORDER, MIXED = "Meld, OA-Join", "Merge, IOP join", "Merge, OA-Join"
PLANS: dict[str, Callable[[], Step]] = {
    OUT_OF_ORDER: lambda: Step(OAJoin(SPEC), 0, Step(Meld(2), 1, 2)),
    IN_ORDER: lambda: Step(IopJoin(SPEC), 0, Step(OrderedMerge(2), 1, 2)),
    MIXED: lambda: Step(OAJoin(SPEC), 0, Step(OrderedMerge(2), 1, 2)),
}


def measure(scale: float, late: tuple[int, ...], windows: int) -> dict[int, dict[str, PlanState]]:
    """Run all plans with each lateness of C in `late`, over `windows` complete windows after the first window."""
    seconds = (windows + 1) * WINDOW + max(late)
    links = [flows(seconds, max(1, round(rate * scale)), KEYS, seed) for seed, rate in enumerate(RATES)]
    found = {}
    for each in late:
        behind = [*links[:2], links[2].with_delay(each * SECOND)]
        begin = (WINDOW + each) * SECOND  # so that the sampled windows are complete
        found[each] = {name: run_join(make(), behind, seconds, begin) for name, make in PLANS.items()}
        check_equal_results(found[each])
    return found


def run(setting: Setting) -> Report:
    """Compare the plans."""
    late = LATE[::5] if setting.quick else LATE
    found = on_one_core(measure, *((0.1, late, 1) if setting.quick else (1.0, late, 2)))
    report = Report("X11")
    title = f"tumbling join of a minute of M1 with (M2 U C), {RATES[0]} rows/s on the mains"
    add_tables(report, title, "C late by", found)
    add_wait_table(report, title, "C late by", found)
    first, last = found[late[0]], found[late[-1]]
    gap = last[IN_ORDER].mean_items - last[OUT_OF_ORDER].mean_items
    model = RATES[1] * late[-1] ** 2 / (2 * WINDOW)
    report.notes.append(f"in order holds {gap:,.0f} rows more in the mean at {late[-1]} s; the model says {model:,.0f}")
    grown = {name: last[name].mean_items - first[name].mean_items for name in PLANS}
    size = [each[OUT_OF_ORDER].mean_bytes / each[IN_ORDER].mean_bytes for each in found.values()]
    peak = [each[OUT_OF_ORDER].max_bytes / each[IN_ORDER].max_bytes for each in found.values()]
    judged = not setting.quick
    report.add_criterion(
        "bytes in the mean, out of order / Merge and IOP join, the most of any delay", max(size), "<= 1.05", judged
    )
    report.add_criterion("bytes in the mean, out of order / Merge and IOP join, 10 s late", size[-1], "<= 0.95", judged)
    report.add_criterion(
        "bytes at most, out of order / Merge and IOP join, the most of any delay", max(peak), "<= 0.9", judged
    )
    report.add_criterion(
        "rows in the mean, growth out of order / in order", grown[OUT_OF_ORDER] / grown[IN_ORDER], "<= 1", judged
    )
    report.add_criterion("rows more in order in the mean / those of the model", gap / model, ">= 0.8", judged)
    waits = last[OUT_OF_ORDER].waited / last[IN_ORDER].waited
    report.add_criterion("seconds until a pair leaves, out of order / in order, at 10 s", waits, "<= 0.1", judged)
    if setting.plots:
        lines = {name: [found[each][name].mean_items / 1e3 for each in late] for name in PLANS}
        labels = ("C late by, s", "thousand rows in the mean")
        curves(
            setting.plots / "x11.svg", "A tumbling join with a late link", [str(each) for each in late], lines, labels
        )
    return report
