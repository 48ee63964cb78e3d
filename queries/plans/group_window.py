"""The window of a query's groups: convert the window clause or call in the syntax tree to the window of a plan.

    [RANGE 1 minute, WA ts]    [RANGE 1 minute, WA M1.ts]    [RANGE 1 hour, WA window_end]    TUMBLE(S.ts, …)
    [LIFETIME start_ts TO end_ts]    [LIFETIME 10 minutes, SLIDE 1 minute]
    [RANGE 600, WA time]       [RANGE 600 seconds, WA ts]: `time` counts seconds, so its lengths need no unit

    GROUP BY srcIP, TUMBLE(ts, INTERVAL '1' MINUTE)                  [RANGE 1 minute, SLIDE 1 minute]
    GROUP BY srcIP, HOP(ts, INTERVAL '1' MINUTE, INTERVAL '1' HOUR)  [RANGE 1 hour, SLIDE 1 minute]
    GROUP BY srcIP, SESSION(ts, INTERVAL '30' SECOND)                [SESSION 30 seconds]
    GROUP BY srcIP, ts/60 AS tb                                      [RANGE 1 minute, SLIDE 1 minute], tb its number

`ts/60` comes from Gigascope, whose time is in seconds. Here ts is in nanoseconds, but windows of 60 ns are useless. So
a divisor below a million means seconds; `ts/60000000000` means the same.
"""

from __future__ import annotations

from dataclasses import replace

from capture.lazy_dataclasses import dataclass
from capture.units import SECOND
from highlevel.windows.kind import (
    DEFAULT_CAP,
    WHOLE_INPUT,
    AnyWindow,
    LandmarkWindow,
    LifetimeWindow,
    SessionWindow,
    SlideByTuple,
    SlidingWindow,
    TupleWindow,
)
from lowlevel.expressions.tree import Binary, Column, Expression, Literal
from lowlevel.expressions.types import Op, Type
from queries.text.errors import QueryError
from queries.text.literals import INT64_MAX, duration_of, origin_of
from queries.text.tree import (
    Attribute,
    Constant,
    Length,
    Name,
    Parameter,
    Query,
    SelectItem,
    Window,
    WindowCall,
    Word,
)
from queries.text.windows import PARAMETERS, ROWS

MAX_PANES = 10_000
"""Largest number of panes per window, which is also the number of windows per packet. A window of an hour that slides
by a second has 3 600 panes.
"""

MAX_ROWS = 2**40
"""A window must have fewer rows than this."""

TIME_LIMIT = 2**32 * SECOND
"""All times of captures, ns, are below this, because pcap stores seconds in 32 bits."""

MIN_NANOSECOND_DIVISOR = 1_000_000
"""Smallest divisor of ts that means nanoseconds; smaller divisors mean seconds."""

TS = Column("ts", Type.TIME)

ROW_NUMBERS = ("row-num", "row_num", "seq-num", "seq_num")
RANK_OF_TS = "rank(ts)"

_WINDOW_COLUMNS = {
    "WA": (("ts", *ROW_NUMBERS), "ts, or row-num for windows of a number of rows"),
    "RATTR": (("ts",), "ts, because these windows have a length of capture time"),
    "SATTR": ((*ROW_NUMBERS, RANK_OF_TS), "row-num, or rank(ts) for the order of ts"),
}
"""The columns that each parameter may name, and their description in messages."""

TimeColumn = tuple[Word | None, Word]
"""A time column as it is written: the table before the dot (or None), and the name."""


@dataclass(frozen=True, slots=True)
class GroupWindow:
    """The window of a query's groups, and the other properties that its clause sets.

    start      position of the clause, or None
    time       column of time that the clause names, or None
    name       name that GROUP BY gives to the window, or None
    spread     the word SPREAD, or None
    partition  columns of PA
    lifetime   columns of LIFETIME: the start and the end of rows, or ()
    length     length of LIFETIME in ns, or None
    emit_late  LATE EMIT: late rows are reported
    """

    kind: AnyWindow = WHOLE_INPUT
    start: int | None = None
    time: TimeColumn | None = None
    name: Word | None = None
    spread: Word | None = None
    partition: tuple[SelectItem, ...] = ()
    emit_late: bool = False
    lifetime: tuple[Name, ...] = ()
    length: int | None = None


def bind_group_window(query: Query, reads_links: bool) -> GroupWindow:
    """Return the window of a query. Windows over links always use ts."""
    if query.call is not None and query.window is not None:
        start = query.call.function.start
        raise QueryError("a second window, in GROUP BY", query.sql, start, "one window for the query")
    if query.call is not None:
        return _bind_call(query.sql, query.call, reads_links)
    return GroupWindow() if query.window is None else _ClauseBinder(query.sql, query.window, reads_links).bind()


