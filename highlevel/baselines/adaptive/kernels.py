"""Kernels of AdaptWID: store tuples, or add them to partials.

The caller provides the memory. If there is no room for a row, a kernel returns this row and writes the missing room
into the state. The caller makes room and calls again.
"""

from __future__ import annotations

import numpy as np

from capture.native import kernel
from highlevel.baselines.adaptive.layout import (
    ACCUMULATORS,
    EAGER,
    END,
    FIRST,
    FREE,
    GROUP,
    GROUP_WORDS,
    HEAD,
    HELD,
    LAST,
    NEXT,
    NONE,
    PARTIALS,
    TO_EAGER,
    TUPLES,
    VALUES,
    VOLUME,
    WANTED_PARTIALS,
    WANTED_TUPLES,
)
from highlevel.baselines.adaptive.partial_kernels import add


@kernel("i64(i64*, i64, i64, i64*)")
def chain_tuples(tuples, width, rows, groups):  # type: ignore[no-untyped-def]
    """Link the tuples of each group. All heads of groups must be NONE. Return the number of rows in the buffer."""
    for row in range(rows):
        head = tuples[row * width + GROUP] * GROUP_WORDS + HEAD
        tuples[row * width + NEXT] = groups[head]
        groups[head] = row
    return rows


@kernel(
    "i64(i64*, i64*, i64*, i64*, f64*, i64, i64, i64*, i64*, f64*, i64, i64, i64*, f64*, i64, i64*, i64, i64*, i64, "
    "i64*, i64)"
)
def take_tuples(  # type: ignore[no-untyped-def]
    group_ids, firsts, ends, values, values_float, begin, rows, groups, tuples, tuples_float, tuple_capacity, closed,
    partials, partials_float, partial_capacity, slots, slot_count, ops, op_count, state, eager_above,
):  # fmt: skip
    """Store each row or add it to its windows. Return the first row without room.

    `values` is rows x op_count. A lazy group with more than `eager_above` tuples becomes eager: its tuples move into
    their windows from `closed` on. The `_float` pointers are the same memory as float64.
    """
    mask = np.uint64(slot_count - 1)
    width = ACCUMULATORS + op_count
    tuple_width = VALUES + op_count
    for row in range(begin, rows):
        group = group_ids[row]
        group_word = group * GROUP_WORDS
        eager = groups[group_word + HEAD] == EAGER
        if not eager and groups[group_word + VOLUME] + 1 <= eager_above:
            position = state[FREE]
            if position >= 0:
                state[FREE] = tuples[position * tuple_width + NEXT]
            else:
                position = state[TUPLES]
                if position >= tuple_capacity:
                    state[WANTED_TUPLES] = rows - row
                    return row
                state[TUPLES] += 1
            at = position * tuple_width
            tuples[at + GROUP] = group
            tuples[at + FIRST] = firsts[row]
            tuples[at + END] = ends[row]
            tuples[at + NEXT] = groups[group_word + HEAD]
            for op in range(op_count):
                tuples[at + VALUES + op] = values[row * op_count + op]
            groups[group_word + HEAD] = position
            groups[group_word + VOLUME] += 1
            state[HELD] += 1
            continue
        wanted = ends[row] - firsts[row]
        position = groups[group_word + HEAD]
        while position >= 0:
            at = position * tuple_width
            wanted += tuples[at + END] - max(tuples[at + FIRST], closed)
            position = tuples[at + NEXT]
        if state[PARTIALS] + wanted > partial_capacity:
            state[WANTED_PARTIALS] = wanted
            return row
        position = groups[group_word + HEAD]
        while position >= 0:
            at = position * tuple_width
            last = add(
                partials, partials_float, width, slots, mask, state, ops, op_count, tuples, tuples_float, at + VALUES,
                group, max(tuples[at + FIRST], closed), tuples[at + END],
            )  # fmt: skip
            partials[last * width + LAST] += 1
            following = tuples[at + NEXT]
            tuples[at + GROUP] = NONE
            tuples[at + NEXT] = state[FREE]
            state[FREE] = position
            state[HELD] -= 1
            position = following
        if not eager:
            groups[group_word + HEAD] = EAGER
            state[TO_EAGER] += 1
        last = add(
            partials, partials_float, width, slots, mask, state, ops, op_count, values, values_float, row * op_count,
            group, firsts[row], ends[row],
        )  # fmt: skip
        partials[last * width + LAST] += 1
        groups[group_word + VOLUME] += 1
    return rows


@kernel("i64(i64*, f64*, i64, i64, i64, i64, i64*, i64*, f64*, i64, i64*, i64, i64*, i64, i64*)")
def add_due(  # type: ignore[no-untyped-def]
    tuples, tuples_float, begin, rows, low, high, groups, partials, partials_float, partial_capacity, slots, slot_count,
    ops, op_count, state,
):  # fmt: skip
    """Add the buffered tuples to their windows `[low, high)`. Return the first row without room.

    Tuples without later windows are removed from the buffer, so that no tuple is stored twice. The caller must then
    link the remaining tuples again.
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
