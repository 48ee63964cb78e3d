"""Membership of whole blocks in long lists of constants, by binary search: IN over thousands of values.

A list is sorted once, at its first evaluation. Addresses and prefixes become sorted disjoint ranges. numpy searches
numbers of 64 bits only. So the halves of an IPv6 address are replaced by their ranks among the halves of the starts of
ranges, and two ranks make one number. For 16,384 random addresses and 10,000 constants a search takes 1 to 3 ms; a
comparison with each constant takes 200 ms.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from lowlevel.expressions.address_constants import WIDTH, Address, Prefix
from lowlevel.expressions.tree import Literal

FEW = 32
"""Largest number of constants that are compared one by one, because a search costs more."""

KEPT = 64
"""Largest number of sorted lists in the cache."""

Mask = npt.NDArray[np.bool_]
Halves = npt.NDArray[np.uint64]


class Values:
    """A list of numbers."""

    def __init__(self, values: Iterable[Any]) -> None:
        self.sorted = np.unique(np.array(list(values)))

    def hold(self, data: npt.NDArray[Any]) -> Mask:
        """Return which of `data` are in the list; NaN never is."""
        if data.dtype.kind in "iu":
            data = data.astype(self.sorted.dtype, copy=False)  # signed with unsigned would be searched as floats
        places = np.asarray(np.searchsorted(self.sorted, data))
        return np.asarray(self.sorted[np.minimum(places, len(self.sorted) - 1)] == data)


class Ranges:
    """A list of addresses and prefixes of either version."""

    def __init__(self, prefixes: Iterable[Prefix]) -> None:
        found: dict[int, list[tuple[int, int]]] = {4: [], 6: []}
        for prefix in sorted(prefixes, key=lambda each: (each.value, each.length)):
            ranges = found[prefix.version]
            if not ranges or prefix.value > ranges[-1][1]:  # nested or disjoint, the widest first
                ranges.append((prefix.value, prefix.value + 2 ** (WIDTH[prefix.version] - prefix.length) - 1))
        self.four = np.array(found[4], np.uint64).reshape(-1, 2)
        self.six = np.array([divmod(edge, 2**64) for edges in found[6] for edge in edges], np.uint64).reshape(-1, 2, 2)
        self.highs = np.unique(self.six[:, 0, 0])
        self.lows = np.unique(self.six[:, 0, 1])
        self.starts = self._ranks(self.six[:, 0, 0], self.six[:, 0, 1])

    def hold(self, version: npt.NDArray[Any], high: Halves, low: Halves) -> Mask:
        """Return which addresses, as version and halves, are in a range."""
        inside = np.zeros(np.broadcast(version, low).shape, np.bool_)
        if len(self.four) and (version == 4).any():
            place = np.asarray(np.searchsorted(self.four[:, 0], low, side="right")) - 1
            inside |= (version == 4) & (place >= 0) & (low <= self.four[place, 1])
        if len(self.six) and (version == 6).any():
            place = np.asarray(np.searchsorted(self.starts, self._ranks(high, low), side="right")) - 1
            last_high, last_low = self.six[place, 1, 0], self.six[place, 1, 1]
            below = (high < last_high) | ((high == last_high) & (low <= last_low))
            inside |= (version == 6) & (place >= 0) & below
        return inside

    def _ranks(self, high: Halves, low: Halves) -> npt.NDArray[np.int64]:
        """Return numbers that compare with those of the starts as the addresses compare with the starts."""
        highs = np.asarray(np.searchsorted(self.highs, high, side="right"))
        lows = np.asarray(np.searchsorted(self.lows, low, side="right"))
        if len(self.highs):
            # Between two high halves, an address is above every start with the lower one.
            known = self.highs[np.maximum(highs - 1, 0)] == high
            lows = np.where(known, lows, len(self.lows))
        return highs.astype(np.int64) * (len(self.lows) + 1) + lows


class _Same:
    """A key by identity of the list: a hash of 10,000 constants for each block would cost more than the search."""

    def __init__(self, constants: tuple[Any, ...]) -> None:
        self.constants = constants  # a reference, so that no other list gets its id

    def __hash__(self) -> int:
        return id(self.constants)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.constants is other.constants


def values(literals: tuple[Literal, ...]) -> Values:
    """Return the sorted list of constants of one type of numbers."""
    return _values(_Same(literals))


def ranges(constants: tuple[Literal, ...] | tuple[Prefix, ...]) -> Ranges:
    """Return the sorted list of constants, addresses or prefixes."""
    return _ranges(_Same(constants))


def texts(literals: tuple[Literal, ...]) -> frozenset[str]:
    """Return the constants of a list of texts."""
    return _texts(_Same(literals))


@lru_cache(KEPT)
def _texts(key: _Same) -> frozenset[str]:
    return frozenset(str(literal.value) for literal in key.constants)


@lru_cache(KEPT)
def _values(key: _Same) -> Values:
    return Values(literal.value for literal in key.constants)


@lru_cache(KEPT)
def _ranges(key: _Same) -> Ranges:
    return Ranges(_prefix(constant) for constant in key.constants)


def _prefix(constant: Literal | Prefix) -> Prefix:
    if isinstance(constant, Prefix):
        return constant
    address = constant.value
    assert isinstance(address, Address)
    return Prefix(address.version, address.value, WIDTH[address.version])
