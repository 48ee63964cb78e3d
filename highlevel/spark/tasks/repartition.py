"""Repartition rows: send them to partitions by the values of a key, packed for each partition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from capture.lazy_dataclasses import dataclass
from highlevel.operators.batch_columns import BatchColumns
from highlevel.plan.fragments import Fragments
from highlevel.plan.nodes import macs_of
from highlevel.plan.partitioning import PartitionKey
from highlevel.spark.tasks.operator_part import compute_parts
from highlevel.spark.tasks.packing import pack
from lowlevel.expressions.arrow import arrow_column
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.tree import Column
from lowlevel.node.node_watchlists import bind_watchlists
from lowlevel.watch.watched_file import Watchlists


@dataclass(frozen=True)
class Repartition:
    """Sends rows to partitions by `key`, with only the `columns` that are needed. `macs` are the columns with MACs."""

    columns: tuple[str, ...]
    key: PartitionKey
    macs: frozenset[str]

    def pack_parts(self, batches: Sequence[pa.RecordBatch], part_count: int) -> list[bytes | None]:
        """Return the packed rows for each of `part_count` partitions, in the order of the batches. None: no rows."""
        batches = [batch for batch in batches if batch.num_rows]
        if not batches:
            return [None] * part_count
        table = pa.Table.from_batches([batch.select(self.columns) for batch in batches])
        if part_count == 1:
            return [pack(table)]
        key = bind_watchlists(self.key, Watchlists())
        part_of_row = np.concatenate(
            [compute_parts(*self._add_key_columns(key, batch), part_count) for batch in batches]
        )
        part_tables = [table.filter(pa.array(part_of_row == part)) for part in range(part_count)]
        return [pack(part_table) if part_table.num_rows else None for part_table in part_tables]

    def _add_key_columns(self, key: PartitionKey, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[str]]:
        """Return the batch with the columns of the key added, and the names of these columns."""
        names = []
        columns = BatchColumns(batch, self.macs)
        for position, expression in enumerate(key):
            if isinstance(expression, Column):
                names.append(expression.name)
                continue
            names.append(f"key {position}")
            key_column = arrow_column(evaluate(expression, columns), batch.num_rows, expression.type)
            batch = batch.append_column(names[-1], key_column)
        return batch, names


def make_repartition(fragments: Fragments, source_number: int) -> Repartition:
    """Return the repartitioning of a source's rows. Only columns that fragments read are sent."""
    source = fragments.sources[source_number]
    node = (
        fragments.plan.leaves[source.leaf or 0]
        if source.fragment is None
        else fragments.fragments[source.fragment].root
    )
    return Repartition(fragments.columns_read(source_number), source.key, macs_of(node))
