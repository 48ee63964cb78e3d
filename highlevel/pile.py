"""A pile: the partials of one range of window ids, merged when they have become many."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from highlevel.groups.merging import Accumulated
from highlevel.groups.table import GroupTable, gathered

MERGE_ROWS = 16_384
"""Partials of a pile that may wait to be merged: fewer cost more in calls than in rows."""


class Pile:
    """Partials as they came, or in a table of groups once they are many, or in merged batches when they are at rest.

    A pile at rest hands out the very batches that it was restored from, or that it handed out before, until it changes.
    """

    def __init__(self, groups: Sequence[str], what: Sequence[Accumulated], rest: Sequence[pa.RecordBatch] = ()) -> None:
        """Merge by `groups`; `rest` are merged rows to begin with."""
        self.groups = groups
        self.what = what
        self.waiting: list[pa.RecordBatch] = []
        self.waiting_rows = 0
        self.rest = list(rest)
        self.table: GroupTable | None = None

    @property
    def rows(self) -> int:
        """Rows that a merge has to look at."""
        merged = sum(batch.num_rows for batch in self.rest) if self.table is None else self.table.count
        return self.waiting_rows + int(merged)

    @property
    def bytes(self) -> int:
        """Memory of the pile."""
        table = 0 if self.table is None else self.table.bytes
        return table + sum(int(batch.nbytes) for batch in (*self.waiting, *self.rest))

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in partials: columns `groups` and those of sub-aggregates."""
        self.waiting.append(batch)
        self.waiting_rows += batch.num_rows
        if self.waiting_rows > MERGE_ROWS:
            self._merge()

    def _merge(self) -> GroupTable:
        """Merge everything into the table."""
        if self.table is None:
            schema = (self.waiting or self.rest)[0].schema
            self.table = GroupTable(schema, self.groups, self.what)
            self.waiting[:0] = self.rest
        for batch in gathered(self.waiting):
            self.table.merge(batch)
        self.waiting, self.waiting_rows, self.rest = [], 0, []
        return self.table

    def at_rest(self) -> list[pa.RecordBatch]:
        """Return the rows with each group once, and keep them in place of all else."""
        if self.waiting or self.table is not None:
            self.rest = [self._merge().to_arrow()]
            self.table = None
        return self.rest

    def batches(self) -> list[pa.RecordBatch]:
        """Return the rows, merged if they are many; the pile is at rest then."""
        return self.at_rest() if self.table is not None else [*self.rest, *self.waiting]
