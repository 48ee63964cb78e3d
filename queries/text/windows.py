"""Parser of windows: `[RANGE 10 minutes, SLIDE 1 minute]`, `[LIFETIME start_ts TO end_ts]`, and calls in GROUP BY.

The calls are TUMBLE, HOP and SESSION. Parameters may be in any order, and commas between them are optional.
`queries.plans` checks which parameters can be combined.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from lowlevel.durations import UNITS
from queries.text.errors import QueryError
from queries.text.expressions import ExpressionParser
from queries.text.lexer import Kind, Token
from queries.text.tree import Attribute, Constant, Length, Name, Parameter, ParameterValue, Window, WindowCall, Word

PARAMETERS = (
    *("RANGE", "SLIDE", "WA", "ORIGIN", "SPREAD", "SESSION"),
    *("PA", "IDLE", "RATTR", "SATTR", "CAP", "LATE", "LIFETIME"),
)
"""Parameters of a window of groups."""

JOIN_PARAMETERS = ("RANGE", "WA", "BOUNDARY", "ORIGIN")
"""Parameters of the window of an item in a join."""

JOIN_PARAMETER = "a parameter of a join window; a window of groups follows an item of SELECT"

BOUNDARIES = ("CLOSED", "HALF-OPEN", "OPEN")
ROWS = ("row", "rows")

CALLS = {
    "TUMBLE": "TUMBLE(ts, INTERVAL '1' MINUTE)",
    "HOP": "HOP(ts, INTERVAL '1' MINUTE, INTERVAL '10' MINUTE): the slide, then the range",
    "SESSION": "SESSION(ts, INTERVAL '30' SECOND)",
}
"""The window functions of GROUP BY, each with an example of a call."""

_OTHER_NAMES = {"WATTR": "WA", "GAP": "SESSION"}
_DECIMAL = r"(?=.{1,40}$)(?:\d+(?:\.\d*)?|\.\d+)"
_TIME_COLUMN = {
    "WA": "ts, or row-num for windows of a number of rows",
    "RATTR": "ts: the window has a length of capture time",
    "SATTR": "row-num, or rank(ts) for the order of ts",
}


class WindowParser(ExpressionParser):
    """Reads window clauses and window calls."""

    _no_unit: QueryError | None = None  # the error for the first length without a unit in the current clause

    def _window(self) -> Window:
        """Read a window clause, brackets included."""
        bracket, first = self._take(), self._token.start
        parameters: dict[str, Parameter] = {}
        self._no_unit = None
        while not self._accept("]"):
            parameter = self._parameter()
            if parameter.name in parameters:
                start = parameter.keyword.start
                raise QueryError(f"{parameter.name} is given twice", self._sql, start, "each window parameter once")
            parameters[parameter.name] = parameter
            if self._ahead().keyword != "]":
                self._accept(",")
        self._check_units(parameters)
        return Window(tuple(parameters.values()), bracket.start, first)

    def _check_units(self, parameters: dict[str, Parameter]) -> None:
        """Raise QueryError for a length without a unit, unless the window uses the column `time` (in seconds)."""
        if self._no_unit is None:
            return
        columns = (parameters[name].value for name in ("WA", "RATTR") if name in parameters)
        if not any(isinstance(column, Attribute) and column.word.text.lower() == "time" for column in columns):
            raise self._no_unit

    def _parameter(self) -> Parameter:
        token = self._token
        name = _OTHER_NAMES.get(token.keyword, token.keyword)
        if name not in PARAMETERS and name not in JOIN_PARAMETERS:
            raise self._unknown_parameter()
        keyword, start = self._word(), self._token.start
        return Parameter(name, keyword, self._value(name), start)

    def _unknown_parameter(self) -> QueryError:
        return self._wrong(f"got {self._token.name_in_messages} in the window clause", "a window parameter", PARAMETERS)

    def _value(self, name: str) -> ParameterValue:
        match name:
            case "SPREAD":
                value: ParameterValue = None
            case "RANGE" if self._token.keyword == "ALL":
                value = self._word()
            case "RANGE":
                value = self._length(tumbling=self._accept("TUMBLING"))
            case "SLIDE" | "SESSION" | "IDLE":
                value = self._length()
            case "LIFETIME":
                value = self._length() if self._token.kind is Kind.NUMBER else self._lifetime()
            case "WA" | "RATTR" | "SATTR":
                value = self._attribute(f"got {name} {self._token.name_in_messages}", _TIME_COLUMN[name])
            case "PA":
                value = self._partition()
            case "LATE" | "BOUNDARY":
                value = self._choice(name, ("DROP", "EMIT") if name == "LATE" else BOUNDARIES)
            case "CAP" if self._token.kind is not Kind.NUMBER:
                raise self._wrong(f"got {self._token.name_in_messages}", "a number of groups")
            case "CAP":
                value = self._literal()
            case _:
                value = self._origin()
        return value

    def _length(self, tumbling: bool = False) -> Length:
        number = self._token
        if number.kind is not Kind.NUMBER or not re.fullmatch(_DECIMAL, number.text, re.ASCII):
            raise self._wrong(
                f"got {number.name_in_messages}", "a length, for example 1 minute, 6.4 seconds or 100 rows"
            )
        self._at += 1
        unit = self._token
        if unit.keyword in (",", "]") or _is_parameter(unit):
            self._no_unit = self._no_unit or self._unknown_unit(number)
            return Length(number.text, "seconds", number.start, unit.start, tumbling)
        if unit.kind is not Kind.WORD or (unit.text.lower() not in UNITS and unit.text.lower() not in ROWS):
            raise self._unknown_unit(number)
        self._at += 1
        return Length(number.text, unit.text, number.start, unit.start, tumbling)

    def _unknown_unit(self, number: Token) -> QueryError:
        problem = f"got {self._token.name_in_messages} after {number.text}"
        return self._wrong(problem, "a unit of time, or rows", (*UNITS, *ROWS))

    def _attribute(self, problem: str, expected: str) -> Attribute:
        """Read `ts`, `S.ts`, `row-num` or `rank(ts)`."""
        if self._token.kind not in (Kind.WORD, Kind.QUOTED):
            raise self._wrong(problem, expected)
        word = self._word()
        following = [self._token.text, self._ahead().text.lower(), self._ahead(2).text]
        if following[0] == "." and self._ahead().kind in (Kind.WORD, Kind.QUOTED):
            self._at += 1
            column = self._word()
            return Attribute(column.text.lower(), column, word)
        text = word.text.lower()
        if following[0] == "-" and following[1] == "num":
            self._at += 2
            text += "-num"
        elif following in (["(", "ts", ")"], ["(", "time", ")"]):
            self._at += 3
            text += f"({following[1]})"
        return Attribute(text, word)

    def _partition(self) -> tuple[Name, ...]:
        """Read the columns after PA, up to the next parameter or the end of the clause."""
        names: list[Name] = []
        while not names or (self._token.keyword == "," and self._is_column(self._ahead())):
            self._at += bool(names)
            if not self._is_column(self._token):
                raise self._wrong(
                    f"got PA {self._token.name_in_messages}", "a column, or several with commas between them"
                )
            names.append(self._name())
        return tuple(names)

    def _lifetime(self) -> tuple[Name, ...]:
        """Read the columns `start TO end`."""
        names: list[Name] = []
        for expected in ("a length, for example 5 minutes, or columns: start_ts TO end_ts", "the column of the end"):
            if names and not self._accept("TO"):
                raise self._wrong(f"got {self._token.name_in_messages} after the start", "TO and the end")
            if not self._is_column(self._token):
                raise self._wrong(f"got LIFETIME {self._token.name_in_messages}", expected)
            names.append(self._name())
        return tuple(names)

    def _is_column(self, token: Token) -> bool:
        parameter = _OTHER_NAMES.get(token.keyword, token.keyword) in PARAMETERS
        return token.kind in (Kind.WORD, Kind.QUOTED) and not parameter

    def _choice(self, name: str, choices: Sequence[str]) -> Word:
        """Read one of `choices`. An underscore may replace a hyphen."""
        token = self._token
        text = token.keyword.replace("_", "-")
        hyphened = f"{text}-{self._ahead(2).keyword}"
        if self._ahead().keyword == "-" and hyphened in choices:
            self._at += 2
            text = hyphened
        if text not in choices:
            expected, listed = ("DROP or EMIT", ()) if name == "LATE" else ("one of these", choices)
            raise self._wrong(f"got {name} {token.name_in_messages}", expected, listed)
        self._at += 1
        return Word(text, token.start)

    def _origin(self) -> Constant:
        minus = self._token if self._token.keyword == "-" else None
        self._at += minus is not None
        token = self._token
        decimal = token.kind is Kind.NUMBER and token.text.isdecimal()
        if not decimal and (minus or token.kind not in (Kind.STRING, Kind.QUOTED, Kind.TIME)):
            expected = "whole nanoseconds since the epoch, or a time like '2008-10-01T12:00:00Z'"
            raise self._wrong(f"got ORIGIN {token.name_in_messages}", expected)
        return self._literal(minus)

    def _window_call(self) -> WindowCall:
        """Read TUMBLE, HOP or SESSION with its arguments, and the name after its AS."""
        function = self._word()
        name = function.text.upper()
        wrong = QueryError(f"got {name} with other arguments", self._sql, function.start, CALLS[name])
        self._at += 1
        if self._token.keyword == ")":
            raise wrong
        time = self._attribute(f"{name} over {self._token.name_in_messages}", "ts, because windows use ts")
        if self._token.keyword not in (",", ")"):
            raise QueryError(
                f"{name} over {time.word.name_in_messages}", self._sql, time.word.start, "ts, because windows use ts"
            )
        lengths = []
        while self._accept(","):
            start, length = self._token.start, self._interval((",", ")"))
            if length is None:
                raise QueryError(f"got no length of time in {name}", self._sql, start, CALLS[name], tuple(UNITS))
            lengths.append(length)
        if len(lengths) != (2 if name == "HOP" else 1):
            raise wrong
        self._at += 1
        alias = None
        if self._accept("AS"):
            if self._token.kind not in (Kind.WORD, Kind.QUOTED):
                raise self._wrong(f"got {self._token.name_in_messages} after {name}", "AS and a name, or nothing")
            alias = self._word()
        if self._token.keyword != "," and not self._at_clause_end():
            raise self._wrong(f"got {self._token.name_in_messages} after {name}", "AS and a name, or nothing")
        return WindowCall(function, time, tuple(lengths), alias)

    def _wrong(self, problem: str, expected: str, choices: Sequence[str] = ()) -> QueryError:
        """Return an error at the current token."""
        return QueryError(problem, self._sql, self._token.start, expected, choices, self._token.text)


def _is_parameter(token: Token) -> bool:
    return _OTHER_NAMES.get(token.keyword, token.keyword) in (*PARAMETERS, *JOIN_PARAMETERS)
