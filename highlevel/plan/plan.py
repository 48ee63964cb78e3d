"""A query as a plan: a DAG of nodes with one root. Scan and aggregate is the plan with one leaf."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property

import pyarrow as pa

from capture.lazy_dataclasses import dataclass
from highlevel.aggregation import Aggregation
from highlevel.operators.window_operator import WINDOW_END
from highlevel.plan.answer_nodes import Fill, Over, RowFunction, Running, Sort
from highlevel.plan.change_nodes import ChangingResults, RowsOfChanges, is_changing, without_changes
from highlevel.plan.lifetime_nodes import InstantRanks, OverlapJoin, Snapshots, TouchedWindows
from highlevel.plan.nodes import Join, Leaf, Node, Windowed, nodes_of
from highlevel.plan.pattern_nodes import Matches
from highlevel.plan.sample_node import Sample
from highlevel.windows.kind import WHOLE_INPUT, AnyWindow, LifetimeWindow
from lowlevel.expressions.tree import Column, Expression, transform
from lowlevel.expressions.types import Type
from lowlevel.layers import Layer
from lowlevel.plan import ARROW_TYPES

WAITING_REASONS: Mapping[type[Node], str] = {
    Windowed: "has no window",
    Over: "has OVER over rows without windows",
    Sample: "samples rows without windows",
    Sort: "sorts rows without windows",
}
"""For each node type, why its results are final only at the end of the input if they have no time column."""

WITHOUT_REMEMBER = "reads lifetimes without REMEMBER"
WITHOUT_CHANGES = "has a row pattern with $ (the end of a partition) without EMIT CHANGES"

WAITING_REMEDIES = {
    WITHOUT_REMEMBER: "WITH CONSISTENCY (REMEMBER 1 hour)",
    WITHOUT_CHANGES: "EMIT CHANGES at the end of the query",
}
"""For each reason, the clause that a query without windows needs in place of a window."""


@dataclass(frozen=True)
class Plan:
    """One query. The rows of `root` are its results. Immutable and picklable.

    Plans of one process share equal nodes: `nodes_of` all their roots is the DAG of all queries.
    """

    name: str
    sql: str
    root: Node
    layer: str = Layer.OUTER

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every node once, inputs before the nodes that read them."""
        return nodes_of(self.root)

    @cached_property
    def computing_nodes(self) -> tuple[Node, ...]:
        """The nodes that compute rows: those of `nodes`, with the body in place of ChangingResults."""
        return tuple(_computing_node(node) for node in self.nodes)

    @cached_property
    def node_names(self) -> tuple[str, ...]:
        """The names of the nodes in counters, in the order of `nodes`: their types, numbered if there are several.

        >>> from highlevel.plan.nodes import Union
        >>> from lowlevel.plan import LowLevelPlan
        >>> leaf = Leaf("q", ("a",), LowLevelPlan(None, (), (), 1, reduced=False))
        >>> Plan("q", "", Union((leaf, replace(leaf, streams=("b",))))).node_names
        ('leaf 1', 'leaf 2', 'union')
        """
        kinds = [type(node).__name__.lower() for node in self.nodes]
        count_of_kind, number_of_kind = Counter(kinds), Counter[str]()
        names = []
        for kind in kinds:
            number_of_kind[kind] += 1
            names.append(f"{kind} {number_of_kind[kind]}" if count_of_kind[kind] > 1 else kind)
        return tuple(names)

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaves, in the order of `nodes`."""
        return tuple(node for node in self.nodes if isinstance(node, Leaf))

    @property
    def streams(self) -> tuple[str, ...]:
        """The names in FROM of all leaves."""
        return tuple(dict.fromkeys(stream for leaf in self.leaves for stream in leaf.names))

    @property
    def joins_without_key(self) -> tuple[Join | OverlapJoin, ...]:
        """The joins without an equality between their sides.

        Such a join tests every pair of rows in each other's windows.
        """
        joins = (node for node in self.nodes if isinstance(node, Join | OverlapJoin))
        return tuple(join for join in joins if not (join.spec.keys if isinstance(join, Join) else join.keys))

    @property
    def aggregation(self) -> Aggregation | None:
        """The aggregation whose windows are the results; None if the results are rows without a window."""
        windows, hidden = _computing_node(self.root), tuple[str, ...]()
        if isinstance(windows, Sort):
            hidden = windows.hidden
            windows = _computing_node(windows.input)
        over = windows if isinstance(windows, Over | Running) else None
        windows = windows if over is None else _computing_node(over.input)
        if isinstance(windows, Fill):
            hidden = (*hidden, *windows.hidden)
            windows = _computing_node(windows.input)
        if not isinstance(windows, Windowed):
            return None
        select = windows.aggregation.select
        if over is not None:
            by_name = {out.name: out.expression for out in select}

            def expanded(part: Expression) -> Expression | None:
                return by_name.get(part.name) if isinstance(part, Column) else None

            select = tuple(replace(out, expression=transform(out.expression, expanded)) for out in over.outputs)
        return replace(windows.aggregation, select=tuple(out for out in select if out.name not in hidden))

    @property
    def row_functions(self) -> tuple[RowFunction, ...]:
        """The window functions (OVER) of all nodes."""
        over = (node for node in self.computing_nodes if isinstance(node, Over))
        return tuple(function for node in over for function in node.functions)

    @property
    def computed_names(self) -> frozenset[str]:
        """The columns that window functions (OVER) and running aggregates compute from aggregates."""
        running = (each.name for node in self.computing_nodes if isinstance(node, Running) for each in node.functions)
        return frozenset((*(function.name for function in self.row_functions), *running))

    @property
    def scan(self) -> Windowed | None:
        """The root if it is a Windowed node over the partials of one leaf, otherwise None."""
        return self.root if isinstance(self.root, Windowed) and self.root.merges_partials else None

    @property
    def windowed(self) -> bool:
        """True if results contain `window_start, window_end`."""
        return self.aggregation is not None and self.aggregation.windowed

    @property
    def window(self) -> AnyWindow:
        """The window of the results, by default the whole input."""
        return WHOLE_INPUT if self.aggregation is None else self.aggregation.window

    @property
    def has_changes(self) -> bool:
        """True if results are changes: rows with a weight, which may withdraw earlier rows."""
        return is_changing(self.root)

    @property
    def time_column(self) -> str | None:
        """The only time column of the results; None without one. By this column sinks find the rows of a correction."""
        return self.root.time_columns[0] if len(self.root.time_columns) == 1 else None

    @property
    def has_window_key(self) -> bool:
        """True if the time column of the results is the end of a window that groups may share."""
        return self.windowed and self.has_series and self.time_column == WINDOW_END

    @property
    def has_series(self) -> bool:
        """True if the newest window contains the current values of all groups.

        Snapshots of groups end at different times.
        """
        return self.aggregation is not None and not isinstance(self.window, LifetimeWindow)

    def with_final_rows(self) -> Plan:
        """Return this plan with the results themselves in place of their changes."""
        return replace(self, root=self.root.transform(without_changes))

    @property
    def is_by_arrival(self) -> bool:
        """True if the query states its consistency. Then watermarks follow from the rows that have arrived."""
        return any(leaf.low.has_arrival_watermarks for leaf in self.leaves)

    @property
    def waiting_reason(self) -> str | None:
        """Why results are final only at the end of the input; None if they can be final earlier."""
        for node in self.nodes:
            finishes = (isinstance(node, Sort) and node.passes_through) or (
                isinstance(node, Over) and node.final_time_column
            )
            if isinstance(node, InstantRanks | OverlapJoin | Snapshots | TouchedWindows) and node.waits_for_end:
                return WITHOUT_REMEMBER
            if isinstance(node, Matches) and node.automaton.last_finals:
                return WITHOUT_CHANGES
            if not node.time_columns and not finishes:
                reason = WAITING_REASONS.get(type(node))
                if reason is not None:
                    return reason
        return None

    @property
    def waiting_remedy(self) -> str:
        """A clause with which the query does not wait for the end of the input."""
        return WAITING_REMEDIES.get(self.waiting_reason or "", "[RANGE 1 minute, SLIDE 1 minute, WA ts]")

    @property
    def ends_early(self) -> bool:
        """True if the results may be complete before the end of the input."""
        return isinstance(self.root, Sort) and self.root.ends_early

    @property
    def times(self) -> frozenset[str]:
        """The columns of the results that are times in ns."""
        return frozenset(column.name for column in self.root.columns if column.type is Type.TIME)

    @cached_property
    def schema(self) -> pa.Schema:
        """Schema of the results."""
        return pa.schema([pa.field(column.name, ARROW_TYPES[column.type]) for column in self.root.columns])

    def with_filled_lulls(self) -> Plan:
        """Return this plan for live inputs: FILL and CLOSING WHEN do not wait for the next row."""

        def fill_lulls(node: Node) -> Node:
            if isinstance(node, ChangingResults):
                return replace(node, body=fill_lulls(node.body))
            return replace(node, fills_lulls=True) if isinstance(node, Fill | Running) else node

        return replace(self, root=self.root.transform(fill_lulls))

    def with_row_counts(self) -> Plan:
        """Return this plan with count(*) among the sub-aggregates of windows, so that late rows can be counted."""
        return replace(self, root=self.root.transform(_with_row_counts))


def _computing_node(node: Node) -> Node:
    """Return the node that computes the rows of a node over changes."""
    match node:
        case ChangingResults():
            return node.body
        case RowsOfChanges():
            return _computing_node(node.input)
        case _:
            return node


def leaves_of(plans: Iterable[Plan]) -> list[Leaf]:
    """Return the leaves of all plans."""
    return [leaf for plan in plans for leaf in plan.leaves]


def leaf_names(plan: Plan) -> list[str]:
    """Return the names of the leaves among `node_names`, for example `leaf`, or `leaf 1` and `leaf 2`."""
    names = zip(plan.nodes, plan.node_names, strict=True)
    return [name for node, name in names if isinstance(node, Leaf)]


def named_leaves(plan: Plan) -> list[Leaf]:
    """Return the leaves of a plan with unique names: the name of the query, with a number if there are several."""
    if len(plan.leaves) == 1:
        return [*plan.leaves]
    return [replace(leaf, name=f"{leaf.name} {number}") for number, leaf in enumerate(plan.leaves, 1)]


def _with_row_counts(node: Node) -> Node:
    if not isinstance(node, Windowed):
        return node
    aggregation = node.aggregation.with_row_counts()
    source = node.input
    if node.merges_partials and isinstance(source, Leaf):
        source = replace(source, low=aggregation.low)
    return replace(node, input=source, aggregation=aggregation)
