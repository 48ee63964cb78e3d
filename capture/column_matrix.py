"""Matrices of columns for kernels, with padding, so that the columns do not compete for cache lines.

Without padding, the columns of a batch of 16 384 rows begin 128 KiB apart. The values of one row then share a cache
set, which usually has eight lines, so the ninth column evicts the first column. With padding, a column has an odd
number of cache lines, and the values of one row are in different cache sets.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

CACHE_LINE = 64
"""Bytes of a cache line."""

LINE_WORDS = CACHE_LINE // 8
"""Number of 64-bit values in a cache line."""

PADDING_LINES = 8
"""Padding of a column in cache lines. A column whose number of lines would be even gets one more line."""


def column_matrix(columns: int, capacity: int) -> npt.NDArray[np.int64]:
    """Return zeros with one row per column. The row length, the kernels' stride, is `capacity` plus padding.

    >>> column_matrix(2, 16384).shape
    (2, 16456)
    """
    lines = (-(-capacity // LINE_WORDS) + PADDING_LINES) | 1
    return np.zeros((columns, lines * LINE_WORDS), np.int64)
