"""Compiled functions (kernels) that move a window over stored rows in time order (`sweep`).

Rows enter the window and leave it, and the totals of its rows are kept for each group.

    row      TIME, GROUP, LINK, values…, totals…    a matrix of words x row_capacity, one column per stored row;
                                                    columns BEGIN … END are in use
    group    FRONT, NEWEST, PLACE, MEMBER, back…    a matrix of words x group_capacity, one column per group

A group's older rows in the window are its front: FRONT is the first row, LINK the next. The totals of a row include all
following rows of the front. The group's newer rows are its back: NEWEST is its last row, the LINK of a row in the back
is the row before it, and `back…` are the totals of the back. NONE ends both lists. MEMBER[0 … ACTIVE) are the groups
with rows in the window; PLACE is the position of a group in MEMBER.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capture.native import Floats, Integer, Integers, helper, kernel
from highlevel.slide_by_tuple.merge_word import merge_word

TIME, GROUP, LINK, VALUES = 0, 1, 2, 3
FRONT, NEWEST, PLACE, MEMBER, BACK = 0, 1, 2, 3, 4
WID, RESULT_GROUP, RESULT_VALUES = 0, 1, 2
"""Words of a result row: its window, its group, and the first of its totals."""

NONE = -1
"""The end of a list of rows."""

BEGIN, ENTERED, END, ACTIVE, WINDOW, WRITTEN_GROUPS, OUTSIDE, STATE_WORDS = range(8)
"""Words of the state.

