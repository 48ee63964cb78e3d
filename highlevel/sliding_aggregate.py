"""Sliding and tumbling windows over time: Bucket and Aggregate, with times in place of window ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from highlevel.aggregate import WID, Aggregate
from highlevel.bucket import Bucket
from highlevel.late_windows import supplements
from highlevel.wid_ranges import Ranges, append_ids
from highlevel.window_operator import WINDOW_END, WINDOW_START
from highlevel.windows.sliding import SlidingWindow
from lowlevel.punctuation import END, Item, Punctuation
from lowlevel.subaggregates import SubAggregate


class SlidingAggregate:
    """A `WindowOperator`: tags partials with window ids, rolls them up, and gives each window its bounds."""

    def __init__(
        self,
        window: SlidingWindow,
        pane: int,
        groups: Sequence[str],
        subaggregates: Sequence[SubAggregate],
        emit_late: bool = False,
    ) -> None:
        """Merge partials of panes of `pane` ns by the columns `groups`.

        With `emit_late` what is late for a window leaves at once, as rows of that window of their own, behind the
        promise that there would be none; it is counted as late all the same.
        """
        self.window = window
        self.emit_late = emit_late
        self.bucket = Bucket(window, pane)
        self.aggregate = Aggregate(groups, subaggregates)
        self._closed: Ranges = []

    @property
    def received(self) -> int:
        """Partials that came."""
        return self.aggregate.received + self.bucket.outside

    @property
    def outside(self) -> int:
        """Partials before the origin, or between windows."""
        return self.bucket.outside

    @property
    def late(self) -> int:
        """Times a partial was left out of a window because that was final."""
        return self.aggregate.late

    @property
    def late_rows(self) -> int:
        """Rows behind such partials."""
        return self.aggregate.late_rows

    @property
    def bytes(self) -> int:
        """Bytes of the partials held."""
        return self.aggregate.bytes

    def open_windows(self) -> Ranges:
        """The ids of the windows that hold partials and are not final."""
        return self.aggregate.open_windows()

    def take_closed(self) -> Ranges:
        """The ids of the windows that became final since this was last asked."""
        closed, self._closed = self._closed, []
        return closed

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Store partials with their windows."""
        for tagged in self.bucket.rows(port, batch):
            assert isinstance(tagged, pa.RecordBatch)
            aggregate = self.aggregate
            if self.emit_late:
                for late in supplements(tagged, aggregate.closed, aggregate.groups, aggregate.subaggregates):
                    yield self._timed(late)
            yield from self.aggregate.rows(port, tagged)

    def punctuate(self, port: int, mark: Punctuation) -> Iterator[Item]:
        """Emit every window that ends by the mark, and promise the end of the last."""
        for in_wids in self.bucket.punctuate(port, mark):
            assert isinstance(in_wids, Punctuation)
            for item in self.aggregate.punctuate(port, in_wids):
                if isinstance(item, pa.RecordBatch):
                    append_ids(self._closed, item.column(WID).to_numpy())
                yield self._timed(item)

    def _timed(self, item: Item) -> Item:
        if isinstance(item, Punctuation):
            return item if item.low == END else Punctuation(item.link, self.window.end(item.low - 1))
        ends = self.window.end(0) + item.column(WID).to_numpy() * self.window.slide
        bounds = [pa.array(ends - self.window.range), pa.array(ends)]
        columns = [*bounds, *(item.column(name) for name in item.schema.names if name != WID)]
        names = [WINDOW_START, WINDOW_END, *(name for name in item.schema.names if name != WID)]
        return pa.RecordBatch.from_arrays(columns, names)

    def snapshot(self) -> dict[str, pa.Table]:
        """State of Aggregate."""
        return self.aggregate.snapshot()

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Take over the state of Aggregate."""
        self.aggregate.restore(tables)
