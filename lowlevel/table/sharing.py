"""Shared tables: queries with the same groups use one table, with the union of their sub-aggregates.

    a: … WHERE w GROUP BY x, y: count(*)          table of w, (x, y), pane p:   a: pane, x, y, s0
    b: … WHERE w GROUP BY x, y: sum(len), count(*)      count(*), sum(len)      b: pane, x, y, s1, s0

A packet then finds its entry once for all these queries. Each query receives the entries that leave as its own
partials: its columns under its names, without a copy. So the high level is not aware of sharing.

Queries share a table if rows, keys in their order, panes and spreading are equal (`identity`); names of columns do not
matter. Equal sub-aggregates, also of one query, are one word of the entry. **Not shared** are tables of queries with
another order of keys, with a multiple of the pane, or with a predicate that is written differently: their entries would
differ. Tables with fewer keys, another order, or longer panes can be fed from another one (`lowlevel.table.feeding`).
Plans of single rows (`lowlevel.table.reducer`) have no table; they share the evaluation of keys and arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from capture.flows.sampling import FixedRates
from lowlevel.expressions.predicate import Condition
from lowlevel.expressions.tree import Expression
from lowlevel.plan import LowLevelPlan
from lowlevel.punctuation import Item
from lowlevel.subaggregates import SubAggregate
from lowlevel.table.feeding import Word, depth, feeders, widened, word_of
from lowlevel.table.reducer import QueryReducer


@dataclass(frozen=True, slots=True)
class Sharer:
    """One query of a shared table: the number of its plan, its plan, and the positions of its columns in the table."""

    number: int
    plan: LowLevelPlan
    places: tuple[int, ...]

    def partials(self, shared: pa.RecordBatch) -> pa.RecordBatch:
        """Return this query's view of a table's partials, without a copy."""
        return pa.RecordBatch.from_arrays([shared.column(place) for place in self.places], schema=self.plan.schema)


@dataclass(frozen=True, slots=True)
class SharedPlan:
    """The plan of one table and the queries that share it: `plan` has the sub-aggregates of all of them.

    `feeder` is the index of the plan whose table feeds this one; None if packets do.
    """

    plan: LowLevelPlan
    sharers: tuple[Sharer, ...]
    feeder: int | None = None

    def handed_out(self, batch: pa.RecordBatch) -> Iterator[tuple[int, Item]]:
        """Yield a batch of the table's partials for each query, with the number of its plan."""
        for sharer in self.sharers:
            yield sharer.number, batch if sharer.plan is self.plan else sharer.partials(batch)


def identity(plan: LowLevelPlan) -> LowLevelPlan:
    """Return the parts of a plan that must be equal to share a table: all but names of keys and sub-aggregates."""
    keys = tuple(replace(key, name=str(place)) for place, key in enumerate(plan.keys))
    return replace(plan, keys=keys, subaggregates=())


def share(plans: Sequence[LowLevelPlan], feeding: bool = True) -> list[SharedPlan]:
    """Group plans by the table that they can share, each with its number, in the order of `plans`.

    With `feeding`, a group is always after the group that feeds it.
    """
    groups: dict[LowLevelPlan, list[int]] = {}
    for number, plan in enumerate(plans):
        groups.setdefault(identity(plan), []).append(number)
    tables = [_union(of_table, numbers, plans) for of_table, numbers in groups.items()]
    if not feeding:
        return tables
    wide = widened([shared.plan for shared in tables])
    tables = [replace(shared, plan=plan) for shared, plan in zip(tables, wide, strict=True)]
    feeder_of = feeders(wide)
    order = sorted(range(len(tables)), key=lambda place: depth(place, feeder_of))
    places: dict[int | None, int] = {place: number for number, place in enumerate(order)}
    return [replace(tables[place], feeder=places.get(feeder_of[place])) for place in order]


def _union(of_table: LowLevelPlan, numbers: list[int], plans: Sequence[LowLevelPlan]) -> SharedPlan:
    words: dict[Word, int] = {}
    for number in numbers:
        for sub in plans[number].subaggregates:
            words.setdefault(word_of(sub), len(words))
    fixed = 2 + len(of_table.keys)  # link, pane and the keys
    sharers = []
    for number in numbers:
        plan = plans[number]
        own = [fixed + words[word_of(sub)] for sub in plan.subaggregates]
        sharers.append(Sharer(number, plan, (*range(fixed), *own)))
    if len(numbers) == 1 and len(words) == len(plan.subaggregates):
        return SharedPlan(plan, tuple(sharers))
    subaggregates = tuple(SubAggregate(f"s{place}", *word) for word, place in words.items())
    return SharedPlan(replace(of_table, subaggregates=subaggregates), tuple(sharers))


def share_conditions(tables: Iterable[QueryReducer]) -> None:
    """Share the condition of tables with an equal predicate, so that it tests each batch of rows once."""
    known: dict[tuple[str, FixedRates | None, Expression], Condition] = {}
    for query in tables:
        plan = query.plan
        if plan.where is not None and query.where is not None:
            query.where = known.setdefault((plan.kind, plan.sampling, plan.where), query.where)
