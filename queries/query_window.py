"""The window of a query's groups, wherever it is said, and the column of time that it is over.

[RANGE 1 minute, WA ts]    [RANGE 1 minute, WA M1.ts]    [RANGE 1 hour, WA window_end]    TUMBLE(S.ts, …)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from queries.clauses import Clause, Clauses
from queries.errors import QueryError
from queries.everyday_windows import cut_call, read_call
from queries.tokens import Kind, Token
from queries.window_clause import WindowClause, read_window_clause

ATTRIBUTES = ("WA", "WATTR", "RATTR")
"""Parameters whose value is a column of time."""

TS = "ts"

Attribute = tuple[Token | None, Token]
"""A column as it is written: the table before the dot, if any, and its name."""


@dataclass(frozen=True, slots=True)
class QueryWindow:
    """`clause` is what the query says; `attribute` the column of time it names, None where it names none.

    `name` is what GROUP BY calls the window, and `group_by` what is left of that clause.
    """

    clause: WindowClause
    attribute: Attribute | None
    name: Token | None
    group_by: Clause | None


def query_window(clauses: Clauses, of_links: bool) -> QueryWindow:
    """Read the window of a query; rows `of_links` have ts alone, those of other tables any column of time."""
    sql, group_by = clauses.sql, clauses.group_by
    window, attribute, name = WindowClause(), None, None
    if clauses.window:
        inside, attribute = _take_attribute(clauses.window[1:-1], of_links)
        window = read_window_clause(sql, inside, clauses.window[-1])
    if group_by is not None:
        others, call = cut_call(sql, group_by.tokens)
        if call:
            if clauses.window:
                raise QueryError("a second window, in GROUP BY", sql, call[0].start, "one window for the query")
            call, attribute = _take_argument(call, of_links)
            kind, name = read_call(sql, call)
            window = WindowClause(kind)
            group_by = Clause(group_by.keyword, others, group_by.end) if others else None
    return QueryWindow(window, attribute, name, group_by)


def _take_attribute(tokens: Sequence[Token], of_links: bool) -> tuple[tuple[Token, ...], Attribute | None]:
    """Put `ts` in place of the column behind WA, and return that."""
    for at, token in enumerate(tokens):
        if token.keyword in ATTRIBUTES:
            found = _attribute(tokens[at + 1 : at + 4], of_links)
            if found is not None:
                behind = at + (4 if found[0] else 2)
                return (*tokens[: at + 1], replace(found[1], text=TS), *tokens[behind:]), found
    return tuple(tokens), None


def _take_argument(call: tuple[Token, ...], of_links: bool) -> tuple[tuple[Token, ...], Attribute | None]:
    """Put `ts` in place of the first argument of TUMBLE, HOP or SESSION, and return that."""
    found = _attribute(call[2:5], of_links)
    if found is None:
        return call, None
    return (*call[:2], replace(found[1], text=TS), *call[5 if found[0] else 3 :]), found


def _attribute(tokens: Sequence[Token], of_links: bool) -> Attribute | None:
    """Read `name` or `table.name`; None for what has a meaning of its own, as numbers of rows and `ts` have."""
    words = [token for token in tokens if token.kind in (Kind.WORD, Kind.QUOTED)]
    if not words or tokens[0] is not words[0]:
        return None
    if len(tokens) == 3 and tokens[1].keyword == "." and tokens[2] is words[-1]:
        return tokens[0], tokens[2]
    numbered = tokens[0].text.lower() in ("row", "seq", "row_num", "seq_num", "rank")
    return None if of_links or numbered else (None, tokens[0])
