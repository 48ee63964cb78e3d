"""Queries that keep the same groups share one table: its entries hold the union of their sub-aggregates.

    a: … WHERE w GROUP BY x, y: count(*)          table of w, (x, y), pane p:   a: pane, x, y, s0
    b: … WHERE w GROUP BY x, y: sum(len), count(*)      count(*), sum(len)      b: pane, x, y, s1, s0

A packet then finds its entry once for all of them. What leaves the table is handed to each query as its own partials:
its columns under its names, without a copy, so that nothing behind the low level knows that a table was shared.

Tables of the same rows whose keys are fewer, stand in another order, or whose panes are longer are fed from one that
keeps what they ask for, or that is made to (`lowlevel.table.feeding`).

Shared is a table whose rows, keys in their order, panes and cuts are equal (`identity`), whatever the columns are
called; equal sub-aggregates, also those of one query, are one word of the entry. **Not shared** are the tables of
queries whose keys stand in another order, whose pane is a multiple of another's, or whose predicate is written
differently: their entries would not be the same. Plans of single rows (`lowlevel.table.reducer`), which have no table,
share the evaluation of their keys and arguments in the same way.
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
    """One query of a shared table: the number of its plan, its plan, and where its columns stand in the table's."""

    number: int
    plan: LowLevelPlan
    places: tuple[int, ...]

    def partials(self, shared: pa.RecordBatch) -> pa.RecordBatch:
        """Return this query's view of a table's partials; the columns are the same memory."""
        return pa.RecordBatch.from_arrays([shared.column(place) for place in self.places], schema=self.plan.schema)


@dataclass(frozen=True, slots=True)
class SharedPlan:
    """What one table keeps, and for whom: `plan` has the sub-aggregates of all sharers.

    `feeder` is the place of the plan whose table can feed this one, None where only packets can.
    """

    plan: LowLevelPlan
    sharers: tuple[Sharer, ...]
    feeder: int | None = None

    def handed_out(self, batch: pa.RecordBatch) -> Iterator[tuple[int, Item]]:
        """Yield a batch of the table's partials as those of every sharer, with the number of its plan."""
        for sharer in self.sharers:
            yield sharer.number, batch if sharer.plan is self.plan else sharer.partials(batch)


def identity(plan: LowLevelPlan) -> LowLevelPlan:
    """Return what plans of one table have in common: all but the names of keys, and the sub-aggregates."""
    keys = tuple(replace(key, name=str(place)) for place, key in enumerate(plan.keys))
    return replace(plan, keys=keys, subaggregates=())


def share(plans: Sequence[LowLevelPlan], feeding: bool = True) -> list[SharedPlan]:
    """Group plans by the table they can share, each with its number; sharers are in the order of plans.

    Groups are in that order too, but with `feeding` all behind those that can feed them.
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
    """Let tables of one link whose predicate is the same ask one condition, which tests each batch of rows once."""
    known: dict[tuple[str, FixedRates | None, Expression], Condition] = {}
    for query in tables:
        plan = query.plan
        if plan.where is not None and query.where is not None:
            query.where = known.setdefault((plan.kind, plan.sampling, plan.where), query.where)
