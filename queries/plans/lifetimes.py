"""LIFETIME: rows that are true for a time. The plan aggregates the rows that are true at each instant.

    FROM flows [LIFETIME start_ts TO end_ts]                  Leaf of rows ► Snapshots
    FROM flows [LIFETIME start_ts TO end_ts, SLIDE 1 minute]  Leaf of rows ► Apply ► TouchedWindows ► Windowed
    … GROUP BY … ORDER BY … LIMIT 5                           … ► ChangingSnapshots ► InstantRanks
    … ORDER BY … LIMIT 5, without groups                      Leaf of rows ► Apply ► InstantRanks
    rank() OVER (…)                                           … ► InstantRanks ► Apply

The rank of a group at an instant is known before its snapshot ends. So for ranks a snapshot is returned when it begins
(`open_ended`), as a change, also if the results of the query are final rows.

When a row ends, its values are subtracted from the aggregates. So sums of floats must be exact: after a subtraction, a
rounded sum would differ from the sum of the remaining values (`highlevel.speculation.lifetimes.exact_sums`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from highlevel.aggregation import BOUNDS, Aggregation, DetailFunction, Output
from highlevel.operators.window_operator import WINDOW_END
from highlevel.plan.lifetime_nodes import (
    RANK_FUNCTIONS,
    TOUCHED,
    ChangingInstantRanks,
    ChangingSnapshots,
    InstantRanks,
    Lifetime,
    OverlapJoin,
    Ranks,
    Snapshots,
    TouchedWindows,
)
from highlevel.plan.nodes import CHANGE_COLUMNS, Apply, Leaf, Node, TimeOutput, Windowed
from highlevel.speculation.consistency import FOREVER, Consistency
from highlevel.windows.kind import LifetimeWindow, SlidingWindow
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import NUMBERS, Type
from lowlevel.kinds import TABLE
from queries.binding.aggregates import VARIANCES
from queries.binding.binder import known_aggregates
from queries.binding.names import Names
from queries.binding.window_functions import BoundFunction
from queries.plans.group_times import lifetime_column
from queries.plans.group_window import bind_group_window
from queries.plans.over import OverStep
from queries.plans.relations import names_in
from queries.plans.row_selection import SelectList
from queries.plans.sorting import Sorting
from queries.text.errors import QueryError
from queries.text.tree import Call, Query, calls_in

TimedNode = TypeVar("TimedNode", bound=InstantRanks | OverlapJoin | Snapshots | TouchedWindows)

RANKED_START, RANKED_END, RANKED_TIME = ".start", ".end", ".time"
"""Columns of rows that are ranked: their lifetime, and the time of the watermark if it is not their start."""

AGGREGATES = ("count", "sum", "avg", "min", "max", *VARIANCES, "count_distinct", "median", "quantile")
"""Aggregates that LIFETIME supports."""


def make_snapshots(query: Query, node: Node, aggregation: Aggregation, start: str, end: str | None) -> Snapshots:
    """Return the node for rows that are true from column `start` until column `end`, or for the window's length.

    Raises QueryError for aggregates and clauses that are not supported.
    """
    _check_aggregates(query, aggregation)
    return Snapshots(node, aggregation, start, end, 0 if start in node.time_columns else None)


def rank_snapshots(query: Query, node: Snapshots, over: OverStep | None, sorting: Sorting | None) -> Node:
    """Return the snapshots with the ranks of `over`, and the first ones at each instant in the order of `sorting`.

    Raises QueryError for the bounds of results in the query.
    """
    if over is None and (sorting is None or not sorting.limits):
        return node if sorting is None else sorting.add_node(node, windowed=True)
    aggregation = node.aggregation
    expressions = [out.expression for out in aggregation.select]
    expressions += [] if aggregation.having is None else [aggregation.having]
    _refuse_bounds(query, names_in(expressions), sorting)
    parameters = (aggregation, node.time, node.end, node.late_by)
    changes = ChangingSnapshots(node.input, *parameters, Consistency(wait=None), open_ended=True)
    return _rank(changes, None, over, sorting)


def rank_rows(
    query: Query,
    node: Node,
    outputs: Sequence[Output],
    lifetime: tuple[str, str | None, int | None],
    over: OverStep | None,
    sorting: Sorting | None,
) -> Node:
    """Return the columns `outputs` of the rows, ranked as in `rank_snapshots`.

    `lifetime`: start, end and length in ns.
    """
    _refuse_bounds(query, set(), sorting)
    start, end, length = lifetime
    columns = {column.name: column for column in node.columns}
    of_lifetime = [Output(RANKED_START, columns[start])]
    of_lifetime += [] if end is None else [Output(RANKED_END, columns[end])]
    times = (TimeOutput(RANKED_START, start),) if start in node.time_columns else ()
    if not times and len(node.time_columns) == 1:
        (time,) = node.time_columns
        of_lifetime.append(Output(RANKED_TIME, columns[time]))
        times = (TimeOutput(RANKED_TIME, time),)
    late_by = 0 if start in node.time_columns else None
    rows = Apply(node, (*outputs, *of_lifetime), times)
    return _rank(rows, Lifetime(RANKED_START, None if end is None else RANKED_END, length, late_by), over, sorting)


def _rank(node: Node, lifetime: Lifetime | None, over: OverStep | None, sorting: Sorting | None) -> Node:
    """Return the ranks of `over`, and the first rows of `sorting`. All nodes but the last return open-ended results."""
    first = None if sorting is None or not sorting.limits else _first_rows(sorting)
    hidden = () if sorting is None else sorting.hidden_names
    if over is None:
        assert first is not None
        return InstantRanks(node, first, lifetime, hidden)
    for number, function in enumerate(over.functions, 1):
        ranks = Ranks(function.order, function.partition, function.kind, function.name)
        if number == len(over.functions) and first is None:
            node = InstantRanks(node, ranks, lifetime)
        else:
            node = ChangingInstantRanks(node, ranks, lifetime, (), Consistency(wait=None), open_ended=True)
        lifetime = None
    bounds = tuple(Output(column.name, column) for column in node.columns if column.name in BOUNDS)
    changes = () if first is None else tuple(Output(column.name, column) for column in CHANGE_COLUMNS)
    node = Apply(node, (*bounds, *over.outputs, *changes), (TimeOutput(WINDOW_END, WINDOW_END),))
    if first is not None:
        return InstantRanks(node, first, None, hidden)
    return node if sorting is None else sorting.add_node(node, windowed=True)


def _first_rows(sorting: Sorting) -> Ranks:
    return Ranks(sorting.keys, limit=sorting.order.limit, offset=sorting.order.offset)


def _refuse_bounds(query: Query, names: Collection[str], sorting: Sorting | None) -> None:
    """Raise QueryError for bounds of results: a rank is known before its result ends."""
    keys = () if sorting is None or not sorting.limits else sorting.keys
    bound = next((name for name in BOUNDS if name in names or any(key.column == name for key in keys)), None)
    if bound is not None:
        expected = "other columns, or a query that reads this one: a rank is known before its result ends"
        raise QueryError(f"{bound} in a query with ranks at each instant", query.sql, query.keyword.start, expected)


def bind_lifetime(query: Query, names: Names) -> tuple[str, str | None, int | None]:
    """Return the columns of the start and the end of rows, or their length. Raises QueryError for other windows."""
    window = bind_group_window(query, reads_links=False)
    if not isinstance(window.kind, LifetimeWindow):
        expected = "an aggregate like count(*), or LIFETIME without SLIDE"
        raise QueryError("LIFETIME with SLIDE over rows without an aggregate", query.sql, window.start or 0, expected)
    if window.lifetime:
        start, end = (lifetime_column(query.sql, names, name) for name in window.lifetime)
        return start.name, end.name, None
    time = names.time
    if window.time is not None:
        table, name = window.time
        time = names.column(name, table)
        if time is None:
            raise names.unknown_column_error(name, table, ())
    if time is None or time.type is not Type.TIME:
        expected = "LIFETIME start TO end, or rows with a time: an inner query must select ts"
        raise QueryError("LIFETIME of rows that have no time", query.sql, window.start or 0, expected)
    return time.name, None, window.length


def selected_values(sql: str, query: Query, selected: SelectList) -> SelectList:
    """Return a select list without `window_start` and `window_end`: each result begins with its own bounds.

    Raises QueryError for other columns with these names.
    """
    for out in selected.outputs:
        is_column = isinstance(out.expression, Column) and out.expression.name == out.name
        if out.name.lower() in BOUNDS and not is_column:
            expected = "another name: results at each instant begin with columns of this name"
            raise QueryError(f"a column called {out.name}", sql, query.keyword.start, expected)
    return replace(selected, outputs=tuple(out for out in selected.outputs if out.name.lower() not in BOUNDS))


def check_functions(sql: str, functions: Iterable[BoundFunction]) -> None:
    """Raise QueryError for window functions that rows with LIFETIME cannot have."""
    for function in functions:
        if function.kind not in RANK_FUNCTIONS:
            expected = f"{', '.join(RANK_FUNCTIONS)}; or OVER in a query that reads this one"
            raise QueryError(f"{function.kind} OVER together with LIFETIME", sql, function.start, expected)


def make_windows(
    node: Node, node_names: Mapping[str, str], aggregation: Aggregation, start: str, end: str | None, length: int | None
) -> Windowed:
    """Return windows; a row counts in each window that its lifetime overlaps.

    `node_names`: the names of columns of `node`.
    """
    if any(name != own for name, own in node_names.items()):  # the time column of links has another name in the node
        columns = {column.name: column for column in node.columns}
        outputs = tuple(Output(name, columns[own]) for name, own in node_names.items() if own in columns)
        times = tuple(TimeOutput(name, own) for name, own in node_names.items() if own in node.time_columns)
        node = Apply(node, outputs, times)
    assert isinstance(aggregation.window, SlidingWindow)
    late_by = 0 if start in node.time_columns else None
    touched = TouchedWindows(node, start, end, length, aggregation.window.slide, late_by)
    return Windowed(touched, aggregation, TOUCHED)


def with_remember(node: TimedNode, remember: int | None) -> TimedNode:
    """Set how much earlier than the newest row of its link a row of the node may begin: `remember` ns."""
    if remember in (None, FOREVER):
        return node
    if isinstance(node, InstantRanks):
        if node.lifetime is None:
            return node
        late_by = _late_by(node.input, node.lifetime.late_by, remember)
        return replace(node, lifetime=replace(node.lifetime, late_by=late_by))
    if isinstance(node, OverlapJoin):
        sides = zip(node.inputs, node.sides, strict=True)
        left, right = (
            replace(side, lifetime=replace(side.lifetime, late_by=_late_by(source, side.lifetime.late_by, remember)))
            for source, side in sides
        )
        return replace(node, sides=(left, right))
    return replace(node, late_by=_late_by(node.input, node.late_by, remember))


def _late_by(source: Node, late_by: int | None, remember: int | None) -> int | None:
    """Return how much earlier than the watermark of `source` a row may begin, ns."""
    if late_by == 0:
        return late_by
    below = source.input if isinstance(source, Apply) else source
    is_link = isinstance(below, Leaf) and below.low.kind != TABLE
    return 0 if is_link else remember


def _check_aggregates(query: Query, aggregation: Aggregation) -> None:
    for call in _aggregate_calls(query):
        if call.function.text.lower() not in AGGREGATES:
            raise _error(query, call, f"one of {', '.join(AGGREGATES)}")
    calls = list(_aggregate_calls(query))
    for detail in aggregation.details:
        if detail.others:
            call = next(call for call in calls if call.function.text.lower() in ("count", "count_distinct"))
            raise _error(query, call, "one column", " of several columns")
        if detail.function in (DetailFunction.MIN, DetailFunction.MAX):
            call = next(call for call in calls if call.function.text.lower() == str(detail.function))
            raise _error(query, call, f"a column of type {' or '.join(NUMBERS)}", f" of type {detail.kind}")


def _aggregate_calls(query: Query) -> Iterator[Call]:
    expressions = [item.expression for item in query.select]
    expressions += [] if query.having is None else [query.having.expression]
    expressions += [] if query.order is None else [item.expression for item in query.order.items]
    known = {name.lower() for name in known_aggregates()}
    for expression in expressions:
        yield from (call for call in calls_in(expression) if call.function.text.lower() in known)


def _error(query: Query, call: Call, expected: str, what: str = "") -> QueryError:
    problem = f"{call.function.text}{what} together with LIFETIME"
    return QueryError(problem, query.sql, call.function.start, expected)
