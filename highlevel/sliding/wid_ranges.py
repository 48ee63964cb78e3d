"""Sets of window IDs as disjoint half-open ranges: a day of one-second panes is one pair of numbers.

Partitions of one query close the same windows. To count a window once, each partition reports ranges of IDs, which are
united. A set of IDs would need RANGE / SLIDE members for every pane.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from highlevel.windows.kind import SlidingWindow
from lowlevel.punctuation import END, Item, Punctuation

# Bucket: tags each partial with its windows (Li 2008, §6.1.1, with the floors of its errata).
#
# Panes divide RANGE and SLIDE, so a pane is completely inside or outside a window. So one half-open range of window IDs
# `[first_wid, end_wid)` is sufficient, and the volume does not grow with the number of open windows.


FIRST_WID = "first_wid"
END_WID = "end_wid"


class Bucket:
    """Replaces `pane` by `first_wid, end_wid`, and times in punctuation by window ids.

    It has no state except a counter.
    """

    def __init__(self, window: SlidingWindow, pane: int) -> None:
        """Tag partials of panes of `pane` ns with the ids of `window`."""
        self.window = window
        self.pane = pane
        self.outside = 0

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Tag a batch. Drop and count partials before the origin or between windows (SLIDE greater than RANGE)."""
        first, end = self.window.wids(self.window.origin + batch.column("pane").to_numpy() * self.pane)
        tagged = batch.drop_columns(["pane"])
        tagged = tagged.append_column(FIRST_WID, pa.array(first)).append_column(END_WID, pa.array(end))
        inside = first < end
        if not inside.all():
            self.outside += int(len(inside) - np.count_nonzero(inside))
            tagged = tagged.filter(pa.array(inside))
        if tagged.num_rows:
            yield tagged

    def punctuate(self, port: int, mark: Punctuation) -> Iterator[Item]:
        """Convert a watermark to a window ID: all windows with smaller IDs are final."""
        yield mark if mark.low == END else Punctuation(mark.link, self.window.closed_before(mark.low))

    def snapshot(self) -> dict[str, pa.Table]:
        """Return an empty snapshot."""
        return {}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Do nothing, because there is no state."""


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
    """Count the ids of disjoint ranges."""
    return sum(end - first for first, end in ranges)
