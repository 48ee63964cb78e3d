"""Merge partials by window and group. A punctuation closes windows, each of them once (WID; Li 2008, §6.1.2).

The window ID is one more grouping column, so the arrival order does not matter. State is kept per *range of window
IDs*. Partials with the same `[first_wid, end_wid)` share a merge buffer; window w is the merge of the buffers whose
range contains w. Tumbling windows have one buffer per window, sliding windows have one per pane. A partial is stored
once, even if many windows contain it. Buffers are entries of a map, so a gap of years between two buffers costs no
memory.

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
from highlevel.sliding.bucket import END_WID, FIRST_WID
from highlevel.sliding.open_partials import FEW_ROWS, MANY_WINDOWS, WID, MergeBuffers, ScatteredPartials
from highlevel.sliding.window_rows import Strategy, WindowRows, with_ids
from lowlevel.integer_ranges import Ranges, unite
from lowlevel.punctuation import Item, Punctuation
from lowlevel.subaggregates import SubAggregate, count_of_rows

__all__ = ["WID", "Aggregate"]

CLOSED, SCATTERED = "closed", "scattered"
"""Other tables of a snapshot than merge buffers: the last closed window ID, and the scattered partials."""


class Aggregate:
    """Merge partials and close windows at punctuations.

    Rows of the result: `wid`, the groups, the merged sub-aggregates.

    A partial for a final window is left out of that window and counted in `late`. Its open windows still receive it.
    `late_rows` counts the rows of such partials if a sub-aggregate counts rows. A window without a partial is not
    emitted.
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
        """Strategy that made the last window from its merge buffers."""
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
        """Emit all windows with IDs below the watermark in order, then pass the watermark on if it has grown."""
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
