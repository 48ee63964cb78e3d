"""State of AdaptWID: groups, the buffer of tuples, and partials.

The length of an array of rows is a power of two; the index has two slots per row. If less than a quarter of an array is
used after windows have closed, the array is replaced by a smaller one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from highlevel.baselines.adaptive.kernels import add_due, chain_tuples, take_tuples
from highlevel.baselines.adaptive.layout import (
    ACCUMULATORS,
    EAGER,
    FREE,
    GROUP,
    GROUP_WORDS,
    HEAD,
    HELD,
    LAST,
    NONE,
    PARTIALS,
    STATE_WORDS,
    TUPLES,
    VALUES,
    VOLUME,
    WANTED_PARTIALS,
    WANTED_TUPLES,
    WID,
)
from highlevel.baselines.adaptive.partial_kernels import index_partials
from highlevel.groups.key_words import Words
from highlevel.groups.keys import Keys

SLOT_BYTES = 16
"""Bytes of two index slots, which belong to one row of an array."""


MIN_ROWS = 16
"""Minimum number of rows of an array."""


def choose_capacity(rows: int) -> int:
    """Return the size of an array for `rows` rows: a power of two."""
    return max(MIN_ROWS, 1 << (rows - 1).bit_length())


def copy_resized(array: Words, used: int, rows: int) -> Words:
    """Copy the first `used` rows into an array of `rows` rows."""
    copy = np.empty((rows, array.shape[1]), np.int64)
    copy[:used] = array[:used]
    return copy


def replace_rows(array: Words, rows: Words) -> Words:
    """Replace all rows: in the same array, or in a smaller array if they fill less than a quarter of it."""
    if 4 * len(rows) < len(array):
        array = np.empty((choose_capacity(2 * len(rows)), array.shape[1]), np.int64)
    array[: len(rows)] = rows
    return array


class Partials:
    """Unordered partials, and an index with two slots per row of the array. Kernels write both."""

    def __init__(self, value_count: int, state: Words) -> None:
        """Create an empty table of partials with `value_count` values each. `state`: the state of the kernels."""
        self.state = state
        self.rows = np.empty((MIN_ROWS, ACCUMULATORS + value_count), np.int64)
        self.index = _empty_index(MIN_ROWS)

    @property
    def count(self) -> int:
        """Number of stored partials."""
        return int(self.state[PARTIALS])

    @property
    def used_rows(self) -> Words:
        """The rows of the partials, without a copy."""
        return self.rows[: self.count]

    @property
    def bytes_of_one(self) -> int:
        """Bytes of a partial and of its part of the index."""
        return 8 * self.rows.shape[1] + SLOT_BYTES

    def grow(self, wanted: int) -> None:
        """Allocate memory for `wanted` more partials."""
        rows = choose_capacity(self.count + wanted)
        self.rows = copy_resized(self.rows, self.count, max(2 * len(self.rows), rows))
        self.rebuild_index()

    def replace_all(self, rows: Words) -> None:
        """Replace all partials by `rows`."""
        self.rows = replace_rows(self.rows, rows)
        self.state[PARTIALS] = len(rows)
        self.rebuild_index()

    def rebuild_index(self) -> None:
        """Build the index from the rows."""
        self.index = _empty_index(len(self.rows))
        index_partials(self.rows.reshape(-1), self.rows.shape[1], self.count, self.index, len(self.index))


def _empty_index(rows: int) -> Words:
    """Make an index for an array of `rows` rows."""
    return np.full(2 * rows, NONE, np.int64)


class Store:
    """State of AdaptWID for groups by columns of `kinds`.

    `ops` contains the operation that adds each value to an accumulator.
    """

    def __init__(self, kinds: Sequence[pa.DataType], ops: Words) -> None:
        """Create an empty store."""
        self.ops = ops
        self.keys = Keys(kinds)
        self.state = np.zeros(STATE_WORDS, np.int64)
        self.state[FREE] = NONE
        self.groups = np.empty((MIN_ROWS, GROUP_WORDS), np.int64)
        self.tuples = np.empty((MIN_ROWS, VALUES + len(ops)), np.int64)
        self.partials = Partials(len(ops), self.state)

    @property
    def group_count(self) -> int:
        """Number of known groups."""
        return self.keys.count

    @property
    def tuple_count(self) -> int:
        """Number of stored tuples."""
        return int(self.state[HELD])

    @property
    def tuple_bytes(self) -> int:
        """Bytes of a tuple in the buffer."""
        return 8 * self.tuples.shape[1]

    @property
    def bytes(self) -> int:
        """Bytes of all groups (their keys, their properties, their part of the index), tuples and partials."""
        group = 8 * (self.keys.ids.width + self.groups.shape[1]) + SLOT_BYTES
        rows = self.group_count * group + self.tuple_count * self.tuple_bytes
        return rows + self.partials.count * self.partials.bytes_of_one

    def copy_tuples(self) -> Words:
        """Return a copy of the rows of the buffer that contain a tuple."""
        rows = self.tuples[: self.state[TUPLES]]
        return rows[rows[:, GROUP] != NONE]

    @property
    def is_eager(self) -> npt.NDArray[np.bool_]:
        """Mask of the eager groups."""
        eager: npt.NDArray[np.bool_] = self.groups[: self.group_count, HEAD] == EAGER
        return eager

    def find_group_ids(self, columns: Sequence[pa.Array], rows: int) -> Words:
        """Return the ID of each row's group. New groups get the next IDs."""
        known = self.group_count
        group_ids = self.keys.find_or_insert(columns, rows)
        if self.group_count > len(self.groups):
            self.groups = copy_resized(self.groups, known, choose_capacity(self.group_count))
        self.groups[known : self.group_count] = 0, NONE  # VOLUME, HEAD
        return group_ids

    def add_rows(
        self, group_ids: Words, firsts: Words, ends: Words, values: Words, closed: int, eager_above: int
    ) -> None:
        """Store rows, or add them to their windows `[firsts, ends)`.

        Groups with more than `eager_above` tuples become eager.
        """
        done = 0
        flat = values.reshape(-1)
        while True:
            tuples, partials = self.tuples.reshape(-1), self.partials.rows.reshape(-1)
            done = take_tuples(
                group_ids, firsts, ends, flat, flat.view(np.float64), done, len(group_ids), self.groups.reshape(-1),
                tuples, tuples.view(np.float64), len(self.tuples), closed, partials, partials.view(np.float64),
                len(self.partials.rows), self.partials.index, len(self.partials.index), self.ops, len(self.ops),
                self.state, eager_above,
            )  # fmt: skip
            if done == len(group_ids):
                return
            self._make_room()

    def add_due(self, low: int, high: int) -> None:
        """Add tuples of the buffer to their windows `[low, high)`, which are about to close.

        Tuples without other windows are dropped. The caller must then call `remove_gaps`.
        """
        done = 0
        rows = int(self.state[TUPLES])
        tuples, groups = self.tuples.reshape(-1), self.groups.reshape(-1)
        while True:
            partials = self.partials.rows.reshape(-1)
            done = add_due(
                tuples, tuples.view(np.float64), done, rows, low, high, groups, partials, partials.view(np.float64),
                len(self.partials.rows), self.partials.index, len(self.partials.index), self.ops, len(self.ops),
                self.state,
            )  # fmt: skip
            if done == rows:
                return
            self._make_room()

    def remove_due(self, high: int) -> Words:
        """Remove and return the partials of windows below `high`. Subtract their tuples from the volumes."""
        rows = self.partials.used_rows
        due = rows[:, WID] < high
        taken = rows[due]
        self._subtract_tuples(taken[:, GROUP], taken[:, LAST])
        self.partials.replace_all(rows[~due])
        return taken

    def remove_gaps(self) -> None:
        """Move the tuples of the buffer into the rows of removed tuples, so that no gap remains."""
        self._keep_tuples(self.copy_tuples())

    def make_lazy(self, lazy_below: int) -> int:
        """Make eager groups of fewer than `lazy_below` tuples lazy, but keep their partials. Return their number.

        A group without tuples has no partials either and may be removed.
        """
        groups = self.groups[: self.group_count]
        empty = groups[:, VOLUME] == 0
        calm = self.is_eager & (groups[:, VOLUME] < lazy_below) & ~empty
        groups[calm | empty, HEAD] = NONE
        self._remove_groups(~empty)
        return int(np.count_nonzero(calm))

    def load(self, columns: Sequence[pa.Array], groups: Words, tuples: Words, partials: Words) -> None:
        """Fill the empty store with these rows.

        `groups` contains VOLUME and HEAD of each group, in the order of their IDs.
        """
        self.find_group_ids(columns, len(groups))
        self.groups[: len(groups)] = groups
        self.tuples = np.empty((choose_capacity(len(tuples)), tuples.shape[1]), np.int64)
        self._keep_tuples(tuples)
        self.partials.rows = np.empty((choose_capacity(len(partials)), partials.shape[1]), np.int64)
        self.partials.replace_all(partials)

    def _remove_groups(self, used: npt.NDArray[np.bool_]) -> None:
        """Remove unused groups if they are at least a quarter of all groups, and renumber the other groups."""
        kept = int(np.count_nonzero(used))
        if 4 * kept > 3 * len(used) or kept == len(used):
            return
        numbers = np.cumsum(used) - 1
        tuples = self.tuples[: self.state[TUPLES]]  # without gaps, because the caller has removed them
        for rows in (tuples, self.partials.used_rows):
            rows[:, GROUP] = numbers[rows[:, GROUP]]
        groups = self.groups[: len(used)][used]
        self.groups = copy_resized(groups, kept, choose_capacity(kept))
        columns = self.keys.columns(np.flatnonzero(used))
        self.keys = Keys(self.keys.kinds)
        self.keys.find_or_insert(columns, kept)
        self.partials.rebuild_index()

    def _subtract_tuples(self, groups: Words, tuples: Words) -> None:
        """Subtract `tuples`, a number of tuples per entry of `groups`, from the volumes of these groups."""
        if len(groups):
            fewer = np.bincount(groups, tuples, self.group_count)
            self.groups[: self.group_count, VOLUME] -= fewer.astype(np.int64)

    def _make_room(self) -> None:
        """Enlarge the arrays that were too small for a kernel."""
        wanted_tuples, wanted_partials = self.state[[WANTED_TUPLES, WANTED_PARTIALS]].tolist()
        if wanted_tuples:
            self.tuples = copy_resized(self.tuples, int(self.state[TUPLES]), 2 * len(self.tuples))
        if wanted_partials:
            self.partials.grow(wanted_partials)
        self.state[[WANTED_TUPLES, WANTED_PARTIALS]] = 0

    def _keep_tuples(self, rows: Words) -> None:
        """Replace all tuples by `rows`."""
        self.tuples = replace_rows(self.tuples, rows)
        self.state[[TUPLES, HELD]] = len(rows)
        self.state[FREE] = NONE
        heads = self.groups[: self.group_count, HEAD]
        heads[heads != EAGER] = NONE
        chain_tuples(self.tuples.reshape(-1), self.tuples.shape[1], len(rows), self.groups.reshape(-1))
