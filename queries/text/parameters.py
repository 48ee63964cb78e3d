"""Parameters of queries: their types, the checks of values, and the conversion of values to GSQL literals.

A value becomes part of a query only as a literal or a window clause that this module writes. So no value can change the
structure of a query. The value `@FILE` of a number or boolean becomes a call of `setting`. The query then uses the
value in the file, also when the file changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import isfinite

from capture.lazy_dataclasses import dataclass
from lowlevel.durations import duration_text, parse_duration
from queries.text.errors import QueryError
from queries.text.literals import (
    INT64_MAX,
    INT64_MIN,
    AddressError,
    address_text,
    parse_address,
    parse_prefix,
    prefix_text,
)

ALL = "all"
"""The value of a WINDOW parameter for a query without windows."""

FILE_MARK = "@"
"""The first character of a value that is the path of a file which contains the value."""

MAX_FLOAT = 1e308
"""Bound of floats from a file, if the parameter has no bound."""

_INTEGER = re.compile(r"-?[0-9]{1,19}")
_FLOAT = re.compile(r"-?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})")


class ParameterType(StrEnum):
    """Types of parameters.

    A WINDOW is a duration, which becomes a window clause such as `[RANGE 1 minute]`, or `all`: no window clause.
    """

    INTEGER = "integer"
    FLOAT = "float"
    DURATION = "duration"
    WINDOW = "window"
    PREFIX = "prefix"
    ADDRESS = "address"
    TEXT = "text"
    BOOLEAN = "boolean"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a query. `minimum` and `maximum` are inclusive bounds of numbers.

    If `default` is None, a value must be given.
    """

    name: str
    type: ParameterType
    default: int | float | str | None
    help: str
    minimum: int | float | None = None
    maximum: int | float | None = None

    def __post_init__(self) -> None:
        """Check that the default is a valid value."""
        if self.default is not None:
            self.literal(self.default)

    @property
    def expected(self) -> str:
        """A description of the valid values, for messages."""
        match self.type:
            case ParameterType.INTEGER | ParameterType.FLOAT:
                words = "an integer" if self.type is ParameterType.INTEGER else "a number"
                bounds = [f"at least {self.minimum}"] if self.minimum is not None else []
                bounds += [f"at most {self.maximum}"] if self.maximum is not None else []
                return ", ".join([words, *bounds])
            case ParameterType.DURATION:
                return "a duration such as 500ms, 10s or '2 minutes', more than 0 and less than 146 years"
            case ParameterType.WINDOW:
                return "a duration such as 10s or '2 minutes', or all: no windows"
            case ParameterType.PREFIX:
                return "a prefix such as 10.0.0.0/8 or 2001:db8::/32, or an address"
            case ParameterType.ADDRESS:
                return "an address such as 10.0.0.1 or 2001:db8::1"
            case ParameterType.TEXT:
                return "text"
            case ParameterType.BOOLEAN:
                return "true or false"

    def literal(self, value: object) -> str:
        """Return a value as GSQL text. `value` is a number or text, or a boolean for a BOOLEAN parameter.

        Raises ValueError for an invalid value. Its message is empty, or a reason in addition to `expected`.
        """
        if self.type is ParameterType.BOOLEAN:
            if str(value).strip().lower() not in ("true", "false"):
                raise ValueError
            return str(value).strip().upper()
        if self.type is ParameterType.TEXT:
            if not isinstance(value, str):
                raise ValueError
            return "'" + value.replace("'", "''") + "'"
        text = "" if isinstance(value, bool) or not isinstance(value, int | float | str) else str(value).strip()
        match self.type:
            case ParameterType.INTEGER | ParameterType.FLOAT:
                return self._number(text)
            case ParameterType.WINDOW if text.lower() == ALL:
                return ""
            case ParameterType.DURATION | ParameterType.WINDOW:
                length = duration_text(_duration(text))
                return f"[RANGE {length}]" if self.type is ParameterType.WINDOW else length
            case ParameterType.PREFIX:
                try:
                    return f"'{prefix_text(parse_prefix(text))}'"
                except AddressError as error:
                    raise ValueError(str(error)) from None
            case ParameterType.ADDRESS:
                try:
                    return f"'{address_text(parse_address(text))}'"
                except AddressError as error:
                    raise ValueError(str(error)) from None

    def user_literal(self, value: object) -> str:
        """Convert a value from the user of the query, as `literal` does.

        `@FILE` is allowed. The query then uses the value in the file.

        A DEFAULT in the text of a query cannot be a file: the text may come from a web page, which must not read files.
        """
        if isinstance(value, str) and value.strip().startswith(FILE_MARK) and self.type is not ParameterType.TEXT:
            return self._setting(value.strip()[len(FILE_MARK) :])
        return self.literal(value)

    def _setting(self, path: str) -> str:
        """Return a call of `setting` for the value that the file `path` contains under the name of the parameter."""
        match self.type:
            case ParameterType.BOOLEAN:
                bounds = ""
            case ParameterType.INTEGER:
                least = INT64_MIN if self.minimum is None else int(self.minimum)
                most = INT64_MAX if self.maximum is None else int(self.maximum)
                has_bounds = least > INT64_MIN or most < INT64_MAX
                bounds = f", {max(least, -INT64_MAX)}, {most}" if has_bounds else ""
            case ParameterType.FLOAT:
                lowest = -MAX_FLOAT if self.minimum is None else float(self.minimum)
                bounds = f", {lowest}, {MAX_FLOAT if self.maximum is None else float(self.maximum)}"
            case _:
                raise ValueError(f"a value of type {self.type} cannot change while a query runs")
        if not path:
            raise ValueError("no file after @")
        path = path.replace("'", "''")
        return f"setting('{path}', '{self.name}'{bounds})"

    def _number(self, text: str) -> str:
        number: int | float
        if self.type is ParameterType.INTEGER and _INTEGER.fullmatch(text):
            number = int(text)
            if not INT64_MIN <= number <= INT64_MAX:
                raise ValueError
        elif self.type is ParameterType.FLOAT and _FLOAT.fullmatch(text):
            number = float(text)
        else:
            raise ValueError
        low = number if self.minimum is None else self.minimum
        high = number if self.maximum is None else self.maximum
        if not (isfinite(number) and low <= number <= high):
            raise ValueError
        return str(number)


