"""State of open windows: partials of panes of rows, in chunks of decreasing sizes.

New partials are the last chunk. If the last chunk has at least half the size of the previous chunk, both are merged,
and partials of closed windows are dropped. So there are few chunks, and a partial is merged O(log n) times. Memory is
at most twice the partials of open windows, or of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from capture.lazy_dataclasses import dataclass
from highlevel.groups.key_words import Words
from highlevel.groups.merging import MergeRule
from highlevel.groups.table import merge_batches
from highlevel.partitions.kernels import NO_LIFE, find_closing_windows
from highlevel.windows.kind import SlidingWindow

LIFE, PANE, WID = "life", "pane", "wid"

MAX_MERGED_PARTIALS = 1 << 20
"""Approximate number of partials that are merged in one call. One window may have more."""


@dataclass(frozen=True, slots=True)
class ClosingPartials:
    """The partials of a chunk in final windows: row index, life, first window and number of windows of each."""

    batch: pa.RecordBatch
    row_indexes: Words
    lives: Words
    first_windows: Words
    window_counts: Words


class OpenPanes:
    """Partials by life, pane and group. The numbers of lives are defined by `Lives`."""

    def __init__(self, window: SlidingWindow, groups: Sequence[str], merge_rules: Sequence[MergeRule]) -> None:
        """Create an empty store. `groups` are the group columns within a partition."""
        self.window = window
        self.groups = list(groups)
        self.merge_rules = list(merge_rules)
        self.chunks: list[pa.RecordBatch] = []
        self.closed = 0
        """Number of closed windows that had rows."""

    @property
    def bytes(self) -> int:
        """Bytes of the partials."""
        return sum(int(chunk.nbytes) for chunk in self.chunks)

    def add(self, batch: pa.RecordBatch, reported: Words) -> None:
        """Add at least one partial, with the columns LIFE and PANE. `reported`: see `Lives.reported`."""
        self.chunks.append(merge_batches([batch], [LIFE, PANE, *self.groups], self.merge_rules))
        while len(self.chunks) > 1 and 2 * self.chunks[-1].num_rows >= self.chunks[-2].num_rows:
            last, before = self.chunks.pop(), self.chunks.pop()
            parts = [part for each in (before, last) if (part := self._drop_reported(each, reported)).num_rows]
            if parts:
                self.chunks.append(merge_batches(parts, [LIFE, PANE, *self.groups], self.merge_rules))

    def _drop_reported(self, chunk: pa.RecordBatch, reported: Words) -> pa.RecordBatch:
        """Return the partials that are in at least one window that has not been reported."""
        after = (chunk.column(PANE).to_numpy() * self.window.pane + self.window.range) // self.window.slide
        kept = after > reported[chunk.column(LIFE).to_numpy()]
        return chunk if kept.all() else chunk.filter(pa.array(kept))

    def close(self, reported: Words, final: Words) -> list[pa.RecordBatch]:
        """Return the windows `[reported, final)` of each life, merged: LIFE, WID, groups, sub-aggregates."""
        window = self.window
        closing, chunks = [], []
        for chunk in self.chunks:
            lives, panes = (chunk.column(name).to_numpy() for name in (LIFE, PANE))
            first, counts = np.empty((2, chunk.num_rows), np.int64)
            final_partials = find_closing_windows(
                lives, panes, len(lives), window.pane, window.range, window.slide, reported, final, first, counts
            )
            positions = np.flatnonzero(counts)
            if len(positions):
                closing.append(ClosingPartials(chunk, positions, lives[positions], first[positions], counts[positions]))
            if 2 * final_partials < chunk.num_rows:
                chunks.append(chunk)
            elif final_partials < chunk.num_rows:
                chunks.append(self._drop_reported(chunk, final))
        self.chunks = chunks
        return list(self._merge_windows(closing, reported, final))

    def _merge_windows(
        self, closing: Sequence[ClosingPartials], reported: Words, final: Words
    ) -> Iterator[pa.RecordBatch]:
        """Merge partials by window. The closing windows form one sequence, which is split if it is too long."""
        total = sum(int(chunk_closing.window_counts.sum()) for chunk_closing in closing)
        if total == 0:
            return
        windows = np.maximum(final - reported, 0)
        before = np.cumsum(windows) - windows  # start of the windows of each life in the sequence
        length = int(windows.sum())
        step = max(1, MAX_MERGED_PARTIALS * length // total)
        shifts = before - reported
        for start in range(0, length, step):
            parts = [
                part
                for chunk_closing in closing
                if (part := self._make_partials(chunk_closing, shifts, start, start + step)).num_rows
            ]
            if parts:
                results = merge_batches(parts, [LIFE, WID, *self.groups], self.merge_rules)
                has_rows = np.zeros(step, np.bool_)
                has_rows[shifts[results.column(LIFE).to_numpy()] + results.column(WID).to_numpy() - start] = True
                self.closed += int(np.count_nonzero(has_rows))
                yield results

    def _make_partials(self, closing: ClosingPartials, shifts: Words, begin: int, end: int) -> pa.RecordBatch:
        """Return a partial for each window in `[begin, end)` of the sequence that contains a partial of the chunk."""
        first = closing.first_windows + shifts[closing.lives]
        low, high = np.maximum(first, begin), np.minimum(first + closing.window_counts, end)
        counts = np.maximum(high - low, 0)
        partials = np.repeat(np.arange(len(counts)), counts)
        offsets = np.arange(len(partials)) - np.repeat(np.cumsum(counts) - counts, counts)
        lives = closing.lives[partials]
        wids = low[partials] + offsets - shifts[lives]
        names = [*self.groups, *(name for column_group in self.merge_rules for name in column_group.columns)]
        rows = closing.batch.select(names).take(pa.array(closing.row_indexes[partials]))
        return rows.append_column(LIFE, pa.array(lives)).append_column(WID, pa.array(wids))

    def renumber(self, numbers: Words) -> None:
        """Replace life number i by `numbers[i]`. Drop partials whose life becomes NO_LIFE."""
        chunks = []
        for chunk in self.chunks:
            lives = numbers[chunk.column(LIFE).to_numpy()]
            renamed = chunk.set_column(chunk.schema.get_field_index(LIFE), LIFE, pa.array(lives))
            kept = renamed.filter(pa.array(lives != NO_LIFE))
            if kept.num_rows:
                chunks.append(kept)
        self.chunks = chunks

    def snapshot(self, reported: Words) -> pa.RecordBatch | None:
        """Return the partials of open windows in one batch, or None."""
        parts = [part for chunk in self.chunks if (part := self._drop_reported(chunk, reported)).num_rows]
        self.chunks = [merge_batches(parts, [LIFE, PANE, *self.groups], self.merge_rules)] if parts else []
        return self.chunks[0] if self.chunks else None
