"""Options of inputs: the slack of late rows, the lull of idle inputs, and the sampling rates of exporters."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

from capture.flows.sampling import MAX_RATE, Address, FixedRates
from capture.lazy_dataclasses import dataclass
from highlevel.inline.engine import EXACT_SLACK
from lowlevel.durations import parse_duration
from lowlevel.watermarks.idle import IdleRule, ReplayClock
from lowlevel.watermarks.rule import parse_lull as parse_threshold
from lowlevel.watermarks.rule import parse_rule

EXACT_WORD = "exact"
"""The word for a slack without limit: all results are returned at the end of the input, and no row is late."""

EXPORTED_WORD = "exported"
"""The word before the time after which flow records are exported at the latest."""

TRACE_WORD = "trace"
"""The word after a lull that is measured by the record times of the other links instead of the system's clock."""


@dataclass(frozen=True, slots=True)
class Slack:
    """The allowed disorder of inputs without exact watermarks.

    `late`: how much older than the newest row a row may be, ns, or EXACT_SLACK. `exported`: the time in ns after which
    a flow record is exported at the latest, so that sequence numbers show which records have arrived; None if unknown.
    """

    late: int
    exported: int | None = None


def parse_slack(text: str) -> Slack:
    """Return the slack of a duration, of the word `exact`, or of `exported TIME late TIME`.

    Raises ValueError for other texts.

    >>> parse_slack("1.5 minutes"), parse_slack("exact").late == EXACT_SLACK
    (Slack(late=90000000000, exported=None), True)
    >>> parse_slack("exported 15s late 5m")
    Slack(late=300000000000, exported=15000000000)
    """
    words = text.strip().lower()
    if words == EXACT_WORD:
        return Slack(EXACT_SLACK)
    try:
        if words.startswith(EXPORTED_WORD):
            rule = parse_rule(words)
            return Slack(rule.amount or 0, rule.export_delay)
        return Slack(parse_duration(text))
    except ValueError as error:
        raise ValueError(
            f"got a slack of {text!r}, {error}, {EXACT_WORD}: answer at the end of the input, "
            f"or {EXPORTED_WORD} TIME late TIME for flow records"
        ) from error


def parse_lull(text: str) -> IdleRule:
    """Return the rule for idle inputs. Raises ValueError if `text` is neither a duration nor `DURATION trace`.

    A duration is measured by the system's clock; with `trace`, by the record times of the other links.

    >>> parse_lull("5s").threshold, type(parse_lull("5s trace").clock).__name__
    (5000000000, 'ReplayClock')
    """
    duration, _, last_word = text.strip().rpartition(" ")
    if last_word.lower() == TRACE_WORD and duration:
        return IdleRule(parse_threshold(duration), ReplayClock())
    return IdleRule(parse_threshold(text))


def parse_rates(texts: Iterable[str]) -> FixedRates | None:
    """Return the sampling rates: one rate for all exporters, or one per exporter; None without texts.

    Raises ValueError for a text that is no rate, and for rates that contradict each other.

    >>> parse_rates(["1000"])
    1000
    >>> parse_rates(["192.0.2.1=100", "2001:db8::1=512"])
    ((IPv4Address('192.0.2.1'), 100), (IPv6Address('2001:db8::1'), 512))
    """
    rates = [_rate(text) for text in texts]
    common_rates = [rate for exporter, rate in rates if exporter is None]
    if common_rates and len(rates) > 1:
        raise ValueError("got a rate for all exporters and another rate, expected one RATE, or EXPORTER=RATE for each")
    if common_rates:
        return common_rates[0]
    exporter_rates = tuple((exporter, rate) for exporter, rate in rates if exporter is not None)
    repeated = [
        exporter for position, (exporter, _) in enumerate(exporter_rates) if exporter in dict(exporter_rates[:position])
    ]
    if repeated:
        raise ValueError(f"got two rates for {repeated[0]}, expected one")
    return exporter_rates or None


def _rate(text: str) -> tuple[Address | None, int]:
    exporter, equals, rate = text.rpartition("=")
    try:
        address = ip_address(exporter.strip()) if equals else None
        rate_value = int(rate)
    except ValueError:
        rate_value, address = 0, None
    if not 1 <= rate_value <= MAX_RATE:
        raise ValueError(f"got {text!r}, expected RATE or EXPORTER=RATE, for example 1000 or 192.0.2.1=1000")
    return address, rate_value
