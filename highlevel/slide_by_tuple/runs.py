"""Rows in any order, from which the rows below a time can be removed in order. They are stored in sorted runs."""

from __future__ import annotations

import numpy as np

from highlevel.groups.key_words import Words

TIME = 0
"""The word of a row that is its time."""

SMALL = 8192
"""Rows of a run below which it is merged with a neighbour of its size."""


class Runs:
    """Rows of `width` int64 words each, as matrices of width x rows."""

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
        """Memory of the rows, including removed rows that share it."""
        return sum(int(run.nbytes if run.base is None else run.base.nbytes) for run in self._runs)

    def add(self, rows: Words) -> None:
        """Add a matrix of rows. The caller must not change it afterwards."""
        if rows.shape[1] == 0:
            return
        self._runs.append(in_order([rows]))
        while len(self._runs) > 1:
            before, last = self._runs[-2:]
            if before.shape[1] > 2 * last.shape[1] or before.shape[1] > SMALL:
                break
            self._runs[-2:] = [in_order([before, last])]

    def take(self, watermark: int) -> Words:
        """Remove the rows with times below `watermark`, and return them in the order of time."""
        taken: list[Words] = []
        kept: list[Words] = []
        for run in self._runs:
            if run[TIME, 0] >= watermark:
                kept.append(run)
                continue
            place = int(np.searchsorted(run[TIME], watermark))
            taken.append(run[:, :place])
            if place < run.shape[1]:
                rest = run[:, place:]
                # A view keeps the memory of its whole run. At most half of this memory may be unused.
                whole = run if run.base is None else run.base
                kept.append(rest if 2 * rest.nbytes > whole.nbytes else rest.copy())
        self._runs = kept
        return in_order(taken) if taken else np.empty((self.width, 0), np.int64)

    def all(self) -> Words:
        """Return all rows in the order of their times, without removing them."""
        return in_order(self._runs) if self._runs else np.empty((self.width, 0), np.int64)

    def relabel(self, word: int, new: Words) -> None:
        """Replace a word of each row by `new[word]`. Times do not change."""
        for place, run in enumerate(self._runs):
            copy = run.copy()
            copy[word] = new[run[word]]
            self._runs[place] = copy


def in_order(parts: list[Words]) -> Words:
    """Return the rows of at least one matrix in the order of their times. Equal times keep their order."""
    rows = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
    times = rows[TIME]
    if (times[1:] >= times[:-1]).all():
        return rows
    return rows.take(np.argsort(times, kind="stable"), axis=1)
