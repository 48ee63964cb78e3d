"""Union: the rows of several nodes, without order and without a buffer (Li 2008, §8.1): Meld over nodes of a graph."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from highlevel.operators.meld import UNION
from highlevel.plan.nodes import Union, width_of
from highlevel.plan.operators.operator import GraphItem, Lows, Mark, lows_of, mark_of
from lowlevel.punctuation import BEGINNING, END

BOUNDS = "bounds"
"""The one table of a snapshot."""


class UnionOperator:
    """Passes rows through at once; promises of each progressing column the smallest of its inputs' bounds.

    Of boxes too: that which has the smaller of each bound lies in the box of every input. An input that has never
    spoken holds the promise back. State: the bounds of each input.
    """

    def __init__(self, node: Union) -> None:
        """Unite the inputs of `node`, a port each."""
        self.widths = [width_of(each) for each in node.inputs]
        self.progresses = bool(node.progress)
        nothing: Lows = (BEGINNING,) * width_of(node)
        self.bounds = [nothing] * len(node.inputs)
        self.promised = nothing

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Pass on."""
        yield batch

    def punctuate(self, port: int, mark: Mark) -> Iterator[GraphItem]:
        """Raise the input's bounds; speak when what holds of all inputs has grown."""
        told = lows_of(mark, self.widths[port])
        if not self.progresses:  # where one of the inputs promises nothing but its end, so do all
            told = (END if set(told) == {END} else BEGINNING,)
        self.bounds[port] = tuple(max(each) for each in zip(self.bounds[port], told, strict=True))
        lows = tuple(min(of_all) for of_all in zip(*self.bounds, strict=True))
        if lows != self.promised and BEGINNING not in lows:
            self.promised = lows
            yield mark_of(UNION, lows)

    def snapshot(self) -> dict[str, pa.Table]:
        """The bounds of all inputs, a row each, and what was promised in the last."""
        columns = zip(*self.bounds, self.promised, strict=True)
        return {BOUNDS: pa.table({str(place): list(column) for place, column in enumerate(columns)})}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Take the bounds over."""
        *bounds, promised = zip(*(column.to_pylist() for column in tables[BOUNDS].columns), strict=True)
        self.bounds, self.promised = bounds, promised
