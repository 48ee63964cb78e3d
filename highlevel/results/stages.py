"""The stages after the window operator of a query. They process each final window.

The last stage is Finish: it evaluates HAVING and the select list for the groups of final windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.aggregation import Aggregation
from highlevel.operators.batch_columns import BatchColumns
from highlevel.operators.operator import Operator
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from lowlevel.expressions.arrow import arrow_column
from lowlevel.expressions.evaluate import count_overflows, evaluate
from lowlevel.expressions.predicate import Condition
from lowlevel.expressions.tree import Column, integer_sums
from lowlevel.punctuation import BEGINNING, Item, Punctuation


def make_stages(aggregation: Aggregation) -> tuple[list[Operator], Finish]:
    """Create the stages of an aggregation in their order. Return them and the last stage."""
    stages: list[Operator] = []
    # Most queries need none of these stages, so each is imported only if the query needs it.
    if aggregation.details:
        from highlevel.results.summarise import Summarise

        stages.append(Summarise(aggregation))
    if aggregation.user_columns:
        from highlevel.results.add_user_columns import AddUserColumns

        stages.append(AddUserColumns(aggregation))
    if aggregation.selections:
        from highlevel.results.select_groups import SelectGroups

        stages.append(SelectGroups(aggregation))
    finish = Finish(aggregation)
    return [*stages, finish], finish


def run_stages(stages: Sequence[Operator], batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Process rows of final windows with stages that need no punctuations."""
    if not stages:
        yield batch
        return
    for item in stages[0].process_rows(0, batch):
        if isinstance(item, pa.RecordBatch):
            yield from run_stages(stages[1:], item)


class Finish:
    """Turns merged sub-aggregates into the rows of the query's result.

    A row is late if its window ends at or below the watermark.
    """

    def __init__(self, aggregation: Aggregation) -> None:
        """Evaluate the select list and the HAVING of `aggregation`."""
        self.aggregation = aggregation
        self.results = 0
        self.watermark = BEGINNING
        self._having = None if aggregation.having is None else Condition(aggregation.having)
        self._macs = aggregation.macs
        self.overflowed_sums = 0
        """Number of sums that are NULL because they exceed 64 bits."""
        expressions = [output.expression for output in aggregation.select]
        expressions += [] if aggregation.having is None else [aggregation.having]
        self._sums = integer_sums(expressions)

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Filter by HAVING and compute the select list."""
        aggregation = self.aggregation
        self.overflowed_sums += count_overflows(self._sums, BatchColumns(batch, self._macs), batch.num_rows)
        if self._having is not None:
            kept = self._having.true_rows(BatchColumns(batch, self._macs), batch.num_rows)
            batch = pc.filter(batch, array_of(kept))
        if batch.num_rows == 0:
            return
        arrays: list[pa.Array] = []
        if aggregation.windowed:
            arrays = [batch.column(WINDOW_START), batch.column(WINDOW_END)]
        columns = BatchColumns(batch, self._macs)
        for output in aggregation.select:
            if isinstance(output.expression, Column):
                arrays.append(batch.column(output.expression.name))
                continue
            arrays.append(arrow_column(evaluate(output.expression, columns), batch.num_rows, output.expression.type))
        if aggregation.emit_late:
            arrays.append(pc.less_equal(batch.column(WINDOW_END), self.watermark))
        self.results += batch.num_rows
        yield pa.RecordBatch.from_arrays(arrays, schema=aggregation.schema)

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Store the watermark and return it."""
        self.watermark = max(self.watermark, punctuation.watermark)
        yield punctuation

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the watermark if rows may be late."""
        return {"finish": pa.table({"low": [self.watermark]})} if self.aggregation.emit_late else {}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Restore the watermark."""
        if "finish" in tables:
            self.watermark = tables["finish"]["low"][0].as_py()
