"""Apply: computed, renamed and chosen columns of a node's rows, and what its promises say of them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from highlevel.aggregation import Output
from highlevel.operators.batch_columns import BatchColumns
from highlevel.plan.nodes import Apply, macs_of, width_of
from highlevel.plan.operators.operator import GraphItem, Lows, Mark, low_of_one, lows_of, mark_of
from lowlevel.expressions.arrow import arrow_column
from lowlevel.expressions.columns import Columns
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.tree import Column
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import BEGINNING, END


class ApplyOperator:
    """Computes the columns of each row, and maps promises through the floor functions that are said to be monotone.

    A floor is at most what it is of: of rows at or above `low`, at or above its value at `low`. Stateless.
    """

    def __init__(self, node: Apply) -> None:
        """Compute for `node`."""
        self.outputs = node.outputs
        self.progressing = node.progressing
        self.places = [node.input.progress.index(each.of) for each in node.progressing]
        self.width = width_of(node.input)
        self.macs = macs_of(node.input)
        self.schema = pa.schema([pa.field(out.name, ARROW_TYPES[out.expression.type]) for out in node.outputs])

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Compute the columns."""
        columns = BatchColumns(batch, self.macs)
        arrays = [computed(out, batch, columns) for out in self.outputs]
        yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def punctuate(self, port: int, mark: Mark) -> Iterator[GraphItem]:
        """Promise of the columns what the mark says of those they progress with; one that says nothing does not leave.

        Where one of two progressing columns is left, a box is about it only once the other is at its end.
        """
        lows = self._mapped(lows_of(mark, self.width))
        if BEGINNING not in lows:
            yield mark_of(mark.link, lows)

    def _mapped(self, lows: Lows) -> Lows:
        if all(low == END for low in lows) or not self.progressing:
            return (END if all(low == END for low in lows) else BEGINNING,) * max(1, len(self.progressing))
        if len(self.progressing) < len(lows):
            lows = (low_of_one(lows, self.places[0]),)
        else:
            lows = tuple(lows[place] for place in self.places)
        return tuple(
            low if low in (BEGINNING, END) else each.promise(low)
            for each, low in zip(self.progressing, lows, strict=True)
        )

    def snapshot(self) -> dict[str, pa.Table]:
        """Nothing to keep."""
        return {}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Nothing to take over."""


def computed(output: Output, batch: pa.RecordBatch, columns: Columns) -> pa.Array:
    """Return one column computed from the rows of a batch, whose `columns` these are."""
    if isinstance(output.expression, Column):
        return batch.column(output.expression.name)
    return arrow_column(evaluate(output.expression, columns), batch.num_rows, output.expression.type)
