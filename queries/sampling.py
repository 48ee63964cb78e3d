"""Sampling rates that a user sets by hand, for all exporters or by address: `1000`, or `10.0.0.1=1000`."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

from capture.flows.sampling import LARGEST, Address, FixedRates


def parse_rates(texts: Iterable[str]) -> FixedRates | None:
    """Return the rates of several texts, None for no text; ValueError for what is no rate.

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
    if not 1 <= number <= LARGEST:
        raise ValueError(f"got {text!r}, expected RATE or EXPORTER=RATE, for example 1000 or 192.0.2.1=1000")
    return address, number
