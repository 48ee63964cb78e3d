"""Labels of addresses: a binary search among the ranges that begin with the same 16 bits as the address.

A search in a million ranges has 21 steps, and most of them miss the cache. With an index by the first 16 bits, a search
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
# A range is stored as its start; it ends where the next range starts. The first range starts at address 0. n prefixes
# become at most 2n + 1 ranges.


NONE = -1
"""The label of addresses outside of all prefixes."""

NESTED = 129
"""Largest number of prefixes that contain one address: one prefix of each length from 0 to 128."""

MAC_SHIFT = 16
"""A MAC address is stored as the first 48 bits of an address of 128 bits, so that ranges and their index serve both."""

Halves = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]


@kernel("i64(u64*, u64*, u64*, u64*, i64*, i64, u64, u64, i64*, u64*, u64*, i64*)")
def flatten(highs, lows, last_highs, last_lows, labels, count, top_high, top_low, around, out_highs, out_lows, out):  # type: ignore[no-untyped-def]
    """Write the starts of ranges (halves) and their labels; return the number of ranges.

    * Prefix i contains the addresses from `highs[i], lows[i]` to `last_highs[i], last_lows[i]`, inclusive. Prefixes are
      sorted by start, then by length, without repeats.
    * `top_high, top_low`: the last address of the IP version.
    * `around`: scratch memory of NESTED numbers, for the prefixes that contain the current address.
    * `out_highs`, `out_lows`, `out`: results, with room for 2 * count + 1 numbers.
    """
    out_highs[0] = np.uint64(0)
    out_lows[0] = np.uint64(0)
    out[0] = NONE
    made = 1
    depth = 0
    one = np.uint64(1)
    for each in range(count + 1):
        while depth > 0:
            inner = around[depth - 1]
            if each < count:
                behind = last_highs[inner] < highs[each] or (
                    last_highs[inner] == highs[each] and last_lows[inner] < lows[each]
                )
                if not behind:
                    break
            depth -= 1
            if last_highs[inner] == top_high and last_lows[inner] == top_low:
                continue
            low = last_lows[inner] + one
            high = last_highs[inner] + one if low == np.uint64(0) else last_highs[inner]
            if out_highs[made - 1] != high or out_lows[made - 1] != low:
                made += 1
            out_highs[made - 1] = high
            out_lows[made - 1] = low
            out[made - 1] = labels[around[depth - 1]] if depth > 0 else NONE
        if each < count:
            if out_highs[made - 1] != highs[each] or out_lows[made - 1] != lows[each]:
                made += 1
            out_highs[made - 1] = highs[each]
            out_lows[made - 1] = lows[each]
            out[made - 1] = labels[each]
            around[depth] = each
            depth += 1
    return made


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

    def repeated(self) -> Numbers:
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
        """Return the starts of disjoint ranges, and their labels; neighbours have different labels. See `flatten`."""
        host = self.bits - self.lengths
        last_highs, last_lows = self.highs | _ones(host - 64), self.lows | _ones(host)
        count = len(self.lows)
        highs, lows, labels = np.empty(2 * count + 1, np.uint64), np.empty(2 * count + 1, np.uint64), _room(count)
        top_high, top_low = divmod(2**self.bits - 1, 2**64)
        made = flatten(
            *(self.highs, self.lows, last_highs, last_lows, self.labels, count, top_high, top_low),
            *(np.empty(NESTED, np.int64), highs, lows, labels),
        )
        begins = np.flatnonzero(np.concatenate(([True], np.diff(labels[:made]) != 0)))
        return highs[begins], lows[begins], labels[begins]


def _room(count: int) -> Numbers:
    return np.empty(2 * count + 1, np.int64)


def _ones(bits: Numbers) -> Halves:
    """Return numbers whose lowest `bits` bits are ones; `bits` is limited to 0..64."""
    bits = np.clip(bits, 0, 64)
    shifted = (np.uint64(1) << np.minimum(bits, 63).astype(np.uint64)) - np.uint64(1)
    return np.where(bits == 64, np.uint64(2**64 - 1), shifted)


FIRST_BITS = 16
"""Number of first bits of an address that the index uses."""

LABEL_BITS = 31
"""Lowest bits of the word of an IPv4 range: the label plus one. The other bits are the start of the range."""

LABEL_MASK = (1 << LABEL_BITS) - 1
FOUR_MASK = np.uint64(2**32 - 1)


@helper
def four_label(address, ranges, index):  # type: ignore[no-untyped-def]
    """Return the label of an IPv4 address."""
    bucket = address >> 16
    first = index[bucket] - 1 if bucket else 0
    end = index[bucket + 1]
    wanted = address << LABEL_BITS | LABEL_MASK
    while end - first > 1:
        middle = (first + end) >> 1
        if ranges[middle] <= wanted:
            first = middle
        else:
            end = middle
    return (ranges[first] & LABEL_MASK) - 1


@helper
def six_label(high, low, highs, lows, labels, index):  # type: ignore[no-untyped-def]
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
    versions, step, highs, lows, rows, four, four_index, six_highs, six_lows, six, six_index, out
):  # fmt: skip
    """Write the label of each of `rows` addresses to `out`; return `rows`. NONE means no label, or NULL.

    Row i has the version `versions[i * step]`. `step` is 0 if all rows have one version, otherwise 1.
    """
    for row in range(rows):
        version = versions[row * step]
        if version == 4:
            out[row] = four_label(np.int64(lows[row] & FOUR_MASK), four, four_index)
        elif version == 6:
            out[row] = six_label(highs[row], lows[row], six_highs, six_lows, six, six_index)
        else:
            out[row] = NONE
    return rows


class AddressRanges:
    """The ranges of a list of prefixes of both IP versions. Immutable."""

    def __init__(self, four: Prefixes, six: Prefixes) -> None:
        """Build the ranges of sorted prefixes without repeats. Labels are 0 to 2**31 - 2."""
        _, starts, labels = four.ranges()
        self.four: Numbers = starts.astype(np.int64) << LABEL_BITS | (labels + 1)
        self.four_index = _index(starts << np.uint64(32))
        self.six_highs, self.six_lows, self.six = six.ranges()
        self.six_index = _index(self.six_highs)

    @property
    def count(self) -> int:
        """The number of ranges, including those without a label."""
        return len(self.four) + len(self.six)

    @property
    def bytes(self) -> int:
        """Memory in bytes."""
        arrays = (self.four, self.four_index, self.six_highs, self.six_lows, self.six, self.six_index)
        return sum(array.nbytes for array in arrays)

    def find(self, version: npt.NDArray[np.int64], high: Halves, low: Halves) -> Numbers:
        """Return the label of each address, NONE if it has no label. `version` may be a constant."""
        rows = len(low)
        versions = np.ascontiguousarray(version.reshape(-1), np.int64)
        out = np.empty(rows, np.int64)
        find_labels(
            *(versions, int(version.ndim > 0), np.ascontiguousarray(high), np.ascontiguousarray(low), rows),
            *(self.four, self.four_index, self.six_highs, self.six_lows, self.six, self.six_index, out),
        )
        return out


def _index(starts: Halves) -> Numbers:
    """Return for each value of the first 16 bits the number of ranges that start below it, then the number of all."""
    edges = np.arange(1 << FIRST_BITS, dtype=np.uint64) << np.uint64(64 - FIRST_BITS)
    return np.append(np.searchsorted(starts, edges), len(starts)).astype(np.int64)
