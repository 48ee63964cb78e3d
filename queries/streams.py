"""The streams of FROM."""

from __future__ import annotations

from collections.abc import Sequence

from queries.errors import QueryError
from queries.reserved_words import RESERVED, unsupported
from queries.tokens import Kind, Token


class Streams:
    """Reader of the streams of FROM: `a`, `a UNION b`, `(a UNION (b UNION c))`; `∪` and UNION ALL mean UNION."""

    def __init__(self, sql: str, tokens: Sequence[Token], end: Token) -> None:
        """`tokens` stand behind FROM, `end` is the first token that no longer belongs to it."""
        self._sql = sql
        self._tokens = [*tokens, end]
        self._at = 0
        self._names: list[str] = []

    def read(self) -> tuple[str, ...]:
        """Return the names as they are spelled; each stream once, in order."""
        depth = 0
        while True:
            while self._tokens[self._at].keyword == "(":
                depth += 1
                self._at += 1
            self._name()
            while self._tokens[self._at].keyword == ")" and depth:
                depth -= 1
                self._at += 1
            token = self._tokens[self._at]
            if self._at == len(self._tokens) - 1:
                return tuple(self._names)
            if token.keyword not in ("UNION", "∪"):
                raise self._unexpected(token)
            self._at += 2 if self._tokens[self._at + 1].keyword == "ALL" else 1

    def _name(self) -> None:
        token = self._tokens[self._at]
        last = self._at == len(self._tokens) - 1
        if last or token.kind not in (Kind.WORD, Kind.QUOTED) or token.keyword in RESERVED or not token.text:
            raise QueryError(f"got {token.shown} in FROM", self._sql, token.start, "the name of a stream")
        if token.text.lower() in (name.lower() for name in self._names):
            raise QueryError(f"stream {token.shown} is listed twice", self._sql, token.start, "each stream once")
        self._names.append(token.text)
        self._at += 1

    def _unexpected(self, token: Token) -> QueryError:
        if token.keyword == ",":
            return unsupported(self._sql, "a join (streams with commas between them)", token)
        if token.keyword == "AS" or token.kind in (Kind.WORD, Kind.QUOTED):
            return QueryError(
                f"got {token.shown} behind a stream",
                self._sql,
                token.start,
                "UNION, '[', WHERE, GROUP BY, HAVING or the end",
            )
        return QueryError(
            f"got {token.shown} in FROM",
            self._sql,
            token.start,
            "UNION and the name of a stream, or the end of the clause",
        )
