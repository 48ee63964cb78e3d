"""A dictionary of byte strings for kernels: each string is stored once, and columns contain its number.

String n is `arena[ends[n] : ends[n + 1]]`. Number 0 is the empty string. The hash table uses open addressing. It never
becomes full inside a kernel, because the caller checks before each set of records that the strings of the set fit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capture.native import Bytes, Integers, helper, outlined

TEXT_SLOTS = 1 << 19
"""Slots of the hash table; a power of two."""

MAX_TEXTS = 1 << 18
"""Maximum number of strings: half the slots."""

MAX_TEXT_BYTES = 1 << 22
"""Maximum number of bytes of all strings."""

MAX_SET_TEXTS = 1 << 17
"""Maximum number of strings, and of string bytes, that one set can add. It is twice the bytes of the longest set,
because a field can be stored twice: with and without trailing zeros."""


class TextTable(NamedTuple):
    """The dictionary, for kernels.

    `used`: one word, the number of strings, at least 1 for the empty string. `slots`: the hash table.
    """

    slots: Integers
    ends: Integers
    arena: Bytes
    used: Integers


@helper
def texts_have_room(texts: TextTable):  # type: ignore[no-untyped-def]
    """Return whether the strings of any set of records fit."""
    return texts.used[0] + MAX_SET_TEXTS <= MAX_TEXTS and texts.ends[texts.used[0]] + MAX_SET_TEXTS <= MAX_TEXT_BYTES


@outlined
def intern(buf, offset, length, texts: TextTable):  # type: ignore[no-untyped-def]
    """Return the number of the string `buf[offset:offset + length]`; add it if it is new."""
    if length == 0:
        return np.int64(0)
    mixed = np.uint64(0xCBF29CE484222325)  # FNV-1a
    for index in range(length):
        mixed = (mixed ^ np.uint64(buf[offset + index])) * np.uint64(0x100000001B3)
    slot = np.int64((mixed ^ mixed >> np.uint64(32)) & np.uint64(TEXT_SLOTS - 1))
    while texts.slots[slot]:
        number = texts.slots[slot]
        start = texts.ends[number]
        if texts.ends[number + 1] - start == length:
            same = 0
            while same < length and texts.arena[start + same] == buf[offset + same]:
                same += 1
            if same == length:
                return np.int64(number)
        slot = (slot + 1) & (TEXT_SLOTS - 1)
    number = texts.used[0]
    start = texts.ends[number]
    for index in range(length):
        texts.arena[start + index] = buf[offset + index]
    texts.ends[number + 1] = start + length
    texts.slots[slot] = number
    texts.used[0] = number + 1
    return np.int64(number)
