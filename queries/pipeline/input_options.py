"""Options of inputs: the slack of late rows, the lull of idle inputs, and the sampling rates of exporters."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

from capture.flows.sampling import MAX_RATE, Address, FixedRates
from highlevel.inline.engine import EXACT
from lowlevel.durations import parse_duration
from lowlevel.watermarks.idle import IdleRule, ReplayClock
from lowlevel.watermarks.rule import parse_lull as parse_threshold

EXACTLY = "exact"
"""The word for a slack without limit: results come at the end of the input, and no row is late."""

TRACE = "trace"
"""The word for lulls by the times of the other links instead of the system's clock."""


def parse_slack(text: str) -> int:
    """Return a slack in ns, or EXACT for the word `exact`. Raises ValueError for other texts.

    >>> parse_slack("10s"), parse_slack("1.5 minutes"), parse_slack("exact") == EXACT
    (10000000000, 90000000000, True)
    """
    if text.strip().lower() == EXACTLY:
        return EXACT
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ValueError(f"got a slack of {text!r}, {error}, or {EXACTLY}: answer at the end of the input") from error


def parse_lull(text: str) -> IdleRule:
    """Return the rule for idle inputs: a duration by the system's clock, or, if `trace` follows, by the trace's clock.

    Raises ValueError for other texts.

    >>> parse_lull("5s").threshold, type(parse_lull("5s trace").clock).__name__
    (5000000000, 'ReplayClock')
    """
    duration, _, last = text.strip().rpartition(" ")
    if last.lower() == TRACE and duration:
        return IdleRule(parse_threshold(duration), ReplayClock())
    return IdleRule(parse_threshold(text))


def parse_rates(texts: Iterable[str]) -> FixedRates | None:
    """Return the sampling rates of all texts, or None without texts. Raises ValueError for other texts.

    >>> parse_rates(["1000"])
    1000
    >>> parse_rates(["192.0.2.1=100", "2001:db8::1=512"])
    ((IPv4Address('192.0.2.1'), 100), (IPv6Address('2001:db8::1'), 512))
    """
    rates = [_rate(text) for text in texts]
    everyone = [rate for exporter, rate in rates if exporter is None]
    if everyone and len(rates) > 1:
        raise ValueError("got a rate for all exporters and another, expected one RATE, or EXPORTER=RATE for each")
    if everyone:
        return everyone[0]
    named = tuple((exporter, rate) for exporter, rate in rates if exporter is not None)
    twice = [exporter for number, (exporter, _) in enumerate(named) if exporter in dict(named[:number])]
    if twice:
        raise ValueError(f"got two rates for {twice[0]}, expected one")
    return named or None


def _rate(text: str) -> tuple[Address | None, int]:
    exporter, equals, rate = text.rpartition("=")
    try:
        address = ip_address(exporter.strip()) if equals else None
        number = int(rate)
    except ValueError:
        number, address = 0, None
    if not 1 <= number <= MAX_RATE:
        raise ValueError(f"got {text!r}, expected RATE or EXPORTER=RATE, for example 1000 or 192.0.2.1=1000")
    return address, number
