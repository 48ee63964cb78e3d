"""Sliding windows of a finite input, implemented directly from their definition.

    window w contains every t with  origin + (w+1)*slide - range <= t < origin + (w+1)*slide,  w >= 0

Panes divide RANGE and SLIDE, so a pane is completely inside or outside a window, and its start determines which. All
partials have arrived before the first result. So they are divided into sections of equal panes, sorted by pane, and the
sections of a window are consecutive. This operator is a second implementation of windows, to compare results. It shares
no code with `highlevel.sliding`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture.arrow_compute import array_of
from capture.lazy_dataclasses import dataclass
from highlevel.aggregation import BOUNDS, Aggregation
from highlevel.groups.merging import list_merge_rules
from highlevel.groups.table import merge_batches
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.windows.kind import SlidingWindow
from lowlevel.integer_ranges import Ranges, unite
from lowlevel.punctuation import END, Item, Punctuation

SECTION_ROWS = 256
"""Minimum mean number of rows of the sections of unsorted partials, for each window that contains a pane.

With smaller sections, the partials are sorted: slices of all windows would take longer.
"""

MERGE_ROWS = 65_536
"""Maximum number of partials of small windows that are merged in one call. The fixed cost of a call is the cost of some
thousands of rows.
"""

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)

Run = list[tuple[int, int, int]]
"""Windows that are merged in one call. Each is (window ID, first, end): its sections (`Sections`)."""


@dataclass(frozen=True)
class Sections:
    """Consecutive partials of one pane, in the order of panes: their `panes`, and their positions `[starts, ends)`."""

    panes: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]

    def count_rows(self, first: int, end: int) -> int:
        """Return the number of partials of the sections `[first, end)`."""
        return int((self.ends[first:end] - self.starts[first:end]).sum())

    def slices(self, partials: pa.Table, first: int, end: int) -> list[pa.Table]:
        """Return the partials of the sections `[first, end)`, at least one. They are not copied.

        Adjacent sections are one slice, so if the partials are sorted, there is one slice.
        """
        starts, ends = self.starts[first:end], self.ends[first:end]
        gaps = np.flatnonzero(starts[1:] != ends[:-1])
        bounds = zip(starts[[0, *(gaps + 1)]].tolist(), ends[[*gaps, -1]].tolist(), strict=True)
        return [partials.slice(start, after - start) for start, after in bounds]


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
            # A slice visits all chunks before it.
            partials = pa.Table.from_batches(self._partials).combine_chunks()
            self._partials = []
            yield from self._results(partials)
        yield punctuation

    def _results(self, partials: pa.Table) -> Iterator[pa.RecordBatch]:
        aggregation, window = self._aggregation, self._window
        partials, sections = divide_by_pane(partials, -(-window.range // window.slide))
        times = aggregation.low.origin + sections.panes * aggregation.low.pane
        windows = list(windows_of(window, times))
        covered = unite((first, end) for _, first, end in windows)
        self.outside += partials.num_rows - sum(sections.count_rows(first, end) for first, end in covered)
        self._closed = unite([*self._closed, *((wid, wid + 1) for wid, _, _ in windows)])
        subs = aggregation.low.subaggregates
        merge, groups = list_merge_rules(subs), [*aggregation.merge_columns]
        partials = partials.select([*groups, *(sub.name for sub in subs)])
        for run in group_into_runs(iter(windows), sections):
            parts = [pa.concat_tables(sections.slices(partials, first, end)) for _, first, end in run]
            ends = [window.end(wid) for wid, _, _ in run]
            if len(run) == 1:
                yield _with_bounds(merge_batches(parts[0].to_batches(), groups, merge), ends[0], window.range)
                continue
            end_of_row = np.repeat(ends, [part.num_rows for part in parts])
            table = _with_bounds(pa.concat_tables(parts), end_of_row, window.range)
            yield merge_batches(table.to_batches(), [*BOUNDS, *groups], merge)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return no tables."""
        return {}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Do nothing, because there is no state."""


def divide_by_pane(partials: pa.Table, windows: int) -> tuple[pa.Table, Sections]:
    """Return partials, at least one, and their sections. The partials are sorted by pane if the sections are small.

    The low level returns the partials of a closed pane together, so sections are usually large. `windows`: the maximum
    number of windows that contain a pane.
    """
    sections = _find_sections(partials)
    if len(sections.panes) * windows * SECTION_ROWS > partials.num_rows:
        order = np.argsort(partials.column("pane").to_numpy(), kind="stable")
        partials = partials.take(pa.array(order))
        sections = _find_sections(partials)
    order = np.argsort(sections.panes, kind="stable")
    return partials, Sections(sections.panes[order], sections.starts[order], sections.ends[order])


def _find_sections(partials: pa.Table) -> Sections:
    """Return the sections in the order of their positions."""
    panes = partials.column("pane").to_numpy()
    bounds = np.concatenate([[0], np.flatnonzero(np.diff(panes)) + 1, [len(panes)]])
    return Sections(panes[bounds[:-1]], bounds[:-1], bounds[1:])


def _with_bounds(rows: Rows, ends: int | npt.NDArray[np.int64], window_range: int) -> Rows:
    """Return rows with the bounds of their windows as first columns. `ends`: one end for all rows, or that of each."""
    end_of_row: npt.NDArray[np.int64] = np.broadcast_to(np.asarray(ends, np.int64), rows.num_rows)
    columns = [array_of(end_of_row - window_range), array_of(end_of_row.copy()), *rows.columns]
    schema = pa.schema([*(pa.field(name, pa.int64()) for name in (WINDOW_START, WINDOW_END)), *rows.schema])
    return rows.from_arrays(columns, schema=schema)


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


def group_into_runs(windows: Iterator[tuple[int, int, int]], sections: Sections) -> Iterator[Run]:
    """Group small windows into runs of at most MERGE_ROWS partials. A larger window is a separate run."""
    run: Run = []
    rows = 0
    for wid, first, end in windows:
        window_rows = sections.count_rows(first, end)
        if run and rows + window_rows > MERGE_ROWS:
            yield run
            run, rows = [], 0
        run.append((wid, first, end))
        rows += window_rows
    if run:
        yield run
