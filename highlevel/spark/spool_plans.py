"""Which of the plans that a node served are those of the queries that read its spool.

A name is not enough: the same name may stand for another text since the pipeline file was changed, and another plan's
partials would be merged without a complaint. So plans are told apart by fingerprint. Two queries may have one
fingerprint, since the low level knows nothing of HAVING or of the select list; the node then wrote their partials
twice, and a query takes those of *one* plan: that of its own name, or else the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wanted:
    """A query that reads a spool: its name, and the fingerprint of its low-level plan."""

    name: str
    fingerprint: str


Offered = tuple[str, str]
"""A plan that the node was started with: its name and its fingerprint."""


@dataclass(frozen=True, slots=True)
class Match:
    """`takers` are the numbers of the queries that take the items of a plan; `missing` of those that have none."""

    takers: Mapping[Offered, tuple[int, ...]]
    missing: tuple[int, ...]


def match(wanted: Mapping[int, Wanted], offered: Sequence[Offered]) -> Match:
    """Match queries, by their number, with the plans of a segment."""
    takers: dict[Offered, tuple[int, ...]] = {}
    missing = []
    for query, each in wanted.items():
        same = [plan for plan in offered if plan[1] == each.fingerprint]
        if not same:
            missing.append(query)
            continue
        plan = next((plan for plan in same if plan[0] == each.name), same[0])
        takers[plan] = (*takers.get(plan, ()), query)
    return Match(takers, tuple(missing))


def without_plan(spool: str, wanted: Wanted, offered: Sequence[Offered]) -> str:
    """Say that a spool has no partials of a query, what its node was started with, and what to do."""
    plans = ", ".join(f"{name} ({fingerprint})" for name, fingerprint in offered) or "none"
    changed = any(name == wanted.name for name, _ in offered)
    what = f"has another query by the name of {wanted.name}" if changed else f"has no query {wanted.name}"
    return (
        f"{spool}: {what}: got {plans}, with which the node was started, expected one with the fingerprint "
        f"{wanted.fingerprint}; its windows wait until the node is started again with this pipeline"
    )
