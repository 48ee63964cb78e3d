"""The kernels of the sweep: rows enter a window and leave it, and its totals are kept by group.

    row      TIME, GROUP, LINK, values…, totals…    a matrix of words x capacity; the rows are begin … end
    group    FRONT, NEWEST, PLACE, MEMBER, back…    a matrix of words x room

A group's older rows in the window are its front: FRONT is the first row, LINK the next. The totals of a row include all
following rows of the front. Its newer rows are its back: NEWEST is the last row, LINK the previous, and `back` are the
totals. NONE ends both. MEMBER[0 … ACTIVE) are the groups with rows in the window; PLACE is the position of a group in
MEMBER.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capture.native import Floats, Integer, Integers, helper, kernel
from highlevel.slide_by_tuple.merge_word import merge_word

TIME, GROUP, LINK, VALUES = 0, 1, 2, 3
FRONT, NEWEST, PLACE, MEMBER, BACK = 0, 1, 2, 3, 4
WID, WID_GROUP, WID_VALUES = 0, 1, 2
"""Words of a row of the result."""

NONE = -1

BEGIN, ENTERED, END, ACTIVE, WINDOW, SAID, OUTSIDE, STATE_WORDS = range(8)
"""Words of the state.

- BEGIN, END: range of the stored rows.
- ENTERED: end of the rows in the last window.
- ACTIVE: number of groups in the window.
- WINDOW, SAID: next window, and number of its groups that are already written.
- OUTSIDE: number of rows that were in no window.
"""


class StoredRows(NamedTuple):
    """The rows and groups, for kernels. `rows_float` and `groups_float` are the same memory as float64.

    `ops`, `starts`: for each of `columns` values how it merges, and its value without rows. `state`: STATE_WORDS words.
    """

    rows: Integers
    rows_float: Floats
    capacity: Integer
    groups: Integers
    groups_float: Floats
    room: Integer
    ops: Integers
    starts: Integers
    columns: Integer
    state: Integers


@helper
def enter_until(stored: StoredRows, last):  # type: ignore[no-untyped-def]
    """Add all rows up to the time `last` to the window."""
    rows, groups, capacity, room, state = stored.rows, stored.groups, stored.capacity, stored.room, stored.state
    row = state[ENTERED]
    while row < state[END] and rows[row] <= last:
        group = rows[GROUP * capacity + row]
        newest = groups[NEWEST * room + group]
        if newest == NONE and groups[FRONT * room + group] == NONE:
            groups[PLACE * room + group] = state[ACTIVE]
            groups[MEMBER * room + state[ACTIVE]] = group
            state[ACTIVE] += 1
        rows[LINK * capacity + row] = newest
        groups[NEWEST * room + group] = row
        for column in range(stored.columns):
            merge_word(
                stored.ops[column], groups, stored.groups_float, (BACK + column) * room + group, room,
                rows, stored.rows_float, (VALUES + column) * capacity + row, capacity,
            )  # fmt: skip
        row += 1
    state[ENTERED] = row


@helper
def turn(stored: StoredRows, group):  # type: ignore[no-untyped-def]
    """Turn the back of a group into its front, which must be empty."""
    rows, groups, capacity, room, columns = stored.rows, stored.groups, stored.capacity, stored.room, stored.columns
    after = NONE
    row = groups[NEWEST * room + group]
    while row != NONE:
        for column in range(columns):
            rows[(VALUES + columns + column) * capacity + row] = rows[(VALUES + column) * capacity + row]
        if after != NONE:
            for column in range(columns):
                totals = (VALUES + columns + column) * capacity
                merge_word(
                    stored.ops[column], rows, stored.rows_float, totals + row, capacity,
                    rows, stored.rows_float, totals + after, capacity,
                )  # fmt: skip
        before = rows[LINK * capacity + row]
        rows[LINK * capacity + row] = after
        after = row
        row = before
    groups[FRONT * room + group] = after
    groups[NEWEST * room + group] = NONE
    for column in range(columns):
        groups[(BACK + column) * room + group] = stored.starts[column]


@helper
def leave_until(stored: StoredRows, last):  # type: ignore[no-untyped-def]
    """Remove all rows until the time `last`, and count the rows that were in no window."""
    rows, groups, capacity, room, state = stored.rows, stored.groups, stored.capacity, stored.room, stored.state
    row = state[BEGIN]
    while row < state[END] and rows[row] <= last:
        if row == state[ENTERED]:
            state[ENTERED] += 1
            state[OUTSIDE] += 1
        else:
            group = rows[GROUP * capacity + row]
            if groups[FRONT * room + group] == NONE:
                turn(stored, group)
            after = rows[LINK * capacity + row]
            groups[FRONT * room + group] = after
            if after == NONE and groups[NEWEST * room + group] == NONE:
                state[ACTIVE] -= 1
                position = groups[PLACE * room + group]
                other = groups[MEMBER * room + state[ACTIVE]]
                groups[MEMBER * room + position] = other
                groups[PLACE * room + other] = position
        row += 1
    state[BEGIN] = row


@kernel("i64(StoredRows, i64*, i64, i64, i64*, f64*, i64)")
def sweep(stored: StoredRows, wids, wid_count, reach, out, out_float, out_room):  # type: ignore[no-untyped-def]
    """Write the groups of windows `(wid - reach, wid]` to `out`. Return the number of rows.

    Windows rise, and are not below earlier windows. `out` is a matrix of WID, GROUP, values… x out_room. If it is full,
    the state contains the position: call again until state[WINDOW] is wid_count.
    """
    rows, groups, capacity, room, state = stored.rows, stored.groups, stored.capacity, stored.room, stored.state
    columns = stored.columns
    written = 0
    while state[WINDOW] < wid_count:
        wid = wids[state[WINDOW]]
        leave_until(stored, wid - reach)
        enter_until(stored, wid)
        for member in range(state[SAID], state[ACTIVE]):
            if written == out_room:
                state[SAID] = member
                return written
            group = groups[MEMBER * room + member]
            front = groups[FRONT * room + group]
            out[WID * out_room + written] = wid
            out[WID_GROUP * out_room + written] = group
            for column in range(columns):
                value = stored.starts[column]
                if front != NONE:
                    value = rows[(VALUES + columns + column) * capacity + front]
                out[(WID_VALUES + column) * out_room + written] = value
            for column in range(columns):
                merge_word(
                    stored.ops[column], out, out_float, (WID_VALUES + column) * out_room + written, out_room,
                    groups, stored.groups_float, (BACK + column) * room + group, room,
                )  # fmt: skip
            written += 1
        state[SAID] = 0
        state[WINDOW] += 1
    return written


@kernel("i64(StoredRows, i64)")
def enter_rows(stored: StoredRows, last):  # type: ignore[no-untyped-def]
    """Add all rows until the time `last` to the window. Return the end of the added rows."""
    enter_until(stored, last)
    return stored.state[ENTERED]


@kernel("i64(StoredRows, i64)")
def leave_rows(stored: StoredRows, last):  # type: ignore[no-untyped-def]
    """Remove all rows until the time `last` from the window. Return the start of the other rows."""
    leave_until(stored, last)
    return stored.state[BEGIN]


def empty_groups(room: int, starts: list[int]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return the words of groups that have no row."""
    words = np.full((BACK + len(starts), room), NONE, np.int64)
    words[BACK:] = np.array(starts, np.int64).reshape(-1, 1)
    return words
