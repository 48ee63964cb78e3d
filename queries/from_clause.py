"""Reader of FROM: items with commas or JOIN between them, each with a name of its own and a window where wanted.

    FROM Main1 [RANGE 3 minutes, WA ts] AS a, Main2 b [RANGE 2 minutes, WA ts]
    FROM A UNION B AS M1, C UNION D AS M2 [RANGE TUMBLING 10 seconds, WA ts],
    FROM syn S [RANGE 3 s, WA ts] LEFT JOIN synack A [RANGE 0 s, WA ts] ON S.srcIP = A.destIP
    FROM (MERGE a.ts : b.ts FROM Main1 a, Main2 b) m

A comma behind the last item of a join is read as papers print it. AS before a name is optional.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from highlevel.joins.spec import JoinKind
from lowlevel.kinds import KINDS
from queries.errors import QueryError
from queries.reserved_words import RESERVED
from queries.tables import Item, Join, MergeOf, Nested, StreamName, Table, UnionOf
from queries.tokens import Kind, Token, closing

if TYPE_CHECKING:
    from queries.clauses import Clause, Clauses

GIGASCOPE = {
    "INNER_JOIN": JoinKind.INNER,
    "LEFT_OUTER_JOIN": JoinKind.LEFT,
    "RIGHT_OUTER_JOIN": JoinKind.RIGHT,
    "OUTER_JOIN": JoinKind.FULL,
}
"""Joins as Gigascope spells them: in one word."""

OUTER = ("LEFT", "RIGHT", "FULL")
QUALIFIED = ("INNER", *OUTER, "SEMI", "ANTI")
BEHIND_ITEM = ("JOIN", "ON", *QUALIFIED, *GIGASCOPE)
"""Words that are no names behind an item, unless quoted or behind AS."""

EXPECTED = "UNION, a name, '[', ',', JOIN, WHERE, GROUP BY, HAVING or the end"

ReadQuery = Callable[[Sequence[Token], Token], "Clauses"]
"""Read the tokens of a query in parentheses, up to the one that closes it."""
MakeClause = Callable[[Token, Sequence[Token], Token], "Clause"]


class FromReader:
    """Reads the items of one FROM; what breaks the rules is a `QueryError` at its place."""

    def __init__(self, sql: str, tokens: Sequence[Token], end: Token, nested: ReadQuery, clause: MakeClause) -> None:
        """`tokens` stand behind FROM, `end` is the first token that no longer belongs to it."""
        self._sql = sql
        self._tokens = [*tokens, end]
        self._at = 0
        self._nested = nested
        self._clause = clause

    def read(self) -> tuple[Item, ...]:
        """Return all items."""
        items = [self._item(None)]
        while not self._ended():
            join = self._join()
            if self._ended() and join.place.keyword == "," and len(items) > 1:
                break
            item = self._item(join)
            if self._here().keyword == "ON":
                item = Item(item.table, item.place, item.alias, item.window, self._on(item, join))
            items.append(item)
        return tuple(items)

    def merge(self, keyword: Token) -> MergeOf:
        """Read what stands behind MERGE: `a.ts : b.ts`, and FROM with the names of what is merged where they differ."""
        times = [self._qualified()]
        while self._here().keyword == ":" and not self._ended():
            self._at += 1
            times.append(self._qualified())
        if len(times) < 2:
            raise self._error(f"got {self._here().shown} in MERGE", "':' and the time of the next stream: a.ts : b.ts")
        if self._ended():
            items = tuple(Item(StreamName(stream), stream) for stream, _ in times)
            return MergeOf(keyword, tuple(times), items)
        if self._here().keyword != "FROM":
            raise self._error(f"got {self._here().shown} in MERGE", "':', FROM or ')'")
        self._at += 1
        items = self.read()
        for item in items:
            if item.window:
                raise QueryError("a window within MERGE", self._sql, item.window[0].start, "none: nothing is joined")
            if item.join is not None and item.join.place.keyword != ",":
                raise QueryError("a join within MERGE", self._sql, item.join.place.start, "commas between the streams")
        if len(items) != len(times):
            problem = f"{len(times)} times and {len(items)} streams in MERGE"
            raise QueryError(problem, self._sql, keyword.start, "one time for each stream: MERGE a.ts : b.ts FROM a, b")
        return MergeOf(keyword, tuple(times), items)

    def _item(self, join: Join | None) -> Item:
        place = self._here()
        table = self._union()
        alias = self._alias()
        window = self._window()
        alias = alias or self._alias()
        return Item(table, place, alias, window, join)

    def _union(self) -> Table:
        parts = [self._primary()]
        while self._here().keyword in ("UNION", "∪") and not self._ended():
            self._at += 2 if self._tokens[self._at + 1].keyword == "ALL" else 1
            parts.append(self._primary())
        return parts[0] if len(parts) == 1 else UnionOf(tuple(parts))

    def _primary(self) -> Table:
        if self._here().keyword != "(" or self._ended():
            return self._stream()
        begin, close = self._at + 1, closing(self._sql, self._tokens, self._at)
        inside, end = self._tokens[begin:close], self._tokens[close]
        if inside and inside[0].keyword in ("SELECT", "WITH"):
            self._at = close + 1
            return Nested(self._nested(inside, end))
        if begins_merge(inside):
            self._at = close + 1
            return FromReader(self._sql, inside[1:], end, self._nested, self._clause).merge(inside[0])
        self._at += 1
        table = self._union()
        if self._here() is not end:
            raise self._unexpected()
        self._at += 1
        return table

    def _stream(self) -> StreamName:
        token = self._name("the name of a stream")
        if self._here().keyword != "." or self._ended():
            return StreamName(token)
        self._at += 1
        kind = self._name("a kind of rows behind '.'", KINDS)
        if kind.text.lower() not in KINDS:
            raise QueryError(f"unknown kind of rows {kind.shown}", self._sql, kind.start, "a kind", KINDS, kind.text)
        return StreamName(token, kind.text.lower())

    def _qualified(self) -> tuple[Token, Token]:
        stream = self._name("the name of a stream")
        if self._here().keyword != "." or self._ended():
            raise self._error(f"got {self._here().shown} in MERGE", f"'.' and the time of it: {stream.text}.ts")
        self._at += 1
        return stream, self._name("the name of a column behind '.'")

    def _alias(self) -> Token | None:
        token = self._here()
        if self._ended():
            return None
        if token.keyword == "AS":
            self._at += 1
            return self._name("a name behind AS, in double quotes where it is a word of SQL")
        if token.kind in (Kind.WORD, Kind.QUOTED) and token.keyword not in (*RESERVED, *BEHIND_ITEM):
            return self._name("a name")
        return None

    def _window(self) -> tuple[Token, ...]:
        if self._here().keyword != "[" or self._ended():
            return ()
        begin, close = (
            self._at,
            next(at for at in range(self._at, len(self._tokens)) if self._tokens[at].keyword == "]"),
        )
        behind = self._tokens[close + 1]
        if behind.keyword in ("UNION", "∪", "[") and close + 1 < len(self._tokens) - 1:
            raise window_within(self._sql, "FROM", self._tokens[begin])
        self._at = close + 1
        return tuple(self._tokens[begin : close + 1])

    def _join(self) -> Join:
        token = self._here()
        word = token.keyword
        if word == ",":
            self._at += 1
            return Join(JoinKind.INNER, token)
        if word in GIGASCOPE:
            self._at += 1
            return Join(GIGASCOPE[word], token, by_where=True)
        if word not in ("JOIN", *QUALIFIED):
            raise self._unexpected()
        if word != "JOIN":
            self._at += 1
            if word in OUTER and self._here().keyword == "OUTER":
                self._at += 1
            if self._here().keyword != "JOIN":
                raise self._error(f"got {self._here().shown} behind {word}", "JOIN")
        self._at += 1
        return Join(JoinKind.INNER if word == "JOIN" else JoinKind(word), token)

    def _on(self, item: Item, join: Join) -> Join:
        keyword = self._here()
        if join.place.keyword == ",":
            raise self._error("ON behind a comma", "JOIN before the item, or the condition in WHERE")
        self._at += 1
        begin, depth = self._at, 0
        while not self._ended():
            word = self._here().keyword
            named = self._tokens[self._at - 1].keyword == "."
            if depth == 0 and not named and word in (",", "JOIN", *QUALIFIED, *GIGASCOPE):
                break
            if depth == 0 and word == "[":
                raise QueryError("a window behind ON", self._sql, self._here().start, "it behind the item, before ON")
            depth += (word == "(") - (word == ")")
            self._at += 1
        clause = self._clause(keyword, self._tokens[begin : self._at], self._here())
        return Join(join.kind, join.place, clause, join.by_where)

    def _name(self, expected: str, choices: Sequence[str] = ()) -> Token:
        token = self._here()
        ended = self._ended()
        if ended or token.kind not in (Kind.WORD, Kind.QUOTED) or token.keyword in RESERVED or not token.text:
            raise QueryError(f"got {token.shown} in FROM", self._sql, token.start, expected, choices)
        self._at += 1
        return token

    def _ended(self) -> bool:
        return self._at >= len(self._tokens) - 1

    def _here(self) -> Token:
        return self._tokens[min(self._at, len(self._tokens) - 1)]

    def _unexpected(self) -> QueryError:
        token = self._here()
        if token.keyword == "[":
            return window_within(self._sql, "FROM", token)
        if token.keyword in ("UNION", "∪"):
            return self._error(
                f"got {token.shown} behind a name", "a name behind the last stream, which is that of all"
            )
        if token.keyword == "AS" or token.kind in (Kind.WORD, Kind.QUOTED):
            return self._error(f"got {token.shown} behind a stream", EXPECTED)
        return self._error(f"got {token.shown} in FROM", "UNION and the name of a stream, or the end of the clause")

    def _error(self, problem: str, expected: str) -> QueryError:
        return QueryError(problem, self._sql, self._here().start, expected)


def begins_merge(tokens: Sequence[Token]) -> bool:
    """Whether tokens begin with MERGE and a time: a stream may be called that."""
    words = [token.keyword for token in tokens[:3]]
    return len(words) == 3 and words[0] == "MERGE" and tokens[1].kind in (Kind.WORD, Kind.QUOTED) and words[2] == "."


def window_within(sql: str, clause: str, token: Token) -> QueryError:
    """Return the error for a window clause that stands behind no item and no stream."""
    expected = "it behind an item of SELECT, or behind the last stream of FROM"
    return QueryError(f"a window clause within {clause}", sql, token.start, expected)
