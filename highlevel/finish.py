"""Finish: HAVING, and the select list, over the groups of closed windows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from highlevel.aggregate import WID
from highlevel.batch_columns import BatchColumns, to_arrow
from highlevel.plan import QueryPlan
from lowlevel.addresses import to_arrow as addresses_to_arrow
from lowlevel.evaluate import AddressVector, evaluate, true_rows
from lowlevel.expressions import Column
from lowlevel.punctuation import END, Item, Punctuation


class Finish:
    """Turns merged sub-aggregates into the rows the query asks for. Stateless but for its counter.

    Punctuation goes back from window ids to times: no later result has a `window_end` at or below it.
    """

    def __init__(self, plan: QueryPlan) -> None:
        """Finish for `plan`."""
        self.plan = plan
        self.results = 0

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Filter by HAVING and compute the select list."""
        plan = self.plan
        if plan.having is not None:
            kept = true_rows(plan.having, BatchColumns(batch), batch.num_rows)
            batch = batch.filter(pa.array(kept))
        if batch.num_rows == 0:
            return
        arrays: list[pa.Array] = []
        if plan.windowed:
            ends = plan.window.origin + (batch.column(WID).to_numpy() + 1) * plan.window.slide
            arrays = [pa.array(ends - plan.window.range), pa.array(ends)]
        columns = BatchColumns(batch)
        for output, column in zip(plan.select, plan.schema.names[len(arrays) :], strict=True):
            if isinstance(output.expression, Column):
                arrays.append(batch.column(output.expression.name))
                continue
            vector = evaluate(output.expression, columns)
            if isinstance(vector, AddressVector):  # an address literal in the select list
                high, low = (np.broadcast_to(half, batch.num_rows) for half in (vector.high, vector.low))
                arrays.append(addresses_to_arrow(int(vector.version), high, low))
            else:
                arrays.append(to_arrow(vector, batch.num_rows, plan.schema.field(column).type))
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
