"""Labels of addresses, by a binary search among the ranges that begin with the same 16 bits as the address.

A search in a million ranges has 21 steps, most of which miss the cache. With an index by the first 16 bits, a search
has five steps. The kernels are functions that numba compiles to machine code.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from capture.lazy_dataclasses import dataclass
from capture.native import helper, kernel

# Nested prefixes become disjoint ranges, each with the label of the longest prefix that contains it.
#
#     10.0.0.0/8    a     ├───────────── a ─────────────┤
#     10.1.0.0/16   b          ├── b ──┤
#     ranges        none  │  a │   b   │       a        │ none
#
# Only the start of a range is stored, because the range ends at the start of the next range. The first range starts at
# address 0. n prefixes become at most 2n + 1 ranges.


NONE = -1
"""The label of addresses outside of all prefixes."""

MAX_NESTED = 129
"""Maximum number of prefixes that contain one address: one prefix of each length from 0 to 128."""

MAC_SHIFT = 16
"""Shift that makes a MAC address the first 48 bits of the upper half of a 128-bit address."""

Halves = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]


@kernel("i64(u64*, u64*, u64*, u64*, i64*, i64, u64, u64, i64*, u64*, u64*, i64*)")
def make_disjoint_ranges(  # type: ignore[no-untyped-def]
    highs, lows, last_highs, last_lows, labels, count, max_high, max_low, enclosing, out_highs, out_lows, out_labels
):  # fmt: skip
    """Convert prefixes to disjoint ranges: write the starts of ranges and their labels. Return the number of ranges.

    * Prefix i contains the addresses from `highs[i], lows[i]` to `last_highs[i], last_lows[i]`, inclusive. Prefixes are
      sorted by start, then by length, without repeats.
    * `max_high, max_low`: the halves of the last address of the IP version.
    * `enclosing`: scratch memory of MAX_NESTED numbers, for the prefixes that contain the current address.
    * `out_highs`, `out_lows`, `out_labels`: results, with room for 2 * count + 1 numbers.
    """
    out_highs[0] = np.uint64(0)
    out_lows[0] = np.uint64(0)
    out_labels[0] = NONE
    range_count = 1
    depth = 0
    one = np.uint64(1)
    for prefix in range(count + 1):
        while depth > 0:
            inner = enclosing[depth - 1]
            if prefix < count:
                has_ended = last_highs[inner] < highs[prefix] or (
                    last_highs[inner] == highs[prefix] and last_lows[inner] < lows[prefix]
                )
                if not has_ended:
                    break
            depth -= 1
            if last_highs[inner] == max_high and last_lows[inner] == max_low:
                continue
            low = last_lows[inner] + one
            high = last_highs[inner] + one if low == np.uint64(0) else last_highs[inner]
            if out_highs[range_count - 1] != high or out_lows[range_count - 1] != low:
                range_count += 1
            out_highs[range_count - 1] = high
            out_lows[range_count - 1] = low
            out_labels[range_count - 1] = labels[enclosing[depth - 1]] if depth > 0 else NONE
        if prefix < count:
            if out_highs[range_count - 1] != highs[prefix] or out_lows[range_count - 1] != lows[prefix]:
                range_count += 1
            out_highs[range_count - 1] = highs[prefix]
            out_lows[range_count - 1] = lows[prefix]
            out_labels[range_count - 1] = labels[prefix]
            enclosing[depth] = prefix
            depth += 1
    return range_count


@dataclass(frozen=True, slots=True)
class Prefixes:
    """Prefixes of one IP version, whose addresses have `bits` bits: starts (halves), lengths and labels."""

    bits: int
    highs: Halves
    lows: Halves
    lengths: Numbers
    labels: Numbers

    def sorted(self) -> tuple[Prefixes, Numbers]:
        """Return the prefixes sorted by start, then by length, and their old indexes."""
        if self.bits == 32:
            order = np.argsort(self.lows << np.uint64(6) | self.lengths.astype(np.uint64), kind="stable")
        else:
            order = np.lexsort((self.lengths, self.lows, self.highs))
        return self._select(order), order

    def repeat_indexes(self) -> Numbers:
        """Return the indexes of prefixes that are equal to the previous prefix. The prefixes must be sorted."""
        same = (np.diff(self.lows) == 0) & (np.diff(self.highs) == 0) & (np.diff(self.lengths) == 0)
        return np.flatnonzero(same) + 1

    def without(self, indexes: Numbers) -> Prefixes:
        """Return all prefixes except those with the given indexes."""
        return self._select(np.delete(np.arange(len(self.lows)), indexes))

    def _select(self, indexes: Numbers) -> Prefixes:
        highs, lows = self.highs[indexes], self.lows[indexes]
        return Prefixes(self.bits, highs, lows, self.lengths[indexes], self.labels[indexes])

    def ranges(self) -> tuple[Halves, Halves, Numbers]:
        """Return the starts of disjoint ranges, and their labels. Neighbouring ranges have different labels."""
        host = self.bits - self.lengths
        last_highs, last_lows = self.highs | _ones(host - 64), self.lows | _ones(host)
        count = len(self.lows)
        highs, lows, labels = (
            np.empty(2 * count + 1, np.uint64),
            np.empty(2 * count + 1, np.uint64),
            _make_labels(count),
        )
        max_high, max_low = divmod(2**self.bits - 1, 2**64)
        range_count = make_disjoint_ranges(
            *(self.highs, self.lows, last_highs, last_lows, self.labels, count, max_high, max_low),
            *(np.empty(MAX_NESTED, np.int64), highs, lows, labels),
        )
        begins = np.flatnonzero(np.concatenate(([True], np.diff(labels[:range_count]) != 0)))
        return highs[begins], lows[begins], labels[begins]


def _make_labels(count: int) -> Numbers:
    return np.empty(2 * count + 1, np.int64)


def _ones(bits: Numbers) -> Halves:
    """Return numbers whose lowest `bits` bits are ones.

    Values of `bits` below 0 or above 64 are replaced by 0 or 64.
    """
    bits = np.clip(bits, 0, 64)
    shifted = (np.uint64(1) << np.minimum(bits, 63).astype(np.uint64)) - np.uint64(1)
    return np.where(bits == 64, np.uint64(2**64 - 1), shifted)


FIRST_BITS = 16
"""Number of first bits of an address that the index uses."""

LABEL_BITS = 31
"""Lowest bits of the word of an IPv4 range: the label plus one. The other bits are the start of the range."""

LABEL_MASK = (1 << LABEL_BITS) - 1
IPV4_MASK = np.uint64(2**32 - 1)


@helper
def find_ipv4_label(address, ranges, index):  # type: ignore[no-untyped-def]
    """Return the label of an IPv4 address."""
    bucket = address >> 16
    first = index[bucket] - 1 if bucket else 0
    end = index[bucket + 1]
    max_word = address << LABEL_BITS | LABEL_MASK
    while end - first > 1:
        middle = (first + end) >> 1
        if ranges[middle] <= max_word:
            first = middle
        else:
            end = middle
    return (ranges[first] & LABEL_MASK) - 1


@helper
def find_ipv6_label(high, low, highs, lows, labels, index):  # type: ignore[no-untyped-def]
    """Return the label of an IPv6 address."""
    bucket = np.int64(high >> np.uint64(48))
    first = index[bucket] - 1 if bucket else 0
    end = index[bucket + 1]
    while end - first > 1:
        middle = (first + end) >> 1
        if highs[middle] < high or (highs[middle] == high and lows[middle] <= low):
            first = middle
        else:
            end = middle
    return labels[first]


@kernel("i64(i64*, i64, u64*, u64*, i64, i64*, i64*, u64*, u64*, i64*, i64*, i64*)")
def find_labels(  # type: ignore[no-untyped-def]
    versions, step, highs, lows, rows, ipv4_ranges, ipv4_index, ipv6_highs, ipv6_lows, ipv6_labels, ipv6_index, out
):  # fmt: skip
    """Write the label of each of `rows` addresses to `out`. Return `rows`. NONE means no label, or NULL.

    Row i has the version `versions[i * step]`. `step` is 0 if all rows have one version, otherwise 1.
    """
    for row in range(rows):
        version = versions[row * step]
        if version == 4:
            out[row] = find_ipv4_label(np.int64(lows[row] & IPV4_MASK), ipv4_ranges, ipv4_index)
        elif version == 6:
            out[row] = find_ipv6_label(highs[row], lows[row], ipv6_highs, ipv6_lows, ipv6_labels, ipv6_index)
        else:
            out[row] = NONE
    return rows


class AddressRanges:
    """The ranges of a list of prefixes of both IP versions. Immutable."""

    def __init__(self, ipv4: Prefixes, ipv6: Prefixes) -> None:
        """Build the ranges of sorted prefixes without repeats. Labels are 0 to 2**31 - 2."""
        _, starts, labels = ipv4.ranges()
        self.ipv4: Numbers = starts.astype(np.int64) << LABEL_BITS | (labels + 1)
        self.ipv4_index = _index(starts << np.uint64(32))
        self.ipv6_highs, self.ipv6_lows, self.ipv6 = ipv6.ranges()
        self.ipv6_index = _index(self.ipv6_highs)

    @property
    def count(self) -> int:
        """The number of ranges, including those without a label."""
        return len(self.ipv4) + len(self.ipv6)

    @property
    def bytes(self) -> int:
        """Memory in bytes."""
        arrays = (self.ipv4, self.ipv4_index, self.ipv6_highs, self.ipv6_lows, self.ipv6, self.ipv6_index)
        return sum(array.nbytes for array in arrays)

    def find(self, version: npt.NDArray[np.int64], high: Halves, low: Halves) -> Numbers:
        """Return the label of each address, or NONE. `version` has one value per address, or one for all."""
        rows = len(low)
        versions = np.ascontiguousarray(version.reshape(-1), np.int64)
        out = np.empty(rows, np.int64)
        find_labels(
            *(versions, int(version.ndim > 0), np.ascontiguousarray(high), np.ascontiguousarray(low), rows),
            *(self.ipv4, self.ipv4_index, self.ipv6_highs, self.ipv6_lows, self.ipv6, self.ipv6_index, out),
        )
        return out


def _index(starts: Halves) -> Numbers:
    """Return the number of ranges that start below each value of the first 16 bits, and finally the number of all."""
    edges = np.arange(1 << FIRST_BITS, dtype=np.uint64) << np.uint64(64 - FIRST_BITS)
    return np.append(np.searchsorted(starts, edges), len(starts)).astype(np.int64)
