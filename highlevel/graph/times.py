"""Which columns of a node are times in ns, so that outputs can spell them as such."""

from __future__ import annotations

from highlevel.graph.group_nodes import PairGroups, Windowed
from highlevel.graph.join_node import Join
from highlevel.graph.leaf import PANE, Leaf
from highlevel.graph.nodes import Node
from highlevel.graph.row_nodes import Apply, Distinct, Select, Union
from highlevel.joins.spec import MAX_TS, MIN_TS
from highlevel.plan import QueryPlan
from highlevel.window_operator import WINDOW_END, WINDOW_START
from lowlevel.expressions import Column

OF_ROWS = frozenset({"ts", "start_ts"})
"""Columns of links that are times."""


def times_of(node: Node) -> frozenset[str]:
    """Return the columns of a node that are a row's time, or the bound of a window in time, under whatever name."""
    match node:
        case Leaf():
            keys = {key.name: key.expression for key in node.low.keys}
            named = {name for name, of in keys.items() if isinstance(of, Column) and of.name in OF_ROWS}
            return frozenset(named if node.low.reduced else {PANE, *named})
        case Union():
            return frozenset.intersection(*map(times_of, node.inputs))
        case Select() | Distinct():
            return times_of(node.input)
        case Apply():
            known = times_of(node.input)
            return frozenset(
                out.name for out in node.outputs if isinstance(out.expression, Column) and out.expression.name in known
            )
        case Join():
            found = {MAX_TS, MIN_TS} & set(node.progress)
            for input_, side in ((node.left, node.spec.left), (node.right, node.spec.right)):
                known = times_of(input_)
                found |= {output for name, output in side.columns if name in known}
            return frozenset(found & {column.name for column in node.columns})
        case Windowed():
            bounds = {WINDOW_START, WINDOW_END} if node.plan.windowed and node.plan.window.timed else set()
            return frozenset(bounds | _grouped(node.plan, node.input))
        case PairGroups():
            return frozenset(_grouped(node.plan, node.input))


def _grouped(plan: QueryPlan, node: Node) -> set[str]:
    """Return the columns of the select list that are groups by a time as it is."""
    known = OF_ROWS if isinstance(node, Leaf) and node.low == plan.low else times_of(node)
    keys = {key.name for key in plan.low.keys if isinstance(key.expression, Column) and key.expression.name in known}
    return {out.name for out in plan.select if isinstance(out.expression, Column) and out.expression.name in keys}
