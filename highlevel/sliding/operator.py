"""Sliding and tumbling windows over time: Bucket and Aggregate, with times instead of window IDs in results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.groups.merging import list_merge_rules
from highlevel.groups.table import merge_batches
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.sliding.aggregate import WID, Aggregate
from highlevel.sliding.bucket import END_WID, FIRST_WID, Bucket
from highlevel.windows.kind import SlidingWindow
from lowlevel.integer_ranges import Ranges, append_ids
from lowlevel.punctuation import END, Item, Punctuation
from lowlevel.subaggregates import SubAggregate

MERGE_ROWS = 65_536
"""Maximum rows that one call merges. A late row may belong to thousands of windows, so memory must be limited."""


def merge_late_partials(
    tagged: pa.RecordBatch, closed: int, groups: Sequence[str], subaggregates: Sequence[SubAggregate]
) -> Iterator[pa.RecordBatch]:
    """Merge late partials for each final window that contains them (ID below `closed`).

    `tagged`: partials with window IDs from Bucket. Results: `wid`, groups, sub-aggregates. The rows of one window may
    be in several batches.
    """
    first = tagged.column(FIRST_WID).to_numpy()
    count = np.clip(np.minimum(tagged.column(END_WID).to_numpy(), closed) - first, 0, None)
    late = np.flatnonzero(count)
    if len(late) == 0:
        return
    partials = tagged.select([*groups, *(sub.name for sub in subaggregates)])
    merge_rules = list_merge_rules(subaggregates)
    for some in np.split(late, np.flatnonzero(np.diff((np.cumsum(count[late]) - count[late]) // MERGE_ROWS)) + 1):
        counts = count[some]
        before = np.cumsum(counts) - counts
        wids = np.arange(int(counts.sum())) + np.repeat(first[some] - before, counts)
        rows = pc.take(partials, array_of(np.repeat(some, counts))).append_column(WID, array_of(wids))
        yield merge_batches([rows], [WID, *groups], merge_rules)


class SlidingAggregate:
    """A `WindowOperator`: tags partials with window IDs, merges them, and adds the bounds of windows."""

    def __init__(
        self,
        window: SlidingWindow,
        pane: int,
        groups: Sequence[str],
        subaggregates: Sequence[SubAggregate],
        emit_late: bool = False,
    ) -> None:
        """Merge partials of panes of `pane` ns by the columns `groups`.

        If `emit_late`, a partial that is late for a window is emitted at once, as a separate row of that window, and
        counted as late.
        """
        self.window = window
        self.emit_late = emit_late
        self.bucket = Bucket(window, pane)
        self.aggregate = Aggregate(groups, subaggregates)
        self._closed: Ranges = []

    @property
    def received(self) -> int:
        """Number of partials received."""
        return self.aggregate.received + self.bucket.outside

    @property
    def outside(self) -> int:
        """Partials before the origin, or between windows."""
        return self.bucket.outside

    @property
    def late(self) -> int:
        """Number of times that a partial missed a window because the window was final."""
        return self.aggregate.late

    @property
    def late_rows(self) -> int:
        """Rows of the partials in `late`."""
        return self.aggregate.late_rows

    @property
    def bytes(self) -> int:
        """Bytes of the stored partials."""
        return self.aggregate.bytes

    def open_windows(self) -> Ranges:
        """Return the IDs of the windows that contain partials and are not final."""
        return self.aggregate.open_windows()

    def take_closed_windows(self) -> Ranges:
        """Return and forget the ids of the windows that became final."""
        closed, self._closed = self._closed, []
        return closed

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Store partials with their windows."""
        for tagged in self.bucket.process_rows(port, batch):
            assert isinstance(tagged, pa.RecordBatch)
            aggregate = self.aggregate
            if self.emit_late:
                for late in merge_late_partials(tagged, aggregate.closed, aggregate.groups, aggregate.subaggregates):
                    yield self._make_result(late)
            yield from self.aggregate.process_rows(port, tagged)

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Emit every window that ends by the watermark, then the end of the last window as watermark."""
        for in_wids in self.bucket.punctuate(port, punctuation):
            assert isinstance(in_wids, Punctuation)
            for item in self.aggregate.punctuate(port, in_wids):
                if isinstance(item, pa.RecordBatch):
                    append_ids(self._closed, item.column(WID).to_numpy())
                yield self._make_result(item)

    def _make_result(self, item: Item) -> Item:
        if isinstance(item, Punctuation):
            return item if item.watermark == END else Punctuation(item.link, self.window.end(item.watermark - 1))
        ends = self.window.end(0) + item.column(WID).to_numpy() * self.window.slide
        bounds = [array_of(ends - self.window.range), array_of(ends)]
        columns = [*bounds, *(item.column(name) for name in item.schema.names if name != WID)]
        names = [WINDOW_START, WINDOW_END, *(name for name in item.schema.names if name != WID)]
        return pa.RecordBatch.from_arrays(columns, names)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the state of Aggregate."""
        return self.aggregate.snapshot()

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of Aggregate."""
        self.aggregate.restore(tables)
