"""Partitions, their lives, and the number of rows of each life."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from highlevel.groups.key_words import Words
from highlevel.groups.keys import Keys
from highlevel.partitions.kernels import NO_LIFE, rank_rows
from highlevel.windows.kind import SlidingWindow
from lowlevel.subaggregates import INT_MAX, INT_MIN

COUNT, NEWEST = "rows counted", "newest ts"
"""The last columns of a snapshot, after the partition columns. Columns of queries have other names."""

PARTITION_OF, COUNTS, NEWEST_OF, REPORTED = range(4)
"""Rows of the array of lives."""

MAX_ENDED_LIVES = 1024
"""Ended lives are removed if there are more ended lives than active lives plus this number."""


class Lives:
    """Numbers the rows of each partition, and records which windows were reported.

    Memory grows with the known partitions. `remove_ended` removes ended lives.
    """

    def __init__(self, kinds: Sequence[pa.DataType], idle: int | None) -> None:
        """Create an empty table for partition columns of these types.

        A pause of `idle` ns ends a life. With None lives never end.
        """
        self.idle = INT_MAX if idle is None else idle
        self.keys = Keys(kinds)
        self.life_count = 0
        self._current = np.empty(0, np.int64)
        self._lives = np.zeros((4, 0), np.int64)

    @property
    def bytes(self) -> int:
        """Bytes of partitions and lives."""
        return self.keys.bytes + int(self._current.nbytes + self._lives.nbytes)

    @property
    def counts(self) -> Words:
        """Number of rows of each life."""
        return self._lives[COUNTS, : self.life_count]

    @property
    def reported(self) -> Words:
        """The first window of each life that has not been reported."""
        return self._lives[REPORTED, : self.life_count]

    @property
    def is_current(self) -> npt.NDArray[np.bool_]:
        """Mask of the current lives. The next row of a partition belongs to its current life."""
        return self._current[self._lives[PARTITION_OF, : self.life_count]] == np.arange(self.life_count)

    def rank(self, columns: Sequence[pa.Array], times: Words) -> tuple[Words, Words]:
        """Return the life of each row, and the number of the row in this life. The rows are in arrival order."""
        rows = len(times)
        partitions = self.keys.find_or_insert(columns, rows)
        self._current = _extend_array(self._current, self.keys.count, NO_LIFE)
        if self._lives.shape[1] < self.life_count + rows:
            room = max(2 * self._lives.shape[1], self.life_count + rows)
            self._lives = np.stack([_extend_array(row, room, 0) for row in self._lives])
        lives, ranks = np.empty((2, rows), np.int64)
        of, counts, newest, reported = self._lives
        before = self.life_count
        self.life_count = rank_rows(
            partitions, times, rows, self.idle, before, self._current, of, counts, newest, lives, ranks
        )
        reported[before : self.life_count] = 0
        return lives, ranks

    def end_idle_lives(self, watermark: int) -> None:
        """End the lives that are idle at `watermark` (ns). The next row of their partition begins another life."""
        before = max(INT_MIN, watermark - self.idle)
        silent = np.flatnonzero(self.is_current & (self._lives[NEWEST_OF, : self.life_count] <= before))
        self._current[self._lives[PARTITION_OF, silent]] = NO_LIFE

    def end_all(self) -> None:
        """End all lives."""
        self._current[:] = NO_LIFE

    def first_open_windows(self, window: SlidingWindow) -> Words:
        """Return the first window of each life that is not final."""
        counts = self.counts
        return np.where(self.is_current, counts // window.slide, (counts - 1 + window.range) // window.slide)

    def report(self, final: Words) -> None:
        """Record that all windows below `final` have been reported."""
        self._lives[REPORTED, : self.life_count] = final

    def partitions(self, lives: Words) -> list[pa.Array]:
        """Return the columns of the partitions of some lives."""
        return self.keys.columns(self._lives[PARTITION_OF, lives])

    def remove_ended(self, max_ended: int = MAX_ENDED_LIVES) -> Words | None:
        """Remove ended lives if there are many. Return the new number of each life (NO_LIFE: removed), or None.

        Partitions without a life are removed too.
        """
        is_current = self.is_current
        kept = np.flatnonzero(is_current)
        if self.life_count - len(kept) <= max_ended + (len(kept) if max_ended else 0):
            return None
        self.keys = self.keys.copy_of(self._lives[PARTITION_OF, kept])
        self._lives = self._lives[:, kept].copy()
        self._lives[PARTITION_OF] = np.arange(len(kept))
        self._current = np.arange(len(kept))
        numbers = np.full(self.life_count, NO_LIFE)
        numbers[kept] = np.arange(len(kept))
        self.life_count = len(kept)
        return numbers

    def snapshot(self, names: Sequence[str]) -> pa.Table:
        """Return a row for each life under these partition column names. All lives must be active."""
        counted = [pa.array(self._lives[row, : self.life_count].copy()) for row in (COUNTS, NEWEST_OF)]
        columns = self.partitions(np.arange(self.life_count))
        return pa.Table.from_arrays([*columns, *counted], names=[*names, COUNT, NEWEST])

    def restore(self, table: pa.Table, window: SlidingWindow) -> None:
        """Load the lives of a snapshot. The first row is life 0."""
        for batch in table.combine_chunks().to_batches():
            *columns, counts, newest = batch.columns
            before = self.life_count
            self.rank(columns, newest.to_numpy())
            self._lives[COUNTS, before : self.life_count] = counts.to_numpy()
        self.report(self.counts // window.slide)


def _extend_array(array: Words, length: int, fill: int) -> Words:
    """Return an array of at least `length` elements. New elements are `fill`."""
    if len(array) >= length:
        return array
    longer = np.full(max(length, 2 * len(array)), fill, np.int64)
    longer[: len(array)] = array
    return longer
