"""A table of groups: partials in, one merged row per group out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from highlevel.groups.key_words import Words
from highlevel.groups.keys import Keys
from highlevel.groups.layer import Layer
from highlevel.groups.merging import Accumulated

FEW_ROWS = 65_536
"""Rows that are copied together rather than merged batch by batch."""


class GroupTable:
    """Merges batches by the columns `groups`. Not thread safe.

    The rows are those of `pyarrow.Table.group_by(groups).aggregate(…)` over all that was merged, in the order in which
    their groups were first seen, with the columns and types of the batches: `groups`, then the accumulated ones. With
    `held` the table counts the rows that each group has in it: what was merged can be taken out again, and a group of
    which nothing is left is not there.
    """

    def __init__(
        self, schema: pa.Schema, groups: Sequence[str], what: Sequence[Accumulated], held: bool = False
    ) -> None:
        """Merge batches that have at least these columns, of the types in `schema`."""
        self.schema = merged_schema(schema, groups, what)
        self.groups = list(groups)
        self.keys = Keys([schema.field(name).type for name in groups])
        self.layer = Layer(schema, what, held)

    @property
    def count(self) -> int:
        """Groups that have an id, those of which nothing is left among them."""
        return self.keys.count

    @property
    def bytes(self) -> int:
        """Memory of the table."""
        return self.keys.bytes + self.layer.bytes

    def merge(self, batch: pa.RecordBatch) -> Words:
        """Take in a batch; return the ids of its rows' groups."""
        ids = self.keys.of([batch.column(name) for name in self.groups], batch.num_rows)
        self.layer.merge(ids, batch, self.keys.room)
        return ids

    def undo(self, batch: pa.RecordBatch, ids: Words) -> None:
        """Take out a batch that was taken in: all rules are invertible, `held` is on."""
        self.layer.merge(ids, batch, self.keys.room, True)

    def purge(self) -> Words:
        """Forget the groups of which nothing is left; return what the ids of the others have become, by their old."""
        ids = self.layer.present(self.count)
        became = np.arange(self.count)
        if ids is not None:
            self.keys = self.keys.only(ids)
            self.layer.keep(ids)
            became[ids] = np.arange(len(ids))
        return became

    def to_arrow(self) -> pa.RecordBatch:
        """Return a row per group; a copy."""
        ids = self.layer.present(self.count)
        return batch_of(self.schema, [*self.keys.columns(ids), *self.layer.columns(ids, self.count)])


def merged_schema(schema: pa.Schema, groups: Sequence[str], what: Sequence[Accumulated]) -> pa.Schema:
    """Return the schema of merged rows."""
    return pa.schema([schema.field(name) for name in (*groups, *(name for each in what for name in each.columns))])


def batch_of(schema: pa.Schema, columns: Sequence[pa.Array]) -> pa.RecordBatch:
    """Make a batch of columns that may have to be cast."""
    cast = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(cast, schema=schema)


def merged(batches: Sequence[pa.RecordBatch], groups: Sequence[str], what: Sequence[Accumulated]) -> pa.RecordBatch:
    """Merge some batches, at least one, once."""
    table = GroupTable(batches[0].schema, groups, what)
    for batch in gathered(batches):
        table.merge(batch)
    return table.to_arrow()


def gathered(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return the same rows in one batch where they are few: each batch costs some calls, whatever its size."""
    few = sum(batch.num_rows for batch in batches) < FEW_ROWS
    return [one_batch(batches)] if batches and few else list(batches)


def one_batch(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return some batches, at least one, as one; a copy where they are several."""
    if len(batches) == 1:
        return batches[0]
    whole = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole[0] if whole else batches[0]
