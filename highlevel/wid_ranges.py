"""Sets of window ids as disjoint half-open ranges: a day of one-second panes in one pair of numbers.

Partitions of one query close the same windows. To count a window once, each partition says which, and ranges are
united; a set of ids would have as many members as RANGE has slides, for every pane.
"""

from __future__ import annotations

from collections.abc import Iterable

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


def below(ranges: Iterable[tuple[int, int]], limit: int) -> Ranges:
    """Keep the ids below `limit`."""
    return [(first, min(end, limit)) for first, end in ranges if first < min(end, limit)]


def count(ranges: Iterable[tuple[int, int]]) -> int:
    """Count the ids of disjoint ranges."""
    return sum(end - first for first, end in ranges)
