"""Matrices of columns that kernels write or read side by side, a value of each for every row.

The columns of a batch of 16 384 rows would begin 128 KiB apart: the same row of all of them would be kept in the same
few lines of each of the processor's caches, eight in most, so that the ninth column drives the first one out before its
line is full. Columns are therefore some cache lines further apart than they are long, and an odd number of lines: the
lines of one row then lie in different places of a cache, whatever columns are used together.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

CACHE_LINE = 64
"""Bytes."""

LINE_WORDS = CACHE_LINE // 8

APART = 8
"""Lines that are left free behind each column, or one more."""


def column_matrix(columns: int, capacity: int) -> npt.NDArray[np.int64]:
    """Return zeros with a row for each column; its length, the kernels' stride, is `capacity` and some more.

    >>> column_matrix(2, 16384).shape
    (2, 16456)
    """
    lines = (-(-capacity // LINE_WORDS) + APART) | 1
    return np.zeros((columns, lines * LINE_WORDS), np.int64)
