"""A query that others can read: its columns, which of them are times, and the node that gives its rows.

Rows of windows have `ts`, which is their window's start, so that minutes roll up into hours; `window_end` is the other
time that windows may be over. Landmark windows and sessions begin where nobody promises anything: of them it is the end
alone. What is read by a time is promised by it; the same query read by two times is two nodes over one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from highlevel.aggregation import Output
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.plan.nodes import Apply, Node, PairGroups, Progressing, Windowed, nodes_of
from highlevel.plan.plan import Plan
from highlevel.windows.kind import SlidingWindow
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type

TS = "ts"

MakeNode = Callable[[str | None], Node]
"""Return the node whose promises are of the time named; of none, as cheaply as it can be had."""


@dataclass(frozen=True)
class Block:
    """`columns` as those who read it name them; `times` are those that windows may be over, the first by default.

    `plan` is what engines run where this is the whole query.
    """

    columns: tuple[Column, ...]
    times: tuple[str, ...]
    node: MakeNode
    plan: Plan

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes of its graph."""
        return nodes_of(self.node(None))

    @cached_property
    def by_name(self) -> dict[str, Column]:
        """The columns by their names in lower case."""
        return {column.name.lower(): column for column in self.columns}


def block_of_windows(node: Windowed, whole: Plan) -> Block:
    """Return groups of windows as others read them: with `ts`, their start, where that is a time and no other is."""
    window, columns = node.aggregation.window, node.columns
    if not node.aggregation.windowed:
        return Block(columns, (), lambda _time: node, whole)
    begins = isinstance(window, SlidingWindow)
    named = begins and not any(column.name.lower() == TS for column in columns)
    start, end = (Column(name, node.aggregation.bound_type) for name in (WINDOW_START, WINDOW_END))
    outputs = (*((Output(TS, start),) if named else ()), *(Output(column.name, column) for column in columns))
    times = (*((TS,) if named else ()), *((WINDOW_START,) if begins else ()), *((WINDOW_END,) if window.timed else ()))

    def at(time: str | None) -> Node:
        length = window.range if isinstance(window, SlidingWindow) else 0
        shift = 0 if time in (None, WINDOW_END) else length
        return Apply(node, outputs, (Progressing(time or WINDOW_END, end.name, shift),))

    read = (*((Column(TS, Type.TIME),) if named else ()), *columns)
    return Block(read, times, at, whole)


def block_of_pairs(node: PairGroups, whole: Plan) -> Block:
    """Return groups of times: of one alone, as it is, windows may be made."""
    plain = [column for column, interval, _ in node.times if interval == 1]
    times = node.progress if len(node.times) == len(plain) == 1 else ()
    return Block(node.columns, times, lambda _time: node, whole)
