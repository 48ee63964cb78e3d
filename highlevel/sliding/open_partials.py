"""The partials of open windows: in merge buffers by ranges of window IDs, or scattered in sorted runs.

A merge buffer costs some tens of microseconds of Python, independent of its size. Windows of a millisecond contain only
a few partials, so the partials of many windows are stored together. Each batch is a run sorted by window ID; the
windows below a watermark are a prefix of each run. Runs are merged as in a log-structured merge tree: the last two
runs, if the last is at least half as long as the run before it. So there are O(log n) runs, and a row is copied O(log
n) times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.groups.merge_buffer import MergeBuffer
from highlevel.groups.merging import MergeRule
from highlevel.groups.running_totals import Key
from highlevel.groups.table import join_batches, merge_batches
from lowlevel.integer_ranges import Ranges, append_ids, unite


class MergeBuffers:
    """A map of merge buffers. Gaps between their ranges need neither memory nor time.

    A buffer is `coming` before its first window is reached, and then `current` until its last window is final. Current
    buffers do not grow, because partials for windows that were reached are late.
    """

    def __init__(self, groups: Sequence[str], merge_rules: Sequence[MergeRule]) -> None:
        """Create an empty map."""
        self.groups = list(groups)
        self.merge_rules = list(merge_rules)
        self.buffers: dict[Key, MergeBuffer] = {}
        self.current_rows = 0
        self._coming: list[Key] = []  # a heap
        self._current: list[tuple[int, Key]] = []  # a heap by ends

    @property
    def bytes(self) -> int:
        """Bytes of the buffers."""
        return sum(buffer.bytes for buffer in self.buffers.values())

    @property
    def current(self) -> list[Key]:
        """The ranges of the current buffers."""
        return [key for _, key in self._current]

    @property
    def current_count(self) -> int:
        """Number of current buffers."""
        return len(self._current)

    def store(self, key: Key, batch: pa.RecordBatch) -> None:
        """Add partials of windows that have not been reached. Ignore an empty range."""
        if key[0] < key[1] and batch.num_rows:
            if key not in self.buffers:
                self.put(key, MergeBuffer(self.groups, self.merge_rules))
            self.buffers[key].add(batch)

    def put(self, key: Key, buffer: MergeBuffer) -> None:
        """Add a buffer for a new range."""
        self.buffers[key] = buffer
        heappush(self._coming, key)

    def windows(self, first: int, end: int) -> Iterator[tuple[int, list[Key]]]:
        """Yield the windows `[first, end)` with partials in order, each with the buffers whose range begins with it."""
        wid = first
        while True:
            self.remove_before(wid)
            if not self._current:
                if not self._coming:
                    return
                wid = max(wid, self._coming[0][0])
            if wid >= end:
                return
            reached = []
            while self._coming and self._coming[0][0] <= wid:
                key = heappop(self._coming)
                heappush(self._current, (key[1], key))
                self.current_rows += self.buffers[key].rows
                reached.append(key)
            yield wid, reached
            wid += 1

    def remove_before(self, wid: int) -> None:
        """Remove the current buffers whose ranges end at or before window `wid`."""
        while self._current and self._current[0][0] <= wid:
            _, key = heappop(self._current)
            self.current_rows -= self.buffers.pop(key).rows


WID = "wid"

MANY_WINDOWS = 64
"""Minimum number of windows in a batch whose partials are stored in a run."""

FEW_ROWS = 64
"""Maximum number of partials per window in a run. Merge buffers are faster for more partials."""


class ScatteredPartials:
    """Rows of windows in runs. Each run is sorted by the column `wid`.

    Rows of one window and group are merged when their runs are merged.
    """

    def __init__(self, groups: Sequence[str], merge_rules: Sequence[MergeRule]) -> None:
        """Merge by the window and `groups`."""
        self.keys = [WID, *groups]
        self.merge_rules = list(merge_rules)
        self.runs: list[pa.RecordBatch] = []
        self.capacities: list[int] = []
        """For each run, the number of rows for which memory was allocated."""

    @property
    def rows(self) -> int:
        """Number of stored partials."""
        return sum(run.num_rows for run in self.runs)

    @property
    def bytes(self) -> int:
        """Bytes of the partials."""
        sizes = zip(self.runs, self.capacities, strict=True)
        return sum(int(run.nbytes) * room // run.num_rows for run, room in sizes)

    def add(self, run: pa.RecordBatch) -> None:
        """Add rows that are sorted by the column `wid`."""
        while self.runs and run.num_rows * 2 >= self.runs[-1].num_rows:
            self.capacities.pop()
            run = merge_batches([sort_runs([self.runs.pop(), run])], self.keys, self.merge_rules)
        self._append(run)

    def take_below(self, end: int) -> list[pa.RecordBatch]:
        """Remove and return the rows of windows with ids below `end`. Each batch is sorted."""
        taken = []
        runs, capacities = self.runs, self.capacities
        self.runs, self.capacities = [], []
        for run, room in zip(runs, capacities, strict=True):
            below = int(np.searchsorted(window_ids_of(run), end))
            if below:
                taken.append(run.slice(0, below))
            if below < run.num_rows:
                self._append(run.slice(below), room)
        return taken

    def _append(self, run: pa.RecordBatch, capacity: int = 0) -> None:
        """Add a run. Copy it if more than half of its memory belongs to rows that were removed."""
        if run.num_rows * 2 < capacity:
            run, capacity = run.take(pa.array(np.arange(run.num_rows))), 0
        self.runs.append(run)
        self.capacities.append(capacity or run.num_rows)

    def windows(self) -> Ranges:
        """Return the ids of the windows that have rows."""
        ranges_of_runs: Ranges = []
        for run in self.runs:
            ranges: Ranges = []
            append_ids(ranges, window_ids_of(run))
            ranges_of_runs += ranges
        return unite(ranges_of_runs)

    def snapshot(self) -> pa.Table | None:
        """Return all rows as one table, or None without rows."""
        if len(self.runs) > 1:
            self.restore(pa.Table.from_batches([merge_batches([sort_runs(self.runs)], self.keys, self.merge_rules)]))
        return pa.Table.from_batches(self.runs) if self.runs else None

    def restore(self, table: pa.Table) -> None:
        """Load the rows of a snapshot."""
        self.runs, self.capacities = [], []
        self._append(join_batches(table.to_batches()))


def window_ids_of(run: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the window ids of a run."""
    return np.asarray(run.column(WID).to_numpy())


def sort_runs(runs: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of sorted runs as one sorted batch."""
    joined = join_batches(runs)
    if len(runs) == 1:
        return joined
    return pc.take(
        joined, array_of(np.argsort(window_ids_of(joined), kind="stable"))
    )  # a merge of runs, linear for a few
