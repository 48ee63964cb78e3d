"""Find the label that an address has at a given time, in rows that have lifetimes.

    prefix          label    from                  to
    192.0.2.5       laptop   2024-05-01T08:00:00Z  2024-05-01T09:30:00Z
    192.0.2.5       printer  2024-05-01T09:10:00Z                         the address is given to another host
    192.0.2.0/24    guests                                                always

An address at a time has the label of the longest prefix that contains it and is true then. Rows of one prefix follow
each other: a later row ends the row before it, as a new lease of an address does. So at 09:20 the address above belongs
to the printer.
"""

from __future__ import annotations

import numpy as np

from lowlevel.watch.ranges import NONE, AddressRanges, Halves, Numbers, Prefixes

COLUMNS = "a CSV, NDJSON or Parquet file with the columns prefix, label, from and to"
"""The expected file, for messages."""


class History:
    """The rows of a file. `find` returns the label of an address at a time. Immutable."""

    def __init__(self, ipv4: Prefixes, ipv6: Prefixes, starts: Numbers, ends: Numbers, labels: Numbers) -> None:
        """Build the history of some rows. The label of a prefix in `ipv4` or `ipv6` is the index of its row.

        `starts`, `ends`, `labels`: the times (ns) and the label of each row.
        """
        rows: list[Numbers] = []
        parents: list[Numbers] = []
        distinct: list[Prefixes] = []
        count = 0
        for prefixes in (ipv4, ipv6):
            ordered, _ = prefixes.sorted()
            repeats = ordered.repeat_indexes()
            places = np.arange(len(ordered.lows))
            numbers = count + places - np.searchsorted(repeats, places, "right")
            rows.append(np.stack([numbers, ordered.labels]))
            kept = ordered.without(repeats)
            named = Prefixes(kept.bits, kept.highs, kept.lows, kept.lengths, count + np.arange(len(kept.lows)))
            parents.append(_enclosing_prefixes(named))
            distinct.append(named)
            count += len(kept.lows)
        number, row = np.concatenate(rows, axis=1)
        order = np.lexsort((row, starts[row], number))
        number, row = number[order], row[order]
        # If rows of one prefix have equal starts, the last row counts.
        is_last = np.append((np.diff(number) != 0) | (np.diff(starts[row]) != 0), True)[: len(row)]
        self._numbers, row = number[is_last], row[is_last]
        self._ranges = AddressRanges(*distinct)
        self._enclosing = np.concatenate(parents)
        self._times = np.unique(starts[row])
        self._keys = self._numbers * (len(self._times) + 1) + np.searchsorted(self._times, starts[row], "right")
        self._ends = ends[row]
        self._labels = labels[row]

    @property
    def bytes(self) -> int:
        """Memory in bytes."""
        arrays = (self._numbers, self._enclosing, self._times, self._keys, self._ends, self._labels)
        return self._ranges.bytes + sum(array.nbytes for array in arrays)

    def find(self, version: Numbers, high: Halves, low: Halves, times: Numbers) -> Numbers:
        """Return the label of each address at its time (ns), or NONE. `version` as in AddressRanges."""
        found = np.full(len(low), NONE)
        if not len(self._keys):
            return found
        numbers = self._ranges.find(version, high, low)
        ranks = np.searchsorted(self._times, times, "right")
        searched = np.flatnonzero(numbers != NONE)
        while len(searched):
            number = numbers[searched]
            keys = number * (len(self._times) + 1) + ranks[searched]
            position = np.maximum(np.searchsorted(self._keys, keys, "right") - 1, 0)
            has_begun = (self._numbers[position] == number) & (self._keys[position] <= keys)
            is_true = has_begun & (times[searched] < self._ends[position])
            found[searched[is_true]] = self._labels[position[is_true]]
            numbers[searched] = self._enclosing[number]
            searched = searched[~is_true & (numbers[searched] != NONE)]
        return found


def _enclosing_prefixes(prefixes: Prefixes) -> Numbers:
    """Return for each prefix the label of the longest shorter prefix that contains it, or NONE.

    The prefixes must be sorted.
    """
    parents = np.full(len(prefixes.lows), NONE)
    stack: list[tuple[int, int, int]] = []  # last address, label and length of the prefixes around the current one
    starts = ((int(high) << 64) | int(low) for high, low in zip(prefixes.highs, prefixes.lows, strict=True))
    for position, (start, length) in enumerate(zip(starts, prefixes.lengths.tolist(), strict=True)):
        last = start | ((1 << (prefixes.bits - length)) - 1)
        while stack and stack[-1][0] < start:
            stack.pop()
        if stack:
            parents[position] = stack[-1][1]
        stack.append((last, int(prefixes.labels[position]), length))
    return parents
