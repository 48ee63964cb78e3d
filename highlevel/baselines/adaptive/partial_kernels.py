"""Kernels that find the partial of a group and window, and add values to it.

A tuple is added to several neighbouring windows. So the partials of 8 neighbouring windows of a group have neighbouring
slots in the index.
"""

from __future__ import annotations

import numpy as np

from capture.native import helper, kernel
from highlevel.baselines.adaptive.layout import ACCUMULATORS, GROUP, LAST, NONE, PARTIALS, UPDATES, WID
from lowlevel.table.entries import MAX, MAX_FLOAT, MIN, MIN_FLOAT, SUM


@helper
def hash_of_partial(group, wid):  # type: ignore[no-untyped-def]
    """Hash a group and its block of 8 windows. The last 3 bits are the position of the window in its block."""
    mixed = (np.uint64(group) << np.uint64(40)) ^ np.uint64(wid >> 3)
    mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(32)
    return (mixed << np.uint64(3)) | np.uint64(wid & 7)


@kernel("i64(i64*, i64, i64, i64*, i64)")
def index_partials(partials, width, rows, slots, slot_count):  # type: ignore[no-untyped-def]
    """Fill an empty index with the partials. Return their number."""
    mask = np.uint64(slot_count - 1)
    for row in range(rows):
        slot = hash_of_partial(partials[row * width + GROUP], partials[row * width + WID]) & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = row
    return rows


@helper
def add(  # type: ignore[no-untyped-def]
    partials, partials_float, width, slots, mask, state, ops, op_count, values, values_float, at, group, first, end
):  # fmt: skip
    """Add the values at word `at` to the windows `[first, end)` of a group. Return the row of the last partial."""
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
            position = row * width
            partials[position + GROUP] = group
            partials[position + WID] = wid
            partials[position + LAST] = 0
            for op in range(op_count):
                partials[position + ACCUMULATORS + op] = values[at + op]
            continue
        position = row * width + ACCUMULATORS
        for op in range(op_count):
            kind = ops[op]
            if kind == SUM:
                partials[position + op] += values[at + op]
            elif kind == MIN:
                partials[position + op] = min(partials[position + op], values[at + op])
            elif kind == MAX:
                partials[position + op] = max(partials[position + op], values[at + op])
            elif kind == MIN_FLOAT:
                partials_float[position + op] = min(partials_float[position + op], values_float[at + op])
            elif kind == MAX_FLOAT:
                partials_float[position + op] = max(partials_float[position + op], values_float[at + op])
            else:
                partials_float[position + op] += values_float[at + op]
    state[UPDATES] += end - first
    return row
