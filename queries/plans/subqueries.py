"""ReadableQuery: a query that another query reads, with its columns, its time columns, and the node of its rows.

Results of windows have a column `ts`, the start of the window, so that for example minutes can be aggregated to hours.
Their second time column is `window_end`. Landmark windows and sessions have no watermark for their start, so their only
time column is `window_end`. If readers use both time columns of a query, the plan has two nodes over the same windows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from capture.lazy_dataclasses import dataclass
from highlevel.aggregation import Aggregation, Output
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.plan.nodes import Apply, Node, TimeGroups, TimeOutput, nodes_of
from highlevel.plan.plan import Plan
from highlevel.windows.kind import AnyWindow, SlidingWindow
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type

TS = "ts"

NodeMaker = Callable[[str | None], Node]
"""A function that returns the node with watermarks of the given time column. None: any time column."""


@dataclass(frozen=True)
class ReadableQuery:
    """A compiled query, for the queries that read it.

    `columns`: the columns of its result. `times`: the columns that windows may use, the default first. `plan`: the plan
    if this is the whole query. `window`: the window whose bounds are columns of the result.
    """

    columns: tuple[Column, ...]
    times: tuple[str, ...]
    node: NodeMaker
    plan: Plan
    window: AnyWindow | None = None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes of the plan."""
        return nodes_of(self.node(None))

    @cached_property
    def by_name(self) -> dict[str, Column]:
        """The columns by their names in lower case."""
        return {column.name.lower(): column for column in self.columns}


def make_window_query(aggregation: Aggregation, whole: Plan) -> ReadableQuery:
    """Return a query with windows. Sliding windows get the column `ts`, their start, unless a column has this name."""
    node, window = whole.root, aggregation.window
    columns = node.columns
    if not aggregation.windowed:
        return ReadableQuery(columns, (), lambda _time: node, whole)
    begins = isinstance(window, SlidingWindow)
    named = begins and not any(column.name.lower() == TS for column in columns)
    start, end = (Column(name, aggregation.bound_type) for name in (WINDOW_START, WINDOW_END))
    outputs = (*((Output(TS, start),) if named else ()), *(Output(column.name, column) for column in columns))
    times = (*((TS,) if named else ()), *((WINDOW_START,) if begins else ()), *((WINDOW_END,) if window.timed else ()))

    def node_of(time: str | None) -> Node:
        if not isinstance(window, SlidingWindow):
            return Apply(node, outputs, (TimeOutput(time or WINDOW_END, end.name),))
        shift = 0 if time in (None, WINDOW_END) else window.range
        times = TimeOutput(time or WINDOW_END, end.name, shift, step=window.slide, origin=window.origin % window.slide)
        return Apply(node, outputs, (times,))

    read = (*((Column(TS, Type.TIME),) if named else ()), *columns)
    return ReadableQuery(read, times, node_of, whole, window)


def make_pair_query(groups: TimeGroups, whole: Plan) -> ReadableQuery:
    """Return a query that groups by times.

    Its readers can use windows only if it groups by exactly one unchanged time.
    """
    node = whole.root
    plain = [column for column, interval, _ in groups.times if interval == 1]
    times = node.time_columns if len(groups.times) == len(plain) == 1 else ()
    return ReadableQuery(node.columns, times, lambda _time: node, whole)
