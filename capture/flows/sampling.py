"""Sampling rates of exporters: announcements in options, and the keys by which records refer to them.

An exporter that samples one packet in N counts only the sampled packets. It announces the rate in options, in records
or in the header (v5). Options apply to all flows, or to one sampler (element 48), selector (302) or interface (10). The
most specific rate is used, in this order: record, selector, sampler, interface, session.

A rate is a fraction: packets of the traffic per sampled packet.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import field
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING

from capture.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from fractions import Fraction

Address = IPv4Address | IPv6Address

FixedRates = int | tuple[tuple[Address, int], ...]
"""Rates that override announced rates: one rate for all exporters, or pairs of exporter address and rate."""

SAMPLER, SELECTOR, INTERFACE = 0, 1, 2
"""Kinds of sampling keys."""

MAX_SESSION_KEYS = 1024
MAX_ALL_KEYS = 8192
"""Maximum number of sampling keys of one session, and of all sessions. Further keys are rejected and counted."""

MAX_RATE = (1 << 31) - 1
"""Largest valid rate. The numerator and the denominator of a rate have the same limit."""

OptionValues = Mapping[int, bytes]
"""Values of one option record, by the number of the registered element. NetFlow v9 also has scope fields, which are not
registered elements. Only its interface is included, with the number SCOPE_INTERFACE."""

SCOPE_INTERFACE = -10
"""Number under which the interface in the scope of an option record is stored. It is not the number of an element."""


@dataclass(slots=True)
class Sampling:
    """Sampling rates announced by one session. `rates_by_key`: by kind of key and ID.

    `refused_keys`: number of rejected keys.
    """

    default_rate: Fraction | None = None
    rates_by_key: dict[tuple[int, int], Fraction] = field(default_factory=dict)
    refused_keys: int = 0

    def read_options(self, values: OptionValues, free_keys: int = MAX_ALL_KEYS) -> bool:
        """Read an option record. Return whether a rate has changed. `free_keys`: number of keys that can be added."""
        rate = announced_rate(values)
        if rate is None:
            return False
        key = _read_key(values)
        if key is None:
            has_changed = self.default_rate != rate
            self.default_rate = rate
            return has_changed
        if key not in self.rates_by_key and (len(self.rates_by_key) >= MAX_SESSION_KEYS or free_keys < 1):
            self.refused_keys += 1
            return False
        has_changed = self.rates_by_key.get(key) != rate
        self.rates_by_key[key] = rate
        return has_changed

    @property
    def common_rate(self) -> Fraction | None:
        """Rate of a record without a sampling key: the session's default, or the common rate of all its keys."""
        rates = set(self.rates_by_key.values())
        return self.default_rate or (rates.pop() if len(rates) == 1 else None)


def announced_rate(values: OptionValues) -> Fraction | None:
    """Return the rate that an option record announces; None if it announces none.

    A sampling interval (305) is the number of packets sampled in a row. Without the number of skipped packets (306) it
    determines no rate.

    >>> announced_rate({34: bytes([3, 232])}), announced_rate({305: bytes([10]), 306: bytes([90])})
    (Fraction(1000, 1), Fraction(10, 1))
    """
    from fractions import Fraction  # only decoders of flows need it

    for element in (50, 34):
        if interval := _read_integer(values, element):
            return _valid_rate(Fraction(interval))
    for sampled_element, skipped_element in ((305, 306), (307, 308)):
        interval, space = _read_integer(values, sampled_element), _read_integer(values, skipped_element)
        if interval and space is not None:
            return _valid_rate(Fraction(interval + space, interval))
    size, population = _read_integer(values, 309), _read_integer(values, 310)
    if size and population and population >= size:
        return _valid_rate(Fraction(population, size))
    probability = _read_float(values.get(311, b""))
    if probability is not None and 1 / MAX_RATE <= probability <= 1:
        return _valid_rate(Fraction(1 / probability).limit_denominator(1000))
    return None


def _valid_rate(rate: Fraction) -> Fraction | None:
    return rate if 1 <= rate <= MAX_RATE and rate.numerator <= MAX_RATE else None


def _read_key(values: OptionValues) -> tuple[int, int] | None:
    for element, kind in ((302, SELECTOR), (48, SAMPLER), (SCOPE_INTERFACE, INTERFACE)):
        number = _read_integer(values, element)
        if number is not None:
            return kind, number
    return None


def _read_integer(values: OptionValues, element: int) -> int | None:
    data = values.get(element, b"")
    return int.from_bytes(data, "big") if 0 < len(data) <= 8 else None


def _read_float(data: bytes) -> float | None:
    if len(data) not in (4, 8):
        return None
    (number,) = struct.unpack(">d" if len(data) == 8 else ">f", data)
    return number if math.isfinite(number) else None
