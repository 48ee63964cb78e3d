"""Match the plans of a node with the queries that read its spool.

A name is not sufficient. It may mean another text after a change of the pipeline file, and partials of another plan
would be merged without an error. So plans are identified by fingerprint. Two queries may have one fingerprint, because
HAVING and the select list are not part of it. The node then writes their partials twice, and a query reads *one* plan:
preferably the plan with its own name, otherwise the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpoolQuery:
    """A query that reads a spool: its name, and the fingerprint of its low-level plan."""

    name: str
    fingerprint: str


Offered = tuple[str, str]
"""A plan that the node was started with: its name and its fingerprint."""


@dataclass(frozen=True, slots=True)
class Match:
    """Numbers of queries: those that read each plan, and those without a plan (`missing`)."""

    queries_by_plan: Mapping[Offered, tuple[int, ...]]
    missing: tuple[int, ...]


def match(wanted: Mapping[int, SpoolQuery], offered: Sequence[Offered]) -> Match:
    """Match queries, by their number, with the plans of a segment."""
    queries_by_plan: dict[Offered, tuple[int, ...]] = {}
    missing = []
    for query, each in wanted.items():
        same = [plan for plan in offered if plan[1] == each.fingerprint]
        if not same:
            missing.append(query)
            continue
        plan = next((plan for plan in same if plan[0] == each.name), same[0])
        queries_by_plan[plan] = (*queries_by_plan.get(plan, ()), query)
    return Match(queries_by_plan, tuple(missing))


def without_plan(spool: str, wanted: SpoolQuery, offered: Sequence[Offered]) -> str:
    """Return a message about a query without partials in a spool: the plans of the node, and the next step."""
    plans = ", ".join(f"{name} ({fingerprint})" for name, fingerprint in offered) or "none"
    changed = any(name == wanted.name for name, _ in offered)
    what = f"has another query by the name of {wanted.name}" if changed else f"has no query {wanted.name}"
    return (
        f"{spool}: {what}: got {plans}, with which the node was started, expected one with the fingerprint "
        f"{wanted.fingerprint}; its windows wait until the node is started again with this pipeline"
    )
