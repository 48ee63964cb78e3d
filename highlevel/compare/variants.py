"""Variants of a question: their watermarks, and their replacements for operators of the product."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from capture.lazy_dataclasses import dataclass
from highlevel.baselines.slack import Lateness
from highlevel.compare.ordered import (
    InOrderWindows,
    OrderedLeaf,
    OrderedUnion,
    in_order_join,
    opib_join,
    opob_join,
)
from highlevel.compare.question import Question
from highlevel.plan.node_operators import make_operator
from highlevel.plan.nodes import Join, Leaf, Node, Union, Windowed
from highlevel.plan.operators.operator import NodeOperator
from highlevel.plan.pipeline import Pipeline

Replaced = Callable[[Node, int], NodeOperator | None]
"""Create the replacement of a node's operator with a number of ports, or return None."""


@dataclass(frozen=True)
class Variant:
    """Variant with exact watermarks, or `late` by some ns. `ordered` variants keep order."""

    name: str
    late: int | None
    ordered: bool
    replaced: Replaced | None = None

    def pipeline(self, question: Question, links: Sequence[Sequence[str]]) -> Pipeline:
        """Make the pipeline of a question."""
        return Pipeline(question.plan, links, make=self.make)

    def make(self, node: Node, ports: int) -> NodeOperator:
        """Make the operator of a node: the replacement, or the operator of the product."""
        other = None if self.replaced is None else self.replaced(node, ports)
        return make_operator(node, ports) if other is None else other


def variants_of(question: Question, slacks: Sequence[int]) -> list[Variant]:
    """Return all variants of a question: first out of order, and within an order first with exact watermarks."""
    known: list[int | None] = [None, *slacks]
    variants = [Variant(f"out of order, {_told(late)}", late, ordered=False) for late in known]
    if question.join is None:
        variants += [Variant(f"in order, {_told(late)}", late, True, _sorted) for late in known]
        for kind in Lateness:
            for slack in slacks:
                variants.append(Variant(f"slack {seconds(slack)}, {kind}", slack, True, _by_slack(slack, kind)))
        return variants
    joins = {"sort, in-order join": _sorted, "OPIB-Join": _joined(opib_join), "OPOB-Join": _joined(opob_join)}
    variants += [Variant(f"{name}, {_told(late)}", late, True, made) for name, made in joins.items() for late in known]
    return variants


def seconds(duration: int) -> str:
    """Write ns as seconds.

    >>> seconds(500_000_000), seconds(0)
    ('0.5s', '0s')
    """
    return f"{duration / 1e9:g}s"


def _told(late: int | None) -> str:
    return "exact" if late is None else f"{seconds(late)} late"


def _sorted(node: Node, ports: int) -> NodeOperator | None:
    match node:
        case Leaf():
            return OrderedLeaf(ports)
        case Union():
            return OrderedUnion(ports, node.time_columns[0])
        case Join():
            return in_order_join(node)
        case Windowed() if not any(isinstance(each, Join) for each in _under(node)):
            return InOrderWindows(node)
    return None


def _by_slack(slack: int, lateness: Lateness) -> Replaced:
    def replaced(node: Node, _: int) -> NodeOperator | None:
        return InOrderWindows(node, (slack, lateness)) if isinstance(node, Windowed) else None

    return replaced


def _joined(make: Callable[[Join], NodeOperator]) -> Replaced:
    def replaced(node: Node, _: int) -> NodeOperator | None:
        return make(node) if isinstance(node, Join) else None

    return replaced


def _under(node: Node) -> list[Node]:
    return [node, *(below for each in node.inputs for below in _under(each))]
