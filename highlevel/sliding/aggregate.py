"""Sliding and tumbling windows over time: tag partials with window IDs, merge them, and return windows with times.

    partials ──► Bucket ──► Aggregate ──► windows        SlidingAggregate does all steps
                 first_wid,   wid
                 end_wid

Bucket (Li 2008, §6.1.1, with the floors of its errata): a window consists of whole panes. So the windows of a partial
are one half-open range of IDs, `[first_wid, end_wid)`. These two tags suffice for any number of windows.

Aggregate (Li 2008, §6.1.2): the window ID is one more grouping column, so the arrival order has no effect. A
punctuation closes windows, each window once. State is kept per *range of window IDs*. Partials with the same
`[first_wid, end_wid)` share a merge buffer; window w is the merge of the buffers whose range contains w. Tumbling
windows have one buffer per window, sliding windows have one per pane. A partial is stored once, even if many windows
contain it. Buffers are entries of a map, so a gap of years between two buffers needs no memory.

Many short windows in one batch (milliseconds) have no merge buffers. Their partials stay together in sorted runs
(`highlevel.sliding.open_partials`).

A window is computed by the cheaper of two methods (`highlevel.sliding.window_rows`): merge its buffers, or update the
totals of the previous window. Snapshots contain no totals, because they can be computed from the buffers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.groups.merge_buffer import MergeBuffer
from highlevel.groups.merging import list_merge_rules
from highlevel.groups.table import merge_batches
from highlevel.operators.operator import StatelessOperator
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.sliding.open_partials import FEW_ROWS, MANY_WINDOWS, WID, MergeBuffers, ScatteredPartials
from highlevel.sliding.window_rows import Strategy, WindowRows, with_ids
from highlevel.windows.kind import SlidingWindow
from lowlevel.integer_ranges import Ranges, append_ids, unite
from lowlevel.punctuation import END, Item, Punctuation
from lowlevel.subaggregates import SubAggregate, count_of_rows

FIRST_WID = "first_wid"
END_WID = "end_wid"

CLOSED, SCATTERED = "closed", "scattered"
"""Tables of a snapshot besides the merge buffers: the last closed window ID, and the scattered partials."""

MERGE_ROWS = 65_536
"""Maximum number of rows that one call merges. A late row may belong to thousands of windows, so memory must be
limited."""


class Bucket(StatelessOperator):
    """Replaces `pane` by `first_wid, end_wid`, and times in punctuations by window IDs.

    It has no state except a counter.
    """

    def __init__(self, window: SlidingWindow, pane: int) -> None:
        """Tag partials of panes of `pane` ns with the ids of `window`."""
        self.window = window
        self.pane = pane
        self.outside = 0

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Tag a batch.

        Partials before the origin, or between windows (SLIDE greater than RANGE), are dropped and counted.
        """
        first, end = self.window.wids(self.window.origin + batch.column("pane").to_numpy() * self.pane)
        tagged = batch.drop_columns(["pane"])
        tagged = tagged.append_column(FIRST_WID, array_of(first)).append_column(END_WID, array_of(end))
        is_inside = first < end
        if not is_inside.all():
            self.outside += int(len(is_inside) - np.count_nonzero(is_inside))
            tagged = pc.filter(tagged, array_of(is_inside))
        if tagged.num_rows:
            yield tagged

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Convert a watermark to a window ID: all windows with smaller IDs are final."""
        yield (
            punctuation
            if punctuation.watermark == END
            else Punctuation(punctuation.link, self.window.first_open_window(punctuation.watermark))
        )


class Aggregate:
    """Merge partials and close windows at punctuations.

    Rows of the result: `wid`, the groups, the merged sub-aggregates.

    A partial for a final window is not added to that window, and counted in `late`. It is still added to its open
    windows. `late_rows` counts the rows of such partials if a sub-aggregate counts rows. A window without a partial is
    not emitted.
    """

    def __init__(self, groups: Sequence[str], subaggregates: Sequence[SubAggregate]) -> None:
        """Group by the columns `groups`. Merge each sub-aggregate by its rule in MERGE."""
        self.groups = list(groups)
        self.subaggregates = list(subaggregates)
        self.columns = self.groups + [sub.name for sub in subaggregates]
        self.window_rows = WindowRows(groups, subaggregates)
        self.open = MergeBuffers(groups, self.window_rows.merge_rules)
        self.scattered = ScatteredPartials(groups, self.window_rows.merge_rules)
        self.closed = 0  # every window with a smaller ID is final
        self.received = 0
        self.late = 0
        self.late_rows = 0
        self.count_of_rows = count_of_rows(subaggregates)

    @property
    def strategy(self) -> Strategy:
        """The strategy by which the last window was computed from its merge buffers."""
        return self.window_rows.strategy

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Store partials with their range of open windows."""
        if batch.num_rows == 0:
            return iter(())
        self.received += batch.num_rows
        first = batch.column(FIRST_WID).to_numpy()
        end = batch.column(END_WID).to_numpy()
        late = np.clip(np.minimum(end, self.closed) - first, 0, None)
        if late.any():
            self.late += int(late.sum())
            if self.count_of_rows is not None:
                self.late_rows += int(batch.column(self.count_of_rows).to_numpy()[late > 0].sum())
        first = np.maximum(first, self.closed)
        batch = batch.select(self.columns)
        if first[0] == first[-1] and end[0] == end[-1] and (first == first[0]).all() and (end == end[0]).all():
            self.open.store((int(first[0]), int(end[0])), batch)
            return iter(())
        order = np.lexsort((end, first))  # sort only this batch, to split it into ranges
        first, end = first[order], end[order]
        cuts = np.flatnonzero((np.diff(first) != 0) | (np.diff(end) != 0)) + 1
        if len(cuts) >= MANY_WINDOWS and len(first) <= FEW_ROWS * len(cuts) and (end <= first + 1).all():
            still_open = end > first
            if still_open.any():
                self.scattered.add(with_ids(first[still_open], pc.take(batch, array_of(order[still_open]))))
            return iter(())
        for start, stop in zip([0, *cuts.tolist()], [*cuts.tolist(), len(first)], strict=True):
            # A copy: a slice would keep all of the batch in memory for as long as its slowest window is open.
            self.open.store((int(first[start]), int(end[start])), pc.take(batch, array_of(order[start:stop])))
        return iter(())

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Emit all windows with IDs below the watermark in order, then return the watermark if it has grown."""
        if punctuation.watermark <= self.closed:
            return
        scattered = self.scattered.take_below(punctuation.watermark)
        if scattered:
            yield from self.window_rows.make_with_scattered(scattered, self.open, self.closed, punctuation.watermark)
        else:
            yield from self.window_rows.make(self.open, self.closed, punctuation.watermark)
        self.closed = punctuation.watermark
        self.window_rows.remove_before(punctuation.watermark, self.open)
        yield punctuation

    def open_windows(self) -> Ranges:
        """Return the IDs of the windows that contain partials and are not final."""
        return unite([*((max(first, self.closed), end) for first, end in self.open.buffers), *self.scattered.windows()])

    @property
    def bytes(self) -> int:
        """Bytes of the stored partials and of their totals."""
        return self.open.bytes + self.scattered.bytes + self.window_rows.bytes

    @property
    def rows_held(self) -> int:
        """Number of stored partials."""
        return self.scattered.rows + sum(buffer.rows for buffer in self.open.buffers.values())

    def snapshot(self) -> dict[str, pa.Table]:
        """Return a table per range of window IDs (`first-end`), the scattered partials, and the last closed ID.

        A table has one chunk for each piece of a merge buffer (`highlevel.groups.merge_buffer`).
        """
        tables = {CLOSED: pa.table({CLOSED: [self.closed]})}
        scattered = self.scattered.snapshot()
        if scattered is not None:
            tables[SCATTERED] = scattered
        for (first, end), buffer in self.open.buffers.items():
            tables[f"{first}-{end}"] = pa.Table.from_batches(buffer.merged_pieces())
        return tables

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        for name, table in tables.items():
            if name == CLOSED:
                self.closed = table[CLOSED][0].as_py()
            elif name == SCATTERED:
                self.scattered.restore(table)
            else:
                first, end = (int(number) for number in name.split("-"))
                self.open.put((first, end), MergeBuffer(self.groups, self.open.merge_rules, table.to_batches()))


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
        """Number of partials before the origin, or between windows."""
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
        """Return the ids of the windows that became final since the last call."""
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
        """Emit every window that ends at or before the watermark, then the end of the last window as watermark."""
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
