"""The nodes of a query's graph: what each reads, what leaves it, and what its promises are about.

    Leaf        rows or partials of links
    Union       Meld over nodes with the same columns
    Select      rows that a condition keeps
    Apply       computed, renamed and chosen columns
    Distinct    the first row of each key
    Join        OA-Join of two nodes (`highlevel.joins`)
    Windowed    groups of windows over one progressing column
    PairGroups  groups that hold the progressing columns themselves

Nodes are immutable and picklable, and equal nodes are one node: what two branches of a query share is run once. They
know no state; `highlevel.graph.operators` makes the operator of each. Promises are strict: of a node with one
progressing column, that no later row has a value below; of one with two, that no later row is below in both.
"""

from __future__ import annotations

from highlevel.graph.group_nodes import PairGroups, Windowed
from highlevel.graph.join_node import Join
from highlevel.graph.leaf import Leaf
from highlevel.graph.row_nodes import Apply, Distinct, Select, Union
from lowlevel.expressions.types import Type

Node = Leaf | Union | Select | Apply | Distinct | Join | Windowed | PairGroups
"""Every kind of node."""


def width_of(node: Node) -> int:
    """Return how many bounds a promise of a node has: one at least, which only END raises where none does."""
    return max(1, len(node.progress))


def macs_of(node: Node) -> frozenset[str]:
    """Return the columns that are MACs, which Arrow does not tell from addresses."""
    return frozenset(column.name for column in node.columns if column.type is Type.MAC)
