"""GROUPING SETS, ROLLUP and CUBE: one query for each grouping set, joined by UNION ALL.

    GROUP BY ROLLUP (a, b)    SELECT a, b, count(*) … GROUP BY a, b
                              UNION ALL SELECT a, NULL, count(*) … GROUP BY a
                              UNION ALL SELECT NULL, NULL, count(*) …

The queries share the scan of the input, and coarse tables are computed from finer tables (`lowlevel.table.feeding`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

from lowlevel.expressions.types import Op
from queries.binding.binder import compares_groups, known_aggregates
from queries.text.errors import QueryError
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
    Over,
    Query,
    SelectItem,
    SetOperation,
    SetOperator,
    Star,
    Word,
    calls_in,
)

GROUPING = "grouping"
"""The function that returns 1 for a column that is not in the grouping set of the row, otherwise 0."""


def without_grouping_sets(query: Query) -> Query:
    """Return an equivalent query without grouping sets."""
    assert query.grouping_sets is not None
    sets = query.grouping_sets.sets
    _check(query, {_key(query, item) for chosen in sets for item in chosen})
    inner = replace(query, grouping_sets=None, order=None)
    ordered = sorted(sets, key=lambda chosen: -len(chosen))  # first the query that has most column names
    keys = {_key(query, item) for chosen in sets for item in chosen}
    queries = tuple(_query_of_set(inner, chosen, keys) for chosen in ordered)
    if len(queries) == 1:
        return replace(queries[0], order=query.order)
    operation = SetOperation(SetOperator.UNION_ALL, (query.grouping_sets.keyword,) * (len(queries) - 1), queries)
    start = query.keyword.start
    return Query(query.sql, query.keyword, (SelectItem(Star(start)),), (FromItem(operation, start),), order=query.order)


def _check(query: Query, keys: set[Expression]) -> None:
    """Raise QueryError for expressions over columns, and for clauses that are computed for each set separately."""
    assert query.grouping_sets is not None
    clause = query.grouping_sets.keyword.text.upper().replace("GROUPING", "GROUPING SETS")
    expressions = [item.expression for item in query.select]
    expressions += [] if query.having is None else [query.having.expression]
    for expression in expressions:
        for call in calls_in(expression):
            if compares_groups(call):
                problem = f"{call.function.text} in a query with {clause}"
                raise QueryError(problem, query.sql, call.start, "it in a query that reads this one")
        over = next((node for node in _nodes_in(expression) if isinstance(node, Over)), None)
        if over is not None:
            problem = f"OVER in a query with {clause}"
            raise QueryError(problem, query.sql, over.start, "OVER in a query that reads this one")
        inner = next(_columns_within(expression, keys), None)
        if inner is not None:
            expected = f"{inner.word.text} as an item of SELECT, and the expression in a query that reads this one"
            raise QueryError(
                f"an expression over '{inner.word.text}', a column of {clause}", query.sql, inner.start, expected
            )
    for item in () if query.order is None else query.order.items:
        if isinstance(item.expression, Name | Constant):  # of the result
            continue
        expected = "the name of an item of SELECT; AS gives an expression a name"
        raise QueryError(f"ORDER BY an expression in a query with {clause}", query.sql, item.expression.start, expected)


def _nodes_in(node: object) -> Iterator[object]:
    """Yield a tree and all its parts, without the parts of inner queries."""
    yield node
    members = node if isinstance(node, tuple) else ()
    if is_dataclass(node) and not isinstance(node, Word | Query):
        members = tuple(getattr(node, field.name) for field in fields(node))
    for member in members:
        yield from _nodes_in(member)


def _columns_within(expression: Expression, keys: set[Expression]) -> Iterator[Name]:
    """Yield the grouping columns within a larger expression, outside aggregates."""
    if expression in keys or (isinstance(expression, Call) and expression.function.text.lower() == GROUPING):
        return
    if isinstance(expression, Call) and expression.function.text.lower() in known_aggregates():
        return
    for field in fields(expression):
        value = getattr(expression, field.name)
        for member in value if isinstance(value, tuple) else (value,):
            if isinstance(member, Name) and member in keys:
                yield member
            elif is_dataclass(member) and not isinstance(member, Word | Query):
                yield from _columns_within(cast(Expression, member), keys)


def _key(query: Query, item: SelectItem) -> Expression:
    """Return the expression of a GROUP BY item. A number is the position of an item in SELECT."""
    expression = item.expression
    if isinstance(expression, Constant) and expression.kind is Kind.NUMBER and expression.text.isdigit():
        position = int(expression.text)
        if 1 <= position <= len(query.select):
            return query.select[position - 1].expression
    return expression


def _query_of_set(query: Query, grouping_set: GroupingSet, keys: set[Expression]) -> Query:
    present = {_key(query, item) for item in grouping_set}
    missing = keys - present
    select = tuple(_item_of_set(item, present, missing) for item in query.select)
    having = query.having
    if having is not None:
        having = replace(having, expression=_with_grouping(having.expression, present, missing))
    if not grouping_set:  # otherwise the query might have no aggregate, and would select rows
        start = query.keyword.start
        positive = _count_is_positive(start)
        both = positive if having is None else Operation(Op.AND, (having.expression, positive), start)
        having = Condition(Word("HAVING", start), both)
    # Positions would refer to items that have become NULL.
    group_by = tuple(replace(item, expression=_key(query, item)) for item in grouping_set)
    return replace(query, select=select, group_by=group_by, having=having)


def _count_is_positive(start: int) -> Expression:
    """Return `count(*) > 0`, which is true for every group, at the position `start`."""
    count = Call(Word("count", start), (Star(start),))
    return Operation(Op.GT, (count, Constant(Kind.NUMBER, "0", start)), start)


def _item_of_set(item: SelectItem, present_keys: set[Expression], missing_keys: set[Expression]) -> SelectItem:
    by_alias = item.alias is not None and Name(replace(item.alias, quoted=False)) in missing_keys
    if item.expression not in missing_keys and not by_alias:
        return replace(item, expression=_with_grouping(item.expression, present_keys, missing_keys))
    alias = item.alias
    if alias is None and isinstance(item.expression, Name):
        alias = item.expression.word
    return SelectItem(Null(item.start), alias)


def _with_grouping(expression: Expression, present_keys: set[Expression], missing_keys: set[Expression]) -> Expression:
    """Replace the calls of `grouping` in an expression by constants."""
    return cast(Expression, _replace(expression, present_keys, missing_keys))


def _replace(node: Any, present_keys: set[Expression], missing_keys: set[Expression]) -> Any:
    if isinstance(node, tuple):
        return tuple(_replace(member, present_keys, missing_keys) for member in node)
    if not is_dataclass(node) or isinstance(node, Word | Query):
        return node
    if isinstance(node, Call) and node.function.text.lower() == GROUPING and len(node.arguments) == 1:
        argument = node.arguments[0]
        if argument in present_keys or argument in missing_keys:
            return Constant(Kind.NUMBER, str(int(argument in missing_keys)), node.function.start)
    values = {field.name: getattr(node, field.name) for field in fields(node)}
    changed = {
        name: new for name, old in values.items() if (new := _replace(old, present_keys, missing_keys)) is not old
    }
    return replace(node, **changed) if changed else node
