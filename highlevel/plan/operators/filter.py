"""Filter: the rows of a node that satisfy a condition."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.operators.batch_columns import BatchColumns
from highlevel.operators.operator import StatelessOperator
from highlevel.plan.nodes import Filter, macs_of
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem
from lowlevel.expressions.predicate import Condition


class FilterOperator(StatelessOperator):
    """Filter rows. Stateless, except that the condition measures its costs."""

    def __init__(self, node: Filter) -> None:
        """Filter by the condition of `node`."""
        self.condition = Condition(node.where)
        self.macs = macs_of(node.input)

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Return the rows for which the condition is true."""
        kept = self.condition.true_rows(BatchColumns(batch, self.macs), batch.num_rows)
        if kept.all():
            yield batch
        elif kept.any():
            yield pc.filter(batch, array_of(kept))

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Pass on the watermark."""
        yield punctuation
