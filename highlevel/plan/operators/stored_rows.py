"""StoredRows: rows that an operator stores until they are final."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.plan.nodes import Node, bound_count
from highlevel.plan.operators.operator import AnyPunctuation, bounds_of, times_of
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import BEGINNING, END

ROWS, WATERMARK = "rows", "low"
"""Names in snapshots: the table of the stored rows, and the column with the watermark."""


MAX_BATCHES = 1_024
"""Maximum number of waiting batches; then they are merged into one chunk."""


class StoredRows:
    """Rows of `node`. A row is final if the watermark of the column `time` is later than its time.

    A row that arrives when it is already final is late: it is dropped and counted. Without `time` all rows are final at
    the end of the input.

    A batch may be as small as one window of one group. So batches wait in a list: a table of all batches would be
    copied for each one.
    """

    def __init__(self, node: Node, time: str | None) -> None:
        """Begin without rows."""
        self.schema = pa.schema([pa.field(column.name, ARROW_TYPES[column.type]) for column in node.columns])
        self.num_rows = 0
        self.nbytes = 0
        self._table: pa.Table = self.schema.empty_table()
        self._batches: list[pa.RecordBatch] = []
        self.watermark = BEGINNING
        self.late = 0
        self._time = time
        self._bound_count = bound_count(node)

    @property
    def rows(self) -> pa.Table:
        """The stored rows."""
        self._merge()
        return self._table

    @rows.setter
    def rows(self, rows: pa.Table) -> None:
        self._table, self._batches = rows, []
        self.num_rows, self.nbytes = rows.num_rows, rows.nbytes

    def add(self, batch: pa.RecordBatch) -> None:
        """Store the rows that are not late."""
        if self._time is not None and self.watermark != BEGINNING:
            late = times_of(batch.column(self._time)) < self.watermark
            if late.any():
                self.late += int(np.count_nonzero(late))
                batch = batch.filter(pa.array(~late))
        if batch.num_rows:
            self._batches.append(batch)
            self.num_rows += batch.num_rows
            self.nbytes += batch.nbytes
        if len(self._batches) == MAX_BATCHES:
            self._merge()

    def _merge(self) -> None:
        """Append the waiting batches to the table as one chunk."""
        if self._batches:
            chunk = pa.Table.from_batches(self._batches, self.schema).combine_chunks()
            self._table = pa.concat_tables([self._table, chunk])
            self._batches = []

    def take_final(self, punctuation: AnyPunctuation) -> tuple[pa.Table, bool]:
        """Remove and return the rows that become final, and True if the watermark has grown."""
        old_watermark, bounds = self.watermark, bounds_of(punctuation, self._bound_count)
        final = self.schema.empty_table()
        if set(bounds) == {END}:
            self.watermark = END
            final, self.rows = self.rows, final
        elif self._time is not None and bounds[0] > old_watermark:
            self.watermark = bounds[0]
            is_final = times_of(self.rows.column(self._time).combine_chunks()) < self.watermark
            if is_final.any():
                final = pc.filter(self.rows, array_of(is_final))
                self.rows = pc.filter(self.rows, array_of(~is_final)).combine_chunks()
        return final, self.watermark > old_watermark

    def restore(self, rows: pa.Table, watermark: int) -> None:
        """Load the state of a snapshot."""
        self.rows, self.watermark = rows.cast(self.schema), watermark
