"""The operator of windows that slide by rows: pending rows, final rows, and the watermarks that separate them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from highlevel.groups.key_words import Words
from highlevel.groups.merging import list_merge_rules
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.slide_by_tuple.kernels import WID
from highlevel.slide_by_tuple.numbering import ByArrival, ByRank, Numbering
from highlevel.slide_by_tuple.rows import PANE, Rows
from highlevel.slide_by_tuple.runs import TIME
from highlevel.windows.kind import SlideByTuple
from lowlevel.punctuation import BEGINNING, END, Item, Punctuation
from lowlevel.subaggregates import SubAggregate, count_of_rows

PENDING, HELD, MARKS, PROGRESS = "pending", "held", "marks", "progress"
"""Tables of a snapshot."""


class SlideByTupleAggregate:
    """A `WindowOperator` over partials of single rows.

    A window is emitted when the watermark passes it. The window contains all rows that have arrived before this, also
    rows below the watermark. The numbering counts these rows too. A row below the watermark is late if, by the
    definition over all rows, it belongs to a final window. It is also late if it is RANGE or more below the watermark,
    because no open window can contain it.
    """

    def __init__(self, window: SlideByTuple, groups: Sequence[str], subaggregates: Sequence[SubAggregate]) -> None:
        """Merge by the columns `groups`."""
        self.window = window
        self.groups = list(groups)
        self.merge_rules = list_merge_rules(subaggregates)
        self.columns = [name for merge_rule in self.merge_rules for name in merge_rule.columns]
        self.count_of_rows = count_of_rows(subaggregates)
        # If each row has a window, the order of counting has no effect. Counting by arrival then needs no memory.
        in_time_order = window.in_time_order and window.every > 1
        self.numbering: Numbering = ByRank(window.every) if in_time_order else ByArrival(window.every)
        self.watermark = BEGINNING  # every window with a smaller ID is final
        self.last_window = BEGINNING  # the greatest window ID that was emitted, or whose row was too late
        self.received = 0
        self.late = 0
        self.late_rows = 0
        self._closed = 0
        self._outside = 0
        self._rows: Rows | None = None

    @property
    def outside(self) -> int:
        """Number of rows in no window, because no row with a window followed within RANGE."""
        return self._outside + (self._rows.extent.outside if self._rows else 0)

    @property
    def bytes(self) -> int:
        """Bytes of the rows, their groups and the totals."""
        rows = self._rows
        return self.numbering.bytes + (rows.bytes if rows else 0)

    def open_windows(self) -> int:
        """Return the number of windows that are not final, if no more rows arrive."""
        times = self._rows.pending.all()[TIME] if self._rows else np.empty(0, np.int64)
        return self.numbering.count_open(self.watermark, times)

    def take_closed_windows(self) -> int:
        """Return and reset the number of emitted windows."""
        closed, self._closed = self._closed, 0
        return closed

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Store rows until they are final."""
        if batch.num_rows == 0:
            return iter(())
        self.received += batch.num_rows
        times = batch.column(PANE).to_numpy()
        reached = self._last_unneeded_time(self.watermark)
        self.numbering.count_arrivals(times, reached)
        is_too_late = times <= reached
        if is_too_late.any():
            self._count_late(batch.filter(pa.array(is_too_late)))
            batch = batch.filter(pa.array(~is_too_late))
        if batch.num_rows:
            rows = self._row_store(batch.schema)
            rows.pending.add(rows.words(batch))
        return iter(())

    def _last_unneeded_time(self, watermark: int) -> int:
        """Return a time, in ns: rows at or before it belong to no window from `watermark` on."""
        return END if watermark == END else max(watermark - self.window.range, BEGINNING)

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Emit the windows below the watermark in the order of their IDs, then the watermark if it has grown."""
        if punctuation.watermark <= self.watermark:
            return
        if self._rows is not None:
            yield from self._windows(self._rows, punctuation.watermark)
            self._remove_unneeded_rows(self._rows, punctuation.watermark)
        self.watermark = punctuation.watermark
        yield punctuation

    def _windows(self, rows: Rows, watermark: int) -> Iterator[pa.RecordBatch]:
        extent = rows.extent
        extent.reserve(rows.keys.capacity)
        final = rows.pending.take(watermark)
        late = int(np.searchsorted(final[TIME], self.watermark))
        extent.add(final[:, :late])
        missed = self.numbering.count_late(self.watermark, final[TIME, :late], extent.times)
        self.last_window = max(self.last_window, BEGINNING if missed is None else missed)
        extent.mark_entered(self.last_window)
        missing = int(np.searchsorted(final[TIME, :late], self.last_window, side="right"))
        if missing:
            self._count_late(rows.batch(final[:, :missing]))
        extent.add(final[:, late:])
        wids = self.numbering.final_windows(watermark, final[TIME, late:])
        if len(wids) == 0:
            return
        self._closed += len(wids)
        self.last_window = int(wids[-1])
        for window_rows in whole_windows(extent.windows(wids)):
            yield self._result(rows, window_rows)

    def _remove_unneeded_rows(self, rows: Rows, watermark: int) -> None:
        outside = rows.remove_until(self._last_unneeded_time(watermark))
        if outside is not None:
            self._outside += outside
            self._rows = None

    def _row_store(self, schema: pa.Schema) -> Rows:
        """Return the row store. The first batch determines its types."""
        if self._rows is None:
            self._rows = Rows(schema, self.groups, self.merge_rules, self.window.range)
        return self._rows

    def _count_late(self, rows: pa.RecordBatch) -> None:
        self.late += rows.num_rows
        if self.count_of_rows is not None:
            self.late_rows += int(rows.column(self.count_of_rows).to_numpy().sum())

    def _result(self, rows: Rows, window_rows: Words) -> pa.RecordBatch:
        """Return the rows of windows: their bounds, the groups, the merged sub-aggregates."""
        wids = window_rows[TIME]
        bounds = [pa.array(wids - (self.window.range - 1)), pa.array(wids + 1)]
        columns = [*bounds, *rows.batch(window_rows).columns[1:]]
        return pa.RecordBatch.from_arrays(columns, [WINDOW_START, WINDOW_END, *self.groups, *self.columns])

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the pending and final rows as received, the watermark, and the state of the numbering."""
        progress = pa.table(
            {"low": [self.watermark], "passed": [self.last_window], "number": [self.numbering.row_count]}
        )
        tables = {PROGRESS: progress}
        if len(self.numbering.waiting_windows):
            tables[MARKS] = pa.table({PANE: self.numbering.waiting_windows})
        if self._rows is not None:
            for name, words in ((PENDING, self._rows.pending.all()), (HELD, self._rows.extent.rows())):
                tables[name] = pa.Table.from_batches([self._rows.batch(words)])
        return tables

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Restore the state of a snapshot and compute the totals again."""
        (progress,) = tables[PROGRESS].to_pylist()
        self.watermark, self.last_window, self.numbering.row_count = (
            progress["low"],
            progress["passed"],
            progress["number"],
        )
        if MARKS in tables:
            self.numbering.load_waiting_windows(tables[MARKS].column(PANE).to_numpy())
        if PENDING not in tables:
            return
        rows = self._row_store(tables[PENDING].schema)
        for batch in tables[PENDING].combine_chunks().to_batches():
            rows.pending.add(rows.words(batch))
        for batch in tables[HELD].combine_chunks().to_batches():
            words = rows.words(batch)
            rows.extent.reserve(rows.keys.capacity)
            rows.extent.add(words)


def whole_windows(pieces: Iterable[Words]) -> Iterator[Words]:
    """Combine matrices of results in the order of windows, so that each window is in one matrix."""
    last_window: list[Words] = []  # matrices of the last window
    for piece in pieces:
        if piece.shape[1] == 0:
            continue
        split = int(np.searchsorted(piece[WID], piece[WID, -1]))
        if split or (last_window and last_window[0][WID, 0] != piece[WID, 0]):
            yield np.concatenate([*last_window, piece[:, :split]], axis=1) if last_window else piece[:, :split]
            last_window = []
        last_window.append(piece[:, split:])
    if last_window:
        yield np.concatenate(last_window, axis=1)
