"""Parameters of ready queries: types, checks, and their form as literals of GSQL.

A value becomes part of a query only as a number, a duration or a quoted prefix that this module prints. So no value
can change the structure of a query.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

from lowlevel.durations import duration_text, parse_duration
from queries.text.literals import AddressError, parse_prefix, prefix_text

ALL = "all"
"""The value of a WINDOW parameter for a query without windows."""

_INTEGER = re.compile(r"-?[0-9]{1,18}")
_FLOAT = re.compile(r"-?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})")


class ParameterType(StrEnum):
    """Types of parameters.

    A WINDOW is a duration, which becomes the window clause `[RANGE 1 minute]`, or `all`, which removes the clause.
    """

    INTEGER = "integer"
    FLOAT = "float"
    DURATION = "duration"
    WINDOW = "window"
    PREFIX = "prefix"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a ready query. `minimum` and `maximum` are the bounds of numbers, both included."""

    name: str
    type: ParameterType
    default: int | float | str
    help: str
    minimum: int | float | None = None
    maximum: int | float | None = None

    def __post_init__(self) -> None:
        """Check that the default is a valid value."""
        self.literal(self.default)

    @property
    def expected(self) -> str:
        """The valid values in words."""
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

    def literal(self, value: object) -> str:
        """Return a value as text of GSQL. `value` is a number or text.

        Raises ValueError for an invalid value. Its message is a reason that `expected` does not contain, or empty.
        """
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

    def _number(self, text: str) -> str:
        number: int | float
        if self.type is ParameterType.INTEGER and _INTEGER.fullmatch(text):
            number = int(text)
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


WINDOW = Parameter("window", ParameterType.WINDOW, "all", "length of the windows; all: one answer for the whole input")
ROWS = Parameter("n", ParameterType.INTEGER, 10, "number of rows, in each window", minimum=1)
"""Parameters that many queries have."""
