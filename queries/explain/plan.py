"""Explained plans as text: the low level, the high level, and the reasons."""

from __future__ import annotations

from highlevel.plan.plan import Plan
from queries.explain.lines import high_lines, low_lines, watched_lines
from queries.explain.nodes import graph_lines


def explain(plan: Plan) -> str:
    """Return the plan as lines of text, without a line end at the end."""
    head = [f"query {plan.name}: {' '.join(plan.sql.split())}", ""]
    if plan.scan is None:
        return "\n".join([*head, *graph_lines(plan)])
    (leaf,), aggregation = plan.leaves, plan.scan.aggregation
    watched = list(watched_lines(plan))
    return "\n".join([*head, *low_lines(leaf, aggregation, watched), "", *high_lines(aggregation, leaf)])
