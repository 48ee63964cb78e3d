"""Finish: HAVING, and the select list, over the groups of closed windows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from highlevel.batch_columns import BatchColumns
from highlevel.plan import QueryPlan
from highlevel.window_operator import WINDOW_END, WINDOW_START
from lowlevel.arrow import arrow_column
from lowlevel.conditions import Condition
from lowlevel.evaluate import evaluate
from lowlevel.expressions import Column, Type
from lowlevel.punctuation import Item, Punctuation


class Finish:
    """Turns merged sub-aggregates into the rows the query asks for. Stateless but for its counter."""

    def __init__(self, plan: QueryPlan) -> None:
        """Finish for `plan`."""
        self.plan = plan
        self.results = 0
        self._having = None if plan.having is None else Condition(plan.having)
        self._macs = frozenset(key.name for key in plan.low.keys if key.expression.type is Type.MAC)

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Filter by HAVING and compute the select list."""
        plan = self.plan
        if self._having is not None:
            kept = self._having.true_rows(BatchColumns(batch, self._macs), batch.num_rows)
            batch = batch.filter(pa.array(kept))
        if batch.num_rows == 0:
            return
        arrays: list[pa.Array] = []
        if plan.windowed:
            arrays = [batch.column(WINDOW_START), batch.column(WINDOW_END)]
        columns = BatchColumns(batch, self._macs)
        for output in plan.select:
            if isinstance(output.expression, Column):
                arrays.append(batch.column(output.expression.name))
                continue
            arrays.append(arrow_column(evaluate(output.expression, columns), batch.num_rows, output.expression.type))
        self.results += batch.num_rows
        yield pa.RecordBatch.from_arrays(arrays, schema=plan.schema)

    def punctuate(self, port: int, mark: Punctuation) -> Iterator[Item]:
        """Pass on."""
        yield mark

    def snapshot(self) -> dict[str, pa.Table]:
        """Nothing to keep."""
        return {}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Nothing to take over."""
