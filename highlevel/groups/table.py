"""A table of groups. It merges partials into one row per group."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from highlevel.groups.key_words import Words
from highlevel.groups.keys import Keys
from highlevel.groups.layer import Layer
from highlevel.groups.merging import MergeRule

FEW_ROWS = 65_536
"""Maximum number of rows that are joined to one batch before a merge."""


class GroupTable:
    """Merges batches by the columns `groups`. Not thread safe.

    The rows are equal to `pyarrow.Table.group_by(groups).aggregate(…)` over all merged batches. Columns are `groups`
    and then the accumulated columns; groups are in the order of their first row. With `counts_rows` the table counts
    the rows of each group, so that merged rows can be subtracted. A group without rows is not in the result.
    """

    def __init__(
        self, schema: pa.Schema, groups: Sequence[str], merge_rules: Sequence[MergeRule], counts_rows: bool = False
    ) -> None:
        """Merge batches with at least the columns of `schema`."""
        self.schema = merged_schema(schema, groups, merge_rules)
        self.groups = list(groups)
        self.keys = Keys([schema.field(name).type for name in groups])
        self.layer = Layer(schema, merge_rules, counts_rows)

    @property
    def count(self) -> int:
        """Number of groups with an ID, including groups without rows."""
        return self.keys.count

    @property
    def bytes(self) -> int:
        """Bytes of the table."""
        return self.keys.bytes + self.layer.bytes

    def merge(self, batch: pa.RecordBatch) -> Words:
        """Add a batch. Return the group ID of each row."""
        ids = self.keys.find_or_insert([batch.column(name) for name in self.groups], batch.num_rows)
        self.layer.merge(ids, batch, self.keys.capacity)
        return ids

    def subtract(self, batch: pa.RecordBatch, ids: Words) -> None:
        """Subtract a batch that was merged. All rules must be invertible, and `counts_rows` must be True."""
        self.layer.merge(ids, batch, self.keys.capacity, True)

    def purge(self) -> Words:
        """Remove the groups without rows. Return the new IDs of the other groups, indexed by the old IDs."""
        ids = self.layer.groups_with_rows(self.count)
        new_ids = np.arange(self.count)
        if ids is not None:
            self.keys = self.keys.copy_of(ids)
            self.layer.keep(ids)
            new_ids[ids] = np.arange(len(ids))
        return new_ids

    def to_arrow(self) -> pa.RecordBatch:
        """Return a copy with a row per group."""
        ids = self.layer.groups_with_rows(self.count)
        return batch_of(self.schema, [*self.keys.columns(ids), *self.layer.columns(ids, self.count)])


def merged_schema(schema: pa.Schema, groups: Sequence[str], merge_rules: Sequence[MergeRule]) -> pa.Schema:
    """Return the schema of merged rows."""
    return pa.schema(
        [
            schema.field(name)
            for name in (*groups, *(name for column_group in merge_rules for name in column_group.columns))
        ]
    )


def batch_of(schema: pa.Schema, columns: Sequence[pa.Array]) -> pa.RecordBatch:
    """Return a batch of the columns, cast to the types of `schema` if necessary."""
    cast = [pc.cast(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=schema)


def merge_batches(
    batches: Sequence[pa.RecordBatch], groups: Sequence[str], merge_rules: Sequence[MergeRule]
) -> pa.RecordBatch:
    """Return the merged rows of at least one batch."""
    table = GroupTable(batches[0].schema, groups, merge_rules)
    for batch in join_small(batches):
        table.merge(batch)
    return table.to_arrow()


def join_small(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Join batches to one batch if they have few rows, because each batch has a fixed cost."""
    few = sum(batch.num_rows for batch in batches) < FEW_ROWS
    return [join_batches(batches)] if batches and few else list(batches)


def join_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Join at least one batch to one batch. Several batches are copied."""
    if len(batches) == 1:
        return batches[0]
    joined = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined[0] if joined else batches[0]
