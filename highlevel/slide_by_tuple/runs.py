"""A store of rows that arrive in any order. Rows below a watermark are removed in the order of their times."""

from __future__ import annotations

import numpy as np

from highlevel.groups.key_words import Words

TIME = 0
"""Index of the word that contains the time of a row."""

MAX_SMALL_ROWS = 8192
"""Maximum rows of a run that is merged with the next run, if the next run is at least half as large."""


class Runs:
    """Rows of `width` int64 words each, in runs: matrices of width x rows, sorted by time."""

    def __init__(self, width: int) -> None:
        """Create an empty list of runs."""
        self.width = width
        self._runs: list[Words] = []  # sorted by time, none empty

    @property
    def rows(self) -> int:
        """Number of stored rows."""
        return sum(run.shape[1] for run in self._runs)

    @property
    def bytes(self) -> int:
        """Bytes of the rows, including removed rows that share the memory."""
        return sum(int(run.nbytes if run.base is None else run.base.nbytes) for run in self._runs)

    def add(self, rows: Words) -> None:
        """Add a matrix of rows. The caller must not change it afterwards."""
        if rows.shape[1] == 0:
            return
        self._runs.append(sort_by_time([rows]))
        while len(self._runs) > 1:
            before, last = self._runs[-2:]
            if before.shape[1] > 2 * last.shape[1] or before.shape[1] > MAX_SMALL_ROWS:
                break
            self._runs[-2:] = [sort_by_time([before, last])]

    def take(self, watermark: int) -> Words:
        """Remove the rows with times below `watermark`, and return them in the order of time."""
        removed: list[Words] = []
        remaining_runs: list[Words] = []
        for run in self._runs:
            if run[TIME, 0] >= watermark:
                remaining_runs.append(run)
                continue
            split = int(np.searchsorted(run[TIME], watermark))
            removed.append(run[:, :split])
            if split < run.shape[1]:
                remaining = run[:, split:]
                # A view keeps the memory of its whole run. At most half of this memory may be unused.
                memory = run if run.base is None else run.base
                remaining_runs.append(remaining if 2 * remaining.nbytes > memory.nbytes else remaining.copy())
        self._runs = remaining_runs
        return sort_by_time(removed) if removed else np.empty((self.width, 0), np.int64)

    def all(self) -> Words:
        """Return all rows in the order of their times, without removing them."""
        return sort_by_time(self._runs) if self._runs else np.empty((self.width, 0), np.int64)

    def replace_word(self, word: int, new: Words) -> None:
        """Replace the value `v` of word number `word` in each row by `new[v]`. Times do not change."""
        for index, run in enumerate(self._runs):
            copy = run.copy()
            copy[word] = new[run[word]]
            self._runs[index] = copy


def sort_by_time(matrices: list[Words]) -> Words:
    """Return the rows of at least one matrix in the order of their times. Equal times keep their order."""
    rows = matrices[0] if len(matrices) == 1 else np.concatenate(matrices, axis=1)
    times = rows[TIME]
    if (times[1:] >= times[:-1]).all():
        return rows
    return rows.take(np.argsort(times, kind="stable"), axis=1)
