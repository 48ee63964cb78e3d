"""Finish: HAVING, and the select list, over the groups of closed windows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from highlevel.aggregate import WID
from highlevel.batch_columns import BatchColumns
from highlevel.plan import QueryPlan
from lowlevel.arrow import arrow_column
from lowlevel.conditions import Condition
from lowlevel.evaluate import evaluate
from lowlevel.expressions import Column, Type
from lowlevel.punctuation import END, Item, Punctuation


class Finish:
    """Turns merged sub-aggregates into the rows the query asks for. Stateless but for its counter.

    Punctuation goes back from window ids to times: no later result has a `window_end` at or below it.
    """

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
            ends = plan.window.origin + (batch.column(WID).to_numpy() + 1) * plan.window.slide
            arrays = [pa.array(ends - plan.window.range), pa.array(ends)]
        columns = BatchColumns(batch, self._macs)
        for output in plan.select:
            if isinstance(output.expression, Column):
                arrays.append(batch.column(output.expression.name))
                continue
            arrays.append(arrow_column(evaluate(output.expression, columns), batch.num_rows, output.expression.type))
        self.results += batch.num_rows
        yield pa.RecordBatch.from_arrays(arrays, schema=plan.schema)

    def punctuate(self, port: int, mark: Punctuation) -> Iterator[Item]:
        """Map window ids back to time."""
        yield mark if mark.low == END else Punctuation(mark.link, self.plan.window.end(mark.low - 1))

    def snapshot(self) -> dict[str, pa.Table]:
        """Nothing to keep."""
        return {}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Nothing to take over."""
