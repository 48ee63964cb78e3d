"""The clauses of a query: its tokens cut at SELECT, FROM, WHERE, GROUP BY and HAVING, with FROM read.

The window clause stands where the papers print it: behind an item of the select list, or behind the streams of FROM.
It is taken out here, so that what is left of SELECT is plain SQL; items of a join have windows of their own. Whatever
SQL has and GSQL has not is named here, at its place in the text.

    WITH name AS (query), … query
    MERGE a.ts : b.ts FROM Main1 a, Main2 b        means SELECT * FROM (MERGE …)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from queries.errors import QueryError
from queries.from_clause import FromReader, begins_merge, window_within
from queries.reserved_words import RESERVED, UNSUPPORTED, unsupported
from queries.tables import Item
from queries.tokens import Kind, Token, closing, tokenise

CLAUSES = ("SELECT", "FROM", "WHERE", "GROUP BY", "HAVING")

MAX_QUERIES = 20
"""Queries within parentheses, at most."""


@dataclass(frozen=True, slots=True)
class Clause:
    """The tokens of one clause behind its keyword; `end` is the first token that no longer belongs to it."""

    keyword: Token
    tokens: tuple[Token, ...]
    end: Token


@dataclass(frozen=True, slots=True)
class Clauses:
    """A query cut into clauses; those that may be missing are None.

    `window` are the tokens of its window clause with the brackets, none where it has none. `distinct` is the word
    behind SELECT, and `queries` are those of WITH, by their names.
    """

    sql: str
    select: Clause
    tables: tuple[Item, ...]
    window: tuple[Token, ...] = ()
    where: Clause | None = None
    group_by: Clause | None = None
    having: Clause | None = None
    distinct: Token | None = None
    queries: tuple[tuple[Token, Clauses], ...] = ()

    @property
    def selects_all(self) -> bool:
        """Whether the select list is `*`."""
        return [token.keyword for token in self.select.tokens] == ["*"]


def read_clauses(sql: str) -> Clauses:
    """Cut `sql` into clauses. Raises `QueryError` for anything but one query with its clauses in order."""
    tokens = count_distinct(_one_statement(sql, tokenise(sql)))
    return _Reader(sql, 1).query(tokens[:-1], tokens[-1])


def count_distinct(tokens: list[Token]) -> list[Token]:
    """Read `count(DISTINCT x)` as `count_distinct(x)`."""
    kept: list[Token] = []
    for token in tokens:
        if token.keyword == "DISTINCT" and [each.keyword for each in kept[-2:]] == ["COUNT", "("]:
            kept[-2] = replace(kept[-2], text="count_distinct")
        else:
            kept.append(token)
    return kept


def _one_statement(sql: str, tokens: list[Token]) -> list[Token]:
    """Drop one semicolon at the end; refuse another."""
    if len(tokens) > 1 and tokens[-2].text == ";" and tokens[-2].kind is Kind.SYMBOL:
        tokens = [*tokens[:-2], Token(Kind.END, "", tokens[-2].start, tokens[-2].start)]
    for token in tokens:
        if token.keyword == ";":
            raise QueryError("several statements", sql, token.start, "one query")
    return tokens


class _Reader:
    """Reads queries that are `depth` deep in parentheses, this one included."""

    def __init__(self, sql: str, depth: int) -> None:
        self._sql = sql
        self._depth = depth

    def query(self, tokens: Sequence[Token], end: Token) -> Clauses:
        """Read a query, with WITH before it where it has that."""
        first = tokens[0] if tokens else end
        if self._depth > MAX_QUERIES:
            expected = f"at most {MAX_QUERIES} levels"
            raise QueryError("queries within each other too deeply", self._sql, first.start, expected)
        if first.keyword == "WITH":
            queries, behind = self._with(tokens, end)
            return replace(self.query(tokens[behind:], end), queries=queries)
        if first.keyword in UNSUPPORTED:
            raise unsupported(self._sql, UNSUPPORTED[first.keyword], first)
        if begins_merge(tokens):
            item = Item(self._from(tokens[1:], end).merge(first), first)
            star = Token(Kind.SYMBOL, "*", first.start, first.end)
            return Clauses(self._sql, Clause(first, (star,), end), (item,))
        if first.keyword != "SELECT":
            raise QueryError(f"got {first.shown}", self._sql, first.start, "SELECT")
        return self._clauses([*tokens, end])

    def _clauses(self, tokens: list[Token]) -> Clauses:
        sql, cut = self._sql, _cut(self._sql, tokens)
        if "FROM" not in cut:
            raise QueryError("the query has no FROM", sql, tokens[-1].start, "FROM and the names of streams")
        distinct, select = None, cut["SELECT"]
        if select.tokens and select.tokens[0].keyword == "DISTINCT":
            distinct, select = select.tokens[0], replace(select, tokens=select.tokens[1:])
        select, windows = _without_window(sql, "SELECT", select)
        for name in ("WHERE", "GROUP BY", "HAVING"):
            if name in cut:
                _without_window(sql, name, cut[name])
        tables = self._from(cut["FROM"].tokens, cut["FROM"].end).read()
        if len(tables) == 1 and tables[0].window:
            windows.append(tables[0].window)
            tables = (replace(tables[0], window=()),)
        if len(windows) > 1:
            raise QueryError("a second window clause", sql, windows[1][0].start, "one window clause for the query")
        return Clauses(
            sql,
            select,
            tables,
            windows[0] if windows else (),
            cut.get("WHERE"),
            cut.get("GROUP BY"),
            cut.get("HAVING"),
            distinct,
        )

    def _with(self, tokens: Sequence[Token], end: Token) -> tuple[tuple[tuple[Token, Clauses], ...], int]:
        """Read `WITH name AS (query), …`; returns the queries and where the last of them ends."""
        queries: list[tuple[Token, Clauses]] = []
        behind = [*tokens, end, end, end]
        at = 0
        while True:
            name, as_, opening = behind[at + 1 : at + 4]
            if name.kind not in (Kind.WORD, Kind.QUOTED) or name.keyword in RESERVED or not name.text:
                raise QueryError(f"got {name.shown} in WITH", self._sql, name.start, "the name of a query")
            if as_.keyword != "AS" or opening.keyword != "(":
                wrong = as_ if as_.keyword != "AS" else opening
                raise QueryError(f"got {wrong.shown} in WITH", self._sql, wrong.start, "AS and a query in parentheses")
            close = closing(self._sql, tokens, at + 3)
            queries.append((name, _Reader(self._sql, self._depth + 1).query(tokens[at + 4 : close], tokens[close])))
            at = close + 1
            if behind[at].keyword != ",":
                return tuple(queries), at

    def _from(self, tokens: Sequence[Token], end: Token) -> FromReader:
        deeper = _Reader(self._sql, self._depth + 1)
        return FromReader(
            self._sql, tokens, end, deeper.query, lambda word, inside, behind: Clause(word, tuple(inside), behind)
        )


def _cut(sql: str, tokens: list[Token]) -> dict[str, Clause]:
    """Cut at the clause keywords outside parentheses and brackets."""
    starts: list[tuple[str, int, int]] = []  # clause, first token, first token behind the keyword
    open_tokens: list[Token] = []
    nested = 0  # the first token behind a query in parentheses
    for at, token in enumerate(tokens[:-1]):
        if at < nested:
            continue
        bracketed = bool(open_tokens) and open_tokens[-1].text == "["
        in_from = bool(starts) and starts[-1][0] == "FROM"
        if token.keyword == "(" and in_from and _begins_query(tokens[at + 1 :]):
            nested = closing(sql, tokens[:-1], at) + 1
        elif token.keyword in ("(", "["):
            if token.keyword == "[" and open_tokens:
                raise QueryError(
                    "a '[' within parentheses or brackets",
                    sql,
                    token.start,
                    "the window clause behind an item or a stream",
                )
            open_tokens.append(token)
        elif token.keyword in (")", "]"):
            if not open_tokens or {"(": ")", "[": "]"}[open_tokens.pop().text] != token.text:
                raise QueryError(f"got {token.shown} that closes nothing", sql, token.start)
        elif bracketed or _allowed(tokens, at, in_from):
            continue
        elif token.keyword in UNSUPPORTED:
            raise unsupported(sql, UNSUPPORTED[token.keyword], token)
        elif token.keyword == "SELECT" and at > 0:
            what = "a subquery outside FROM" if open_tokens else "a second SELECT (UNION joins streams, not queries)"
            raise unsupported(sql, what, token)
        elif (name := _clause_name(tokens, at)) and not open_tokens:
            expected = CLAUSES[CLAUSES.index(starts[-1][0]) + 1 :] if starts else CLAUSES
            if name not in expected:
                problem = (
                    f"{name} is given twice"
                    if name in (start[0] for start in starts)
                    else f"{name} behind {starts[-1][0]}"
                )
                raise QueryError(problem, sql, token.start, "the clauses in the order " + ", ".join(CLAUSES))
            width = {"GROUP": 3 if tokens[at + 1].text == "-" else 2}.get(token.keyword, 1)
            starts.append((name, at, at + width))
    if open_tokens:
        raise QueryError(f"'{open_tokens[-1].text}' is never closed", sql, open_tokens[-1].start)
    ends = [start[1] for start in starts[1:]] + [len(tokens) - 1]
    return {
        name: Clause(tokens[first], tuple(tokens[begin:end]), tokens[end])
        for (name, first, begin), end in zip(starts, ends, strict=True)
    }


def _begins_query(tokens: Sequence[Token]) -> bool:
    return bool(tokens) and (tokens[0].keyword in ("SELECT", "WITH") or begins_merge(tokens))


def _allowed(tokens: Sequence[Token], at: int, in_from: bool) -> bool:
    """Whether a reserved word stands where it means something."""
    word = tokens[at].keyword
    return (word == "JOIN" and in_from) or (word == "DISTINCT" and at == 1)


def _clause_name(tokens: list[Token], at: int) -> str | None:
    """The clause that begins at `at`, if any. GROUP-BY and GROUPBY are misprints of papers, read as meant."""
    word = tokens[at].keyword
    following = [token.keyword for token in tokens[at + 1 : at + 3]]
    if word == "GROUPBY" or (word == "GROUP" and (following[:1] == ["BY"] or following == ["-", "BY"])):
        return "GROUP BY"
    return word if word in CLAUSES else None


def _without_window(sql: str, name: str, clause: Clause) -> tuple[Clause, list[tuple[Token, ...]]]:
    """Take the window clauses out of SELECT; refuse them where no item stands before them, and in other clauses."""
    kept: list[Token] = []
    windows: list[tuple[Token, ...]] = []
    at = 0
    while at < len(clause.tokens):
        token = clause.tokens[at]
        if token.keyword != "[":
            kept.append(token)
            at += 1
            continue
        close = next(index for index in range(at, len(clause.tokens)) if clause.tokens[index].keyword == "]")
        behind = clause.tokens[close + 1].keyword if close + 1 < len(clause.tokens) else ","
        if name != "SELECT" or not kept or kept[-1].keyword == "," or behind not in (",", "AS"):
            raise window_within(sql, name, token)
        windows.append(clause.tokens[at : close + 1])
        at = close + 1
    return Clause(clause.keyword, tuple(kept), clause.end), windows
