"""The slack of an input as people write it: how far its rows may be behind the newest before they are late."""

from __future__ import annotations

import re
from fractions import Fraction

from highlevel.inline import EXACT
from queries.window_clause import LONGEST, UNITS

EXACTLY = "exact"
"""The word for: promise nothing before the end, so that nothing can be late."""

_DURATION = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([a-z]+)", re.ASCII)


def parse_slack(text: str) -> int:
    """Return a slack in ns, or EXACT. Raises ValueError for what is neither a duration nor the word `exact`.

    >>> parse_slack("10s"), parse_slack("1.5 minutes"), parse_slack("exact") == EXACT
    (10000000000, 90000000000, True)
    """
    if text.strip().lower() == EXACTLY:
        return EXACT
    if text.strip() == "0":
        return 0
    matched = _DURATION.fullmatch(text.strip().lower())
    if not matched or matched[2] not in UNITS:
        raise ValueError(
            f"got a slack of {text!r}, expected a duration such as 500ms, 10s or 2 minutes, or {EXACTLY}: "
            "answer at the end of the input"
        )
    nanoseconds = Fraction(matched[1]) * UNITS[matched[2]]
    if nanoseconds >= LONGEST:
        raise ValueError(f"got a slack of {text}, expected less than 146 years, or {EXACTLY}")
    return round(nanoseconds)
