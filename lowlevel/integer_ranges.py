"""Sets of integers as sorted, disjoint, half-open ranges `[start, end)`: a day of panes is one pair of numbers.

The integers are window IDs or times in ns. Partitions of one query close the same windows. Each partition reports
ranges of IDs, and their union counts each window once. A set of IDs would need RANGE / SLIDE members for every pane.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Ranges = list[tuple[int, int]]


def unite(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the union, sorted and disjoint.

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
    """Append IDs that are not below the last range, in constant time.

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
    """Append at least one ID. The IDs rise, may repeat, and are not below the last range."""
    cuts = np.flatnonzero(np.diff(ids) > 1)
    for first, last in zip(ids[[0, *cuts + 1]].tolist(), ids[[*cuts, -1]].tolist(), strict=True):
        append(ranges, first, last + 1)


def count(ranges: Iterable[tuple[int, int]]) -> int:
    """Return the number of integers in disjoint ranges."""
    return sum(end - first for first, end in ranges)
