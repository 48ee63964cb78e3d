"""Tags: one byte for each slot of a table, which says whether the slot is full and, nearly always, whose it is.

Eight slots are a bucket, and their tags one word, so that one look at a word that is likely in a cache of the
processor's own finds the one slot of eight to look at, without a branch (as in Google's Swiss tables, with a word in
place of a vector). A full slot's tag is 0x80 and seven bits of its group's hash; an empty one's is 0.

    word    00 00 9c 00 81 d2 00 9c        tag 9c: slots 0 and 5 may be it        slots 1, 4, 6 and 7 are empty
    slot     7  6  5  4  3  2  1  0

Marks are words with 0x80 in the byte of each slot that is meant.
"""

from __future__ import annotations

import numpy as np

from capture.native import helper

BUCKET = 8
"""Slots of a bucket."""

ANY = 0x8080808080808080
"""The marks of all slots of a bucket."""

EACH = 0x0101010101010101
"""A byte times this is a word of eight such bytes."""

OTHERS = 0x7F7F7F7F7F7F7F7F

PLACES = 0x0001020304050607
"""Times a power of 256, with exponent n, its highest byte is n."""


@helper
def tag_of(mixed):  # type: ignore[no-untyped-def]
    """Return the tag of a group from the highest bits of its hash."""
    return (mixed >> np.uint64(56)) | np.uint64(0x80)


@helper
def home_of(mixed):  # type: ignore[no-untyped-def]
    """Return the slot of its bucket, 0..7, that a group prefers."""
    return (mixed >> np.uint64(40)) & np.uint64(7)


@helper
def mark_of(place):  # type: ignore[no-untyped-def]
    """Return the mark of the slot `place` (uint64, 0..7)."""
    return np.uint64(0x80) << (place << np.uint64(3))


@helper
def tagged(held, tag):  # type: ignore[no-untyped-def]
    """Mark the slots whose tag is `tag`; `held` are the tags of a bucket."""
    differing = held ^ (tag * np.uint64(EACH))
    return ~(((differing & np.uint64(OTHERS)) + np.uint64(OTHERS)) | differing | np.uint64(OTHERS))


@helper
def free(held, home):  # type: ignore[no-untyped-def]
    """Mark where a group that is not in a bucket goes: its home where that is empty, or no slot is, else the empty."""
    empty = ~held & np.uint64(ANY)
    mark = mark_of(home)
    return mark if (empty & mark) != np.uint64(0) or empty == np.uint64(0) else empty


@helper
def first_of(marks):  # type: ignore[no-untyped-def]
    """Return the lowest slot, 0..7, that is marked; 0 where none is."""
    lowest = marks & (~marks + np.uint64(1))
    return ((lowest >> np.uint64(7)) * np.uint64(PLACES)) >> np.uint64(56)
