"""The operator of each node, with the state of a query that begins."""

from __future__ import annotations

from highlevel.graph.apply import ApplyOperator
from highlevel.graph.distinct import DistinctOperator
from highlevel.graph.group_nodes import PairGroups, Windowed
from highlevel.graph.join_node import Join
from highlevel.graph.nodes import Node
from highlevel.graph.operator import GraphOperator
from highlevel.graph.pair_groups import PairGroupsOperator
from highlevel.graph.row_nodes import Apply, Distinct, Select, Union
from highlevel.graph.select import SelectOperator
from highlevel.graph.union import UnionOperator
from highlevel.graph.windowed import WindowedOperator


def make_operator(node: Node) -> GraphOperator:
    """Make the operator of a node that reads nodes; leaves read links, which are united by Meld."""
    match node:
        case Union():
            return UnionOperator(node)
        case Select():
            return SelectOperator(node)
        case Apply():
            return ApplyOperator(node)
        case Distinct():
            return DistinctOperator(node)
        case Join():
            from highlevel.graph.joined import JoinOperator  # its kernels are for queries that join alone

            return JoinOperator(node)
        case Windowed():
            return WindowedOperator(node)
        case PairGroups():
            return PairGroupsOperator(node)
    raise TypeError(f"got {type(node).__name__}, expected a node that reads nodes")
