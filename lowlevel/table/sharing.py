"""Shared tables: queries with the same groups use one table, with the union of their sub-aggregates.

    a: … WHERE w GROUP BY x, y: count(*)          table of w, (x, y), pane p:   a: pane, x, y, s0
    b: … WHERE w GROUP BY x, y: sum(len), count(*)      count(*), sum(len)      b: pane, x, y, s1, s0

So a packet updates one entry for all these queries. Each query receives its columns of the table's partials, under its
own names and without a copy. The high level does not see that tables are shared.

Queries share a table if their rows, keys in order, panes and spreading are equal (`identity`). Names of columns may
differ. Equal sub-aggregates, even in one query, share one word of the entry.

Queries that differ only in the constant of `column = constant` share a table too. The column is an additional key of
the table (`lowlevel.table.constants`).

Queries do **not** share a table if their keys have different orders, if their panes have different lengths, or if their
predicates are written differently. But a table can feed another table with fewer keys, another order, or longer panes
(`lowlevel.table.feeding`). Plans of single rows (`lowlevel.table.reducer`) have no table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.flows.sampling import FixedRates
from capture.lazy_dataclasses import dataclass
from lowlevel.expressions.address_constants import WIDTH, Address
from lowlevel.expressions.equality_index import MIN_CONSTANTS, Constant, EqualityIndex
from lowlevel.expressions.predicate import Condition
from lowlevel.expressions.tree import Column, Expression
from lowlevel.plan import LowLevelPlan
from lowlevel.punctuation import Item
from lowlevel.subaggregates import Kind, SubAggregate
from lowlevel.table.constants import find_constant_tables
from lowlevel.table.feeding import Function, count_feeders, find_feeders, function_of, widen
from lowlevel.table.reducer import QueryReducer


@dataclass(frozen=True, slots=True)
class Sharer:
    """One query of a shared table: the index of its plan, its plan, and its columns in the partials of the table.

    `constant`: the value of the first key in the partials of this query; None if all partials are of this query.
    """

    index: int
    plan: LowLevelPlan
    columns: tuple[int, ...]
    constant: Constant | None = None

    def partials(self, shared: pa.RecordBatch) -> pa.RecordBatch:
        """Return this query's columns of the table's partials, without a copy."""
        return pa.RecordBatch.from_arrays([shared.column(column) for column in self.columns], schema=self.plan.schema)


@dataclass(frozen=True, slots=True)
class SharedPlan:
    """The plan of one table, and the queries that share the table.

    * `plan`: has the sub-aggregates of all these queries.
    * `feeder`: index of the shared plan whose table feeds this table; None if packets update it.
    * `compared`: the column whose constants divide the partials among the queries, or None.
    """

    plan: LowLevelPlan
    sharers: tuple[Sharer, ...]
    feeder: int | None = None
    compared: Column | None = None


class SharedTable:
    """The table of a shared plan. It divides its partials among the queries. Not thread safe."""

    def __init__(self, shared: SharedPlan, reducer: QueryReducer) -> None:
        self.shared = shared
        self.reducer = reducer
        self._by_constant: dict[int | bytes, list[Sharer]] = {}
        if shared.compared is not None:
            for sharer in shared.sharers:
                assert sharer.constant is not None
                self._by_constant.setdefault(_value_of(sharer.constant), []).append(sharer)
            functions = [function_of(sub) for sub in shared.plan.subaggregates]
            self._count_column = 2 + len(shared.plan.keys) + functions.index(ROWS)
        self._rows_written: Counter[int] = Counter()  # rows in partials, by the index of the plan
        self._all_rows_written = 0

    def divide(self, batch: pa.RecordBatch) -> Iterator[tuple[int, Item]]:
        """Yield the index of each query's plan and the query's partials in a batch of the table."""
        shared = self.shared
        if shared.compared is not None:
            yield from self._divide_by_constant(batch)
            return
        for sharer in shared.sharers:
            yield sharer.index, batch if sharer.plan is shared.plan else sharer.partials(batch)

    def _divide_by_constant(self, batch: pa.RecordBatch) -> Iterator[tuple[int, Item]]:
        encoded = pc.dictionary_encode(batch.column(FIRST_KEY))
        codes = encoded.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        ordered = batch.take(pc.array_of(order))
        counts = ordered.column(self._count_column).to_numpy()
        values = encoded.dictionary.to_pylist()
        bounds = np.searchsorted(codes[order], np.arange(len(values) + 1)).tolist()
        for value_index, value in enumerate(values):
            begin, end = bounds[value_index], bounds[value_index + 1]
            partials = ordered.slice(begin, end - begin)
            rows = int(counts[begin:end].sum())
            self._all_rows_written += rows
            for sharer in self._by_constant[value]:
                self._rows_written[sharer.index] += rows
                yield sharer.index, sharer.partials(partials)

    def accepted(self, index: int) -> int:
        """Return the number of rows that pass the WHERE of a plan.

        If constants divide the partials, rows whose entries are still in the table are not counted.
        """
        return self.reducer.accepted if self.shared.compared is None else self._rows_written[index]

    def filtered(self, index: int) -> int:
        """Return the number of rows that do not pass the WHERE of a plan."""
        others = 0 if self.shared.compared is None else self._all_rows_written - self._rows_written[index]
        return self.reducer.filtered + others


FIRST_KEY = 2
"""Index of the first key column in partials, after the link and the pane."""

ROWS: Function = (Kind.COUNT, None)
"""The sub-aggregate that counts rows."""


def _value_of(constant: Constant) -> int | bytes:
    """Return a constant as a value of a column of partials."""
    return constant.value.to_bytes(WIDTH[constant.version] // 8, "big") if isinstance(constant, Address) else constant


CACHED_PLAN_LISTS = 4
"""Number of lists of plans for which the shared plans are cached."""


def identity(plan: LowLevelPlan) -> LowLevelPlan:
    """Return a plan without names of keys and without sub-aggregates.

    The results are equal for plans that can share a table.
    """
    keys = tuple(replace(key, name=str(index)) for index, key in enumerate(plan.keys))
    return replace(plan, keys=keys, subaggregates=())


def share(plans: Sequence[LowLevelPlan], feeding: bool = True) -> tuple[SharedPlan, ...]:
    """Return the shared plans, one for each table, in the order of their first query in `plans`.

    With `feeding`, tables may feed other tables. A shared plan is always after the shared plan that feeds it.
    """
    return _share(tuple(plans), feeding)


@lru_cache(CACHED_PLAN_LISTS)  # every file and every thread of a run has the same plans
def _share(plans: tuple[LowLevelPlan, ...], feeding: bool) -> tuple[SharedPlan, ...]:
    groups: dict[LowLevelPlan, list[int]] = {}
    for index, plan in enumerate(plans):
        groups.setdefault(identity(plan), []).append(index)
    tables = [_merge_plans(shared, indexes, plans) for shared, indexes in groups.items()]
    tables = _merge_constants(tables)
    if not feeding:
        return tuple(tables)
    widened = widen([shared.plan for shared in tables])
    tables = [replace(shared, plan=plan) for shared, plan in zip(tables, widened, strict=True)]
    feeder_of = find_feeders(widened)
    order = sorted(range(len(tables)), key=lambda index: count_feeders(index, feeder_of))
    new_indexes: dict[int | None, int] = {index: new_index for new_index, index in enumerate(order)}
    return tuple(replace(tables[index], feeder=new_indexes.get(feeder_of[index])) for index in order)


def _merge_plans(shared: LowLevelPlan, indexes: list[int], plans: Sequence[LowLevelPlan]) -> SharedPlan:
    """Return `shared` with the sub-aggregates of the plans at `indexes`."""
    words: dict[Function, int] = {}
    for index in indexes:
        for sub in plans[index].subaggregates:
            words.setdefault(function_of(sub), len(words))
    fixed = 2 + len(shared.keys)  # link, pane and the keys
    sharers = []
    for index in indexes:
        plan = plans[index]
        words_of_plan = [fixed + words[function_of(sub)] for sub in plan.subaggregates]
        sharers.append(Sharer(index, plan, (*range(fixed), *words_of_plan)))
    if len(indexes) == 1 and len(words) == len(plan.subaggregates):
        return SharedPlan(plan, tuple(sharers))
    subaggregates = tuple(SubAggregate(f"s{word}", *function) for function, word in words.items())
    return SharedPlan(replace(shared, subaggregates=subaggregates), tuple(sharers))


def _merge_constants(tables: Sequence[SharedPlan]) -> list[SharedPlan]:
    """Replace each set of shared plans that differ in a constant by one shared plan, at the index of the first."""
    constant_tables = find_constant_tables([shared.plan for shared in tables])
    table_of = {index: constant_table for constant_table in constant_tables for index in constant_table.constants}
    merged_plans = []
    for index, shared in enumerate(tables):
        constant_table = table_of.get(index)
        if constant_table is None:
            merged_plans.append(shared)
        elif index == min(constant_table.constants):
            sharers = [
                replace(sharer, columns=_after_first_key(sharer.columns), constant=constant)
                for other, constant in constant_table.constants.items()
                for sharer in tables[other].sharers
            ]
            plan = constant_table.plan
            if ROWS not in map(function_of, plan.subaggregates):  # to count the rows of each query
                plan = replace(plan, subaggregates=(*plan.subaggregates, SubAggregate("rows", *ROWS)))
            merged_plans.append(SharedPlan(plan, tuple(sharers), compared=constant_table.column))
    return merged_plans


def _after_first_key(columns: tuple[int, ...]) -> tuple[int, ...]:
    """Return the indexes of columns after the insertion of a further first key."""
    return tuple(column + 1 if column >= FIRST_KEY else column for column in columns)


def share_conditions(tables: Iterable[QueryReducer]) -> None:
    """Make queries with equal rows and predicate use one condition, so that each batch of rows is tested once.

    Conditions that differ in the constant of `column = constant` share an index of the column.
    """
    conditions: dict[tuple[str, FixedRates | None, Expression], Condition] = {}
    for query in tables:
        plan = query.plan
        if plan.where is not None and query.where is not None:
            query.where = conditions.setdefault((plan.kind, plan.sampling, plan.where), query.where)
    conditions_by_rows: dict[tuple[str, FixedRates | None], list[Condition]] = {}
    for (kind, sampling, _), condition in conditions.items():
        conditions_by_rows.setdefault((kind, sampling), []).append(condition)
    for same_rows in conditions_by_rows.values():
        _share_indexes(same_rows)


def _share_indexes(conditions: Sequence[Condition]) -> None:
    """Make an index of each column that is compared with enough constants. A condition uses one index."""
    constants: dict[Column, set[Constant]] = {}
    for condition in conditions:
        for _, (column, constant) in condition.equalities:
            constants.setdefault(column, set()).add(constant)
    indexes = {
        column: EqualityIndex(column, values) for column, values in constants.items() if len(values) >= MIN_CONSTANTS
    }
    for condition in conditions:
        columns = [column for _, (column, _) in condition.equalities if column in indexes]
        if columns:  # the column with most constants, because its rows are probably the fewest
            condition.use_index(indexes[max(columns, key=lambda column: len(constants[column]))])