def bind_window_clause(sql: str, clause: Window) -> GroupWindow:
    """Return the window of a clause after a table."""
    return _ClauseBinder(sql, clause, reads_links=False).bind()


def window_of_quotient(expression: Expression, ts: Column = TS) -> tuple[SlidingWindow, Expression] | None:
    """Return the window that GROUP BY `ts/n` means, and the expression of the window's number.

    Return None for other expressions.

    >>> window_of_quotient(Binary(Op.DIV, TS, Literal(60, Type.INT)))[0].range // SECOND
    60
    """
    if not isinstance(expression, Binary) or expression.op is not Op.DIV or not isinstance(expression.right, Literal):
        return None
    divisor = expression.right.value
    if not isinstance(divisor, int) or isinstance(divisor, bool) or divisor <= 0:
        return None
    if expression.left == Binary(Op.DIV, ts, Literal(SECOND, Type.INT)):
        length = divisor * SECOND
    elif expression.left == ts:
        length = divisor * SECOND if divisor < MIN_NANOSECOND_DIVISOR else divisor
    else:
        return None
    number = Binary(Op.DIV, Column("window_start", Type.TIME), Literal(length, Type.INT))
    return SlidingWindow(length, length), number


def _bind_call(sql: str, call: WindowCall, reads_links: bool) -> GroupWindow:
    """Bind TUMBLE, HOP or SESSION."""
    name, start = call.function.text.upper(), call.function.start
    attribute = _time_as_ts(call.time) if reads_links else call.time
    time = _time_column(attribute, reads_links)
    if time is None and attribute.text != TS.name:
        column = call.time.word
        raise QueryError(f"{name} over {column.name_in_messages}", sql, column.start, "ts, because windows use ts")
    lengths = [duration_of(sql, length) for length in call.lengths]
    if name == "SESSION":
        return GroupWindow(SessionWindow(lengths[0]), start, time, call.alias)
    window = SlidingWindow(lengths[-1], lengths[0])
    if window.range // window.pane > MAX_PANES:
        problem = f"{window.range // window.pane} panes per window"
        raise QueryError(problem, sql, start, f"at most {MAX_PANES}: one length a multiple of the other")
    return GroupWindow(window, start, time, call.alias)


def _time_as_ts(attribute: Attribute) -> Attribute:
    """Replace `time` by `ts` in an attribute of links: both give the same windows."""
    if attribute.word.text.lower() == "time":
        return replace(attribute, text=TS.name, word=replace(attribute.word, text=TS.name))
    return replace(attribute, text=RANK_OF_TS) if attribute.text == "rank(time)" else attribute


def _time_column(attribute: Attribute, reads_links: bool) -> TimeColumn | None:
    """Return the column that an attribute names. Return None for row numbers, and for `ts` of links."""
    if attribute.table is not None:
        return attribute.table, attribute.word
    row_number = attribute.word.text.lower() in ("row", "seq", "row_num", "seq_num", "rank")
    return None if reads_links or row_number else (None, attribute.word)


