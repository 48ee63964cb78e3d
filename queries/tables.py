"""What stands in FROM, as it is written: streams, unions, merges, queries in parentheses, and how they are joined.

    stream     Main1, Main1.flows, packets, or the name of a query
    union      stream UNION stream …
    merge      (MERGE a.ts : b.ts FROM Main1 a, Main2 b)
    query      (SELECT …)

Names are not looked up here: whether one is a link or a query is known where the query is compiled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from highlevel.joins.spec import JoinKind
from queries.tokens import Token

if TYPE_CHECKING:
    from queries.clauses import Clause, Clauses


@dataclass(frozen=True, slots=True)
class StreamName:
    """A name, and the kind of rows behind its dot, in lower case; None where none is written."""

    token: Token
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class UnionOf:
    """Tables with UNION between them."""

    parts: tuple[Table, ...]


@dataclass(frozen=True, slots=True)
class MergeOf:
    """Items that are merged by `times`: (the item's name, its column); `keyword` is MERGE."""

    keyword: Token
    times: tuple[tuple[Token, Token], ...]
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Nested:
    """A query in parentheses."""

    query: Clauses


Table = StreamName | UnionOf | MergeOf | Nested
"""Every kind of table."""


@dataclass(frozen=True, slots=True)
class Join:
    """How an item is joined: `place` is the first token that says so, `on` the condition behind ON, if any.

    `by_where` is set of Gigascope's spelling, where WHERE may hold the condition of an outer join.
    """

    kind: JoinKind
    place: Token
    on: Clause | None = None
    by_where: bool = False


@dataclass(frozen=True, slots=True)
class Item:
    """One item of FROM: its table, its name where it is given one, and its window with the brackets.

    `place` is its first token; `join` is None for the first item.
    """

    table: Table
    place: Token
    alias: Token | None = None
    window: tuple[Token, ...] = ()
    join: Join | None = None


def first_token(table: Table) -> Token:
    """Return the token that messages about a table point at."""
    match table:
        case StreamName(token=token):
            return token
        case UnionOf(parts=parts):
            return first_token(parts[0])
        case MergeOf(keyword=keyword):
            return keyword
        case Nested(query=query):
            return query.select.keyword


def streams_of(table: Table) -> list[StreamName] | None:
    """Return the names that a table is the union of; None where there is more to it.

    A merge is the union of what it merges: the rows are the same, and none waits for another.
    """
    match table:
        case StreamName():
            return [table]
        case UnionOf(parts=parts):
            tables = parts
        case MergeOf(items=items):
            tables = tuple(item.table for item in items)
        case _:
            return None
    found: list[StreamName] = []
    for each in tables:
        streams = streams_of(each)
        if streams is None:
            return None
        found += streams
    return found


def name_of(item: Item) -> str | None:
    """Return the name of an item: that which it is given, or that of its one stream; None for other tables."""
    if item.alias is not None:
        return item.alias.text
    return item.table.token.text if isinstance(item.table, StreamName) else None
