"""Find, for each query that reads a spool, the plan of the node that writes the spool.

Plans are identified by their fingerprints. Names are not sufficient: the pipeline file may have changed, and then
partials of another plan would be merged without an error. Several plans may have the same fingerprint, because HAVING
and the select list are not part of it. Then the node writes their partials once for each of them, and a query reads
*one* of these plans: the one with its own name, otherwise the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from capture.lazy_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpoolQuery:
    """A query that reads a spool: its name, and the fingerprint of its low-level plan."""

    name: str
    fingerprint: str


OfferedPlan = tuple[str, str]
"""A plan with which the node was started: (name, fingerprint)."""


@dataclass(frozen=True, slots=True)
class PlanMatches:
    """The numbers of the queries that read each plan, and of those that have no plan (`missing_queries`)."""

    queries_by_plan: Mapping[OfferedPlan, tuple[int, ...]]
    missing_queries: tuple[int, ...]


def match_plans(queries: Mapping[int, SpoolQuery], offered_plans: Sequence[OfferedPlan]) -> PlanMatches:
    """Match queries, given by their numbers, with the plans of a segment."""
    queries_by_plan: dict[OfferedPlan, tuple[int, ...]] = {}
    missing_queries = []
    for query_number, query in queries.items():
        equal_plans = [plan for plan in offered_plans if plan[1] == query.fingerprint]
        if not equal_plans:
            missing_queries.append(query_number)
            continue
        plan = next((plan for plan in equal_plans if plan[0] == query.name), equal_plans[0])
        queries_by_plan[plan] = (*queries_by_plan.get(plan, ()), query_number)
    return PlanMatches(queries_by_plan, tuple(missing_queries))


def describe_missing_plan(spool: str, query: SpoolQuery, offered_plans: Sequence[OfferedPlan]) -> str:
    """Return a message about a query whose partials are not in a spool.

    It names the plans of the node and the remedy.
    """
    plans = ", ".join(f"{name} ({fingerprint})" for name, fingerprint in offered_plans) or "none"
    has_name = any(name == query.name for name, _ in offered_plans)
    problem = f"has another query by the name of {query.name}" if has_name else f"has no query {query.name}"
    return (
        f"{spool}: {problem}: got {plans}, with which the node was started, expected one with the fingerprint "
        f"{query.fingerprint}; its windows wait until the node is started again with this pipeline"
    )
