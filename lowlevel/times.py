"""Conversion of times between ISO 8601 texts and int64 ns since the epoch.

    '2016-08-02'                        midnight UTC
    '2016-08-02T02:19:00Z'              seconds are optional, and a blank may replace the T
    '2016-08-02T02:19:00.025824001Z'    up to nine digits of a fraction
    '2016-08-02 04:19+02:00'            an offset from UTC; without an offset the time is UTC

Times are POSIX times: a leap second has no number, so the second 60 is an error.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pyarrow as pa

from capture import arrow_compute as pc
from capture.units import SECOND

EXAMPLES = "a time like '2016-08-02', '2016-08-02T02:19:00Z' or '2016-08-02 04:19:00.5+02:00'"

EARLIEST, LATEST = -(2**63), 2**63 - 1
"""The smallest and the largest time, in ns since the epoch."""

_PATTERN = (
    r"(?P<date>\d{4}-\d\d-\d\d)"
    r"(?:[T ](?P<minute>\d\d:\d\d)(?::(?P<second>\d\d)(?:\.(?P<fraction>\d+))?)?)?"
    r"\ ?(?P<zone>Z|[+-]\d\d(?::?\d\d)?)?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TimeError(ValueError):
    """A text that is not a time. The message gives the reason, without the position in the query."""


def parse_time(text: str) -> int:
    """Convert an ISO 8601 time to ns since the epoch; without an offset the time is UTC. Raises TimeError.

    >>> parse_time("1970-01-01T01:00:00.000000001+01:00"), parse_time("1970-01-02")
    (1, 86400000000000)
    """
    match = re.fullmatch(_PATTERN, text.strip(), re.ASCII | re.IGNORECASE)
    if match is None:
        raise TimeError(f"'{text}' is not a time")
    second, fraction = match["second"] or "00", match["fraction"] or ""
    if second == "60":
        raise TimeError(f"'{text}' is a leap second, which has no number of ns since the epoch")
    if len(fraction) > 9:
        raise TimeError(f"'{text}' has {len(fraction)} digits after the decimal point, expected at most 9")
    try:
        moment = datetime.fromisoformat(
            f"{match['date']}T{match['minute'] or '00:00'}:{second}{_offset(match['zone'])}"
        )
    except ValueError as error:
        raise TimeError(f"'{text}' is not a time ({error})") from None
    since_epoch = moment - _EPOCH
    nanoseconds = (since_epoch.days * 86400 + since_epoch.seconds) * SECOND + int(fraction.ljust(9, "0"))
    if not EARLIEST <= nanoseconds <= LATEST:
        raise TimeError(f"'{text}' is out of range: times are from {time_text(EARLIEST)} to {time_text(LATEST)}")
    return nanoseconds


def _offset(zone: str | None) -> str:
    """Return an offset from UTC in the format `+02:00`."""
    if zone is None or zone in ("Z", "z"):
        return "+00:00"
    hours, minutes = zone[:3], zone[3:].lstrip(":") or "00"
    return f"{hours}:{minutes}"


def time_text(nanoseconds: int) -> str:
    """Return a time (ns since the epoch) as exact ISO 8601 text in UTC.

    >>> time_text(1_470_104_373_025_824_000), time_text(0), time_text(-1)
    ('2016-08-02T02:19:33.025824Z', '1970-01-01T00:00:00Z', '1969-12-31T23:59:59.999999999Z')
    """
    return str(time_texts(pa.array([nanoseconds])).to_pylist()[0])


def time_texts(column: pa.Array) -> pa.Array:
    """Return int64 ns since the epoch as exact ISO 8601 texts in UTC; NULL stays NULL.

    A fraction has 3, 6 or 9 digits, a whole second none.
    """
    texts = pc.cast(pc.cast(column, pa.timestamp("ns")), pa.string())
    texts = pc.replace_substring_regex(pc.replace_substring(texts, " ", "T"), r"\.?(000){1,3}$", "")
    return pc.binary_join_element_wise(texts, "Z", "")
