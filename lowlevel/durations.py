"""Durations as people write them, in ns: `500ms`, `10s`, `1.5 minutes`."""

from __future__ import annotations

import re
from fractions import Fraction

from capture.units import SECOND

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

LONGEST = 2**62
"""Durations and origins in ns stay below this (146 years)."""

_DURATION = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([a-z]+)", re.ASCII)


def parse_duration(text: str) -> int:
    """Return a duration in ns; a bare 0 needs no unit. Raises ValueError for anything else, naming what was expected.

    >>> parse_duration("10s"), parse_duration("1.5 minutes"), parse_duration("0")
    (10000000000, 90000000000, 0)
    """
    if text.strip() == "0":
        return 0
    matched = _DURATION.fullmatch(text.strip().lower())
    if not matched or matched[2] not in UNITS:
        raise ValueError("expected a duration such as 500ms, 10s or 2 minutes")
    nanoseconds = Fraction(matched[1]) * UNITS[matched[2]]
    if nanoseconds >= LONGEST:
        raise ValueError("expected less than 146 years")
    return round(nanoseconds)
