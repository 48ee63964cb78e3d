"""Arrays of rows of words. Their lengths are powers of two."""

from __future__ import annotations

import numpy as np

from highlevel.groups.key_words import Words

MIN_ROWS = 16
"""Minimum number of rows of an array."""


def choose_capacity(rows: int) -> int:
    """Return the size of an array for `rows` rows: a power of two."""
    return max(MIN_ROWS, 1 << (rows - 1).bit_length())


def copy_resized(array: Words, used: int, rows: int) -> Words:
    """Copy the first `used` rows into an array of `rows` rows."""
    copy = np.empty((rows, array.shape[1]), np.int64)
    copy[:used] = array[:used]
    return copy


def replace_rows(array: Words, rows: Words) -> Words:
    """Replace all rows: in the same array, or in a smaller array if they fill less than a quarter of it."""
    if 4 * len(rows) < len(array):
        array = np.empty((choose_capacity(2 * len(rows)), array.shape[1]), np.int64)
    array[: len(rows)] = rows
    return array
