"""LIFETIME: rows that are true for a time, and the node with the aggregates of the rows that are true at each instant.

    FROM flows [LIFETIME start_ts TO end_ts]                  Leaf of rows ► Snapshots
    FROM flows [LIFETIME start_ts TO end_ts, SLIDE 1 minute]  Leaf of rows ► Apply ► TouchedWindows ► Windowed

When rows of Snapshots end, their values are taken out of the aggregates. So sums of floats are exact: a difference of
rounded sums would not be the sum of the remaining values (`highlevel.speculation.lifetimes.exact_sums`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from highlevel.aggregation import Aggregation, DetailFunction, Output
from highlevel.plan.lifetime_nodes import TOUCHED, OverlapJoin, Snapshots, TouchedWindows
from highlevel.plan.nodes import Apply, Leaf, Node, TimeOutput, Windowed
from highlevel.speculation.consistency import FOREVER
from highlevel.windows.kind import SlidingWindow
from lowlevel.expressions.types import NUMBERS
from lowlevel.kinds import TABLE
from queries.binding.aggregates import VARIANCES
from queries.binding.binder import known_aggregates
from queries.text.errors import QueryError
from queries.text.tree import Call, Query, calls_in

Timed = TypeVar("Timed", bound=OverlapJoin | Snapshots | TouchedWindows)

AGGREGATES = ("count", "sum", "avg", "min", "max", *VARIANCES, "count_distinct", "median", "quantile")
"""Aggregates of the rows that are true at an instant."""


def make_snapshots(query: Query, node: Node, aggregation: Aggregation, start: str, end: str | None) -> Snapshots:
    """Return the node over rows that are true from the column `start` until `end`, or for the length of the window.

    Raises QueryError for aggregates and clauses that it cannot have.
    """
    _check_aggregates(query, aggregation)
    if query.order is not None and query.order.limit is not None:
        expected = "LIMIT in a query that reads this one: its groups have different snapshots"
        raise QueryError("LIMIT together with LIFETIME", query.sql, query.order.keyword.start, expected)
    return Snapshots(node, aggregation, start, end, 0 if start in node.time_columns else None)


def make_windows(
    node: Node, local: Mapping[str, str], aggregation: Aggregation, start: str, end: str | None, length: int | None
) -> Windowed:
    """Return windows in which a row counts if its lifetime touches them. `local`: the names of columns of `node`."""
    if any(name != own for name, own in local.items()):  # the time column of links has another name
        columns = {column.name: column for column in node.columns}
        outputs = tuple(Output(name, columns[own]) for name, own in local.items() if own in columns)
        times = tuple(TimeOutput(name, own) for name, own in local.items() if own in node.time_columns)
        node = Apply(node, outputs, times)
    assert isinstance(aggregation.window, SlidingWindow)
    late_by = 0 if start in node.time_columns else None
    touched = TouchedWindows(node, start, end, length, aggregation.window.slide, late_by)
    return Windowed(touched, aggregation, TOUCHED)


def with_remember(node: Timed, remember: int | None) -> Timed:
    """Return a node whose rows begin at most `remember` ns before the newest row of their link."""
    if remember in (None, FOREVER):
        return node
    if isinstance(node, OverlapJoin):
        sides = zip(node.inputs, node.sides, strict=True)
        left, right = (
            replace(side, lifetime=replace(side.lifetime, late_by=_late_by(source, side.lifetime.late_by, remember)))
            for source, side in sides
        )
        return replace(node, sides=(left, right))
    return replace(node, late_by=_late_by(node.input, node.late_by, remember))


def _late_by(source: Node, late_by: int | None, remember: int | None) -> int | None:
    """Return how much earlier than the watermark of `source` a row may begin."""
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