class _ClauseBinder:
    """Determines the kind of window from the parameters of a clause, and refuses parameters of other kinds."""

    def __init__(self, sql: str, clause: Window, reads_links: bool) -> None:
        self._sql = sql
        if reads_links:
            parameters = tuple(
                replace(parameter, value=_time_as_ts(parameter.value))
                if isinstance(parameter.value, Attribute)
                else parameter
                for parameter in clause.parameters
            )
            clause = replace(clause, parameters=parameters)
        self._clause = clause
        self._parameters = {parameter.name: parameter for parameter in clause.parameters}
        attributes = (self._parameters[name] for name in ("WA", "RATTR") if name in self._parameters)
        self._time = next(
            (
                (parameter.name, time)
                for parameter in sorted(attributes, key=lambda parameter: parameter.start)
                if isinstance(parameter.value, Attribute)
                and (time := _time_column(parameter.value, reads_links)) is not None
            ),
            None,
        )

    def bind(self) -> GroupWindow:
        for parameter in self._clause.parameters:
            self._check(parameter)
        kind = self._kind()
        late, spread, names = self._parameters.get("LATE"), self._parameters.get("SPREAD"), self._parameters.get("PA")
        emit_late = late is not None and late.value == Word("EMIT", 0)
        if late is not None and emit_late and not isinstance(kind, SlidingWindow):
            expected = "LATE DROP: only windows with a RANGE and a SLIDE of time accept late rows"
            raise self._error("LATE EMIT for this kind of window", late.start, expected)
        lifetime: tuple[Name, ...] = ()
        if "LIFETIME" in self._parameters and isinstance(value := self._parameters["LIFETIME"].value, tuple):
            lifetime = value
        length = self._lifetime_length
        partition: tuple[SelectItem, ...] = ()
        if names is not None and isinstance(names.value, tuple):
            partition = tuple(SelectItem(name) for name in names.value)
        time = None if self._time is None else self._time[1]
        word = None if spread is None else spread.keyword
        return GroupWindow(kind, self._clause.start, time, None, word, partition, emit_late, lifetime, length)

    def _check(self, parameter: Parameter) -> None:
        """Check the value of one parameter, independent of the others."""
        name, value, word = parameter.name, parameter.value, parameter.keyword
        if name not in PARAMETERS:
            problem = f"got {word.name_in_messages} in the window clause"
            raise QueryError(problem, self._sql, word.start, "a window parameter", PARAMETERS, word.text)
        if isinstance(value, Attribute) and self._column(name) not in _WINDOW_COLUMNS[name][0]:
            raise self._error(f"got {name} {value.word.name_in_messages}", parameter.start, _WINDOW_COLUMNS[name][1])
        if isinstance(value, Length) and value.unit.lower() in ROWS and name in ("SESSION", "IDLE", "LIFETIME"):
            raise self._error(f"got {name} of rows", parameter.start, "a length of time")
        if isinstance(value, Length) or name == "CAP":
            self._amount(name)
        if name == "ORIGIN":
            self._origin()

    def _kind(self) -> AnyWindow:
        given, slide = self._parameters, self._parameters.get("SLIDE")
        if "SESSION" in given:
            return self._session()
        if "LIFETIME" in given:
            return self._lifetime()
        if "RANGE" not in given:
            raise self._error("the window clause has no RANGE", self._clause.first, "for example RANGE 1 minute")
        if not isinstance(given["RANGE"].value, Length):
            return self._landmark()
        if self._counts_rows("RANGE"):
            return self._tuples()
        if "RATTR" in given or "SATTR" in given or (slide is not None and self._counts_rows("SLIDE")):
            return self._slide_by_tuple()
        return self._sliding()

    def _session(self) -> SessionWindow:
        self._allow_only("a session", "SESSION", "WA", "LATE")
        self._check_over_time()
        return SessionWindow(self._amount("SESSION"))

    @property
    def _lifetime_length(self) -> int | None:
        """Return the length of LIFETIME, if it is a length."""
        value = self._parameters["LIFETIME"].value if "LIFETIME" in self._parameters else None
        return self._amount("LIFETIME") if isinstance(value, Length) else None

    def _lifetime(self) -> LifetimeWindow | SlidingWindow:
        """Return the windows of rows with lifetimes. With SLIDE the windows have a fixed length."""
        is_length = isinstance(self._parameters["LIFETIME"].value, Length)
        names = ("LIFETIME", "SLIDE", "WA") if is_length else ("LIFETIME", "SLIDE")
        self._allow_only("LIFETIME" if is_length else "LIFETIME of two columns", *names)
        self._check_over_time()
        if "SLIDE" in self._parameters and self._counts_rows("SLIDE"):
            raise self._error(
                "SLIDE of rows together with LIFETIME", self._parameters["SLIDE"].start, "a length of time"
            )
        if "SLIDE" not in self._parameters:
            return LifetimeWindow(self._lifetime_length)
        slide = self._amount("SLIDE")
        if is_length:
            length = self._lifetime_length or 0
            self._check_panes(f"LIFETIME {length} ns and SLIDE {slide} ns", length // slide)
        return SlidingWindow(slide, slide)

    def _landmark(self) -> LandmarkWindow:
        self._allow_only("RANGE ALL", "RANGE", "SLIDE", "WA", "ORIGIN", "SPREAD", "CAP", "LATE")
        self._check_over_time()
        if "SLIDE" not in self._parameters or self._counts_rows("SLIDE"):
            start = self._parameters.get("SLIDE", self._parameters["RANGE"]).start
            raise self._error("RANGE ALL without a SLIDE of time", start, "for example [RANGE ALL, SLIDE 1 minute]")
        slide, origin = self._amount("SLIDE"), self._origin()
        self._check_int64(origin, slide)
        return LandmarkWindow(slide, origin, self._amount("CAP") if "CAP" in self._parameters else DEFAULT_CAP)

    def _tuples(self) -> TupleWindow:
        self._allow_only("RANGE of rows", "RANGE", "SLIDE", "WA", "PA", "IDLE")
        if "SLIDE" in self._parameters and not self._counts_rows("SLIDE"):
            start = self._parameters["SLIDE"].start
            raise self._error("RANGE of rows and SLIDE of time", start, "SLIDE of rows too")
        if "WA" in self._parameters and self._column("WA") not in ROW_NUMBERS:
            raise self._error("RANGE of rows over ts", self._parameters["WA"].start, "WA row-num, or RANGE of time")
        range_ = self._amount("RANGE")
        slide = self._amount("SLIDE") if "SLIDE" in self._parameters else range_
        self._check_panes(f"RANGE {range_} rows and SLIDE {slide} rows", range_ // SlidingWindow(range_, slide).pane)
        if "IDLE" in self._parameters and "PA" not in self._parameters:
            start = self._parameters["IDLE"].keyword.start
            raise self._error("IDLE without PA", start, "PA and a column, whose values may be idle")
        return TupleWindow(
            range_, slide, "PA" in self._parameters, self._amount("IDLE") if "IDLE" in self._parameters else None
        )

    def _slide_by_tuple(self) -> SlideByTuple:
        self._allow_only("SLIDE of rows", "RANGE", "SLIDE", "WA", "RATTR", "SATTR", "LATE")
        self._check_over_time()
        if "SLIDE" not in self._parameters or not self._counts_rows("SLIDE"):
            start = self._parameters["SLIDE"].start if "SLIDE" in self._parameters else self._clause.first
            raise self._error("RATTR or SATTR without a SLIDE of rows", start, "for example SLIDE 1 row")
        range_ = self._amount("RANGE")
        if range_ + TIME_LIMIT > INT64_MAX:
            raise self._error(f"RANGE {range_} ns is too long", self._parameters["RANGE"].start, "less than a century")
        in_time_order = "SATTR" in self._parameters and self._column("SATTR") == RANK_OF_TS
        return SlideByTuple(range_, self._amount("SLIDE"), in_time_order)

    def _sliding(self) -> SlidingWindow:
        self._allow_only("RANGE of time", "RANGE", "SLIDE", "WA", "ORIGIN", "SPREAD", "LATE")
        self._check_over_time()
        range_, origin = self._amount("RANGE"), self._origin()
        slide = self._amount("SLIDE") if "SLIDE" in self._parameters else range_
        window = SlidingWindow(range_, slide, origin)
        self._check_int64(origin, range_)
        self._check_panes(f"RANGE {range_} ns and SLIDE {slide} ns", range_ // window.pane)
        return window

    def _allow_only(self, kind: str, *names: str) -> None:
        """Raise QueryError for parameters that have no meaning for this kind of window."""
        for name, parameter in self._parameters.items():
            if name not in names:
                raise self._error(f"{name} together with {kind}", parameter.keyword.start, f"only {', '.join(names)}")

    def _check_over_time(self) -> None:
        if "WA" in self._parameters and self._column("WA") != TS.name:
            expected = "WA ts, or RANGE of rows"
            raise self._error("RANGE of time over row-num", self._parameters["WA"].start, expected)

    def _column(self, name: str) -> str:
        """Return the column that WA, RATTR or SATTR names. Return `ts` for any time column of a table."""
        value = self._parameters[name].value
        assert isinstance(value, Attribute)
        return TS.name if self._time is not None and self._time[0] == name else value.text

    def _counts_rows(self, name: str) -> bool:
        """Return whether the value of a parameter is a number of rows."""
        value = self._parameters[name].value
        return isinstance(value, Length) and value.unit.lower() in ROWS

    def _amount(self, name: str) -> int:
        """Return the value of a length in ns or rows, or the number after CAP."""
        value = self._parameters[name].value
        assert isinstance(value, Length | Constant)
        if isinstance(value, Length) and not self._counts_rows(name):
            return duration_of(self._sql, value)
        text, unit = (value.number, "rows") if isinstance(value, Length) else (value.text, "groups")
        if not text.isdecimal() or not 0 < int(text[:25]) < MAX_ROWS:
            raise self._error(f"got '{text}'", value.start, f"a number of {unit}")
        return int(text)

    def _origin(self) -> int:
        value = self._parameters["ORIGIN"].value if "ORIGIN" in self._parameters else None
        return origin_of(self._sql, value) if isinstance(value, Constant) else 0

    def _check_int64(self, origin: int, length: int) -> None:
        if abs(origin) + length + TIME_LIMIT > INT64_MAX:
            problem = f"ORIGIN {origin} ns and RANGE {length} ns together exceed an integer of 64 bits"
            expected = f"an ORIGIN nearer 1970, or a RANGE below {INT64_MAX + 1 - TIME_LIMIT - abs(origin)} ns"
            raise self._error(problem, self._parameters["ORIGIN"].start, expected)

    def _check_panes(self, what: str, panes: int) -> None:
        if panes > MAX_PANES:
            expected = f"at most {MAX_PANES}: a longer SLIDE, or one that divides RANGE"
            raise self._error(f"{what} make {panes} panes per window", self._clause.first, expected)

    def _error(self, problem: str, start: int, expected: str) -> QueryError:
        return QueryError(problem, self._sql, start, expected)
