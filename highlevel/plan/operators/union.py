"""Union: the rows of several nodes, without order and without a buffer (Meld in Li 2008, §8.1)."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from highlevel.operators.meld import UNION
from highlevel.plan.nodes import Union, bound_count
from highlevel.plan.operators.operator import AnyPunctuation, Bounds, GraphItem, bounds_of, make_punctuation
from lowlevel.punctuation import BEGINNING, END

BOUNDS = "bounds"
"""The only table of a snapshot."""


class UnionOperator:
    """Returns rows at once. The bound of its watermark for a time column is the smallest bound of all inputs.

    This holds for joint watermarks too: a row below both smallest bounds is below both bounds of each input. The first
    watermark is returned when each input has a watermark. State: the bounds of each input.
    """

    def __init__(self, node: Union) -> None:
        """Merge the inputs of `node`, one for each port."""
        self.bound_counts = [bound_count(source) for source in node.inputs]
        self.has_time_columns = bool(node.time_columns)
        beginning: Bounds = (BEGINNING,) * bound_count(node)
        self.bounds = [beginning] * len(node.inputs)
        self.watermark = beginning

    @property
    def bytes(self) -> int:
        """Return 0, because the state is only a few numbers."""
        return 0

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Return the rows."""
        yield batch

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Raise the input's bounds. Return the new watermark if it has grown."""
        bounds = bounds_of(punctuation, self.bound_counts[port])
        if not self.has_time_columns:  # an input has no time column, so the only watermark of all is the end
            bounds = (END if set(bounds) == {END} else BEGINNING,)
        self.bounds[port] = tuple(map(max, self.bounds[port], bounds))
        bounds = tuple(map(min, zip(*self.bounds, strict=True)))
        if bounds != self.watermark and BEGINNING not in bounds:
            self.watermark = bounds
            yield make_punctuation(UNION, bounds)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the bounds of all inputs, one row each, and the watermark as the last row."""
        columns = zip(*self.bounds, self.watermark, strict=True)
        return {BOUNDS: pa.table({str(number): list(column) for number, column in enumerate(columns)})}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the bounds."""
        *bounds, watermark = zip(*(column.to_pylist() for column in tables[BOUNDS].columns), strict=True)
        self.bounds, self.watermark = bounds, watermark
