"""How rows leave for the partitions that need them: by the values of what they are dealt by, packed for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from highlevel.aggregation import QueryPlan
from highlevel.operators.batch_columns import BatchColumns
from highlevel.plan.fragments import Stages
from highlevel.plan.nodes import macs_of
from highlevel.plan.partitioning import Deal
from highlevel.plan.plan import GraphPlan
from highlevel.spark.operator_part import part_of
from highlevel.spark.packing import pack
from lowlevel.expressions.arrow import arrow_column
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.tree import Column


@dataclass(frozen=True)
class Dealing:
    """Deals rows by `deal`, and packs those of their `columns` that are read; `macs` are columns of MACs."""

    columns: tuple[str, ...]
    deal: Deal
    macs: frozenset[str]

    def packed(self, batches: Sequence[pa.RecordBatch], parts: int) -> list[bytes | None]:
        """Return what each of `parts` partitions is handed, in the order of the batches; None for nothing."""
        batches = [batch for batch in batches if batch.num_rows]
        if not batches:
            return [None] * parts
        table = pa.Table.from_batches([batch.select(self.columns) for batch in batches])
        if parts == 1:
            return [pack(table)]
        part = np.concatenate([part_of(*self._dealt_by(batch), parts) for batch in batches])
        shares = [table.filter(pa.array(part == number)) for number in range(parts)]
        return [pack(share) if share.num_rows else None for share in shares]

    def _dealt_by(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[str]]:
        """Return a batch that has what it is dealt by, and the names of that."""
        names = []
        columns = BatchColumns(batch, self.macs)
        for place, each in enumerate(self.deal):
            if isinstance(each, Column):
                names.append(each.name)
                continue
            names.append(f"dealt by {place}")
            computed = arrow_column(evaluate(each, columns), batch.num_rows, each.type)
            batch = batch.append_column(names[-1], computed)
        return batch, names


def dealing_of(stages: Stages, source: int) -> Dealing:
    """Say how the rows of a source are dealt; only columns that are read behind it travel."""
    of = stages.sources[source]
    if of.fragment is not None:
        fragment = stages.fragments[of.fragment]
        assert isinstance(fragment, GraphPlan), "a query that is no graph is one fragment, whose rows are results"
        return Dealing(tuple(fragment.schema.names), of.deal, macs_of(fragment.root))
    if isinstance(stages.plan, QueryPlan):
        plan = stages.plan
        columns = ("pane", *plan.carried, *(sub.name for sub in plan.low.subaggregates))
        return Dealing(tuple(columns), of.deal, plan.macs)
    leaf = stages.plan.leaves[of.leaf or 0]
    return Dealing(tuple(leaf.low.schema.names), of.deal, macs_of(leaf))
