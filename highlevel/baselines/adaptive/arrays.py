"""Arrays of rows of words. Their lengths are powers of two."""

from __future__ import annotations

import numpy as np

from highlevel.groups.key_words import Words

MIN_ROWS = 16
"""Minimum rows of an array."""


def room(rows: int) -> int:
    """Return the size of an array for `rows` rows: a power of two."""
    return max(MIN_ROWS, 1 << (rows - 1).bit_length())


def resized(array: Words, used: int, rows: int) -> Words:
    """Copy the first `used` rows into an array of `rows` rows."""
    copy = np.empty((rows, array.shape[1]), np.int64)
    copy[:used] = array[:used]
    return copy


def replaced(array: Words, rows: Words) -> Words:
    """Replace the rows: in the same array, or in a smaller one if they fill less than a quarter of it."""
    if 4 * len(rows) < len(array):
        array = np.empty((room(2 * len(rows)), array.shape[1]), np.int64)
    array[: len(rows)] = rows
    return array
