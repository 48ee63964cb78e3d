"""The streams of FROM: which links, and what kind of their rows.

    packets, frames, flows, samples    rows of that kind of every link
    Main1.flows                        rows of that kind of the link Main1
    Main1                              the packets of the link Main1

All streams of one query are of one kind: other kinds have other columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowlevel.kinds import KINDS
from queries.errors import QueryError
from queries.reserved_words import RESERVED, unsupported
from queries.tokens import Kind, Token

PACKETS = "packets"
"""The kind of a link that names none."""


@dataclass(frozen=True, slots=True)
class From:
    """`streams` are links as they are spelled, or a kind alone for all links; `kind` is what their rows are."""

    streams: tuple[str, ...]
    kind: str

    @property
    def shown(self) -> tuple[str, ...]:
        """The streams as they may be written in FROM."""
        return tuple(
            stream if self.kind == PACKETS or stream.lower() == self.kind else f"{stream}.{self.kind}"
            for stream in self.streams
        )


class Streams:
    """Reader of the streams of FROM: `a`, `a UNION b`, `(a UNION (b UNION c))`; `∪` and UNION ALL mean UNION."""

    def __init__(self, sql: str, tokens: Sequence[Token], end: Token) -> None:
        """`tokens` stand behind FROM, `end` is the first token that no longer belongs to it."""
        self._sql = sql
        self._tokens = [*tokens, end]
        self._at = 0
        self._names: list[str] = []
        self._kind: str | None = None

    def read(self) -> From:
        """Return the names as they are spelled, each stream once, in order, and their kind."""
        depth = 0
        while True:
            while self._here().keyword == "(":
                depth += 1
                self._at += 1
            self._stream()
            while self._here().keyword == ")" and depth:
                depth -= 1
                self._at += 1
            token = self._here()
            if self._at == len(self._tokens) - 1:
                return From(tuple(self._names), self._kind or PACKETS)
            if token.keyword not in ("UNION", "∪"):
                raise self._unexpected(token)
            self._at += 2 if self._tokens[self._at + 1].keyword == "ALL" else 1

    def _stream(self) -> None:
        token = self._name("the name of a stream")
        kind = token.text.lower() if token.text.lower() in KINDS else PACKETS
        if self._here().keyword == ".":
            self._at += 1
            of_link = self._name("a kind of rows behind '.'", KINDS)
            kind = of_link.text.lower()
            if kind not in KINDS:
                raise QueryError(
                    f"unknown kind of rows {of_link.shown}", self._sql, of_link.start, "a kind", KINDS, of_link.text
                )
        if self._kind not in (None, kind):
            problem = f"{kind} beside {self._kind}"
            raise QueryError(problem, self._sql, token.start, "streams of one kind, since each has columns of its own")
        if token.text.lower() in (name.lower() for name in self._names):
            raise QueryError(f"stream {token.shown} is listed twice", self._sql, token.start, "each stream once")
        alone = next((name for name in (*self._names, token.text) if name.lower() in KINDS), None)
        if self._names and alone:
            problem = f"'{alone}' beside other streams"
            raise QueryError(problem, self._sql, token.start, f"{alone} alone, which are those of every link")
        self._kind = kind
        self._names.append(token.text)

    def _name(self, expected: str, choices: Sequence[str] = ()) -> Token:
        token = self._here()
        last = self._at == len(self._tokens) - 1
        if last or token.kind not in (Kind.WORD, Kind.QUOTED) or token.keyword in RESERVED or not token.text:
            raise QueryError(f"got {token.shown} in FROM", self._sql, token.start, expected, choices)
        self._at += 1
        return token

    def _here(self) -> Token:
        return self._tokens[self._at]

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
