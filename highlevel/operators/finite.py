"""Sliding windows of a finite input, implemented directly from their definition.

    window w contains every t with  origin + (w+1)*slide - range <= t < origin + (w+1)*slide,  w >= 0

Panes divide RANGE and SLIDE, so a pane is completely inside or outside a window, and its start determines which. All
partials have arrived before the first result. So they are sorted by pane, and the partials of a window are consecutive.
This operator is a second implementation of windows, to compare results. It shares no code with `highlevel.sliding`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from highlevel.aggregation import BOUNDS, Aggregation
from highlevel.groups.merging import list_merge_rules
from highlevel.groups.table import merge_batches
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.windows.kind import SlidingWindow
from lowlevel.integer_ranges import Ranges, count, unite
from lowlevel.punctuation import END, Item, Punctuation

MERGE_ROWS = 65_536
"""Largest number of partials of small windows that are merged in one call. The fixed cost of a call is the cost of some
thousands of rows.
"""

Run = list[tuple[int, int, int]]
"""Windows that are merged in one call. Each is (window ID, first, end): the positions of its partials in order of
time.
"""


class FiniteWindows:
    """Stores all partials; merges them when the input ends. There is no snapshot: a failed run must be repeated."""

    late = late_rows = 0

    def __init__(self, aggregation: Aggregation, window: SlidingWindow) -> None:
        """Compute `aggregation` over the windows of `window`."""
        self._aggregation = aggregation
        self._window = window
        self._partials: list[pa.RecordBatch] = []
        self._closed: Ranges = []
        self.received = 0
        self.outside = 0

    @property
    def bytes(self) -> int:
        """Bytes of the partials."""
        return sum(batch.nbytes for batch in self._partials)

    def open_windows(self) -> Ranges:
        """Return no windows, because they are computed at the end of the input."""
        return []

    def take_closed_windows(self) -> Ranges:
        """Return and remove the IDs of the windows that became final."""
        closed, self._closed = self._closed, []
        return closed

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Store partials."""
        self.received += batch.num_rows
        self._partials.append(batch)
        return iter(())

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """If the input ends, return all windows in the order of their ends."""
        if punctuation.watermark != END:
            return
        if self._partials:
            yield from self._results(pa.Table.from_batches(self._partials))
            self._partials = []
        yield punctuation

    def _results(self, partials: pa.Table) -> Iterator[pa.RecordBatch]:
        aggregation, window = self._aggregation, self._window
        panes = partials.column("pane").to_numpy()
        order = np.argsort(panes, kind="stable")
        times = aggregation.low.origin + panes[order] * aggregation.low.pane
        windows = list(windows_of(window, times))
        self.outside += len(times) - count(unite((first, end) for _, first, end in windows))
        self._closed = unite([*self._closed, *((wid, wid + 1) for wid, _, _ in windows)])
        subs = aggregation.low.subaggregates
        merge, groups = list_merge_rules(subs), [*BOUNDS, *aggregation.merge_columns]
        names = [*groups, *(sub.name for sub in subs)]
        for run in group_into_runs(iter(windows)):
            positions = np.concatenate([order[first:end] for _, first, end in run])
            ends = np.concatenate([np.full(end - first, window.end(wid), np.int64) for wid, first, end in run])
            of_run = partials.take(pa.array(positions)).append_column(WINDOW_END, pa.array(ends))
            of_run = of_run.append_column(WINDOW_START, pa.array(ends - window.range)).select(names)
            yield merge_batches(of_run.to_batches(), groups, merge)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return no tables."""
        return {}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Do nothing, because there is no state."""


def windows_of(window: SlidingWindow, times: npt.NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """Yield (wid, first, end) for each window that contains at least one of the sorted `times`.

    The window contains `times[first:end]`.
    """
    next_wid = 0
    for time in np.unique(times).tolist():
        for wid in _windows_containing(window, time, next_wid):
            end = window.origin + (wid + 1) * window.slide
            first, after = np.searchsorted(times, [end - window.range, end]).tolist()
            yield wid, first, after
            next_wid = wid + 1


def _windows_containing(window: SlidingWindow, time: int, least: int) -> Iterator[int]:
    """Yield the IDs, from `least` on, of the windows that contain `time`."""
    wid = max(least, (time - window.origin) // window.slide)
    while window.origin + (wid + 1) * window.slide - window.range <= time:
        if time < window.origin + (wid + 1) * window.slide:
            yield wid
        wid += 1


def group_into_runs(windows: Iterator[tuple[int, int, int]]) -> Iterator[Run]:
    """Group small windows into runs of at most MERGE_ROWS partials. A larger window is a separate run."""
    run: Run = []
    rows = 0
    for wid, first, end in windows:
        if run and rows + end - first > MERGE_ROWS:
            yield run
            run, rows = [], 0
        run.append((wid, first, end))
        rows += end - first
    if run:
        yield run
