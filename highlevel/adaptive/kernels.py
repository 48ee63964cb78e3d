"""The kernels of AdaptWID: holding tuples or adding them to partials, and finding both again.

    group     VOLUME unexpired tuples, HEAD: EAGER, or the first of its tuples in the buffer (NONE without one)
    tuple     GROUP, FIRST, END (window ids, half-open), NEXT of the group's tuples, values…
    partial   GROUP, WID, LAST (tuples added here whose last window this is), accumulators…

Each is a row of int64 words in an array that the caller lets grow: a kernel that finds no room stops at that row, says
so in the state, and is called again from there. Partials of 8 neighbouring windows of a group have neighbouring places
in the index.
"""

from __future__ import annotations

import numpy as np

from capture.native import helper, kernel
from lowlevel.opcodes import MAX, MAX_FLOAT, MIN, MIN_FLOAT, SUM

VOLUME, HEAD, GROUP_WORDS = 0, 1, 2
GROUP, FIRST, END, NEXT, VALUES = 0, 1, 2, 3, 4
WID, LAST, ACCUMULATORS = 1, 2, 3
NONE, EAGER = -1, -2

TUPLES, FREE, HELD, PARTIALS, TO_EAGER, UPDATES, WANTED_TUPLES, WANTED_PARTIALS, STATE_WORDS = range(9)
"""Words of the state: rows of the buffer, the first free one of them, those that hold a tuple; partials; groups
that became eager; additions to a partial; and for how many tuples and partials there was no room."""


@helper
def hash_of_partial(group, wid):  # type: ignore[no-untyped-def]
    """Mix a group with a block of 8 windows; the window's place in its block is kept."""
    mixed = (np.uint64(group) << np.uint64(40)) ^ np.uint64(wid >> 3)
    mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(32)
    return (mixed << np.uint64(3)) | np.uint64(wid & 7)


@kernel("i64(i64*, i64, i64, i64*, i64)")
def index_partials(partials, width, rows, slots, slot_count):  # type: ignore[no-untyped-def]
    """Fill an empty index with the partials; return their number."""
    mask = np.uint64(slot_count - 1)
    for row in range(rows):
        slot = hash_of_partial(partials[row * width + GROUP], partials[row * width + WID]) & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = row
    return rows


@kernel("i64(i64*, i64, i64, i64*)")
def chain_tuples(tuples, width, rows, groups):  # type: ignore[no-untyped-def]
    """Link the tuples of each group, whose heads are NONE; return the rows of the buffer."""
    for row in range(rows):
        head = tuples[row * width + GROUP] * GROUP_WORDS + HEAD
        tuples[row * width + NEXT] = groups[head]
        groups[head] = row
    return rows


@helper
def add(  # type: ignore[no-untyped-def]
    partials, partials_float, width, slots, mask, state, ops, op_count, values, values_float, at, group, first, end
):  # fmt: skip
    """Add the values at word `at` to the windows `[first, end)` of a group; return the row of the last partial."""
    row = NONE
    for wid in range(first, end):
        slot = hash_of_partial(group, wid) & mask
        row = slots[slot]
        while row >= 0 and (partials[row * width + GROUP] != group or partials[row * width + WID] != wid):
            slot = (slot + np.uint64(1)) & mask
            row = slots[slot]
        if row < 0:
            row = state[PARTIALS]
            state[PARTIALS] += 1
            slots[slot] = row
            place = row * width
            partials[place + GROUP] = group
            partials[place + WID] = wid
            partials[place + LAST] = 0
            for op in range(op_count):
                partials[place + ACCUMULATORS + op] = values[at + op]
            continue
        place = row * width + ACCUMULATORS
        for op in range(op_count):
            kind = ops[op]
            if kind == SUM:
                partials[place + op] += values[at + op]
            elif kind == MIN:
                partials[place + op] = min(partials[place + op], values[at + op])
            elif kind == MAX:
                partials[place + op] = max(partials[place + op], values[at + op])
            elif kind == MIN_FLOAT:
                partials_float[place + op] = min(partials_float[place + op], values_float[at + op])
            elif kind == MAX_FLOAT:
                partials_float[place + op] = max(partials_float[place + op], values_float[at + op])
            else:
                partials_float[place + op] += values_float[at + op]
    state[UPDATES] += end - first
    return row


