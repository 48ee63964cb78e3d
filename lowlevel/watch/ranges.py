"""Which label an address has: a binary search among the ranges that share its first 16 bits.

A search in a million ranges reads a place of memory for each of its 21 steps, most of them out of the cache. Where
those that begin with the same 16 bits are is therefore kept beside, and five steps are left.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from capture.native import helper, kernel
from lowlevel.watch.flatten import Halves, Numbers, Prefixes

FIRST_BITS = 16
LABEL_BITS = 31
"""Bits of a label in a word, one higher than it is; the address that a range of IPv4 begins at is above it."""

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
    """Put the label of each of `rows` addresses into `out`, NONE for one that has none or is NULL; return `rows`.

    Row i is of version `versions[i * step]`; `step` is 0 where all are of one.
    """
    for row in range(rows):
        version = versions[row * step]
        if version == 4:
            out[row] = four_label(np.int64(lows[row] & FOUR_MASK), four, four_index)
        elif version == 6:
            out[row] = six_label(highs[row], lows[row], six_highs, six_lows, six, six_index)
        else:
            out[row] = -1
    return rows


class AddressRanges:
    """The ranges of a list of prefixes of both versions; `find` is what it is for. Never changed once made."""

    def __init__(self, four: Prefixes, six: Prefixes) -> None:
        """Take prefixes that are sorted and each there once. Labels are 0 to 2**31 - 2."""
        _, starts, labels = four.ranges()
        self.four: Numbers = starts.astype(np.int64) << LABEL_BITS | (labels + 1)
        self.four_index = _index(starts << np.uint64(32))
        self.six_highs, self.six_lows, self.six = six.ranges()
        self.six_index = _index(self.six_highs)

    @property
    def count(self) -> int:
        """How many ranges there are, those without a label included."""
        return len(self.four) + len(self.six)

    @property
    def bytes(self) -> int:
        """Memory held."""
        arrays = (self.four, self.four_index, self.six_highs, self.six_lows, self.six, self.six_index)
        return sum(each.nbytes for each in arrays)

    def find(self, version: npt.NDArray[np.int64], high: Halves, low: Halves) -> Numbers:
        """Return the label of each address (halves; `version` may be one for all), NONE for one without."""
        rows = len(low)
        versions = np.ascontiguousarray(version.reshape(-1), np.int64)
        out = np.empty(rows, np.int64)
        find_labels(
            *(versions, int(version.ndim > 0), np.ascontiguousarray(high), np.ascontiguousarray(low), rows),
            *(self.four, self.four_index, self.six_highs, self.six_lows, self.six, self.six_index, out),
        )
        return out


def _index(starts: Halves) -> Numbers:
    """Return for each first 16 bits, and for one more, how many ranges begin below them."""
    edges = np.arange(1 << FIRST_BITS, dtype=np.uint64) << np.uint64(64 - FIRST_BITS)
    return np.append(np.searchsorted(starts, edges), len(starts)).astype(np.int64)
