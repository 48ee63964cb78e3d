"""A dictionary of byte strings that kernels fill: a value is stored once and is a number in the columns.

Number n is the bytes `arena[ends[n] : ends[n + 1]]`; number 0 is the empty string. Open addressing over a table of
numbers. It is never full inside a kernel: before a set of records is decoded its bytes are known to fit.
"""

from __future__ import annotations

import numpy as np

from capture.native import helper, outlined

TEXT_SLOTS = 1 << 19
"""Slots of the table; a power of two."""

MAX_TEXTS = 1 << 18
"""Strings that a dictionary holds: at most half the slots."""

ARENA = 1 << 22
"""Bytes that the strings have together."""

WORST_SET = 1 << 17
"""Strings and bytes of strings that one set can add: twice its longest length, since a field is read in two forms at
most (with and without the zeros at its end)."""


@helper
def texts_have_room(ends, used):  # type: ignore[no-untyped-def]
    """Whether any set of records fits."""
    return used[0] + WORST_SET <= MAX_TEXTS and ends[used[0]] + WORST_SET <= ARENA


@outlined
def intern(buf, at, length, slots, ends, arena, used):  # type: ignore[no-untyped-def]
    """Return the number of the string `buf[at:at + length]`, a new one where it has none.

    `used` holds one word: how many numbers there are, at least 1 for the empty string.
    """
    if length == 0:
        return np.int64(0)
    mixed = np.uint64(0xCBF29CE484222325)  # FNV-1a
    for index in range(length):
        mixed = (mixed ^ np.uint64(buf[at + index])) * np.uint64(0x100000001B3)
    slot = np.int64((mixed ^ mixed >> np.uint64(32)) & np.uint64(TEXT_SLOTS - 1))
    while slots[slot]:
        number = slots[slot]
        start = ends[number]
        if ends[number + 1] - start == length:
            same = 0
            while same < length and arena[start + same] == buf[at + same]:
                same += 1
            if same == length:
                return np.int64(number)
        slot = (slot + 1) & (TEXT_SLOTS - 1)
    number = used[0]
    start = ends[number]
    for index in range(length):
        arena[start + index] = buf[at + index]
    ends[number + 1] = start + length
    slots[slot] = number
    used[0] = number + 1
    return np.int64(number)
