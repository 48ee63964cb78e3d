"""Repartitioning: rows are sent to partitions by the values of a key, packed for each partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from highlevel.operators.batch_columns import BatchColumns
from highlevel.plan.fragments import Fragments
from highlevel.plan.nodes import macs_of
from highlevel.plan.partitioning import PartitionKey
from highlevel.spark.operator_part import part_of
from highlevel.spark.packing import pack
from lowlevel.expressions.arrow import arrow_column
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.tree import Column
from lowlevel.node.watching import bind
from lowlevel.watch.watched_file import Watchlists


@dataclass(frozen=True)
class Repartition:
    """Send rows to partitions by `key`, with only the `columns` that are needed. `macs` are columns of MACs."""

    columns: tuple[str, ...]
    key: PartitionKey
    macs: frozenset[str]

    def packed(self, batches: Sequence[pa.RecordBatch], parts: int) -> list[bytes | None]:
        """Return the rows for each of `parts` partitions, in the order of the batches, None without rows."""
        batches = [batch for batch in batches if batch.num_rows]
        if not batches:
            return [None] * parts
        table = pa.Table.from_batches([batch.select(self.columns) for batch in batches])
        if parts == 1:
            return [pack(table)]
        key = bind(self.key, Watchlists())
        part = np.concatenate([part_of(*self._with_key(key, batch), parts) for batch in batches])
        shares = [table.filter(pa.array(part == number)) for number in range(parts)]
        return [pack(share) if share.num_rows else None for share in shares]

    def _with_key(self, key: PartitionKey, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[str]]:
        """Return the batch with the columns of the key, and their names."""
        names = []
        columns = BatchColumns(batch, self.macs)
        for position, part in enumerate(key):
            if isinstance(part, Column):
                names.append(part.name)
                continue
            names.append(f"key {position}")
            computed = arrow_column(evaluate(part, columns), batch.num_rows, part.type)
            batch = batch.append_column(names[-1], computed)
        return batch, names


def repartition_of(fragments: Fragments, source: int) -> Repartition:
    """Return the repartitioning of a source's rows. Only columns that fragments read are sent."""
    of = fragments.sources[source]
    node = fragments.plan.leaves[of.leaf or 0] if of.fragment is None else fragments.fragments[of.fragment].root
    return Repartition(fragments.columns_read(source), of.key, macs_of(node))
