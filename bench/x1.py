"""WID, the buffering aggregate and Paned-WID on an ordered stream (Li 2008, Figure 6-10).

The query is max over RANGE 4000 rows, with slides from 1 to 4000 rows. WID adds a row to RANGE/SLIDE partials.
Buffering reads it RANGE/SLIDE times, in one loop over adjacent numbers. Paned-WID has one partial for each pane. All
receive the same batches. The cost of making the batches is the scan, which is listed separately. The criteria state
which method is the cheapest at which slides, and by how much. The thesis found another method
(docs/figures/windows.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from bench.disorder import Stream
from bench.one_core import on_one_core
from bench.plots import scatter
from bench.report import Report
from bench.setting import Setting
from bench.undisturbed import time_step
from highlevel.baselines.adaptive.aggregate import AdaptiveAggregate
from highlevel.baselines.adaptive.thresholds import ALWAYS_EAGER
from highlevel.baselines.buffering import BufferingAggregate
from highlevel.operators.operator import Operator
from highlevel.sliding.aggregate import Aggregate
from highlevel.windows.kind import SlidingWindow
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.punctuation import END, Punctuation
from lowlevel.subaggregates import Kind, SubAggregate

RANGE = 4000
SLIDES = (1, 4, 16, 40, 100, 400, 1000, 2000, 4000)
BATCH = 4000
"""Rows, with a watermark after each."""

PANE_PER_ROW_COUNT = 12_000
"""Number of rows if each row is a pane, because Paned-WID needs more than a hundred µs per pane."""

FEW_ROWS_IN_A_PANE = 100
"""Largest ratio RANGE/SLIDE at which WID must be cheaper than panes."""

MAX_VALUE = [SubAggregate("value", Kind.MAX, Column("value", Type.INT))]
NAMES = ("buffering", "WID", "Paned-WID")


@dataclass(frozen=True)
class Figures:
    """ns per row of each operator and of the scan alone, and the largest state: tuples, and partials of WID."""

    ns: dict[str, float]
    scan: float
    tuples: int
    partials: int


def batches_of(stream: Stream, window: SlidingWindow) -> list[pa.RecordBatch]:
    """Split the stream into batches."""
    return [stream.batch(first, first + BATCH, window) for first in range(0, len(stream), BATCH)]


def feed(operator: Operator, batches: list[pa.RecordBatch], window: SlidingWindow) -> tuple[int, int]:
    """Feed an operator. Return a checksum and the number of its results."""
    total = count = 0
    for position, batch in enumerate([*batches, None]):
        items = [] if batch is None else list(operator.process_rows(0, batch))
        times = isinstance(operator, BufferingAggregate)  # this operator receives times, the other operators window IDs
        row = (position + 1) * BATCH
        low = END if batch is None else row if times else window.first_open_window(row)
        items += operator.punctuate(0, Punctuation("*", low))
        for item in items:
            if isinstance(item, pa.RecordBatch):
                total += int(item.column("value").to_numpy().sum())
                count += item.num_rows
    return total, count


def measure(rows: int, runs: int) -> dict[int, Figures]:
    """Measure all operators at all slides in turns. Return the minimum of several runs."""
    random = np.random.default_rng(1)
    numbers = np.arange(rows)
    columns = (numbers, numbers, np.zeros(rows, np.int64), random.integers(1 << 40, size=rows))
    whole = Stream(*columns)
    found = {}
    for slide in SLIDES:
        stream = whole if slide > 1 else Stream(*(column[:PANE_PER_ROW_COUNT] for column in columns))
        rows = len(stream)
        window = SlidingWindow(RANGE, slide)
        made: dict[str, Callable[[], Operator]] = {
            "buffering": partial(BufferingAggregate, [], MAX_VALUE, window),
            "WID": partial(AdaptiveAggregate, [], MAX_VALUE, RANGE, slide, policy=ALWAYS_EAGER),
            "Paned-WID": partial(Aggregate, [], MAX_VALUE),
        }
        ns = dict.fromkeys(NAMES, float("inf"))
        scan = float("inf")
        answers = set()
        for _ in range(runs):
            scan = min(scan, time_step(partial(batches_of, stream, window)).processor)
            batches = batches_of(stream, window)
            for name, make in made.items():
                before = time.process_time()
                answers.add(feed(make(), batches, window))
                ns[name] = min(ns[name], (time.process_time() - before) / rows * 1e9)
        if len(answers) != 1:
            raise ValueError(f"the operators have different results at SLIDE {slide}: {answers}")
        found[slide] = Figures(ns, scan / rows * 1e9, RANGE, -(-RANGE // slide))
    return found


def judge(report: Report, ns: dict[int, dict[str, float]], judged: bool) -> None:
    """Check the criteria. In order, buffering is the cheapest method. Out of order, the slide decides."""
    nearest = {slide: each["buffering"] / min(each["WID"], each["Paned-WID"]) for slide, each in ns.items()}
    overlapping = max(ratio for slide, ratio in nearest.items() if slide < RANGE)
    few = max(each["WID"] / each["Paned-WID"] for slide, each in ns.items() if slide <= FEW_ROWS_IN_A_PANE)
    least, tumbling = ns[min(ns)], ns[RANGE]
    report.add_criterion("time, buffering / the next, SLIDE 1 to 2000, the most", overlapping, "<= 0.75", judged)
    report.add_criterion("time, WID / buffering, SLIDE 1", least["WID"] / least["buffering"], ">= 10", judged)
    report.add_criterion("time, WID / Paned-WID, SLIDE 1 to 100, the most", few, "<= 0.4", judged)
    report.add_criterion("time, Paned-WID / WID, SLIDE 4000", tumbling["Paned-WID"] / tumbling["WID"], "<= 0.9", judged)


def run(setting: Setting) -> Report:
    """Compare the operators."""
    rows = 12_000 if setting.quick else 40_000
    found = on_one_core(measure, rows, setting.runs(4))
    report = Report("X1")
    report.table(
        f"max over {RANGE} rows, {rows:,} rows: ns for a row, and what is held",
        ("SLIDE", *NAMES, "scan", "WID / buffering", "Paned-WID / buffering", "tuples buffered", "partials of WID"),
        [
            (
                str(slide),
                *(f"{each.ns[name]:,.0f}" for name in NAMES),
                f"{each.scan:.0f}",
                *(f"{each.ns[name] / each.ns['buffering']:.2f}" for name in NAMES[1:]),
                str(each.tuples),
                str(each.partials),
            )
            for slide, each in found.items()
        ],
    )
    judge(report, {slide: each.ns for slide, each in found.items()}, judged=not setting.quick)
    if setting.plots:
        points = {name: [(slide, each.ns[name]) for slide, each in found.items()] for name in NAMES}
        points["scan"] = [(slide, each.scan) for slide, each in found.items()]
        labels = ("SLIDE, rows", "ns for a row")
        scatter(setting.plots / "x1.svg", "max over 4000 rows, in order", points, labels, logarithmic=True)
    return report
