"""Column matrices for kernels, padded so that the columns do not compete for cache lines.

The columns of a batch of 16 384 rows would begin 128 KiB apart. Then one row of all columns maps to the same few lines
of each processor cache, usually eight, and the ninth column would evict the first one. So each column is padded by a
few cache lines, to an odd number of lines. One row of any columns then maps to different lines.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

CACHE_LINE = 64
"""Bytes of a cache line."""

LINE_WORDS = CACHE_LINE // 8

PADDING_LINES = 8
"""Padding of a column in cache lines; one more if the total would be even."""


def column_matrix(columns: int, capacity: int) -> npt.NDArray[np.int64]:
    """Return zeros with one row per column. The row length, the kernels' stride, is `capacity` plus padding.

    >>> column_matrix(2, 16384).shape
    (2, 16456)
    """
    lines = (-(-capacity // LINE_WORDS) + PADDING_LINES) | 1
    return np.zeros((columns, lines * LINE_WORDS), np.int64)
