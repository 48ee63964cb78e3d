"""Values of neighbours: the rows at a fixed distance before or after a row in its partition.

    new rows ──► stored, by partition ──► rows whose later neighbours are known, with the values of all neighbours

Stored are, for each partition, the rows that wait for a later neighbour, and the last rows that a later row may read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.plan.operators.operator import times_of
from highlevel.plan.pattern_nodes import Neighbour
from lowlevel.punctuation import END

PARTITION_COLUMN, IS_RETURNED_COLUMN = "number of the partition", "is returned"
"""Columns of a snapshot: the partition number of a row, and true if the row has been returned."""

Numbers = npt.NDArray[np.int64]


class NeighbourRows:
    """The stored rows of all partitions. Without neighbours no row is stored, and rows are returned at once.

    Without later neighbours no row waits, and only the columns that neighbours provide are stored.
    """

    def __init__(self, neighbours: Sequence[Neighbour], schema: pa.Schema, time: str) -> None:
        """Add columns to rows of `schema` with the time column `time`."""
        self._neighbours = neighbours
        self._time = time
        self._max_before = max((-each.distance for each in neighbours), default=0)
        self._max_after = max((each.distance for each in neighbours), default=0)
        added = [pa.field(each.name, schema.field(each.column).type) for each in neighbours]
        self.schema = pa.schema([*schema, *added])
        """The columns of the returned rows: those of the input, and then the values of neighbours."""
        columns = dict.fromkeys(each.column for each in neighbours)
        self._rows = (
            schema if self._max_after > 0 else pa.schema([schema.field(name) for name in columns])
        ).empty_table()
        self._partitions = np.empty(0, np.int64)
        self._is_done = np.empty(0, np.bool_)

    @property
    def num_rows(self) -> int:
        """Number of stored rows."""
        return len(self._partitions)

    @property
    def bytes(self) -> int:
        """Bytes of the stored rows."""
        return int(self._rows.nbytes + self._partitions.nbytes + self._is_done.nbytes)

    @property
    def earliest(self) -> int:
        """The time of the earliest row that waits for a later neighbour, in ns, or END."""
        if self._is_done.all():
            return END
        return int(times_of(self._rows.column(self._time).combine_chunks())[~self._is_done].min())

    def add(self, batch: pa.RecordBatch, partitions: Numbers, *, is_end: bool) -> tuple[pa.RecordBatch, Numbers]:
        """Add rows with their partition numbers. Return the rows whose neighbours are known, by arrival.

        `is_end`: no more rows follow.
        """
        if not self._neighbours:
            return batch, partitions
        added = pa.Table.from_batches([batch.select(self._rows.schema.names)])
        rows = pa.concat_tables([self._rows, added]).combine_chunks()
        partitions = np.append(self._partitions, partitions)
        order = np.argsort(partitions, kind="stable")
        ordered = partitions[order]
        begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(order)])
        sizes = np.diff(np.append(begins, len(order)))
        index, first, last = np.empty_like(order), np.empty_like(order), np.empty_like(order)
        index[order] = np.arange(len(order))
        first[order], last[order] = np.repeat(begins, sizes), np.repeat(begins + sizes - 1, sizes)
        is_returned = np.append(self._is_done, np.zeros(batch.num_rows, np.bool_))
        is_ready = ~is_returned & (is_end | (index + self._max_after <= last))
        is_returned |= is_ready
        ready_rows = np.flatnonzero(is_ready)
        if self._max_after > 0:
            (batch,) = rows.take(array_of(ready_rows)).combine_chunks().to_batches() or [batch.slice(0, 0)]
        for each in self._neighbours:
            at = index[ready_rows] + each.distance
            valid = (at >= first[ready_rows]) & (at <= last[ready_rows])
            source = order[np.where(valid, at, 0)]
            values = pc.take(rows[each.column].combine_chunks(), pa.array(source, mask=~valid))
            batch = batch.append_column(each.name, values)
        # A row may be read later, or waits, if fewer than `_max_before` of its followers have been returned.
        returned_before = np.append(0, np.cumsum(is_returned[order]))
        followers = returned_before[last + 1] - returned_before[index + 1]
        kept = np.flatnonzero(~is_returned | (followers < self._max_before))
        self._rows = rows.take(array_of(kept)).combine_chunks()
        self._partitions, self._is_done = partitions[kept], is_returned[kept]
        return batch, partitions[ready_rows]

    def remove_partitions(self, is_removed: npt.NDArray[np.bool_]) -> None:
        """Remove the rows of the partitions in a mask."""
        kept = np.flatnonzero(~is_removed[self._partitions])
        self._rows = self._rows.take(array_of(kept)).combine_chunks()
        self._partitions, self._is_done = self._partitions[kept], self._is_done[kept]

    def snapshot(self) -> pa.Table:
        """Return the stored rows, with their partition numbers."""
        numbers, is_done = array_of(self._partitions), array_of(self._is_done)
        return self._rows.append_column(PARTITION_COLUMN, numbers).append_column(IS_RETURNED_COLUMN, is_done)

    def restore(self, table: pa.Table) -> None:
        """Load the rows of a snapshot."""
        self._rows = table.select(self._rows.schema.names).cast(self._rows.schema).combine_chunks()
        self._partitions = table[PARTITION_COLUMN].to_numpy().copy()
        self._is_done = table[IS_RETURNED_COLUMN].to_numpy(zero_copy_only=False).copy()
