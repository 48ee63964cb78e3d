"""A dictionary of byte strings for kernels: each string is stored once, and columns contain its number.

String n is `text_bytes[text_ends[n] : text_ends[n + 1]]`. Number 0 is the empty string. The hash table uses open
addressing. It never becomes full inside a kernel: before a set of records is decoded, the caller checks that its
strings fit.
"""

from __future__ import annotations

import numpy as np

from capture.native import helper, outlined

TEXT_SLOTS = 1 << 19
"""Slots of the hash table; a power of two."""

MAX_TEXTS = 1 << 18
"""Maximum number of strings: half the slots."""

ARENA = 1 << 22
"""Maximum number of bytes of all strings."""

WORST_SET = 1 << 17
"""Maximum number of strings, and of string bytes, that one set can add: twice the longest set. A field is stored in at
most two forms (with and without trailing zeros)."""


@helper
def texts_have_room(text_ends, text_used):  # type: ignore[no-untyped-def]
    """Return whether the strings of any set of records fit."""
    return text_used[0] + WORST_SET <= MAX_TEXTS and text_ends[text_used[0]] + WORST_SET <= ARENA


@outlined
def intern(buf, offset, length, text_slots, text_ends, text_bytes, text_used):  # type: ignore[no-untyped-def]
    """Return the number of the string `buf[offset:offset + length]`; add it if it is new.

    `text_used`: one word, the number of strings, at least 1 for the empty string.
    """
    if length == 0:
        return np.int64(0)
    mixed = np.uint64(0xCBF29CE484222325)  # FNV-1a
    for index in range(length):
        mixed = (mixed ^ np.uint64(buf[offset + index])) * np.uint64(0x100000001B3)
    slot = np.int64((mixed ^ mixed >> np.uint64(32)) & np.uint64(TEXT_SLOTS - 1))
    while text_slots[slot]:
        number = text_slots[slot]
        start = text_ends[number]
        if text_ends[number + 1] - start == length:
            same = 0
            while same < length and text_bytes[start + same] == buf[offset + same]:
                same += 1
            if same == length:
                return np.int64(number)
        slot = (slot + 1) & (TEXT_SLOTS - 1)
    number = text_used[0]
    start = text_ends[number]
    for index in range(length):
        text_bytes[start + index] = buf[offset + index]
    text_ends[number + 1] = start + length
    text_slots[slot] = number
    text_used[0] = number + 1
    return np.int64(number)