- BEGIN, END: range of the stored rows.
- ENTERED: end of the rows in the last window.
- ACTIVE: number of groups in the window.
- WINDOW: index of the next window. WRITTEN_GROUPS: number of its groups that are already written.
- OUTSIDE: number of removed rows that were in no window.
"""


class StoredRows(NamedTuple):
    """The rows and groups, for kernels. `rows_float` and `groups_float` are the same memory as float64.

    A row has `value_count` values. For each value, `ops` contains the operation that merges it, and `initial_values`
    the total of a group without rows. `state` has STATE_WORDS words.
    """

    rows: Integers
    rows_float: Floats
    row_capacity: Integer
    groups: Integers
    groups_float: Floats
    group_capacity: Integer
    ops: Integers
    initial_values: Integers
    value_count: Integer
    state: Integers


@helper
def enter_until(stored: StoredRows, last_time):  # type: ignore[no-untyped-def]
    """Add all rows up to `last_time`, inclusive, to the window."""
    rows, row_capacity = stored.rows, stored.row_capacity
    groups, group_capacity = stored.groups, stored.group_capacity
    state = stored.state
    row = state[ENTERED]
    while row < state[END] and rows[row] <= last_time:
        group = rows[GROUP * row_capacity + row]
        newest = groups[NEWEST * group_capacity + group]
        if newest == NONE and groups[FRONT * group_capacity + group] == NONE:
            groups[PLACE * group_capacity + group] = state[ACTIVE]
            groups[MEMBER * group_capacity + state[ACTIVE]] = group
            state[ACTIVE] += 1
        rows[LINK * row_capacity + row] = newest
        groups[NEWEST * group_capacity + group] = row
        for column in range(stored.value_count):
            merge_word(
                stored.ops[column],
                groups, stored.groups_float, (BACK + column) * group_capacity + group, group_capacity,
                rows, stored.rows_float, (VALUES + column) * row_capacity + row, row_capacity,
            )  # fmt: skip
        row += 1
    state[ENTERED] = row


@helper
def move_back_to_front(stored: StoredRows, group):  # type: ignore[no-untyped-def]
    """Move all rows of a group from its back to its front, which must be empty."""
    rows, row_capacity = stored.rows, stored.row_capacity
    groups, group_capacity = stored.groups, stored.group_capacity
    value_count = stored.value_count
    after = NONE
    row = groups[NEWEST * group_capacity + group]
    while row != NONE:
        for column in range(value_count):
            rows[(VALUES + value_count + column) * row_capacity + row] = rows[(VALUES + column) * row_capacity + row]
        if after != NONE:
            for column in range(value_count):
                totals = (VALUES + value_count + column) * row_capacity
                merge_word(
                    stored.ops[column], rows, stored.rows_float, totals + row, row_capacity,
                    rows, stored.rows_float, totals + after, row_capacity,
                )  # fmt: skip
        before = rows[LINK * row_capacity + row]
        rows[LINK * row_capacity + row] = after
        after = row
        row = before
    groups[FRONT * group_capacity + group] = after
    groups[NEWEST * group_capacity + group] = NONE
    for column in range(value_count):
        groups[(BACK + column) * group_capacity + group] = stored.initial_values[column]


@helper
def leave_until(stored: StoredRows, last_time):  # type: ignore[no-untyped-def]
    """Remove all rows up to `last_time`, inclusive, and count the rows that were in no window."""
    rows, row_capacity = stored.rows, stored.row_capacity
    groups, group_capacity = stored.groups, stored.group_capacity
    state = stored.state
    row = state[BEGIN]
    while row < state[END] and rows[row] <= last_time:
        if row == state[ENTERED]:
            state[ENTERED] += 1
            state[OUTSIDE] += 1
        else:
            group = rows[GROUP * row_capacity + row]
            if groups[FRONT * group_capacity + group] == NONE:
                move_back_to_front(stored, group)
            after = rows[LINK * row_capacity + row]
            groups[FRONT * group_capacity + group] = after
            if after == NONE and groups[NEWEST * group_capacity + group] == NONE:
                state[ACTIVE] -= 1
                position = groups[PLACE * group_capacity + group]
                other = groups[MEMBER * group_capacity + state[ACTIVE]]
                groups[MEMBER * group_capacity + position] = other
                groups[PLACE * group_capacity + other] = position
        row += 1
    state[BEGIN] = row


@kernel("i64(StoredRows, i64*, i64, i64, i64*, f64*, i64)")
def sweep(stored: StoredRows, wids, wid_count, window_range, out, out_float, out_capacity):  # type: ignore[no-untyped-def]
    """Write the groups of windows `(wid - window_range, wid]` to `out`. Return the number of written rows.

    `wids` is in ascending order and contains no window before the windows of earlier calls. `out` is a matrix of WID,
    RESULT_GROUP, values… x out_capacity. If it is full, the state contains the position: call again until
    state[WINDOW] is wid_count.
    """
    rows, row_capacity = stored.rows, stored.row_capacity
    groups, group_capacity = stored.groups, stored.group_capacity
    state, value_count = stored.state, stored.value_count
    written = 0
    while state[WINDOW] < wid_count:
        wid = wids[state[WINDOW]]
        leave_until(stored, wid - window_range)
        enter_until(stored, wid)
        for member in range(state[WRITTEN_GROUPS], state[ACTIVE]):
            if written == out_capacity:
                state[WRITTEN_GROUPS] = member
                return written
            group = groups[MEMBER * group_capacity + member]
            front = groups[FRONT * group_capacity + group]
            out[WID * out_capacity + written] = wid
            out[RESULT_GROUP * out_capacity + written] = group
            for column in range(value_count):
                value = stored.initial_values[column]
                if front != NONE:
                    value = rows[(VALUES + value_count + column) * row_capacity + front]
                out[(RESULT_VALUES + column) * out_capacity + written] = value
            for column in range(value_count):
                merge_word(
                    stored.ops[column], out, out_float, (RESULT_VALUES + column) * out_capacity + written, out_capacity,
                    groups, stored.groups_float, (BACK + column) * group_capacity + group, group_capacity,
                )  # fmt: skip
            written += 1
        state[WRITTEN_GROUPS] = 0
        state[WINDOW] += 1
    return written


@kernel("i64(StoredRows, i64)")
def enter_rows(stored: StoredRows, last_time):  # type: ignore[no-untyped-def]
    """Add all rows up to `last_time`, inclusive, to the window. Return the index after the last added row."""
    enter_until(stored, last_time)
    return stored.state[ENTERED]


@kernel("i64(StoredRows, i64)")
def leave_rows(stored: StoredRows, last_time):  # type: ignore[no-untyped-def]
    """Remove all rows up to `last_time`, inclusive, from the window. Return the index of the first remaining row."""
    leave_until(stored, last_time)
    return stored.state[BEGIN]


def empty_groups(group_capacity: int, initial_values: list[int]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return the words of groups that have no row."""
    words = np.full((BACK + len(initial_values), group_capacity), NONE, np.int64)
    words[BACK:] = np.array(initial_values, np.int64).reshape(-1, 1)
    return words
