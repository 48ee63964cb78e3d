"""The windows of a join: `[RANGE 3 minutes, WA ts]` behind each item, or `[RANGE TUMBLING 5 minutes, WA ts]` for all.

A row of an item with RANGE n stays joinable for n: it meets rows of the others up to n after it. BOUNDARY says whether
the ends are part of that (`highlevel.joins.window`); RANGE 0 s meets nothing that comes later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from highlevel.joins.window import LONGEST, Boundary
from lowlevel.durations import UNITS
from queries.errors import QueryError
from queries.tokens import Kind, Token
from queries.window_parameters import duration_of, read_origin

PARAMETERS = ("RANGE", "WA", "BOUNDARY", "ORIGIN")
BOUNDARIES = {"CLOSED": Boundary.CLOSED, "HALF-OPEN": Boundary.HALF_OPEN, "OPEN": Boundary.OPEN}


@dataclass(frozen=True, slots=True)
class ItemWindow:
    """The window of one item: `range` in ns; `time` is what WA names, as (table, name), if it is said.

    `origin` is the first start of a window from the epoch on.
    """

    place: Token
    range: int
    tumbling: bool
    origin: int = 0
    boundary: Boundary | None = None
    time: tuple[Token | None, Token] | None = None


def read_item_window(sql: str, tokens: Sequence[Token]) -> ItemWindow:
    """Read the tokens of a window clause, brackets included."""
    return _Reader(sql, tokens).read()


class _Reader:
    def __init__(self, sql: str, tokens: Sequence[Token]) -> None:
        self._sql = sql
        self._tokens = tokens
        self._at = 1

    def read(self) -> ItemWindow:
        """Read parameters in any order, commas between them optional."""
        length: int | None = None
        tumbling, origin, boundary, time = False, 0, None, None
        seen: set[str] = set()
        while self._at < len(self._tokens) - 1:
            token = self._take()
            name = {"WATTR": "WA"}.get(token.keyword, token.keyword)
            if name not in PARAMETERS:
                expected = "a parameter of the window of a join; that of groups stands behind an item of SELECT"
                raise self._error(f"got {token.shown} in the window of a join", token, expected, PARAMETERS)
            if name in seen:
                raise self._error(f"{name} is given twice", token, "each window parameter once")
            seen.add(name)
            match name:
                case "RANGE":
                    tumbling = self._peek().keyword == "TUMBLING"
                    self._at += tumbling
                    length = self._length(tumbling)
                case "WA":
                    time = self._time()
                case "BOUNDARY":
                    boundary = self._boundary()
                case _:
                    origin = read_origin(self._sql, self._take)
            if self._peek().text == "," and self._at < len(self._tokens) - 2:
                self._at += 1
        if length is None:
            raise self._error("the window of a join has no RANGE", self._tokens[0], "for example RANGE 1 minute")
        if not tumbling and "ORIGIN" in seen:
            raise self._error("ORIGIN without TUMBLING", self._tokens[0], "it beside RANGE TUMBLING")
        if tumbling and "BOUNDARY" in seen:
            raise self._error(
                "BOUNDARY beside TUMBLING", self._tokens[0], "it beside RANGE alone: windows are half-open"
            )
        return ItemWindow(self._tokens[0], length, tumbling, origin % length if tumbling else 0, boundary, time)

    def _length(self, tumbling: bool) -> int:
        number, unit = self._take(), self._peek()
        if number.kind is not Kind.NUMBER:
            raise self._error(f"got {number.shown}", number, "a length of time, for example 3 minutes or 0 s")
        if unit.text.lower() not in UNITS or unit.kind is not Kind.WORD:
            raise self._error(f"got {unit.shown} after {number.text}", unit, "a unit of time", tuple(UNITS))
        self._at += 1
        if number.text.strip("0.") == "" and not tumbling:
            return 0
        length = duration_of(self._sql, number, unit)
        if length > LONGEST:
            raise self._error(f"RANGE {number.text} {unit.text} is too long", number, "18 years at most")
        return length

    def _time(self) -> tuple[Token | None, Token]:
        name = self._name()
        if self._peek().text != "." or self._at >= len(self._tokens) - 1:
            return None, name
        self._at += 1
        return name, self._name()

    def _name(self) -> Token:
        token = self._take()
        if token.kind not in (Kind.WORD, Kind.QUOTED) or token.keyword in PARAMETERS:
            raise self._error(f"got WA {token.shown}", token, "the column of time of this item, for example ts")
        return token

    def _boundary(self) -> Boundary:
        token = self._take()
        word = token.keyword.replace("_", "-")
        if word == "HALF" and self._peek().text == "-" and self._at + 1 < len(self._tokens) - 1:
            word = f"HALF-{self._tokens[self._at + 1].keyword}"
            self._at += 2
        if word not in BOUNDARIES:
            raise self._error(f"got BOUNDARY {token.shown}", token, "one of these", tuple(BOUNDARIES))
        return BOUNDARIES[word]

    def _peek(self) -> Token:
        return self._tokens[min(self._at, len(self._tokens) - 1)]

    def _take(self) -> Token:
        token = self._peek()
        self._at += 1
        return token

    def _error(self, problem: str, token: Token, expected: str, choices: Sequence[str] = ()) -> QueryError:
        return QueryError(problem, self._sql, token.start, expected, choices, token.text)
