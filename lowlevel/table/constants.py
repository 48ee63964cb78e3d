"""One table for all queries that differ only in a constant. The compared column is an additional key of the table.

    … WHERE protocol = 6 AND destPort = 22 GROUP BY srcIP       … WHERE protocol = 6 AND destPort IN (22, 80, 443)
    … WHERE protocol = 6 AND destPort = 80 GROUP BY srcIP       GROUP BY destPort, srcIP
    … WHERE protocol = 6 AND destPort = 443 GROUP BY srcIP

So a packet updates one entry, and its row is tested once, for any number of queries. The entries of a constant are the
entries of its query. A thousand separate tables, with one kernel call per table and block, cost forty times as much.

This module finds such plans. `lowlevel.table.sharing` makes their table, and divides its partials among the queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce

from capture.lazy_dataclasses import dataclass
from lowlevel.expressions.equality_index import MIN_CONSTANTS, Constant, equality_of
from lowlevel.expressions.predicate import conjuncts
from lowlevel.expressions.tree import Binary, Column, Expression, InList, Literal
from lowlevel.expressions.types import Op
from lowlevel.plan import Key, LowLevelPlan

COMPARED_KEY = "compared column"
"""Name of the additional key. In a query, a column can have this name only in quotes."""

MAX_CONSTANTS = 65_536
"""Maximum number of queries of one table."""


@dataclass(frozen=True, slots=True)
class ConstantTable:
    """A table for plans that compare `column` with a constant.

    * `plan`: the plan of the table. Its first key is `column`.
    * `constants`: constants by the index of the plan.
    """

    plan: LowLevelPlan
    column: Column
    constants: dict[int, Constant]


@dataclass(frozen=True)
class _Template:
    """A plan without the constant of one comparison. Plans with equal templates differ only in this constant."""

    plan: LowLevelPlan
    column: Column
    other_conditions: tuple[Expression, ...]


def find_constant_tables(plans: Sequence[LowLevelPlan]) -> list[ConstantTable]:
    """Return the tables for plans that differ in a constant. A plan is in at most one table.

    The plans of a table have equal keys and sub-aggregates in equal order. Their names may differ.
    """
    templates: dict[_Template, dict[int, Literal]] = {}
    for index, plan in enumerate(plans):
        for template, literal in _templates(plan):
            templates.setdefault(template, {})[index] = literal
    tables: list[ConstantTable] = []
    plans_with_table: set[int] = set()
    # A plan with several comparisons is in the table with most queries.
    for template, literals in sorted(templates.items(), key=lambda item: -len(item[1])):
        unassigned = {index: literal for index, literal in literals.items() if index not in plans_with_table}
        distinct = list(dict.fromkeys(unassigned.values()))
        if MIN_CONSTANTS <= len(distinct) <= MAX_CONSTANTS:
            plans_with_table.update(unassigned)
            tables.append(_make_table(template, unassigned, distinct))
    return tables


def _templates(plan: LowLevelPlan) -> Iterator[tuple[_Template, Literal]]:
    """Yield the template of each comparison with a constant, and the constant."""
    if plan.where is None or not plan.reduced or plan.depends_on_earlier_rows or plan.calls_user_functions:
        return
    conditions = tuple(conjuncts(plan.where))
    for condition in conditions:
        equality = equality_of(condition)
        if equality is not None:
            assert isinstance(condition, Binary)
            assert isinstance(condition.right, Literal)
            others = tuple(other for other in conditions if other != condition)
            yield _Template(_without_names(plan), equality[0], others), condition.right


def _without_names(plan: LowLevelPlan) -> LowLevelPlan:
    """Return the plan without WHERE, and with numbers as the names of keys and sub-aggregates."""
    keys = tuple(replace(key, name=f"k{number}") for number, key in enumerate(plan.keys))
    subaggregates = tuple(replace(sub, name=f"s{number}") for number, sub in enumerate(plan.subaggregates))
    return replace(plan, where=None, keys=keys, subaggregates=subaggregates)


def _make_table(template: _Template, literals: dict[int, Literal], distinct: list[Literal]) -> ConstantTable:
    column = template.column
    where = reduce(
        lambda left, right: Binary(Op.AND, left, right), [*template.other_conditions, InList(column, tuple(distinct))]
    )
    keys = (Key(COMPARED_KEY, column), *template.plan.keys)
    constants: dict[int, Constant] = {}
    for index, literal in literals.items():
        equality = equality_of(Binary(Op.EQ, column, literal))
        assert equality is not None
        constants[index] = equality[1]
    return ConstantTable(replace(template.plan, where=where, keys=keys), column, constants)
