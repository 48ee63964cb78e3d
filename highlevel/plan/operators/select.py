"""Select: the rows of a node that a condition keeps."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from highlevel.operators.batch_columns import BatchColumns
from highlevel.plan.nodes import Select, macs_of
from highlevel.plan.operators.operator import GraphItem, Mark
from lowlevel.expressions.predicate import Condition


class SelectOperator:
    """Filters; promises are as true of fewer rows. Stateless but for what its condition has learnt of its parts."""

    def __init__(self, node: Select) -> None:
        """Filter for `node`."""
        self.condition = Condition(node.where)
        self.macs = macs_of(node.input)

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Pass on the rows for which the condition is true."""
        kept = self.condition.true_rows(BatchColumns(batch, self.macs), batch.num_rows)
        if kept.all():
            yield batch
        elif kept.any():
            yield batch.filter(pa.array(kept))

    def punctuate(self, port: int, mark: Mark) -> Iterator[GraphItem]:
        """Pass on."""
        yield mark

    def snapshot(self) -> dict[str, pa.Table]:
        """Nothing to keep."""
        return {}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Nothing to take over."""
