"""Final rows that later windows may contain, and the windows computed from these rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from highlevel.groups.accumulator import Accumulator
from highlevel.groups.key_words import Words
from highlevel.groups.merging import PAIRS, MergeFunction, MergeRule
from highlevel.slide_by_tuple.kernels import (
    BACK,
    BEGIN,
    END,
    ENTERED,
    FRONT,
    GROUP,
    LINK,
    MEMBER,
    NEWEST,
    NONE,
    OUTSIDE,
    PLACE,
    RESULT_VALUES,
    STATE_WORDS,
    TIME,
    VALUES,
    WINDOW,
    StoredRows,
    empty_groups,
    enter_rows,
    leave_rows,
    sweep,
)
from highlevel.slide_by_tuple.merge_word import FIRST, FIRST_FLOAT, LAST, LAST_FLOAT, SECOND
from highlevel.slide_by_tuple.runs import sort_by_time
from highlevel.windows.kind import Values

OUTPUT_ROWS = 65_536
"""Maximum number of rows in a batch of results."""

MIN_ROWS = 1024
"""Minimum capacity in rows, if rows are stored."""


class Extent:
    """Stored rows, sorted by time, as columns of a matrix: time, group ID, then the words of the values.

    Group IDs are smaller than the argument of the last call of `reserve`.
    """

    def __init__(self, window_range: int, accumulated_columns: Sequence[tuple[MergeRule, Sequence[bool]]]) -> None:
        """Make windows `(wid - window_range, wid]`. `accumulated_columns`: merge rules, True for FLOAT columns."""
        self.window_range = window_range
        ops: list[int] = []
        self.initial_values: list[int] = []
        for column_group, floats in accumulated_columns:
            words = Accumulator(column_group, floats)
            self.initial_values += words.initial_values
            if column_group.function in PAIRS:
                by_value = {MergeFunction.FIRST: (FIRST, FIRST_FLOAT), MergeFunction.LAST: (LAST, LAST_FLOAT)}
                ops += [by_value[column_group.function][floats[1]], SECOND]
            else:
                ops.append(words.op)
        self.columns = len(ops)
        self._ops = np.array(ops, np.int64)
        self._initial_values = np.array(self.initial_values, np.int64)
        self._rows = self._allocate_rows(0)
        self._groups = empty_groups(0, self.initial_values)
        self._state = np.zeros(STATE_WORDS, np.int64)

    def _allocate_rows(self, capacity: int) -> Words:
        return np.empty((VALUES + 2 * self.columns, capacity), np.int64)

    @property
    def _stored(self) -> StoredRows:
        """The rows and groups for kernels. The arrays are replaced when they must grow."""
        rows, groups = self._rows, self._groups
        return StoredRows(
            rows, rows.view(np.float64), rows.shape[1], groups, groups.view(np.float64), groups.shape[1], self._ops,
            self._initial_values, self.columns, self._state,
        )  # fmt: skip

    @property
    def outside(self) -> int:
        """Number of removed rows that were in no window."""
        return int(self._state[OUTSIDE])

    @property
    def bytes(self) -> int:
        """Bytes of rows and totals."""
        return int(self._rows.nbytes + self._groups.nbytes)

    @property
    def times(self) -> Values:
        """Times of the stored rows."""
        return self._rows[TIME, self._state[BEGIN] : self._state[END]]

    @property
    def groups(self) -> Words:
        """Group IDs of the stored rows."""
        return self._rows[GROUP, self._state[BEGIN] : self._state[END]]

    def rows(self) -> Words:
        """Return a copy of the stored rows."""
        stored = self._rows[:, self._state[BEGIN] : self._state[END]]
        return np.concatenate([stored[:LINK], stored[VALUES : VALUES + self.columns]])

    def reserve(self, group_capacity: int) -> None:
        """Allocate memory for group IDs below `group_capacity`."""
        before = self._groups.shape[1]
        if before < group_capacity:
            more = empty_groups(group_capacity - before, self.initial_values)
            self._groups = np.ascontiguousarray(np.concatenate([self._groups, more], axis=1))

    def add(self, rows: Words) -> None:
        """Add rows. If a row is older than the newest stored row, the totals are computed again from all rows."""
        if rows.shape[1] == 0:
            return
        if len(self.times) and rows[TIME, 0] < self.times[-1]:
            rows = sort_by_time([self.rows(), rows])
            outside = self.outside
            self._groups = empty_groups(self._groups.shape[1], self.initial_values)
            self._state = np.zeros(STATE_WORDS, np.int64)
            self._state[OUTSIDE] = outside
        end = int(self._state[END])
        if end + rows.shape[1] > self._rows.shape[1]:
            stored_count = len(self.times)
            self._reallocate(max(MIN_ROWS, stored_count + stored_count // 2, stored_count + rows.shape[1]))
            end = stored_count
        positions = slice(end, end + rows.shape[1])
        self._rows[:LINK, positions] = rows[:LINK]
        self._rows[VALUES : VALUES + self.columns, positions] = rows[LINK:]
        self._state[END] = positions.stop

    def mark_entered(self, last: int) -> None:
        """Record that the rows up to the time `last` have been in a window."""
        enter_rows(self._stored, last)

    def windows(self, wids: Values) -> Iterator[Words]:
        """Yield results as matrices with a column for each group of a window: window ID, group ID, totals.

        `wids` are greater than the IDs of all earlier windows.
        """
        self._state[WINDOW] = 0
        stored = self._stored
        while self._state[WINDOW] < len(wids):
            room = min(OUTPUT_ROWS, len(wids) * self._groups.shape[1])
            out = np.empty((RESULT_VALUES + self.columns, room), np.int64)
            row_count = sweep(stored, wids, len(wids), self.window_range, out, out.view(np.float64), room)
            yield out[:, :row_count]

    def remove_until(self, last: int) -> None:
        """Remove the rows up to the time `last`."""
        leave_rows(self._stored, last)
        stored_count = len(self.times)
        if 4 * max(stored_count, MIN_ROWS if stored_count else 0) < self._rows.shape[1]:
            self._reallocate(max(stored_count + stored_count // 2, MIN_ROWS) if stored_count else 0)

    def _reallocate(self, capacity: int) -> None:
        """Move the stored rows to the beginning of new memory."""
        begin, end = int(self._state[BEGIN]), int(self._state[END])
        stored = self._rows[:, begin:end]
        rows = self._allocate_rows(capacity)
        rows[:, : end - begin] = stored
        entered = int(self._state[ENTERED]) - begin
        # Rows that have not entered a window have no link: their LINK word is undefined.
        for links in (rows[LINK, :entered], self._groups[FRONT], self._groups[NEWEST]):
            links[links != NONE] -= begin
        self._rows = rows
        self._state[[BEGIN, ENTERED, END]] = 0, entered, end - begin

    def renumber_groups(self, ids: Words, new_ids: Words) -> None:
        """Change the IDs of groups: the sorted `ids` become 0, 1, 2, …. `new_ids` contains the new ID for each old ID.

        Groups that are not in `ids` must have no rows.
        """
        stored = slice(self._state[BEGIN], self._state[END])
        self._rows[GROUP, stored] = new_ids[self._rows[GROUP, stored]]
        words = empty_groups(len(ids), self.initial_values)
        words[:MEMBER] = self._groups[:MEMBER, ids]
        words[BACK:] = self._groups[BACK:, ids]
        active = np.flatnonzero((words[FRONT] != NONE) | (words[NEWEST] != NONE))
        words[MEMBER, words[PLACE, active]] = active
        self._groups = words
