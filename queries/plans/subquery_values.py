"""Compute the sub-queries outside FROM first, and replace them by their values in the syntax tree.

    WHERE len > (SELECT avg(len) FROM packets)                    WHERE len > 412.5
    WHERE srcIP IN (SELECT srcIP FROM … HAVING count(*) > 100)    WHERE srcIP IN ('10.0.0.1', '10.0.0.9')
    WHERE EXISTS (SELECT ts FROM packets WHERE …)                 WHERE TRUE

A sub-query may read the earlier queries of WITH. The input is read once for each sub-query, and then for the query
itself. So inputs must be files, not live inputs. Correlated sub-queries, which refer to columns of the outer query, are
not replaced here: `queries.plans.correlated` converts them to joins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from capture.lazy_dataclasses import dataclass
from lowlevel.expressions.types import Type
from lowlevel.times import time_text
from queries.plans.outer_columns import is_correlated, item_names, parts_of
from queries.text import tree
from queries.text.errors import QueryError
from queries.text.lexer import Kind

MAX_VALUES = 100_000
"""Largest number of values of a sub-query after IN."""


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a sub-query with one column, without duplicates. Addresses are texts, times are ns.

    `rows` is the number of rows. If the first rows determine the value (`is_enough`), the other rows are not read.
    """

    type: Type
    values: Sequence[Any]
    rows: int


SubqueryRunner = Callable[[tree.Query, tree.Expression], Values]
"""A function that computes a query for the expression that contains it: ScalarQuery, In or Exists."""


def is_enough(node: tree.Expression, row_count: int, value_count: int) -> bool:
    """Return True if the rows that were read so far determine the value of a sub-query."""
    if isinstance(node, tree.In):
        return value_count > MAX_VALUES + 1  # 1 is added because one value may be NULL
    return row_count >= (1 if isinstance(node, tree.Exists) else 2)


def start_of(node: tree.Expression) -> int:
    """Return the position of the sub-query in an expression, for messages."""
    return node.values[0].start if isinstance(node, tree.In) else node.start


def has_subqueries(query: tree.Query) -> bool:
    """Return True if an expression of a query contains a sub-query."""
    return any(isinstance(node, tree.ScalarQuery | tree.Exists) for node in parts_of(query))


def with_values(query: tree.Query, run_subquery: SubqueryRunner) -> tree.Query:
    """Replace the sub-queries of a query by their values.

    Raises QueryError for a sub-query without exactly one value.
    """
    return _Replacement(run_subquery, ()).query(query)


@dataclass(frozen=True, slots=True)
class _Replacement:
    """Replaces sub-queries. `known` are the queries of WITH that they may read.

    `outer_items` are the items in FROM of the query that contains the expression.
    """

    run_subquery: SubqueryRunner
    known: tuple[tuple[tree.Word, tree.Query], ...]
    outer_items: frozenset[str] = frozenset()

    def query(self, query: tree.Query) -> tree.Query:
        """Return a query with values. Each query of WITH may read earlier queries of WITH."""
        known = list(self.known)
        named = []
        for word, inner in query.queries:
            named.append((word, _Replacement(self.run_subquery, tuple(known)).query(inner)))
            known.append(named[-1])
        inside = _Replacement(self.run_subquery, tuple(known), item_names(query))
        parts = {
            part.name: inside.replace_in(getattr(query, part.name)) for part in fields(query) if part.name != "queries"
        }
        return replace(query, queries=tuple(named), **parts)

    def replace_in(self, node: Any) -> Any:
        """Replace the sub-queries in a part of a syntax tree."""
        match node:
            case tree.Query():
                return self.query(node)
            case tree.ScalarQuery(query=query) | tree.Exists(query=query) if self._is_correlated(query):
                return replace(node, query=self.query(query))
            case tree.ScalarQuery():
                return self._scalar_value(node)
            case tree.Exists(query=query):
                exists = bool(self._run(query, node).values)
                return tree.Constant(Kind.WORD, str(exists).upper(), node.start)
            case tree.In(operand=operand, values=(tree.ScalarQuery() as values,)) if not self._is_correlated(
                values.query
            ):
                return self._member_list(self.replace_in(operand), values, node)
            case tuple():
                return tuple(map(self.replace_in, node))
            case _ if is_dataclass(node) and not isinstance(node, type):
                return replace(node, **{part.name: self.replace_in(getattr(node, part.name)) for part in fields(node)})
        return node

    def _is_correlated(self, query: tree.Query) -> bool:
        return is_correlated(query, self.outer_items)

    def _run(self, query: tree.Query, node: tree.Expression) -> Values:
        inner = self.query(query)
        return self.run_subquery(replace(inner, queries=(*self.known, *inner.queries)), node)

    def _scalar_value(self, node: tree.ScalarQuery) -> tree.Expression:
        answer = self._run(node.query, node)
        sql, start = node.query.sql, node.start
        if answer.rows > 1:
            expected = "one value: an aggregate such as max(len), or IN for several values"
            raise QueryError("a sub-query with several rows", sql, start, expected)
        if not answer.values:
            raise QueryError("a sub-query without rows", sql, start, "one value: nothing can be compared with no value")
        if answer.values[0] is None:
            raise QueryError(
                "a sub-query with the value NULL", sql, start, "a value, for example coalesce(max(vlan), 0)"
            )
        return _constant(sql, start, answer.values[0], answer.type)

    def _member_list(self, operand: tree.Expression, node: tree.ScalarQuery, list_: tree.In) -> tree.Expression:
        found, start = self._run(node.query, list_), list_.start
        values = [value for value in found.values if value is not None]
        if len(values) > MAX_VALUES:
            expected = "fewer values; a file of values and in_list() have no such limit"
            raise QueryError(
                f"a sub-query with more than {MAX_VALUES:,} values after IN", node.query.sql, node.start, expected
            )
        if not values:
            return tree.Constant(Kind.WORD, "FALSE", start)
        members = tuple(_constant(node.query.sql, node.start, value, found.type) for value in values)
        return tree.In(operand, members, start)


def streams_of(query: tree.Query) -> set[str]:
    """Return the names in FROM, also in sub-queries, that are not queries of WITH."""
    nodes = list(parts_of(query))
    named = {word.text.lower() for node in nodes if isinstance(node, tree.Query) for word, _ in node.queries}
    streams = {node.word.text for node in nodes if isinstance(node, tree.Stream)}
    return {name for name in streams if name.lower() not in named}


def _constant(sql: str, start: int, value: Any, type_: Type) -> tree.Constant:
    """Return a value as a literal at the position of its sub-query."""
    if type_ is Type.BOOL:
        return tree.Constant(Kind.WORD, str(value).upper(), start)
    if type_ is Type.TIME:
        return tree.Constant(Kind.TIME, time_text(value), start)
    if type_ in (Type.INT, Type.FLOAT):
        if value != value or abs(value) == float("inf"):
            raise QueryError(f"a sub-query with the value {value}", sql, start, "a finite number")
        negative = value < 0
        return tree.Constant(Kind.NUMBER, repr(abs(value)), start, negative, start if negative else None)
    return tree.Constant(Kind.STRING, str(value), start)
