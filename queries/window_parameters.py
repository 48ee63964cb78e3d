"""The parameters of a window clause, read one by one: `RANGE 10 minutes`, `SLIDE 5 rows`, `PA srcIP`, `SATTR rank(ts)`.

Which of them make a window together is for `queries.window_clause` to say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from lowlevel.durations import LONGEST, UNITS
from lowlevel.times import EXAMPLES, TimeError, parse_time
from queries.errors import QueryError
from queries.tokens import Kind, Token

PARAMETERS = (
    *("RANGE", "SLIDE", "WA", "ORIGIN", "SPREAD", "SESSION"),
    *("PA", "IDLE", "RATTR", "SATTR", "CAP", "LATE"),
)
OTHER_NAMES = {"WATTR": "WA", "GAP": "SESSION"}
ROW_NUMBERS = ("row-num", "row_num", "seq-num", "seq_num")
ROWS = ("row", "rows")
MOST_ROWS = 2**40
"""A window of a number of rows has fewer."""

_DECIMAL = re.compile(r"(?=.{1,40}$)(?:\d+(?:\.\d*)?|\.\d+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Length:
    """How long something is: an amount of ns, of rows, or all there is."""

    amount: int
    unit: str = "time"

    @property
    def of_rows(self) -> bool:
        """Whether the amount is one of rows."""
        return self.unit == "rows"


ALL = Length(0, "all")


@dataclass
class Parameters:
    """What a clause says: by parameter its value, and its first token behind the name."""

    values: dict[str, object] = field(default_factory=dict)
    places: dict[str, Token] = field(default_factory=dict)
    names: dict[str, Token] = field(default_factory=dict)
    columns: list[Token] = field(default_factory=list)
    """The tokens of the columns behind PA, with the commas between them."""

    def length(self, name: str) -> Length | None:
        """Return the value of a parameter that is a length, None where it is not given."""
        value = self.values.get(name)
        return value if isinstance(value, Length) else None


class ParameterReader:
    """A reader of the tokens between the brackets; what breaks the rules is a `QueryError`."""

    def __init__(self, sql: str, tokens: Sequence[Token], close: Token) -> None:
        """`close` is the bracket that ends the clause: where something is missing, it is missing there."""
        self._sql = sql
        self._tokens = [*tokens, close]
        self._at = 0

    def read(self) -> Parameters:
        """Read all. Parameters come in any order, commas between them are optional."""
        found = Parameters()
        while self._at < len(self._tokens) - 1:
            token = self._take()
            name = OTHER_NAMES.get(token.keyword, token.keyword)
            if name not in PARAMETERS:
                raise self._error(f"got {token.shown} in the window clause", token, "a window parameter", PARAMETERS)
            if name in found.values:
                raise self._error(f"{name} is given twice", token, "each window parameter once")
            found.places[name] = self._peek()
            found.names[name] = token
            found.values[name] = self._value(name, found)
            if self._peek().text == "," and self._at < len(self._tokens) - 2:
                self._at += 1
        return found

    def _value(self, name: str, found: Parameters) -> object:
        match name:
            case "SPREAD":
                return True
            case "RANGE":
                if self._peek().keyword == "ALL":
                    self._at += 1
                    return ALL
                self._at += self._peek().keyword == "TUMBLING"
                return self._length()
            case "SLIDE":
                return self._length()
            case "SESSION" | "IDLE":
                length = self._length()
                if length.of_rows:
                    raise self._error(f"got {name} of rows", found.places[name], "a length of time")
                return length
            case "WA":
                return self._attribute(("ts", *ROW_NUMBERS), "ts, or row-num for windows of a number of rows")
            case "RATTR":
                return self._attribute(("ts",), "ts: windows reach back over capture time")
            case "SATTR":
                return self._attribute((*ROW_NUMBERS, "rank(ts)"), "row-num, or rank(ts) for the order of ts")
            case "PA":
                return self._columns(found)
            case "CAP":
                return self._count("groups")
            case "LATE":
                return self._attribute(("drop", "emit"), "DROP or EMIT")
        return self._origin()

    def _attribute(self, names: Sequence[str], expected: str) -> str:
        """Read a name, which may be several tokens: row - num, rank ( ts )."""
        token = self._take()
        for name in names:
            parts = re.findall(r"\w+|\W", name)
            spelled = [token, *self._tokens[self._at : self._at + len(parts) - 1]]
            if [each.text.casefold() for each in spelled] == parts and token.kind in (Kind.WORD, Kind.QUOTED):
                self._at += len(parts) - 1
                return name
        behind = {"ts": "WA", "drop": "LATE"}.get(names[0], "") if len(names) != 1 else "RATTR"
        behind = "SATTR" if "rank(ts)" in names else behind
        raise self._error(f"got {behind} {token.shown}", token, expected)

    def _columns(self, found: Parameters) -> bool:
        """Read the columns behind PA: up to what is no column, which is the next parameter or the end."""
        while True:
            name = self._take()
            if name.kind not in (Kind.WORD, Kind.QUOTED) or name.keyword in PARAMETERS:
                raise self._error(f"got PA {name.shown}", name, "a column, or several with commas between them")
            found.columns.append(name)
            while self._peek().text == "." and self._at < len(self._tokens) - 2:
                found.columns += [self._take(), self._take()]
            following = self._tokens[min(self._at + 1, len(self._tokens) - 1)]
            named = OTHER_NAMES.get(following.keyword, following.keyword) in PARAMETERS
            if self._peek().text != "," or named or following.kind not in (Kind.WORD, Kind.QUOTED):
                return True
            found.columns.append(self._take())

    def _count(self, what: str) -> int:
        token = self._take()
        if token.kind is not Kind.NUMBER or not token.text.isdecimal() or not 0 < int(token.text[:25]) < MOST_ROWS:
            raise self._error(f"got {token.shown}", token, f"a number of {what}")
        return int(token.text)

    def _length(self) -> Length:
        number, unit = self._take(), self._peek()
        if number.kind is not Kind.NUMBER or not _DECIMAL.fullmatch(number.text):
            raise self._error(f"got {number.shown}", number, "a length, for example 1 minute, 6.4 seconds or 100 rows")
        if unit.text.lower() in ROWS and unit.kind is Kind.WORD:
            self._at -= 1
            count = self._count("rows")
            self._at += 1
            return Length(count, "rows")
        if unit.text.lower() not in UNITS or unit.kind is not Kind.WORD:
            choices = (*UNITS, *ROWS)
            raise self._error(f"got {unit.shown} after {number.text}", unit, "a unit of time, or rows", choices)
        self._at += 1
        return Length(duration_of(self._sql, number, unit))

    def _origin(self) -> int:
        return read_origin(self._sql, self._take)

    def _peek(self) -> Token:
        return self._tokens[min(self._at, len(self._tokens) - 1)]

    def _take(self) -> Token:
        token = self._peek()
        self._at += 1
        return token

    def _error(self, problem: str, token: Token, expected: str, choices: Sequence[str] = ()) -> QueryError:
        return QueryError(problem, self._sql, token.start, expected, choices, token.text)


def read_origin(sql: str, take: Callable[[], Token]) -> int:
    """Read the value of ORIGIN from the tokens that `take` returns, in ns since the epoch; QueryError if it is none."""
    token = take()
    negative = token.text == "-" and token.kind is Kind.SYMBOL
    if negative:
        token = take()
    value = None
    if token.kind is Kind.NUMBER and token.text.isdecimal():
        value = int(token.text[:25])
    elif token.kind in (Kind.STRING, Kind.QUOTED, Kind.TIME) and not negative:
        value = nanoseconds_of(sql, token)
    if value is None:
        expected = "whole nanoseconds since the epoch, or a time like '2008-10-01T12:00:00Z'"
        raise QueryError(f"got ORIGIN {token.shown}", sql, token.start, expected, (), token.text)
    if abs(value) >= LONGEST:
        problem = f"ORIGIN {token.text} is out of range"
        raise QueryError(problem, sql, token.start, f"less than {LONGEST} ns from the epoch", (), token.text)
    return -value if negative else value


def duration_of(sql: str, number: Token, unit: Token) -> int:
    """Return `number unit` in ns; QueryError where that is nothing, too long, or no whole number of ns."""
    nanoseconds = Fraction(number.text) * UNITS[unit.text.lower()]
    if not 0 < nanoseconds < LONGEST:
        problem = f"got a duration of {number.text} {unit.text}"
        raise QueryError(problem, sql, number.start, "more than nothing and less than 146 years")
    if nanoseconds.denominator != 1:
        problem = f"{number.text} {unit.text} is no whole number of nanoseconds"
        raise QueryError(problem, sql, number.start, "a multiple of 1 ns")
    return int(nanoseconds)


def nanoseconds_of(sql: str, token: Token) -> int:
    """Return the time of ORIGIN in ns since the epoch; QueryError at its place if its text is no time."""
    try:
        return parse_time(token.text)
    except TimeError as error:
        expected = f"whole nanoseconds since the epoch, or {EXAMPLES}"
        raise QueryError(f"got ORIGIN: {error}", sql, token.start, expected) from None
