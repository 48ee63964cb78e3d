"""The windows of a finite input: those over time written directly from their definition, others by their operators.

    window w holds every t with  origin + (w+1)*slide - range <= t < origin + (w+1)*slide,  w >= 0

Panes divide RANGE and SLIDE, so a pane lies whole inside or outside a window and its start speaks for all of it. With
everything there at once no progress is needed: partials are laid out by pane, and a window is one run of them. This
shares no code with Bucket and Aggregate, which is what makes the batch engine a witness for the other two. Windows of
other kinds depend on single rows, and what is there at once is but a stream with one promise: that it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from highlevel.aggregation import BOUNDS, QueryPlan
from highlevel.groups.merging import accumulated
from highlevel.groups.table import merged
from highlevel.operators.meld import UNION
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START, beyond_cap
from highlevel.plan.operators.windowed import make_window_operator
from highlevel.results.stages import behind_windows, through
from highlevel.sliding.wid_ranges import Ranges, count, unite
from highlevel.windows.kind import SlidingWindow
from lowlevel.punctuation import END, Punctuation


@dataclass
class Counted:
    """What became of the partials: how many came, how many were in no window, and which windows there were.

    `others` are windows that a partition has for itself. `beyond_cap` are partials of groups that are not kept, and the
    rows behind them.
    """

    received: int = 0
    outside: int = 0
    closed: Ranges = field(default_factory=list)
    others: int = 0
    beyond_cap: tuple[int, int] = (0, 0)


MERGE_ROWS = 65_536
"""Partials of small windows that are merged at a time."""


def windows_of(window: SlidingWindow, times: npt.NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """Yield (wid, first, end) for each window that holds one of the sorted `times`, which are `times[first:end]`."""
    next_wid = 0
    for time in np.unique(times).tolist():
        for wid in _holding(window, time, next_wid):
            end = window.origin + (wid + 1) * window.slide
            first, after = np.searchsorted(times, [end - window.range, end]).tolist()
            yield wid, first, after
            next_wid = wid + 1


def _holding(window: SlidingWindow, time: int, least: int) -> Iterator[int]:
    """The ids, from `least` on, of the windows that hold `time`: those that end after it and begin before it."""
    wid = max(least, (time - window.origin) // window.slide)
    while window.origin + (wid + 1) * window.slide - window.range <= time:
        if time < window.origin + (wid + 1) * window.slide:
            yield wid
        wid += 1


def finished_windows(plan: QueryPlan, partials: pa.Table, counted: Counted) -> Iterator[pa.RecordBatch]:
    """Merge all partials of some groups and yield the query's rows, in the order of their windows.

    `counted` is added to before the first row.
    """
    if partials.num_rows == 0:
        return
    if plan.foldings or not isinstance(plan.window, SlidingWindow):
        yield from _by_operator(plan, partials, counted)
        return
    panes = partials.column("pane").to_numpy()
    order = np.argsort(panes, kind="stable")
    times = plan.low.origin + panes[order] * plan.low.pane
    windows = list(windows_of(plan.window, times))
    counted.received += len(times)
    counted.outside += len(times) - count(unite((first, end) for _, first, end in windows))
    counted.closed = unite([*counted.closed, *((wid, wid + 1) for wid, _, _ in windows)])
    subs = plan.low.subaggregates
    what = accumulated(subs)
    names = [*BOUNDS, *plan.grain, *(sub.name for sub in subs)]
    stages, _ = behind_windows(plan)
    for run in runs(iter(windows)):
        places = np.concatenate([order[first:end] for _, first, end in run])
        ends = np.concatenate([np.full(end - first, plan.window.end(wid), np.int64) for wid, first, end in run])
        tagged = partials.take(pa.array(places)).append_column(WINDOW_END, pa.array(ends))
        tagged = tagged.append_column(WINDOW_START, pa.array(ends - plan.window.range)).select(names)
        yield from through(stages, merged(tagged.to_batches(), [*BOUNDS, *plan.grain], what))


def _by_operator(plan: QueryPlan, partials: pa.Table, counted: Counted) -> Iterator[pa.RecordBatch]:
    """Give the operator of the plan's window everything, and then the end."""
    operator, (stages, _) = make_window_operator(plan), behind_windows(plan)
    found = [item for batch in partials.to_batches() for item in operator.rows(0, batch)]
    found += operator.punctuate(0, Punctuation(UNION, END))
    counted.received += operator.received
    counted.outside += operator.outside
    partials_beyond, rows_beyond = beyond_cap(operator)
    counted.beyond_cap = counted.beyond_cap[0] + partials_beyond, counted.beyond_cap[1] + rows_beyond
    closed = operator.take_closed()
    if isinstance(closed, int):
        counted.others += closed
    else:
        counted.closed = unite([*counted.closed, *closed])
    for batch in found:
        if isinstance(batch, pa.RecordBatch):
            yield from through(stages, batch)


def runs(windows: Iterator[tuple[int, int, int]]) -> Iterator[list[tuple[int, int, int]]]:
    """Put small windows together, for a merge costs as much as some thousands of rows; a large one stays alone."""
    run: list[tuple[int, int, int]] = []
    rows = 0
    for wid, first, end in windows:
        if run and rows + end - first > MERGE_ROWS:
            yield run
            run, rows = [], 0
        run.append((wid, first, end))
        rows += end - first
    if run:
        yield run