def _duration(text: str) -> int:
    """Return a duration in ns. Raises ValueError without a message for 0 and for other texts."""
    try:
        nanoseconds = parse_duration(text)
    except ValueError:
        raise ValueError from None
    if nanoseconds == 0:
        raise ValueError
    return nanoseconds


def literals(parameters: Sequence[Parameter], values: Mapping[str, object], sql: str) -> dict[str, str]:
    """Return the literals of all parameters by name, from the given `values` (numbers or text) and the defaults.

    Raises QueryError for an unknown parameter, an invalid value and a missing value. `sql` is the text of the query.
    """
    names = [parameter.name for parameter in parameters]
    for name in values:
        if name not in names:
            expected = (
                "a parameter of this query" if names else "no parameter, or PARAM before the query: PARAM { n UINT; }"
            )
            raise QueryError(f"unknown parameter '{name}'", sql, 0, expected, names, name)
    texts = {}
    for parameter in parameters:
        value = values.get(parameter.name, parameter.default)
        if value is None and parameter.name not in values:
            problem = f"the parameter {parameter.name} has no value and no DEFAULT"
            raise QueryError(problem, sql, 0, parameter.expected)
        try:
            texts[parameter.name] = parameter.user_literal(value)
        except ValueError as error:
            problem = f"got {parameter.name} = {str(value)!r}" + (f": {error}" if str(error) else "")
            raise QueryError(problem, sql, 0, parameter.expected) from None
    return texts


WINDOW = Parameter("window", ParameterType.WINDOW, "all", "length of the windows; all: one answer for the whole input")
ROWS = Parameter("n", ParameterType.INTEGER, 10, "number of rows, in each window", minimum=1)
"""Two parameters that many queries have."""
