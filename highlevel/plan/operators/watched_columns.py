"""WatchedColumns: columns that are computed again when a watched file changes, as changes of rows.

    rows ──► waiting ──► outputs of the current files ──► changes
                  └── until WAIT has passed       └── stored until the watermark: a new version of a file corrects them

A row in a file of leases is true for a time in the past. So a lease that is withdrawn changes the answers about earlier
packets. Only rows above the watermark can be corrected, so REMEMBER bounds the memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.operators.batch_columns import BatchColumns
from highlevel.plan.change_nodes import WatchedColumns
from highlevel.plan.nodes import bound_count, macs_of
from highlevel.plan.operators.apply import compute_column
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, bounds_of, times_of
from highlevel.speculation.changes import make_changes, net_changes
from highlevel.speculation.waiting_rows import WaitingRows
from lowlevel.node.node_watchlists import find_instances
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import BEGINNING, END
from lowlevel.watch.watched_file import Identity, Watchlist

WAITING, RETURNED, TIMES = "waiting", "returned", "times"
"""Tables of a snapshot: rows that wait, rows with the returned values, and the clock and the watermark."""


class WatchedColumnsOperator:
    """Stores the rows whose columns a new version of a file can correct."""

    def __init__(self, node: WatchedColumns) -> None:
        """Compute the columns of `node`."""
        (self._time,) = node.input.time_columns
        self._outputs = node.outputs
        self._macs = macs_of(node.input)
        self._bound_count = bound_count(node.input)
        self._wait = node.consistency.wait
        self._files = list(dict.fromkeys(find_instances(node.outputs, Watchlist)))
        self._versions: list[Identity] | None = None  # of the returned values; None if they are not known
        self._schema = pa.schema([pa.field(each.name, ARROW_TYPES[each.type]) for each in node.columns[:-2]])
        self._input_schema = pa.schema([self._schema.field(each.name) for each in node.input.columns])
        self._waiting = WaitingRows(self._input_schema, self._time)
        self._returned = self._schema.empty_table()
        self._newest_time = self._watermark = BEGINNING
        self.received = 0
        self.results = 0
        """Changes returned."""
        self.late = 0

    @property
    def rows_held(self) -> int:
        """Number of rows that wait or can be corrected."""
        return self._waiting.num_rows + self._returned.num_rows

    @property
    def bytes(self) -> int:
        """Bytes of the rows in `rows_held`."""
        return self._waiting.nbytes + int(self._returned.nbytes)

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Return the changes of rows that have waited, and of rows that a new version of a file corrects."""
        self.received += batch.num_rows
        if batch.num_rows:
            times = times_of(batch.column(self._time))
            kept = times >= self._watermark
            self.late += int(np.count_nonzero(~kept))
            rows = pc.filter(batch, array_of(kept))
            self._newest_time = max(self._newest_time, int(times.max()))
            self._waiting.add(pa.Table.from_batches([rows], self._input_schema))
        yield from self._correct_returned_rows()
        if self._wait is not None and self._newest_time != BEGINNING:
            yield from self._return_waiting_rows(self._newest_time - self._wait + 1)

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Return the changes of all rows below the watermark, which cannot be corrected later, and the watermark."""
        (low,) = bounds_of(punctuation, self._bound_count)
        if low <= self._watermark:
            return
        yield from self._correct_returned_rows()
        yield from self._return_waiting_rows(low)
        self._watermark = low
        is_kept = times_of(self._returned.column(self._time).combine_chunks()) >= low
        self._returned = pc.filter(self._returned, array_of(is_kept & (low != END))).combine_chunks()
        yield punctuation

    def _return_waiting_rows(self, before: int) -> Iterator[GraphItem]:
        """Return the waiting rows with a time below `before` (ns), with their columns computed."""
        due = self._waiting.take_before(before)
        if not due.num_rows:
            return
        released = self._compute_table(due.combine_chunks())
        self._returned = pa.concat_tables([self._returned, released])
        yield from self._make_changes(self._schema.empty_table(), released)

    def _correct_returned_rows(self) -> Iterator[GraphItem]:
        """Compute the returned rows again if a file has another version."""
        versions = [file.version.identity for file in self._files]
        is_same = versions == self._versions
        self._versions = versions
        if is_same or not self._returned.num_rows:
            return
        old = self._returned.combine_chunks()
        self._returned = self._compute_table(old.select(self._input_schema.names))
        yield from self._make_changes(old, self._returned)

    def _compute_table(self, rows: pa.Table) -> pa.Table:
        batches: Sequence[pa.RecordBatch] = rows.to_batches()
        return pa.Table.from_batches([self._compute(batch) for batch in batches], self._schema)

    def _compute(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = BatchColumns(batch, self._macs)
        arrays = [*batch.columns, *(compute_column(out, batch, columns) for out in self._outputs)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _make_changes(self, old: pa.Table, new: pa.Table) -> Iterator[GraphItem]:
        rows, weights = net_changes(old, new)
        self.results += rows.num_rows
        yield from make_changes(rows, weights, False)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the rows and the times."""
        times = pa.table({TIMES: [self._newest_time, self._watermark]})
        return {WAITING: self._waiting.snapshot(), RETURNED: self._returned, TIMES: times}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the rows and the times. The next rows or watermark compare the returned values with the files."""
        self._waiting.restore(tables[WAITING])
        self._returned = tables[RETURNED].cast(self._schema)
        self._newest_time, self._watermark = tables[TIMES][TIMES].to_pylist()
