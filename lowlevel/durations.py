"""Conversion of durations between text (`500ms`, `10s`, `1.5 minutes`) and ns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from capture.units import SECOND

if TYPE_CHECKING:
    from fractions import Fraction

UNITS: dict[str, int] = {
    name: nanoseconds
    for names, nanoseconds in (
        ("ns nanosecond nanoseconds", 1),
        ("us microsecond microseconds", 10**3),
        ("ms millisecond milliseconds", 10**6),
        ("s sec secs second seconds", SECOND),
        ("m min mins minute minutes", 60 * SECOND),
        ("h hour hours", 3600 * SECOND),
        ("d day days", 86400 * SECOND),
    )
    for name in names.split()
}

DURATION_LIMIT = 2**62
"""Durations, and the origins of windows (ns since the epoch), are below this number of ns (146 years)."""

_TEXT_UNITS = ("days", "hours", "minutes", "seconds", "ms", "us", "ns")
_DURATION_PATTERN = r"(\d{1,18}(?:\.\d{1,9})?)\s*([a-z]+)"


def parse_duration(text: str) -> int:
    """Return a duration in ns. Every number except 0 needs a unit.

    Raises ValueError, with the expected form, for other texts.

    >>> parse_duration("10s"), parse_duration("1.5 minutes"), parse_duration("0")
    (10000000000, 90000000000, 0)
    """
    if text.strip() == "0":
        return 0
    matched = re.fullmatch(_DURATION_PATTERN, text.strip().lower(), re.ASCII)
    if not matched or matched[2] not in UNITS:
        raise ValueError("expected a duration such as 500ms, 10s or 2 minutes")
    nanoseconds = exact_duration(matched[1], matched[2])
    if nanoseconds >= DURATION_LIMIT:
        raise ValueError("expected less than 146 years")
    return round(nanoseconds)


def exact_duration(number: str, unit: str) -> Fraction | int:
    """Return `number unit` in ns; `unit` is one of UNITS, case-insensitive."""
    if number.isdecimal():
        return int(number) * UNITS[unit.lower()]
    from fractions import Fraction  # with its import of 1 ms

    return Fraction(number) * UNITS[unit.lower()]


def duration_text(nanoseconds: int) -> str:
    """Return a duration as text, in the largest unit in which it is a whole number.

    >>> duration_text(600 * 10**9), duration_text(10**9), duration_text(6_400_000_000)
    ('10 minutes', '1 second', '6400 ms')
    """
    unit = next(unit for unit in _TEXT_UNITS if nanoseconds % UNITS[unit] == 0)
    count = nanoseconds // UNITS[unit]
    return f"{count} {unit.removesuffix('s') if count == 1 and len(unit) > 2 else unit}"
