"""Apply: computed, renamed and selected columns of a node's rows, and their watermarks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from capture.lazy_dataclasses import dataclass
from highlevel.aggregation import Output
from highlevel.operators.batch_columns import BatchColumns
from highlevel.operators.operator import StatelessOperator
from highlevel.plan.nodes import Apply, bound_count, macs_of
from highlevel.plan.operators.operator import (
    AnyPunctuation,
    Bounds,
    GraphItem,
    bounds_of,
    make_punctuation,
    single_bound,
)
from highlevel.plan.partitioning import PartitionKey, key_over_outputs, plain_expressions, substitute_columns
from lowlevel.expressions.arrow import arrow_column
from lowlevel.expressions.columns import Columns
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.tree import Column
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import BEGINNING, END


class ApplyOperator(StatelessOperator):
    """Computes columns. Stateless.

    Watermarks pass through the monotone functions of `TimeOutput`: the computed time of a later row is never below the
    computed watermark.
    """

    def __init__(self, node: Apply) -> None:
        """Compute the columns of `node`."""
        self.outputs = node.outputs
        self.time_outputs = node.time_outputs
        self.positions = [node.input.time_columns.index(column.source) for column in node.time_outputs]
        self.bound_count = bound_count(node.input)
        self.macs = macs_of(node.input)
        self.schema = pa.schema([pa.field(out.name, ARROW_TYPES[out.expression.type]) for out in node.outputs])

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Return the computed columns."""
        columns = BatchColumns(batch, self.macs)
        arrays = [compute_column(out, batch, columns) for out in self.outputs]
        yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Return the watermark of the computed time columns, if there is one.

        If the output has only one of two time columns, there is a watermark only when the bound of the other column is
        END.
        """
        bounds = self._convert_bounds(bounds_of(punctuation, self.bound_count))
        if BEGINNING not in bounds:
            yield make_punctuation(punctuation.link, bounds)

    def _convert_bounds(self, bounds: Bounds) -> Bounds:
        if all(low == END for low in bounds) or not self.time_outputs:
            return (END if all(low == END for low in bounds) else BEGINNING,) * max(1, len(self.time_outputs))
        if len(self.time_outputs) < len(bounds):
            bounds = (single_bound(bounds, self.positions[0]),)
        else:
            bounds = tuple(bounds[position] for position in self.positions)
        return tuple(
            bound if bound in (BEGINNING, END) else column.convert(bound)
            for column, bound in zip(self.time_outputs, bounds, strict=True)
        )


def compute_column(output: Output, batch: pa.RecordBatch, columns: Columns) -> pa.Array:
    """Compute one column from the rows of a batch with the given `columns`."""
    if isinstance(output.expression, Column):
        return batch.column(output.expression.name)
    return arrow_column(evaluate(output.expression, columns), batch.num_rows, output.expression.type)


@dataclass(frozen=True)
class ByOutputs:
    """Translates partition keys between the columns of the input and the computed columns."""

    exact: bool = False

    def required(self, node: Apply, wanted: PartitionKey | None) -> Sequence[PartitionKey | None]:
        """Return the wanted key over the columns of the input."""
        by_name = {out.name: out.expression for out in node.outputs}
        return [None if wanted is None else plain_expressions(substitute_columns(part, by_name) for part in wanted)]

    def provided(
        self, node: Apply, inputs: Sequence[Sequence[PartitionKey]], wanted: PartitionKey | None
    ) -> Sequence[PartitionKey]:
        """Return the keys of the input that the outputs contain, the wanted key first."""
        keys = [key for below in inputs[0] if (key := key_over_outputs(below, node.outputs)) is not None]
        (needed,) = self.required(node, wanted)
        if wanted is not None and needed in inputs[0]:
            keys.insert(0, wanted)
        return tuple(dict.fromkeys(keys))
