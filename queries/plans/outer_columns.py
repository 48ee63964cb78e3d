"""Find the columns of an outer query to which a sub-query in one of its expressions refers.

    SELECT … FROM packets p WHERE EXISTS (SELECT … FROM packets q WHERE q.srcIP = p.destIP)

Such a column is written with the name of its item in FROM, here `p`; no item of the sub-query may have this name. It
must be in WHERE of the sub-query itself, not in a query within the sub-query.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from capture.lazy_dataclasses import field_names
from lowlevel.kinds import KINDS
from lowlevel.layers import Layer
from queries.text import tree
from queries.text.errors import QueryError


def parts_of(root: Any, skip: type | None = None) -> Iterator[Any]:
    """Yield a node of a syntax tree and its descendants, without the descendants of other nodes of type `skip`."""
    pending: list[Any] = [root]
    while pending:
        node = pending.pop()
        yield node
        if skip is not None and isinstance(node, skip) and node is not root:
            continue
        if isinstance(node, tuple):
            pending += node
        else:
            pending += [getattr(node, name) for name in field_names(type(node))]


def subqueries_of(query: tree.Query) -> list[tree.ScalarQuery | tree.Exists]:
    """Return the sub-queries in the expressions of a query, without nested sub-queries."""
    return [node for node in parts_of(query, skip=tree.Query) if isinstance(node, tree.ScalarQuery | tree.Exists)]


def item_names(query: tree.Query) -> frozenset[str]:
    """Return the names of the items of FROM in lower case, without kinds of rows and layers."""
    names: set[str] = set()
    for item in query.tables:
        if item.alias is not None:
            names.add(item.alias.text.lower())
        else:
            names.update(node.word.text.lower() for node in parts_of(item.table) if isinstance(node, tree.Stream))
    return frozenset(names - set(KINDS) - set(Layer))


def names_of(root: Any, tables: frozenset[str]) -> Iterator[tree.Name]:
    """Yield the columns of `tables` in a part of a syntax tree, including its sub-queries."""
    for node in parts_of(root, skip=tree.Query):
        match node:
            case tree.Query() if node is not root:
                yield from names_of(node, tables - item_names(node))
            case tree.Name(table=tree.Word() as table) if table.text.lower() in tables:
                yield node


def is_correlated(query: tree.Query, outer_names: frozenset[str]) -> bool:
    """Return whether a sub-query refers to columns of the outer query. `outer_names` are the names of the outer items.

    Raises QueryError for such a column outside WHERE of the sub-query, and in a query within the sub-query.
    """
    where = None if query.where is None else query.where.expression
    direct = {id(node) for node in parts_of(query, skip=tree.Query)}
    allowed = {id(node) for node in parts_of(where, skip=tree.Query)}
    names = sorted(names_of(query, outer_names - item_names(query)), key=lambda name: name.start)
    for name in names:
        if id(name) in allowed:
            continue
        assert name.table is not None
        qualified_name = f"'{name.table.text}.{name.word.text}'"
        if id(name) in direct:
            problem = f"{qualified_name}, a column of the outer query, outside WHERE of the sub-query"
            expected = "such columns in WHERE of the sub-query only"
        else:
            problem = f"{qualified_name}, a column of a query two levels outside"
            expected = "columns of the directly outer query; that query may select it"
        raise QueryError(problem, query.sql, name.start, expected)
    return bool(names)
