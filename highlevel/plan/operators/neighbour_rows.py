"""Values of neighbours: of the rows a number of rows before or after a row of the same partition.

    new rows ──► kept, by partition ──► rows whose later neighbours are known, with the values of all neighbours

Of each partition the rows are kept that wait for a later neighbour, and the last ones that a later row may read.
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

NUMBER, IS_DONE = "number of the partition", "is returned"
"""Columns of a snapshot: the number of the partition of a row, and whether the row has been returned."""

Numbers = npt.NDArray[np.int64]


class NeighbourRows:
    """The rows of partitions that are kept. Without neighbours it keeps none, and returns rows at once.

    Without later neighbours no row waits, and only the columns of neighbours are kept.
    """

    def __init__(self, neighbours: Sequence[Neighbour], schema: pa.Schema, time: str) -> None:
        """Add columns to rows of `schema` with the time column `time`."""
        self._neighbours = neighbours
        self._time = time
        self._before = max((-each.distance for each in neighbours), default=0)
        self._after = max((each.distance for each in neighbours), default=0)
        added = [pa.field(each.name, schema.field(each.column).type) for each in neighbours]
        self.schema = pa.schema([*schema, *added])
        """The columns of rows with those of their neighbours."""
        columns = dict.fromkeys(each.column for each in neighbours)
        self._rows = (schema if self._after > 0 else pa.schema([schema.field(name) for name in columns])).empty_table()
        self._partitions = np.empty(0, np.int64)
        self._is_done = np.empty(0, np.bool_)

    @property
    def num_rows(self) -> int:
        """Number of kept rows."""
        return len(self._partitions)

    @property
    def bytes(self) -> int:
        """Memory of the kept rows."""
        return int(self._rows.nbytes + self._partitions.nbytes + self._is_done.nbytes)

    @property
    def earliest(self) -> int:
        """The time of the earliest row that waits for a later one, or END."""
        if self._is_done.all():
            return END
        return int(times_of(self._rows.column(self._time).combine_chunks())[~self._is_done].min())

    def add(self, batch: pa.RecordBatch, partitions: Numbers, *, is_end: bool) -> tuple[pa.RecordBatch, Numbers]:
        """Add the next rows of partitions. Return the rows whose neighbours are known, in the order of their arrival.

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
        place, first, last = np.empty_like(order), np.empty_like(order), np.empty_like(order)
        place[order] = np.arange(len(order))
        first[order], last[order] = np.repeat(begins, sizes), np.repeat(begins + sizes - 1, sizes)
        is_done = np.append(self._is_done, np.zeros(batch.num_rows, np.bool_))
        is_ready = ~is_done & (is_end | (place + self._after <= last))
        is_done |= is_ready
        ready = np.flatnonzero(is_ready)
        if self._after > 0:
            (batch,) = rows.take(array_of(ready)).combine_chunks().to_batches() or [batch.slice(0, 0)]
        for each in self._neighbours:
            at = place[ready] + each.distance
            valid = (at >= first[ready]) & (at <= last[ready])
            source = order[np.where(valid, at, 0)]
            values = pc.take(rows[each.column].combine_chunks(), pa.array(source, mask=~valid))
            batch = batch.append_column(each.name, values)
        # A row is read by a later one, or waits, if fewer than `before` of its followers have been returned.
        done = np.append(0, np.cumsum(is_done[order]))
        followers = done[last + 1] - done[place + 1]
        kept = np.flatnonzero(~is_done | (followers < self._before))
        self._rows = rows.take(array_of(kept)).combine_chunks()
        self._partitions, self._is_done = partitions[kept], is_done[kept]
        return batch, partitions[ready]

    def forget_partitions(self, is_forgotten: npt.NDArray[np.bool_]) -> None:
        """Forget the rows of some partitions."""
        kept = np.flatnonzero(~is_forgotten[self._partitions])
        self._rows = self._rows.take(array_of(kept)).combine_chunks()
        self._partitions, self._is_done = self._partitions[kept], self._is_done[kept]

    def snapshot(self) -> pa.Table:
        """Return the kept rows, with their partitions."""
        numbers, is_done = array_of(self._partitions), array_of(self._is_done)
        return self._rows.append_column(NUMBER, numbers).append_column(IS_DONE, is_done)

    def restore(self, table: pa.Table) -> None:
        """Load the rows of a snapshot."""
        self._rows = table.select(self._rows.schema.names).cast(self._rows.schema).combine_chunks()
        self._partitions = table[NUMBER].to_numpy().copy()
        self._is_done = table[IS_DONE].to_numpy(zero_copy_only=False).copy()
