"""How an exporter samples: what options say, and by which number of a record they are found again.

An exporter that looks at one packet in N counts one in N. It says so in options, for all of its flows or for those of
one sampler (element 48), selector (302) or interface (10), in the record itself, or in the header (v5). What is said
more closely counts more: the record, its selector, its sampler, its interface, the session.

A rate is a fraction: packets of the traffic over packets looked at.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from ipaddress import IPv4Address, IPv6Address

Address = IPv4Address | IPv6Address

HandRates = int | tuple[tuple[Address, int], ...]
"""Rates that stand whatever exporters announce: one for all, or each with an exporter's address."""

SAMPLER, SELECTOR, INTERFACE = 0, 1, 2
"""Kinds of numbers that a rate is announced for."""

MAX_KEYS = 1024
ALL_KEYS = 8192
"""Samplers, selectors and interfaces that are remembered, of one session and of all; more are counted, not taken."""

LARGEST = (1 << 31) - 1
"""Largest rate believed, and largest part of its fraction."""

Values = Mapping[int, bytes]
"""Registered elements of one option record by number; a NetFlow v9 scope field is none, but SCOPE_INTERFACE."""

SCOPE_INTERFACE = -10
"""The interface that an option record is about, where that is its scope."""


@dataclass(slots=True)
class Sampling:
    """What one session announced. `keyed` is by kind and number."""

    default: Fraction | None = None
    keyed: dict[tuple[int, int], Fraction] = field(default_factory=dict)
    refused: int = 0

    def learn(self, values: Values, room: int = ALL_KEYS) -> bool:
        """Take in an option record; return whether anything is different now. `room` is left for further keys."""
        rate = announced_rate(values)
        if rate is None:
            return False
        key = _key(values)
        if key is None:
            changed = self.default != rate
            self.default = rate
            return changed
        if key not in self.keyed and (len(self.keyed) >= MAX_KEYS or room < 1):
            self.refused += 1
            return False
        changed = self.keyed.get(key) != rate
        self.keyed[key] = rate
        return changed

    @property
    def usual(self) -> Fraction | None:
        """The rate of a record that names no sampler: the session's own, or the one that all samplers have."""
        rates = set(self.keyed.values())
        return self.default or (rates.pop() if len(rates) == 1 else None)


def announced_rate(values: Values) -> Fraction | None:
    """The rate that an option record announces; None where it says nothing about it.

    An interval without the space between two of them (305 without 306) says how many packets are looked at in a row,
    not how many are not, and so nothing.

    >>> announced_rate({34: bytes([3, 232])}), announced_rate({305: bytes([10]), 306: bytes([90])})
    (Fraction(1000, 1), Fraction(10, 1))
    """
    for element in (50, 34):
        if interval := _number(values, element):
            return _believed(Fraction(interval))
    for taken, left in ((305, 306), (307, 308)):
        interval, space = _number(values, taken), _number(values, left)
        if interval and space is not None:
            return _believed(Fraction(interval + space, interval))
    size, population = _number(values, 309), _number(values, 310)
    if size and population and population >= size:
        return _believed(Fraction(population, size))
    probability = _float(values.get(311, b""))
    if probability is not None and 1 / LARGEST <= probability <= 1:
        return _believed(Fraction(1 / probability).limit_denominator(1000))
    return None


def _believed(rate: Fraction) -> Fraction | None:
    return rate if 1 <= rate <= LARGEST and rate.numerator <= LARGEST else None


def _key(values: Values) -> tuple[int, int] | None:
    for element, kind in ((302, SELECTOR), (48, SAMPLER), (SCOPE_INTERFACE, INTERFACE)):
        number = _number(values, element)
        if number is not None:
            return kind, number
    return None


def _number(values: Values, element: int) -> int | None:
    data = values.get(element, b"")
    return int.from_bytes(data, "big") if 0 < len(data) <= 8 else None


def _float(data: bytes) -> float | None:
    if len(data) not in (4, 8):
        return None
    (number,) = struct.unpack(">d" if len(data) == 8 else ">f", data)
    return number if math.isfinite(number) else None
