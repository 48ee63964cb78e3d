"""The window clause `[RANGE 10 minutes, SLIDE 1 minute, WA ts]`: which kind of window its parameters make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from capture.units import SECOND
from highlevel.windows.kind import (
    MOST_GROUPS,
    WHOLE_INPUT,
    AnyWindow,
    LandmarkWindow,
    SessionWindow,
    SlideByTuple,
    SlidingWindow,
    TupleWindow,
)
from queries.errors import QueryError
from queries.tokens import Token
from queries.window_parameters import ALL, ROW_NUMBERS, Length, ParameterReader, Parameters

MAX_PANES = 10_000
"""Panes per window, at most, and how many results a packet is in: an hour by the second is 3 600, a week by the minute
10 080 and too many."""

LATEST = 2**32 * SECOND
"""First instant, ns, that no capture can say: pcap counts seconds in 32 bits."""

INT64 = 2**63
"""First integer that is none of 64 bits with sign; `ts - ORIGIN + RANGE` of every packet stays below."""


@dataclass(frozen=True, slots=True)
class WindowClause:
    """A window clause: the window, and what else it says of the query.

    `spread` is the word SPREAD and `partition` are the tokens behind PA, commas included. `emit_late` is LATE EMIT.
    """

    window: AnyWindow = WHOLE_INPUT
    spread: Token | None = None
    partition: tuple[Token, ...] = ()
    emit_late: bool = False


def read_window_clause(sql: str, tokens: Sequence[Token], close: Token) -> WindowClause:
    """Read what stands between the brackets; `close` is the one that ends it. QueryError for what is no window."""
    found = ParameterReader(sql, tokens, close).read()
    window = _Chooser(sql, found, [*tokens, close][0]).window()
    emit_late = found.values.get("LATE") == "emit"
    if emit_late and not isinstance(window, SlidingWindow):
        expected = "LATE DROP: only windows of a RANGE and a SLIDE of time can be added to"
        raise QueryError("LATE EMIT for this kind of window", sql, found.places["LATE"].start, expected)
    return WindowClause(window, found.names.get("SPREAD"), tuple(found.columns), emit_late)


class _Chooser:
    """Finds the kind that parameters are of, and refuses those that do not go with it."""

    def __init__(self, sql: str, found: Parameters, start: Token) -> None:
        self._sql = sql
        self._found = found
        self._start = start

    def window(self) -> AnyWindow:
        found, range_ = self._found, self._found.length("RANGE")
        if "SESSION" in found.values:
            return self._session()
        if range_ is None:
            raise self._error("the window clause has no RANGE", self._start, "for example RANGE 1 minute")
        if range_ is ALL:
            return self._landmark()
        slide = found.length("SLIDE")
        if range_.of_rows:
            return self._tuples(range_, slide)
        if "RATTR" in found.values or "SATTR" in found.values or (slide is not None and slide.of_rows):
            return self._slide_by_tuple(range_, slide)
        return self._sliding(range_.amount, range_.amount if slide is None else slide.amount)

    def _session(self) -> SessionWindow:
        self._only("a session", "SESSION", "WA", "LATE")
        self._over_time()
        gap = self._found.length("SESSION")
        assert gap is not None
        return SessionWindow(gap.amount)

    def _landmark(self) -> LandmarkWindow:
        self._only("RANGE ALL", "RANGE", "SLIDE", "WA", "ORIGIN", "SPREAD", "CAP", "LATE")
        self._over_time()
        slide = self._found.length("SLIDE")
        if slide is None or slide.of_rows:
            at = self._found.places.get("SLIDE", self._found.places["RANGE"])
            raise self._error("RANGE ALL without a SLIDE of time", at, "for example [RANGE ALL, SLIDE 1 minute]")
        self._within_int64(slide.amount)
        return LandmarkWindow(slide.amount, self._origin, self._number("CAP", MOST_GROUPS))

    def _tuples(self, range_: Length, slide: Length | None) -> TupleWindow:
        self._only("RANGE of rows", "RANGE", "SLIDE", "WA", "PA", "IDLE")
        slide = slide or range_
        if not slide.of_rows:
            raise self._error("RANGE of rows and SLIDE of time", self._found.places["SLIDE"], "SLIDE of rows too")
        if self._found.values.get("WA", ROW_NUMBERS[0]) not in ROW_NUMBERS:
            raise self._error("RANGE of rows over ts", self._found.places["WA"], "WA row-num, or RANGE of time")
        panes = range_.amount // SlidingWindow(range_.amount, slide.amount).pane
        self._panes(f"RANGE {range_.amount} rows and SLIDE {slide.amount} rows", panes)
        idle = self._found.length("IDLE")
        if idle is not None and not self._found.columns:
            raise self._error("IDLE without PA", self._found.names["IDLE"], "PA and a column, whose values may be idle")
        partitioned = bool(self._found.columns)
        return TupleWindow(range_.amount, slide.amount, partitioned, None if idle is None else idle.amount)

    def _slide_by_tuple(self, range_: Length, slide: Length | None) -> SlideByTuple:
        self._only("SLIDE of rows", "RANGE", "SLIDE", "WA", "RATTR", "SATTR", "LATE")
        self._over_time()
        if slide is None or not slide.of_rows:
            at = self._found.places.get("SLIDE", self._start)
            raise self._error("RATTR or SATTR without a SLIDE of rows", at, "for example SLIDE 1 row")
        if range_.amount + LATEST >= INT64:
            raise self._error(
                f"RANGE {range_.amount} ns is too long", self._found.places["RANGE"], "less than a century"
            )
        return SlideByTuple(range_.amount, slide.amount, self._found.values.get("SATTR") == "rank(ts)")

    def _sliding(self, range_: int, slide: int) -> SlidingWindow:
        self._only("RANGE of time", "RANGE", "SLIDE", "WA", "ORIGIN", "SPREAD", "LATE")
        self._over_time()
        window = SlidingWindow(range_, slide, self._origin)
        self._within_int64(range_)
        self._panes(f"RANGE {range_} ns and SLIDE {slide} ns", range_ // window.pane)
        return window

    def _only(self, kind: str, *names: str) -> None:
        """Refuse parameters that mean nothing to this kind of window."""
        for name, token in self._found.names.items():
            if name not in names:
                raise self._error(f"{name} beside {kind}", token, f"{', '.join(names)} alone")

    def _over_time(self) -> None:
        if self._found.values.get("WA", "ts") != "ts":
            raise self._error("RANGE of time over numbers of rows", self._found.places["WA"], "WA ts, or RANGE of rows")

    @property
    def _origin(self) -> int:
        return self._number("ORIGIN", 0)

    def _number(self, name: str, default: int) -> int:
        value = self._found.values.get(name, default)
        assert isinstance(value, int)
        return value

    def _within_int64(self, length: int) -> None:
        if abs(self._origin) + length + LATEST >= INT64:
            most = INT64 - LATEST - abs(self._origin)
            problem = f"ORIGIN {self._origin} ns and RANGE {length} ns together leave the integers of 64 bits"
            at = self._found.places["ORIGIN"]
            raise self._error(problem, at, f"an ORIGIN nearer 1970, or a RANGE below {most} ns")

    def _panes(self, what: str, panes: int) -> None:
        if panes > MAX_PANES:
            expected = f"at most {MAX_PANES}: a longer SLIDE, or one that divides RANGE"
            raise self._error(f"{what} make {panes} panes per window", self._start, expected)

    def _error(self, problem: str, token: Token, expected: str) -> QueryError:
        return QueryError(problem, self._sql, token.start, expected)
