"""Variants of a question: their watermarks, and the operators that they replace."""

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
from highlevel.plan.nodes import Join, Leaf, Node, Union, Windowed
from highlevel.plan.operators.operator import NodeOperator
from highlevel.plan.pipeline import Pipeline, make_operator

Replacement = Callable[[Node, int], NodeOperator | None]
"""Receives a node and its number of ports. Returns the operator that replaces the default operator, or None."""


@dataclass(frozen=True)
class Variant:
    """A variant of a plan.

    `watermark_delay`: ns by which watermarks are below the newest time; None: exact watermarks.
    """

    name: str
    watermark_delay: int | None
    is_ordered: bool
    replacement: Replacement | None = None

    def pipeline(self, question: Question, links: Sequence[Sequence[str]]) -> Pipeline:
        """Make the pipeline of a question."""
        return Pipeline(question.plan, links, make=self.make)

    def make(self, node: Node, ports: int) -> NodeOperator:
        """Make the operator of a node: the replacement, or the default operator."""
        replacement = None if self.replacement is None else self.replacement(node, ports)
        return make_operator(node, ports) if replacement is None else replacement


def variants_of(question: Question, slacks: Sequence[int]) -> list[Variant]:
    """Return all variants of a question, the out-of-order variants first. In both groups exact watermarks are first."""
    watermark_delays: list[int | None] = [None, *slacks]
    variants = [Variant(f"out of order, {_watermark_text(late)}", late, is_ordered=False) for late in watermark_delays]
    if question.join is None:
        variants += [
            Variant(f"in order, {_watermark_text(late)}", late, True, _replace_by_ordered) for late in watermark_delays
        ]
        for kind in Lateness:
            for slack in slacks:
                variants.append(
                    Variant(f"slack {format_seconds(slack)}, {kind}", slack, True, _replace_windows(slack, kind))
                )
        return variants
    joins = {
        "sort, in-order join": _replace_by_ordered,
        "OPIB-Join": _replace_join(opib_join),
        "OPOB-Join": _replace_join(opob_join),
    }
    variants += [
        Variant(f"{name}, {_watermark_text(late)}", late, True, replacement)
        for name, replacement in joins.items()
        for late in watermark_delays
    ]
    return variants


def format_seconds(duration: int) -> str:
    """Write ns as seconds.

    >>> format_seconds(500_000_000), format_seconds(0)
    ('0.5s', '0s')
    """
    return f"{duration / 1e9:g}s"


def _watermark_text(late: int | None) -> str:
    return "exact" if late is None else f"{format_seconds(late)} late"


def _replace_by_ordered(node: Node, ports: int) -> NodeOperator | None:
    match node:
        case Leaf():
            return OrderedLeaf(ports)
        case Union():
            return OrderedUnion(ports, node.time_columns[0])
        case Join():
            return in_order_join(node)
        case Windowed() if not any(isinstance(each, Join) for each in _subtree(node)):
            return InOrderWindows(node)
    return None


def _replace_windows(slack: int, lateness: Lateness) -> Replacement:
    def make_replacement(node: Node, _: int) -> NodeOperator | None:
        return InOrderWindows(node, (slack, lateness)) if isinstance(node, Windowed) else None

    return make_replacement


def _replace_join(make: Callable[[Join], NodeOperator]) -> Replacement:
    def make_replacement(node: Node, _: int) -> NodeOperator | None:
        return make(node) if isinstance(node, Join) else None

    return make_replacement


def _subtree(node: Node) -> list[Node]:
    return [node, *(descendant for child in node.inputs for descendant in _subtree(child))]
