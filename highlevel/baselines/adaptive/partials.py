"""The partials of AdaptWID, and the index by group and window."""

from __future__ import annotations

import numpy as np

from highlevel.baselines.adaptive.arrays import MIN_ROWS, replaced, resized, room
from highlevel.baselines.adaptive.layout import ACCUMULATORS, NONE, PARTIALS
from highlevel.baselines.adaptive.partial_kernels import index_partials
from highlevel.groups.key_words import Words

SLOT_BYTES = 16
"""Bytes of two index slots, which belong to one row of an array."""


class Partials:
    """Rows in no order, and an index with two slots per row of the array. Kernels write both."""

    def __init__(self, values: int, state: Words) -> None:
        """Create an empty table for partials of `values` values. The kernels' `state` contains their number."""
        self.state = state
        self.rows = np.empty((MIN_ROWS, ACCUMULATORS + values), np.int64)
        self.index = _empty_index(MIN_ROWS)

    @property
    def count(self) -> int:
        """Number of stored partials."""
        return int(self.state[PARTIALS])

    @property
    def held(self) -> Words:
        """The rows of the partials, not copied."""
        return self.rows[: self.count]

    @property
    def bytes_of_one(self) -> int:
        """Bytes of a partial, its part of the index included."""
        return 8 * self.rows.shape[1] + SLOT_BYTES

    def grow(self, wanted: int) -> None:
        """Make room for `wanted` more partials."""
        rows = room(self.count + wanted)
        self.rows = resized(self.rows, self.count, max(2 * len(self.rows), rows))
        self.number_anew()

    def keep(self, rows: Words) -> None:
        """Replace all partials by `rows`."""
        self.rows = replaced(self.rows, rows)
        self.state[PARTIALS] = len(rows)
        self.number_anew()

    def number_anew(self) -> None:
        """Make the index from the rows."""
        self.index = _empty_index(len(self.rows))
        index_partials(self.rows.reshape(-1), self.rows.shape[1], self.count, self.index, len(self.index))


def _empty_index(rows: int) -> Words:
    """Make an index for an array of `rows` rows."""
    return np.full(2 * rows, NONE, np.int64)