@kernel(
    "i64(i64*, i64*, i64*, i64*, f64*, i64, i64, i64*, i64*, f64*, i64, i64, i64*, f64*, i64, i64*, i64, i64*, i64, "
    "i64*, i64)"
)
def take_tuples(  # type: ignore[no-untyped-def]
    named, firsts, ends, values, values_float, begin, rows, groups, tuples, tuples_float, tuple_capacity, closed,
    partials, partials_float, partial_capacity, slots, slot_count, ops, op_count, state, up,
):  # fmt: skip
    """Hold each row, or add it to its windows; return the row for which there was no room.

    `values` is rows x op_count. A lazy group that holds more than `up` tuples becomes eager: its tuples move into their
    windows from `closed` on. The `_float` pointers are the same memory seen as float64.
    """
    mask = np.uint64(slot_count - 1)
    width = ACCUMULATORS + op_count
    tuple_width = VALUES + op_count
    for row in range(begin, rows):
        group = named[row]
        about = group * GROUP_WORDS
        eager = groups[about + HEAD] == EAGER
        if not eager and groups[about + VOLUME] + 1 <= up:
            place = state[FREE]
            if place >= 0:
                state[FREE] = tuples[place * tuple_width + NEXT]
            else:
                place = state[TUPLES]
                if place >= tuple_capacity:
                    state[WANTED_TUPLES] = rows - row
                    return row
                state[TUPLES] += 1
            at = place * tuple_width
            tuples[at + GROUP] = group
            tuples[at + FIRST] = firsts[row]
            tuples[at + END] = ends[row]
            tuples[at + NEXT] = groups[about + HEAD]
            for op in range(op_count):
                tuples[at + VALUES + op] = values[row * op_count + op]
            groups[about + HEAD] = place
            groups[about + VOLUME] += 1
            state[HELD] += 1
            continue
        wanted = ends[row] - firsts[row]
        place = groups[about + HEAD]
        while place >= 0:
            at = place * tuple_width
            wanted += tuples[at + END] - max(tuples[at + FIRST], closed)
            place = tuples[at + NEXT]
        if state[PARTIALS] + wanted > partial_capacity:
            state[WANTED_PARTIALS] = wanted
            return row
        place = groups[about + HEAD]
        while place >= 0:
            at = place * tuple_width
            last = add(
                partials, partials_float, width, slots, mask, state, ops, op_count, tuples, tuples_float, at + VALUES,
                group, max(tuples[at + FIRST], closed), tuples[at + END],
            )  # fmt: skip
            partials[last * width + LAST] += 1
            following = tuples[at + NEXT]
            tuples[at + GROUP] = NONE
            tuples[at + NEXT] = state[FREE]
            state[FREE] = place
            state[HELD] -= 1
            place = following
        if not eager:
            groups[about + HEAD] = EAGER
            state[TO_EAGER] += 1
        last = add(
            partials, partials_float, width, slots, mask, state, ops, op_count, values, values_float, row * op_count,
            group, firsts[row], ends[row],
        )  # fmt: skip
        partials[last * width + LAST] += 1
        groups[about + VOLUME] += 1
    return rows


@kernel("i64(i64*, f64*, i64, i64, i64, i64, i64*, i64*, f64*, i64, i64*, i64, i64*, i64, i64*)")
def add_due(  # type: ignore[no-untyped-def]
    tuples, tuples_float, begin, rows, low, high, groups, partials, partials_float, partial_capacity, slots, slot_count,
    ops, op_count, state,
):  # fmt: skip
    """Add the tuples in the buffer to their windows `[low, high)`; return the row for which there was no room.

    Those that have no other leave the buffer, so that nobody is held twice for the sake of a result. The links of the
    tuples that stay are made anew afterwards.
    """
    mask = np.uint64(slot_count - 1)
    tuple_width = VALUES + op_count
    for row in range(begin, rows):
        at = row * tuple_width
        if tuples[at + GROUP] == NONE:
            continue
        first = max(tuples[at + FIRST], low)
        end = min(tuples[at + END], high)
        if first >= end:
            continue
        if state[PARTIALS] + end - first > partial_capacity:
            state[WANTED_PARTIALS] = end - first
            return row
        add(
            partials, partials_float, ACCUMULATORS + op_count, slots, mask, state, ops, op_count, tuples, tuples_float,
            at + VALUES, tuples[at + GROUP], first, end,
        )  # fmt: skip
        if tuples[at + END] <= high:
            groups[tuples[at + GROUP] * GROUP_WORDS + VOLUME] -= 1
            tuples[at + GROUP] = NONE
            state[HELD] -= 1
    return rows
