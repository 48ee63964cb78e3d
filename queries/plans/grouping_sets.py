"""GROUPING SETS, ROLLUP and CUBE: one query for each grouping set, joined by UNION ALL.

    GROUP BY ROLLUP (a, b)    SELECT a, b, count(*) … GROUP BY a, b
                              UNION ALL SELECT a, NULL, count(*) … GROUP BY a
                              UNION ALL SELECT NULL, NULL, count(*) …

The queries share the scan, and coarse tables are fed from finer ones (`lowlevel.table.feeding`).
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

from lowlevel.expressions.types import Op
from queries.text.lexer import Kind
from queries.text.tree import (
    Call,
    Condition,
    Constant,
    Expression,
    FromItem,
    GroupingSet,
    Name,
    Null,
    Operation,
    Query,
    SelectItem,
    SetOperation,
    SetOperator,
    Star,
    Word,
)

GROUPING = "grouping"
"""The function that returns 1 for a column that is not in the grouping set of the row, otherwise 0."""


def without_grouping_sets(query: Query) -> Query:
    """Return a query without grouping sets that has the same rows, in the order of ORDER BY."""
    assert query.grouping_sets is not None
    sets = query.grouping_sets.sets
    inner = replace(query, grouping_sets=None, order=None)
    ordered = sorted(sets, key=lambda chosen: -len(chosen))  # the first query has the most names of columns
    keys = {_key(query, item) for chosen in sets for item in chosen}
    queries = tuple(_grouped(inner, chosen, keys) for chosen in ordered)
    if len(queries) == 1:
        return replace(queries[0], order=query.order)
    operation = SetOperation(SetOperator.UNION_ALL, (query.grouping_sets.keyword,) * (len(queries) - 1), queries)
    start = query.keyword.start
    return Query(query.sql, query.keyword, (SelectItem(Star(start)),), (FromItem(operation, start),), order=query.order)


def _key(query: Query, item: SelectItem) -> Expression:
    """Return what an item groups by. A number is the position of an item in SELECT."""
    expression = item.expression
    if isinstance(expression, Constant) and expression.kind is Kind.NUMBER and expression.text.isdigit():
        position = int(expression.text)
        if 1 <= position <= len(query.select):
            return query.select[position - 1].expression
    return expression


def _grouped(query: Query, chosen: GroupingSet, keys: set[Expression]) -> Query:
    present = {_key(query, item) for item in chosen}
    missing = keys - present
    select = tuple(_selected(item, present, missing) for item in query.select)
    having = query.having
    if having is not None:
        having = replace(having, expression=_with_grouping(having.expression, present, missing))
    if not chosen:  # without an aggregate the query would select rows
        start = query.keyword.start
        positive = _count_is_positive(start)
        both = positive if having is None else Operation(Op.AND, (having.expression, positive), start)
        having = Condition(Word("HAVING", start), both)
    # Positions would refer to items that are NULL now.
    group_by = tuple(replace(item, expression=_key(query, item)) for item in chosen)
    return replace(query, select=select, group_by=group_by, having=having)


def _count_is_positive(start: int) -> Expression:
    """Return `count(*) > 0`, which is true for every group, at the position `start`."""
    count = Call(Word("count", start), (Star(start),))
    return Operation(Op.GT, (count, Constant(Kind.NUMBER, "0", start)), start)


def _selected(item: SelectItem, present: set[Expression], missing: set[Expression]) -> SelectItem:
    by_alias = item.alias is not None and Name(replace(item.alias, quoted=False)) in missing
    if item.expression not in missing and not by_alias:
        return replace(item, expression=_with_grouping(item.expression, present, missing))
    alias = item.alias
    if alias is None and isinstance(item.expression, Name):
        alias = item.expression.word
    return SelectItem(Null(item.start), alias)


def _with_grouping(expression: Expression, present: set[Expression], missing: set[Expression]) -> Expression:
    """Return an expression with constants in place of calls of `grouping`."""
    return cast(Expression, _replaced(expression, present, missing))


def _replaced(node: Any, present: set[Expression], missing: set[Expression]) -> Any:
    if isinstance(node, tuple):
        return tuple(_replaced(member, present, missing) for member in node)
    if not is_dataclass(node) or isinstance(node, Word | Query):
        return node
    if isinstance(node, Call) and node.function.text.lower() == GROUPING and len(node.arguments) == 1:
        argument = node.arguments[0]
        if argument in present or argument in missing:
            return Constant(Kind.NUMBER, str(int(argument in missing)), node.function.start)
    values = {field.name: getattr(node, field.name) for field in fields(node)}
    changed = {name: new for name, old in values.items() if (new := _replaced(old, present, missing)) is not old}
    return replace(node, **changed) if changed else node
