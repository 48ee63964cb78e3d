"""EMIT CHANGES: convert the plan of a query to a plan that returns changes of its results.

    Leaf of partials ► Windowed             Leaf of provisional partials ► ChangingWindows
    Leaf ► Windowed, with look-ups at times rows ► WatchedColumns [► Filter] ► ChangingResults
    rows ► Windowed                         rows ► ChangingWindows
    rows, or changes ► Snapshots            the same ► ChangingSnapshots
    rows, or changes ► InstantRanks         the same ► ChangingInstantRanks
    rows, or changes ► OverlapJoin          the same ► ChangingOverlapJoin
    rows, or changes ► AcceptedRuns         the same ► ChangingAcceptedRuns
    rows ► TouchedWindows                   the same
    changes ► TouchedWindows                the same ► Apply
    changes ► Filter, Apply                 the same [► NetChanges]
    changes ► Repeat                        ChangingRepeat
    changes ► Union                         ChangingUnion
    changes, changes ► Join                 ChangingJoin
    rows ► FirstCopies, FlowMerge, NetRows  ChangingFirstCopies, ChangingFlowMerge, ChangingNetRows
    changes ► any other node                ChangingResults

Rows of links, and rows that are computed from single rows, are never withdrawn. They are converted to changes only if
another input of a node has changes, or if the node can withdraw results: LEFT, RIGHT, FULL and ANTI joins, DISTINCT ON,
MERGE and CHANGES BY.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from highlevel.aggregation import LINK, Aggregation, Output
from highlevel.joins.spec import JoinKind, WatermarkForm
from highlevel.plan.answer_nodes import Fill, Over, Running, Sort
from highlevel.plan.automaton_nodes import AcceptedRuns, ChangingAcceptedRuns, RowsOfRuns
from highlevel.plan.change_nodes import (
    ChangingJoin,
    ChangingRepeat,
    ChangingResults,
    ChangingUnion,
    NetChanges,
    RowsOfChanges,
    WatchedColumns,
    is_changing,
    is_open_ended,
    rows_as_changes,
    time_step,
)
from highlevel.plan.lifetime_nodes import (
    ChangingInstantRanks,
    ChangingOverlapJoin,
    ChangingSnapshots,
    InstantRanks,
    OverlapJoin,
    Snapshots,
    TouchedWindows,
)
from highlevel.plan.nodes import (
    CHANGE_COLUMNS,
    PANE,
    Apply,
    ChangingWindows,
    Distinct,
    Filter,
    Join,
    Leaf,
    Node,
    Repeat,
    TimeGroups,
    TimeOutput,
    Union,
    Windowed,
)
from highlevel.plan.revision_nodes import (
    ChangingFirstCopies,
    ChangingFlowMerge,
    ChangingNetRows,
    FirstCopies,
    FlowMerge,
    NetRows,
)
from highlevel.plan.sample_node import Sample
from highlevel.speculation.consistency import FINAL, WEIGHT, Consistency
from highlevel.windows.kind import SlidingWindow
from lowlevel.expressions.tree import (
    Column,
    Expression,
    InWatchlist,
    Literal,
    LongestPrefix,
    columns_of,
    parts_of,
    transform,
)
from lowlevel.expressions.types import Type
from lowlevel.plan import NEWEST_COLUMN, Key
from lowlevel.subaggregates import Kind, SubAggregate
from queries.plans.lifetimes import with_remember
from queries.text.errors import QueryError
from queries.text.tree import Consistency as Clause
from queries.text.tree import Query

WITHDRAWING_JOINS = (JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL, JoinKind.ANTI)
"""Joins that may withdraw a result although no input row is withdrawn: a row without a match can get one later."""

WEIGHT_OUTPUT, FINAL_OUTPUT = (Output(column.name, column) for column in CHANGE_COLUMNS)
"""The last columns of changes, as outputs that do not change them."""

GROUPS_EXAMPLE = "groups in windows over links: SELECT srcIP, count(*) [RANGE 1 minute] FROM packets GROUP BY srcIP"


class PlanChanges:
    """Converts the nodes of one query. Raises QueryError for a node whose results cannot be corrected."""

    def __init__(self, query: Query, clause: Clause, consistency: Consistency) -> None:
        """Convert `query`, which has EMIT CHANGES and the consistency `consistency`."""
        self._query = query
        self._clause = clause
        self._consistency = consistency

    def root(self, root: Node) -> Node:
        """Return the node that returns the changes of `root`."""
        if isinstance(root, Sort) and not _has_limit(root) and self._query.order is not None:
            expected = "no ORDER BY, because changes are returned in the order in which they occur; or LIMIT after it"
            raise self._error("ORDER BY without LIMIT", expected)
        changes = self._convert(root)
        if not is_changing(changes):
            raise self._error("rows without groups, which are never withdrawn", f"no EMIT CHANGES, or {GROUPS_EXAMPLE}")
        return changes

    def _convert(self, node: Node) -> Node:
        """Return the changes of a node. If its rows are never withdrawn, return the node over provisional leaves."""
        if isinstance(node, Leaf):
            return replace(node, low=replace(node.low, provisional=True, slack=self._consistency.remember))
        if isinstance(node, Windowed) and node.merges_partials:
            return self._windows_of_links(node)
        if isinstance(node, Sort) and not _has_limit(node) and isinstance(node.input, Windowed):
            select = tuple(out for out in node.input.aggregation.select if out.name not in node.hidden)
            return self._convert(replace(node.input, aggregation=replace(node.input.aggregation, select=select)))
        if isinstance(node, Join):
            return self._join(node)
        if isinstance(node, Sample):
            raise self._error("SUPERGROUP or CLEANING", "GROUP BY without them: samples cannot be corrected")
        inputs = tuple(self._convert(each) for each in node.inputs)
        if isinstance(node, InstantRanks):
            return self._instant_ranks(with_remember(node, self._consistency.remember), inputs[0])
        if isinstance(node, Apply) and is_open_ended(node):
            return node.with_inputs(inputs)
        if isinstance(node, Snapshots):
            return self._snapshots(with_remember(node, self._consistency.remember), inputs[0])
        if isinstance(node, AcceptedRuns) and not isinstance(node, RowsOfRuns):
            return self._accepted_runs(node, inputs[0])
        if isinstance(node, OverlapJoin):
            return self._overlaps(with_remember(node, self._consistency.remember), inputs)
        if isinstance(node, TouchedWindows):
            touched = with_remember(node, self._consistency.remember).with_inputs(inputs)
            return _with_changes_last(touched) if is_changing(inputs[0]) else touched
        if any(is_changing(each) for each in inputs):
            self._check_names(node)
            return self._over_changes(
                node, tuple(each if is_changing(each) else rows_as_changes(each) for each in inputs)
            )
        if (
            isinstance(node, Windowed)
            and isinstance(node.aggregation.window, SlidingWindow)
            and node.aggregation.windowed
        ):
            return self._windows_of_rows(node.with_inputs(inputs))
        if isinstance(node, FirstCopies | FlowMerge | NetRows):
            self._check_names(node)
            return self._revising_node(node.with_inputs(inputs))
        if isinstance(node, Apply | Filter | Repeat | Union | Distinct):
            return node.with_inputs(inputs)
        return self._over_changes(node, tuple(rows_as_changes(each) for each in inputs))

    # --- windows over rows that are never withdrawn ---

    def _windows_of_links(self, node: Windowed) -> Node:
        lookups = _timed_lookups(node.aggregation)
        if lookups:
            return self._windows_of_lookups(node, lookups)
        aggregation, leaf = self._provisional_aggregation(node.aggregation), node.input
        assert isinstance(leaf, Leaf)
        low = replace(aggregation.low, provisional=True, slack=self._consistency.remember)
        aggregation = replace(aggregation, low=low)
        return ChangingWindows(replace(leaf, low=low), aggregation, node.time, self._consistency)

    def _windows_of_rows(self, node: Windowed) -> ChangingWindows:
        return ChangingWindows(
            node.input, self._provisional_aggregation(node.aggregation), node.time, self._consistency
        )

    def _windows_of_lookups(self, node: Windowed, lookups: Sequence[Expression]) -> Node:
        """Return windows over rows with look-ups in files. Results are computed again when a file changes."""
        leaf, aggregation = node.input, node.aggregation
        assert isinstance(leaf, Leaf)
        self._provisional_aggregation(aggregation)
        columns = {column.name: column for tree in aggregation.low.trees for column in columns_of(tree)}
        columns = {name: column for name, column in columns.items() if name not in ("ts", LINK)}
        for column in columns.values():
            if column.type is Type.BYTES:
                expected = "a query over rows: FROM (SELECT ts, srcIP, … FROM packets WHERE …)"
                raise self._error(f"{column.name} and a watchlist at a time", expected)
        keys = tuple(Key(name, column) for name, column in columns.items())
        low = aggregation.low
        rows = replace(low, where=None, keys=keys, subaggregates=(), pane=1, origin=0, reduced=False)
        rows = replace(rows, provisional=True, slack=self._consistency.remember)
        outputs = (Output(LINK, Column(LINK, Type.TEXT)), Output("ts", Column(PANE, Type.TIME)))
        named = Apply(
            replace(leaf, low=rows),
            (*outputs, *(Output(name, column) for name, column in columns.items())),
            (TimeOutput("ts", PANE),),
        )
        found = {lookup: Column(f".lookup {n}", lookup.type, nullable=True) for n, lookup in enumerate(lookups)}
        watched = tuple(Output(column.name, lookup) for lookup, column in found.items())
        source: Node = WatchedColumns(named, watched, self._consistency)

        def resolved(tree: Expression) -> Expression:
            return transform(tree, found.get)

        if low.where is not None:
            source = Filter(source, resolved(low.where))
        group_keys = tuple(Key(key.name, resolved(key.expression)) for key in low.keys)
        subaggregates = tuple(
            sub if sub.argument is None else replace(sub, argument=resolved(sub.argument)) for sub in low.subaggregates
        )
        low = replace(low, where=None, keys=group_keys, subaggregates=subaggregates)
        body = Windowed(RowsOfChanges(source), replace(aggregation, low=low), "ts")
        return ChangingResults(body, self._consistency.early is not None)

    def _snapshots(self, node: Snapshots, source: Node) -> ChangingSnapshots:
        if self._consistency.early is not None:
            raise self._error("EARLY of lifetimes", "WAIT and REMEMBER only: a snapshot is returned when it has ended")
        self._check_select(node.aggregation)
        parameters = (node.aggregation, node.time, node.end, node.late_by)
        open_ended = isinstance(node, ChangingSnapshots) and node.open_ended
        return ChangingSnapshots(source, *parameters, self._consistency_after([source]), open_ended)

    def _instant_ranks(self, node: InstantRanks, source: Node) -> ChangingInstantRanks:
        if self._consistency.early is not None:
            raise self._error("EARLY of lifetimes", "WAIT and REMEMBER only: a result is returned when it has ended")
        open_ended = isinstance(node, ChangingInstantRanks) and node.open_ended
        if not open_ended:
            self._check_names(node)
        parameters = (node.ranks, node.lifetime, node.hidden, self._consistency_after([source]), open_ended)
        return ChangingInstantRanks(source, *parameters)

    def _accepted_runs(self, node: AcceptedRuns, source: Node) -> ChangingAcceptedRuns:
        if self._consistency.early is not None:
            raise self._error("EARLY of an automaton", "WAIT and REMEMBER only: a result is returned with its last row")
        self._check_names(node)
        parameters = (node.automaton, node.keys, node.until, node.number, node.rules)
        return ChangingAcceptedRuns(source, *parameters, self._consistency_after([source]))

    def _overlaps(self, node: OverlapJoin, inputs: Sequence[Node]) -> ChangingOverlapJoin:
        if self._consistency.early is not None:
            raise self._error(
                "EARLY of lifetimes", "WAIT and REMEMBER only: a pair is returned when both rows are known"
            )
        self._check_names(node)
        left, right = (
            each if is_changing(each) or not any(map(is_changing, inputs)) else rows_as_changes(each) for each in inputs
        )
        parameters = (node.sides, node.keys, node.time, node.kind, node.residual)
        return ChangingOverlapJoin(left, right, *parameters, self._consistency_after(inputs))

    def _consistency_after(self, inputs: Sequence[Node]) -> Consistency:
        """Return the consistency of a node.

        Changes have waited already, so a node over them does not wait unless WAIT is FOREVER.
        """
        has_waited = any(map(is_changing, inputs)) and self._consistency.wait is not None
        return replace(self._consistency, wait=0) if has_waited else self._consistency

    def _provisional_aggregation(self, aggregation: Aggregation) -> Aggregation:
        """Add the newest time of the rows to an aggregation. Raises QueryError if its results cannot be provisional."""
        if not aggregation.windowed or not isinstance(aggregation.window, SlidingWindow):
            raise self._error("a query without windows of time", GROUPS_EXAMPLE)
        if aggregation.low.spread:
            raise self._error("SPREAD", "a window clause without SPREAD")
        self._check_aggregates(aggregation)
        self._check_select(aggregation)
        counting = aggregation.with_row_counts()
        newest = SubAggregate(NEWEST_COLUMN, Kind.MAX, Column("ts", Type.TIME))
        return replace(counting, low=replace(counting.low, subaggregates=(*counting.low.subaggregates, newest)))

    def _revising_node(self, node: FirstCopies | FlowMerge | NetRows) -> Node:
        if isinstance(node, FirstCopies):
            return ChangingFirstCopies(node.input, node.keys, node.within, self._consistency)
        if isinstance(node, NetRows):
            return ChangingNetRows(node.input, node.change, self._consistency)
        parameters = (node.keys, node.roles, node.within, node.idle, node.start, node.ended)
        return ChangingFlowMerge(node.input, *parameters, self._consistency)

    # --- nodes over changes ---

    def _over_changes(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        """Return the changes of a node whose inputs are changes."""
        match node:
            case Filter():
                return replace(node, input=inputs[0])
            case Apply():
                return self._apply(node, inputs[0])
            case Union():
                return ChangingUnion(inputs)
            case Repeat():
                return ChangingRepeat(inputs[0], node.count)
            case Sort() if not _has_limit(node):
                return self._without_hidden_columns(inputs[0], node)
            case _:
                self._check_body(node, inputs[0])
                body = node.with_inputs([RowsOfChanges(inputs[0])])
                return ChangingResults(body, self._consistency.early is not None, time_step(inputs[0]))

    def _apply(self, node: Apply, changes: Node) -> Node:
        """Return computed columns of changes. If different rows can become equal, their weights are added up."""
        is_exact = all(time.length == 1 for time in node.time_outputs)
        final = FINAL_OUTPUT if is_exact else Output(FINAL, Literal(False, Type.BOOL))
        applied = Apply(changes, (*node.outputs, WEIGHT_OUTPUT, final), node.time_outputs)
        kept = {out.expression.name for out in node.outputs if isinstance(out.expression, Column)}
        is_complete = {column.name for column in changes.columns[: -len(CHANGE_COLUMNS)]} <= kept
        return applied if is_complete else NetChanges(applied)

    def _without_hidden_columns(self, changes: Node, node: Sort) -> Node:
        """Return changes without the columns that only ORDER BY needs."""
        if not node.hidden:
            return changes
        outputs = (*(Output(column.name, column) for column in node.columns), WEIGHT_OUTPUT, FINAL_OUTPUT)
        return NetChanges(Apply(changes, outputs, _same_times(changes)))

    def _join(self, node: Join) -> Node:
        inputs = tuple(self._convert(each) for each in node.inputs)
        changing = [is_changing(each) for each in inputs]
        if not any(changing) and node.spec.kind not in WITHDRAWING_JOINS:
            return node.with_inputs(inputs)
        if self._consistency.early is not None and not any(changing):
            raise self._error("EARLY of rows without windows", "WAIT and REMEMBER only: a row has no end to wait for")
        if node.watermark_form is WatermarkForm.JOINT:
            raise self._error("groups by the times of both sides of a join", "the time of one side")
        self._check_names(node)
        left, right = (each if is_changing(each) else rows_as_changes(each) for each in inputs)
        consistency = Consistency() if any(changing) else self._consistency
        return ChangingJoin(left, right, node.spec, node.watermark_form, consistency, all(changing))

    # --- refusals ---

    def _check_body(self, node: Node, changes: Node) -> None:
        """Raise QueryError for a node over changes whose results would never be final."""
        match node:
            case Windowed(aggregation=aggregation) if not isinstance(aggregation.window, SlidingWindow):
                raise self._error("sessions, windows of rows or RANGE ALL over provisional results", "[RANGE 1 hour]")
            case Windowed(aggregation=aggregation) if not aggregation.windowed:
                expected = "a window: SELECT max(n) [RANGE 1 hour] FROM (…)"
                raise self._error("groups of the whole input over provisional results", expected)
            case Windowed(aggregation=aggregation) | TimeGroups(aggregation=aggregation):
                self._check_aggregates(aggregation)
            case RowsOfRuns() if any(arc.deadline is not None for arc in node.automaton.arcs):
                expected = "no EMIT CHANGES: whether a later row precedes the time of AT is not known"
                raise self._error("ALL ROWS PER MATCH and AT of an automaton", expected)
            case Sort() if not node.window_columns:
                raise self._error("LIMIT over all windows", "LIMIT of each window: in the query with the groups")
            case Over() | Fill() | Running() | Sort() | Distinct():
                pass
        if len(changes.time_columns) != 1 or len(node.time_columns) != 1:
            names = {Over: "OVER", TimeGroups: "groups", Distinct: "DISTINCT"}
            what = f"{names.get(type(node), 'groups')} of results without their time"
            raise self._error(what, "window_end in the select list and in GROUP BY or PARTITION BY, or a window")

    def _check_aggregates(self, aggregation: Aggregation) -> None:
        if aggregation.foldings:
            raise self._error("approximate aggregates", "exact aggregates, for example count(DISTINCT x)")

    def _check_select(self, aggregation: Aggregation) -> None:
        for out in aggregation.select:
            self._check_name(out.name)

    def _check_names(self, node: Node) -> None:
        for column in node.columns:
            self._check_name(column.name)

    def _check_name(self, name: str) -> None:
        """Raise QueryError for a column that has the name of a column of changes."""
        if name.lower() in (WEIGHT, FINAL):
            raise self._error(f"a column '{name}'", "another name: changes have a column of this name")

    def _error(self, what: str, expected: str) -> QueryError:
        problem = f"EMIT CHANGES together with {what}"
        return QueryError(problem, self._query.sql, self._clause.keyword.start, expected)


def _timed_lookups(aggregation: Aggregation) -> list[Expression]:
    """Return the distinct look-ups in files whose rows have lifetimes."""
    parts = (part for tree in aggregation.low.trees for part in parts_of(tree))
    lookups = (part for part in parts if isinstance(part, InWatchlist | LongestPrefix) and part.time is not None)
    return list(dict.fromkeys(lookups))


def _with_changes_last(node: TouchedWindows) -> Apply:
    """Return the windows that the lifetimes in changes overlap, with `weight` and `final` as the last columns."""
    *columns, _, _, touched = node.columns
    outputs = (*(Output(column.name, column) for column in (*columns, touched)), WEIGHT_OUTPUT)
    return Apply(node, (*outputs, Output(FINAL, Literal(False, Type.BOOL))), _same_times(node))


def _has_limit(node: Sort) -> bool:
    return node.limit is not None or node.offset > 0


def _same_times(node: Node) -> tuple[TimeOutput, ...]:
    return tuple(TimeOutput(name, name) for name in node.time_columns)
