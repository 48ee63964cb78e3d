"""Union: the rows of several nodes, without order and without a buffer (Meld in Li 2008, §8.1)."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from highlevel.operators.meld import UNION
from highlevel.plan.nodes import Union, width_of
from highlevel.plan.operators.operator import GraphItem, Lows, Mark, lows_of, mark_of
from lowlevel.punctuation import BEGINNING, END

BOUNDS = "bounds"
"""The only table of a snapshot."""


class UnionOperator:
    """Passes rows on at once. Its watermark has the smallest bound of all inputs for each time column.

    This is right for joint watermarks too: rows below both smaller bounds are below both bounds of every input. Without
    a watermark of every input there is no watermark. State: the bounds of each input.
    """

    def __init__(self, node: Union) -> None:
        """Unite the inputs of `node`, one for each port."""
        self.widths = [width_of(source) for source in node.inputs]
        self.progresses = bool(node.progress)
        nothing: Lows = (BEGINNING,) * width_of(node)
        self.bounds = [nothing] * len(node.inputs)
        self.promised = nothing

    @property
    def bytes(self) -> int:
        """Not counted: a few numbers."""
        return 0

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Pass the rows on."""
        yield batch

    def punctuate(self, port: int, mark: Mark) -> Iterator[GraphItem]:
        """Raise the input's bounds. Return the new watermark if it has grown."""
        bounds = lows_of(mark, self.widths[port])
        if not self.progresses:  # an input has no time column, so the only watermark of all is the end
            bounds = (END if set(bounds) == {END} else BEGINNING,)
        self.bounds[port] = tuple(map(max, self.bounds[port], bounds))
        lows = tuple(map(min, zip(*self.bounds, strict=True)))
        if lows != self.promised and BEGINNING not in lows:
            self.promised = lows
            yield mark_of(UNION, lows)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the bounds of all inputs, one row each, and the watermark as the last row."""
        columns = zip(*self.bounds, self.promised, strict=True)
        return {BOUNDS: pa.table({str(number): list(column) for number, column in enumerate(columns)})}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the bounds."""
        *bounds, promised = zip(*(column.to_pylist() for column in tables[BOUNDS].columns), strict=True)
        self.bounds, self.promised = bounds, promised
