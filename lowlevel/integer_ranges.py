"""Sets of integers as sorted, disjoint, half-open ranges `[start, end)`.

The integers are window IDs or times in ns. The partitions of a query close the same windows. Each partition reports
ranges of window IDs, and their union counts each window once. Consecutive windows are one pair of numbers.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Ranges = list[tuple[int, int]]


def unite(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the union of ranges, sorted and disjoint.

    >>> unite([(5, 7), (1, 3), (2, 4), (4, 5)])
    [(1, 7)]
    """
    united: Ranges = []
    for first, end in sorted(ranges):
        if united and first <= united[-1][1]:
            united[-1] = united[-1][0], max(end, united[-1][1])
        elif first < end:
            united.append((first, end))
    return united


def append(ranges: Ranges, first: int, end: int) -> None:
    """Append `[first, end)`, which is not below the last range, in constant time.

    >>> ranges = [(1, 3)]
    >>> append(ranges, 3, 4)
    >>> append(ranges, 6, 7)
    >>> ranges
    [(1, 4), (6, 7)]
    """
    if ranges and ranges[-1][1] >= first:
        first = ranges.pop()[0]
    ranges.append((first, end))


def append_ids(ranges: Ranges, ids: npt.NDArray[np.int64]) -> None:
    """Append at least one ID. The IDs are sorted, may repeat, and are not below the last range."""
    breaks = np.flatnonzero(np.diff(ids) > 1)
    for first, last in zip(ids[[0, *breaks + 1]].tolist(), ids[[*breaks, -1]].tolist(), strict=True):
        append(ranges, first, last + 1)


def count(ranges: Iterable[tuple[int, int]]) -> int:
    """Return the number of integers in disjoint ranges."""
    return sum(end - first for first, end in ranges)
