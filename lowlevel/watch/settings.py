"""Settings: numbers and booleans in a TOML file. Queries use them as constants, which may change while a query runs."""

from __future__ import annotations

from math import isfinite

from capture.lazy_dataclasses import dataclass
from lowlevel.expressions.types import Type
from lowlevel.watch.errors import WatchlistError

Value = int | float | bool

TYPE_NAMES = {Type.INT: "an integer", Type.FLOAT: "a number", Type.BOOL: "true or false"}
"""The types of settings, in words."""

TYPES = {int: Type.INT, float: Type.FLOAT, bool: Type.BOOL}
"""The type of a setting by the Python type of its value in the file."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a file: its dotted name, its type (INT, FLOAT or BOOL), and the inclusive bounds of a number.

    A `WatchedFile` contains a setting in place of the form of a watchlist.
    """

    name: str
    type: Type
    least: int | float | None = None
    most: int | float | None = None

    def __str__(self) -> str:
        """Return the valid line of the file in words."""
        bounds = f" from {self.least} to {self.most}" if self.least is not None else ""
        return f"setting '{self.name} = …', {TYPE_NAMES[self.type]}{bounds}"

    def read(self, data: bytes) -> Value:
        """Return the value in the text of a file. Raises WatchlistError for a missing or invalid value."""
        value = read_value(data, self.name)
        if self.type is Type.FLOAT and type(value) is int:
            value = float(value)
        if TYPES[type(value)] is not self.type:
            raise self._error(value)
        if self.least is not None and self.most is not None and not self.least <= value <= self.most:
            raise self._error(value)
        return value

    def _error(self, value: Value) -> WatchlistError:
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return WatchlistError(f"got {self.name} = {text}, expected the {self}")


def read_value(data: bytes, name: str) -> Value:
    r"""Return the value of a dotted name. Raises WatchlistError if it is missing or has another type.

    >>> read_value(b"[talkers]\nleast = 5", "talkers.least")
    5
    """
    import tomllib  # few queries need it, and all import this module

    try:
        value: object = tomllib.loads(data.decode())
    except UnicodeDecodeError:
        raise WatchlistError("got bytes that are not UTF-8 text, expected settings in TOML") from None
    except tomllib.TOMLDecodeError as error:
        raise WatchlistError(f"got a file that is not TOML: {error}; expected lines like {name} = 100") from None
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            known = ", ".join(value) if isinstance(value, dict) and value else "nothing"
            raise WatchlistError(f"has no setting {name!r}; it contains {known}")
        value = value[part]
    if not isinstance(value, int | float | bool):
        raise WatchlistError(f"got {name} of type {type(value).__name__}, expected a number or true or false")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise WatchlistError(f"got {name} = {value}, expected an integer of 64 bits with sign")
    if isinstance(value, float) and not isfinite(value):
        raise WatchlistError(f"got {name} = {value}, expected a finite number")
    return value
