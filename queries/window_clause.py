"""The window clause `[RANGE 10 minutes, SLIDE 1 minute, WA ts]` and the times written in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from fractions import Fraction

from highlevel.windows.kind import WindowKind
from highlevel.windows.sliding import SlidingWindow
from lowlevel.durations import LONGEST, SECOND, UNITS
from queries.errors import QueryError
from queries.tokens import Kind, Token

PARAMETERS = ("RANGE", "SLIDE", "WA", "ORIGIN", "SPREAD")

MAX_PANES = 10_000
"""Panes per window, at most. A window that closes merges all of its panes, so RANGE / SLIDE is what it costs, and how
many results a packet is in: an hour by the second is 3 600, a week by the minute 10 080 and too many."""

LATEST = 2**32 * 10**9
"""First instant, ns, that no capture can say: pcap counts seconds in 32 bits."""

INT64 = 2**63
"""First integer that is none of 64 bits with sign; `ts - ORIGIN + RANGE` of every packet stays below."""

_UNSUPPORTED = {
    "ROW": "windows of a number of rows",
    "ROWS": "windows of a number of rows",
    "ALL": "landmark windows (RANGE ALL)",
    "PA": "partitioned windows (PA)",
    "RATTR": "slide-by-tuple windows (RATTR)",
    "SATTR": "slide-by-tuple windows (SATTR)",
}

_DECIMAL = re.compile(r"(?=.{1,40}$)(?:\d+(?:\.\d*)?|\.\d+)", re.ASCII)
_TIME = re.compile(r"(\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?", re.ASCII)


class WindowClause:
    """A reader of the tokens between the brackets; what breaks the rules is a `QueryError`."""

    def __init__(self, sql: str, tokens: Sequence[Token], close: Token) -> None:
        """`close` is the bracket that ends the clause: where something is missing, it is missing there."""
        self._sql = sql
        self._tokens = [*tokens, close]
        self._at = 0
        self.spread: Token | None = None
        """The word SPREAD, once it has been read."""

    def read(self) -> WindowKind:
        """Return the window, in ns. Parameters come in any order, commas optional; without SLIDE it is tumbling."""
        start = self._tokens[0]
        values: dict[str, int] = {}
        places: dict[str, Token] = {}
        while self._at < len(self._tokens) - 1:
            token = self._take()
            name = {"WATTR": "WA"}.get(token.keyword, token.keyword)
            if name in _UNSUPPORTED:
                raise self._unsupported(token)
            if name not in PARAMETERS:
                raise self._error(f"got {token.shown} in the window clause", token, "a window parameter", PARAMETERS)
            if name in values:
                raise self._error(f"{name} is given twice", token, "each window parameter once")
            places[name] = self._peek()
            values[name] = self._parameter(name)
            if self._peek().text == "," and self._at < len(self._tokens) - 2:
                self._at += 1
        if "RANGE" not in values:
            raise self._error("the window clause has no RANGE", start, "for example RANGE 1 minute")
        window = SlidingWindow(values["RANGE"], values.get("SLIDE", values["RANGE"]), values.get("ORIGIN", 0))
        if abs(window.origin) + window.range + LATEST >= INT64:
            most = INT64 - LATEST - abs(window.origin)
            problem = f"ORIGIN {window.origin} ns and RANGE {window.range} ns together leave the integers of 64 bits"
            raise self._error(problem, places["ORIGIN"], f"an ORIGIN nearer 1970, or a RANGE below {most} ns")
        if window.range // window.pane > MAX_PANES:
            panes = window.range // window.pane
            problem = f"RANGE {window.range} ns and SLIDE {window.slide} ns make {panes} panes per window"
            raise self._error(problem, start, f"at most {MAX_PANES}: a longer SLIDE, or one that divides RANGE")
        return window

    def _parameter(self, name: str) -> int:
        if name == "SPREAD":
            self.spread = self._tokens[self._at - 1]
            return 1
        if name == "WA":
            token = self._take()
            if token.text.casefold() != "ts" or token.kind not in (Kind.WORD, Kind.QUOTED):
                raise self._error(f"got WA {token.shown}", token, "WA ts: windows are over capture time")
            return 0
        if name == "ORIGIN":
            return self._origin()
        tumbling = name == "RANGE" and self._peek().keyword == "TUMBLING"
        self._at += tumbling
        return self._duration()

    def _duration(self) -> int:
        number, unit = self._take(), self._peek()
        if number.keyword in _UNSUPPORTED:
            raise self._unsupported(number)
        if number.kind is not Kind.NUMBER or not _DECIMAL.fullmatch(number.text):
            raise self._error(f"got {number.shown}", number, "a duration, for example 1 minute or 6.4 seconds")
        if unit.keyword in _UNSUPPORTED:
            raise self._unsupported(unit)
        if unit.text.lower() not in UNITS or unit.kind is not Kind.WORD:
            raise self._error(f"got {unit.shown} after {number.text}", unit, "a unit of time", UNITS)
        self._at += 1
        nanoseconds = Fraction(number.text) * UNITS[unit.text.lower()]
        if not 0 < nanoseconds < LONGEST:
            raise self._error(
                f"got a duration of {number.text} {unit.text}", number, "more than nothing and less than 146 years"
            )
        if nanoseconds.denominator != 1:
            raise self._error(
                f"{number.text} {unit.text} is no whole number of nanoseconds", number, "a multiple of 1 ns"
            )
        return int(nanoseconds)

    def _origin(self) -> int:
        token = self._take()
        negative = token.text == "-" and token.kind is Kind.SYMBOL
        if negative:
            token = self._take()
        value = None
        if token.kind is Kind.NUMBER and token.text.isdecimal():
            value = int(token.text[:25])
        elif token.kind in (Kind.STRING, Kind.QUOTED) and not negative:
            value = nanoseconds_of(token.text)
        if value is None:
            raise self._error(
                f"got ORIGIN {token.shown}",
                token,
                "whole nanoseconds since the epoch, or a time like '2008-10-01T12:00:00Z'",
            )
        if abs(value) >= LONGEST:
            raise self._error(f"ORIGIN {token.text} is out of range", token, f"less than {LONGEST} ns from the epoch")
        return -value if negative else value

    def _unsupported(self, token: Token) -> QueryError:
        return self._error(
            f"{_UNSUPPORTED[token.keyword]} are not supported yet", token, "RANGE and SLIDE as lengths of time"
        )

    def _peek(self) -> Token:
        return self._tokens[min(self._at, len(self._tokens) - 1)]

    def _take(self) -> Token:
        token = self._peek()
        self._at += 1
        return token

    def _error(
        self, problem: str, token: Token, expected: str, choices: Sequence[str] | dict[str, int] = ()
    ) -> QueryError:
        return QueryError(problem, self._sql, token.start, expected, choices, token.text)


def nanoseconds_of(text: str) -> int | None:
    """Nanoseconds since the epoch of an ISO 8601 time, UTC where it names no zone; None where it is no such time."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    base, fraction, zone = match.groups()
    if fraction and len(base) < len("2008-10-01T12:00:00"):
        return None
    try:
        moment = datetime.fromisoformat(base)
        if zone not in (None, "Z"):
            moment = datetime.fromisoformat(base + ("" if len(base) > 10 else "T00:00") + zone)
    except ValueError:  # digits in the right places that are no date: month 13
        return None
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86400 + since.seconds) * SECOND + int((fraction or "").ljust(9, "0") or 0)
