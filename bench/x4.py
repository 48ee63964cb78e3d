"""Panes: the cost of a window of panes against the cost of a window of tuples (Li 2008, Figure 6-15).

The query is max by group. Each group has the same number of tuples in each pane, and a window slides by a pane. Without
panes a tuple is added to all its windows. With panes it is added to its pane, and the result of the pane is added to
the windows. The unit of cost is one such step. With n tuples per pane and P panes per window, the cost with panes is
`(n + 1 + P) / (n * P)` of the cost without panes. Operators count their steps, which are compared with the model. The
criteria about time (without the scan) are for two cells: the one in the text of the thesis, and the largest. A step for
the result of a pane costs more than a step for a tuple, because of Arrow and Python around each pane. So panes need
more tuples than in the model to be cheaper (docs/figures/windows.md).
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bench.disorder import Stream
from bench.one_core import on_one_core
from bench.plots import curves
from bench.report import Report
from bench.setting import Setting
from highlevel.baselines.adaptive.aggregate import AdaptiveAggregate
from highlevel.baselines.adaptive.panes import PanedAdaptiveAggregate
from highlevel.baselines.adaptive.thresholds import ALWAYS_EAGER
from highlevel.groups.keys import Keys
from highlevel.windows.kind import SlidingWindow
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.punctuation import END, Item, Punctuation
from lowlevel.subaggregates import Kind, SubAggregate

TUPLES = (1, 2, 5, 10, 20, 50)
"""Numbers of tuples of a group in a pane."""

PANES = (1, 2, 5, 10, 20)
"""Numbers of panes in a window."""

LENGTH = 1000
"""Length of a pane."""

MIN_MODEL_TUPLES = 10
"""Smallest number of tuples in a pane for which the model must hold."""

MAX_VALUE = [SubAggregate("value", Kind.MAX, Column("value", Type.INT))]


@dataclass(frozen=True)
class Ratios:
    """Ratio with panes / without, of steps and of time minus that of a scan, and the ratio of the model."""

    steps: float
    time: float
    model: float


def stream_of(tuples: int, panes: int, groups: int) -> Stream:
    """Return panes with all tuples of all groups, in random order."""
    random = np.random.default_rng(tuples)
    times = np.repeat(np.arange(panes) * LENGTH, tuples * groups)
    names = np.concatenate([random.permutation(np.repeat(np.arange(groups), tuples)) for _ in range(panes)])
    return Stream(times, times, names, random.integers(1 << 40, size=len(times)))


def feed_plan(operator: AdaptiveAggregate | PanedAdaptiveAggregate, batches: list[pa.RecordBatch]) -> tuple[float, int]:
    """Process panes, with a watermark after each. Return seconds and a checksum of the results."""
    items: list[Item] = []
    paned = isinstance(operator, PanedAdaptiveAggregate)
    before = time.process_time()
    for position, batch in enumerate(batches):
        items += operator.process_rows(0, batch)
        items += operator.punctuate(0, Punctuation("*", (position + 1) * (LENGTH if paned else 1)))
    items += operator.punctuate(0, Punctuation("*", END))
    step_time = time.process_time() - before
    return step_time, sum(
        int(item.column("value").to_numpy().sum()) for item in items if isinstance(item, pa.RecordBatch)
    )


def compare(tuples: int, panes: int, groups: int, slides: int, runs: int) -> Ratios:
    """Measure one cell, with both methods in turns."""
    window = SlidingWindow(panes * LENGTH, LENGTH)
    each = tuples * groups
    stream = stream_of(tuples, slides, groups)
    positions = range(0, len(stream), each)
    bare = [stream.batch(first, first + each) for first in positions]
    tagged = [stream.batch(first, first + each, window) for first in positions]
    least = [float("inf")] * 3
    for _ in range(runs):
        wid = AdaptiveAggregate(["group"], MAX_VALUE, window.range, window.slide, policy=ALWAYS_EAGER)
        paned = PanedAdaptiveAggregate(["group"], MAX_VALUE, window, policy=ALWAYS_EAGER)
        (plain_time, plain_sum), (paned_time, paned_sum) = feed_plan(wid, tagged), feed_plan(paned, bare)
        if plain_sum != paned_sum:
            raise ValueError(f"windows of panes differ from windows of tuples: {paned_sum} and {plain_sum}")
        step_time = (scan(tagged), plain_time, paned_time)
        least = [min(before, now) for before, now in zip(least, step_time, strict=True)]
    steps = (paned.updates + paned.windows.received) / wid.updates
    return Ratios(steps, (least[2] - least[0]) / (least[1] - least[0]), (tuples + 1 + panes) / (tuples * panes))


def scan(batches: list[pa.RecordBatch]) -> float:
    """Return the seconds for the work that both methods do once per tuple: finding its group."""
    keys = Keys([pa.int64()])
    before = time.process_time()
    for batch in batches:
        keys.find_or_insert([batch.column("group")], batch.num_rows)
    return time.process_time() - before


def measure(groups: int, slides: int, runs: int) -> dict[tuple[int, int], Ratios]:
    """Measure all cells."""
    return {(tuples, panes): compare(tuples, panes, groups, slides, runs) for tuples in TUPLES for panes in PANES}


def run(setting: Setting) -> Report:
    """Compare both methods with each other, and with the model."""
    groups, slides = (100, 40) if setting.quick else (1000, 24)
    found = on_one_core(measure, groups, slides, setting.runs(4))
    report = Report("X4")
    columns = ("tuples of a group in a pane", *(f"{panes} panes" for panes in PANES))
    cells = {key: (f"{each.steps:.3f} ({each.model:.3f})", f"{each.time:.2f}") for key, each in found.items()}
    for number, what in enumerate(("steps (the model)", "processor time less that of a scan")):
        report.table(
            f"with panes / without, {what}: max by {groups:,} groups, {slides} panes",
            columns,
            [(str(tuples), *(cells[tuples, panes][number] for panes in PANES)) for tuples in TUPLES],
        )
    enough = [each for (tuples, _), each in found.items() if tuples >= MIN_MODEL_TUPLES]
    furthest = max(abs(each.steps - each.model) for each in enough)
    report.add_criterion("steps, with panes / without, furthest from the model", furthest, "<= 0.1")
    judged = not setting.quick
    report.add_criterion("time, with panes / without, 20 tuples and 5 panes", found[20, 5].time, "<= 1.6", judged)
    report.add_criterion("time, with panes / without, 50 tuples and 20 panes", found[50, 20].time, "<= 0.7", judged)
    if setting.plots:
        positions = [str(tuples) for tuples in TUPLES]
        for name in ("steps", "time"):
            lines = {f"P = {panes}": [getattr(found[tuples, panes], name) for tuples in TUPLES] for panes in PANES}
            labels = ("tuples of a group in a pane", f"{name} with panes / without")
            curves(setting.plots / f"x4{name}.svg", "Windows of P panes", positions, lines, labels)
    return report
