"""Apply: computed, renamed and selected columns of a node's rows, and their watermarks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from highlevel.aggregation import Output
from highlevel.operators.batch_columns import BatchColumns
from highlevel.plan.nodes import Apply, macs_of, width_of
from highlevel.plan.operators.operator import GraphItem, Lows, Mark, Stateless, low_of_one, lows_of, mark_of
from highlevel.plan.partitioning import PartitionKey, in_outputs, plain, substituted
from lowlevel.expressions.arrow import arrow_column
from lowlevel.expressions.columns import Columns
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.tree import Column
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import BEGINNING, END


class ApplyOperator(Stateless):
    """Computes columns, and watermarks through the monotone floor functions of `Progressing`. Stateless.

    The floor of a later row is never below the floor of the watermark.
    """

    def __init__(self, node: Apply) -> None:
        """Compute the columns of `node`."""
        self.outputs = node.outputs
        self.progressing = node.progressing
        self.positions = [node.input.progress.index(column.of) for column in node.progressing]
        self.width = width_of(node.input)
        self.macs = macs_of(node.input)
        self.schema = pa.schema([pa.field(out.name, ARROW_TYPES[out.expression.type]) for out in node.outputs])

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Return the computed columns."""
        columns = BatchColumns(batch, self.macs)
        arrays = [computed(out, batch, columns) for out in self.outputs]
        yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def punctuate(self, port: int, mark: Mark) -> Iterator[GraphItem]:
        """Return the watermark of the computed time columns, if there is one.

        If only one of two time columns is kept, a joint watermark gives a watermark only after the other column ended.
        """
        lows = self._mapped(lows_of(mark, self.width))
        if BEGINNING not in lows:
            yield mark_of(mark.link, lows)

    def _mapped(self, lows: Lows) -> Lows:
        if all(low == END for low in lows) or not self.progressing:
            return (END if all(low == END for low in lows) else BEGINNING,) * max(1, len(self.progressing))
        if len(self.progressing) < len(lows):
            lows = (low_of_one(lows, self.positions[0]),)
        else:
            lows = tuple(lows[position] for position in self.positions)
        return tuple(
            low if low in (BEGINNING, END) else column.watermark(low)
            for column, low in zip(self.progressing, lows, strict=True)
        )


def computed(output: Output, batch: pa.RecordBatch, columns: Columns) -> pa.Array:
    """Compute one column from the rows of a batch with the given `columns`."""
    if isinstance(output.expression, Column):
        return batch.column(output.expression.name)
    return arrow_column(evaluate(output.expression, columns), batch.num_rows, output.expression.type)


@dataclass(frozen=True)
class ByOutputs:
    """Translates keys between the columns of the input and the computed columns."""

    exact: bool = False

    def required(self, node: Apply, wanted: PartitionKey | None) -> Sequence[PartitionKey | None]:
        """The wanted key over the columns of the input."""
        by_name = {out.name: out.expression for out in node.outputs}
        return [None if wanted is None else plain(substituted(part, by_name) for part in wanted)]

    def provided(
        self, node: Apply, inputs: Sequence[Sequence[PartitionKey]], wanted: PartitionKey | None
    ) -> Sequence[PartitionKey]:
        """The keys of the input that the outputs contain, the wanted one first."""
        keys = [key for below in inputs[0] if (key := in_outputs(below, node.outputs)) is not None]
        (needed,) = self.required(node, wanted)
        if wanted is not None and needed in inputs[0]:
            keys.insert(0, wanted)
        return tuple(dict.fromkeys(keys))
