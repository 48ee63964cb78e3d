"""Rows of one side of a join by time, so that a watermark removes rows without a walk over all rows.

Time is divided into intervals. The rows of an interval form a list through their links (`hash_table`). The
lists are in a map, so gaps of years cost no memory. A watermark removes whole lists and walks only the list in which it
ends. The number of rows determines the length of the intervals.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from capture.native import kernel
from capture.prefetch import prefetch
from highlevel.groups.key_words import Words
from highlevel.joins.hash_table import LIST, TIME
from lowlevel.punctuation import END

MIN_LIST_ROWS, MAX_LIST_ROWS = 64, 4096
"""Smallest and largest average number of rows per list. Outside these limits the length of the intervals changes."""

FEW_LISTS = 16
STEP = 8
DENSE = 4096
"""Maximum number of intervals between the first and the last row of a batch for which an array of counts is used."""


@kernel("i64(i64*, i64, i64*, i64, i64*, i64*, i64*, i64*)")
def enlist(stored, width, rows, count, lists, firsts, least, lengths):  # type: ignore[no-untyped-def]
    """Put each row at the front of its list.

    Per list `firsts` has 1 + its first row, `least` its smallest time, `lengths` its length.
    """
    for each in range(count):
        base = rows[each] * width
        position = lists[each]
        stored[base] = (stored[base] & 0xFFFFFFFF) | (firsts[position] << LIST)
        firsts[position] = rows[each] + 1
        least[position] = min(least[position], stored[base + TIME])
        lengths[position] += 1
    return count


@kernel("i64(i64*, i64, i64*, i64*, i64, i64*)")
def take_lists(stored, width, firsts, ends, lists, gone):  # type: ignore[no-untyped-def]
    """Write the rows of lists to `gone`, one list after the other, each from its last row. Return their number.

    `ends` receives the end of each list in `gone`. The lists are read in turns, so that their memory accesses overlap.
    """
    count = 0
    left = lists
    while left:
        left = 0
        for each in range(lists):
            if firsts[each]:
                row = firsts[each] - 1
                ends[each] -= 1
                gone[ends[each]] = row
                count += 1
                firsts[each] = stored[row * width] >> LIST
                if firsts[each]:
                    prefetch(stored, (firsts[each] - 1) * width)
                    left += 1
    return count


@kernel("i64(i64*, i64, i64, i64, i64*, i64*)")
def take_before(stored, width, first, low, gone, left):  # type: ignore[no-untyped-def]
    """Remove the rows before `low` from a list and write them to `gone`. Return their number.

    `left` receives 1 + the first remaining row, or 0, and the smallest remaining time.
    """
    count = 0
    left[0] = 0
    left[1] = END
    while first:
        row = first - 1
        base = row * width
        first = stored[base] >> LIST
        if stored[base + TIME] < low:
            gone[count] = row
            count += 1
        else:
            stored[base] = (stored[base] & 0xFFFFFFFF) | (left[0] << LIST)
            left[0] = row + 1
            left[1] = min(left[1], stored[base + TIME])
    return count


class TimeLists:
    """The lists of a side. Intervals are at least `shortest` ns long."""

    def __init__(self, shortest: int) -> None:
        """Create empty lists."""
        self.shortest = shortest
        self.length = shortest
        self.lists: dict[int, tuple[int, int, int]] = {}  # by interval: 1 + first row, smallest time, length
        self._order: list[int] = []  # a heap of intervals
        self._left = np.zeros(2, np.int64)

    def length_for(self, held: int) -> int:
        """Return the best interval length for `held` rows. The caller rebuilds the lists if it changes."""
        lists, length = len(self.lists), self.length
        while lists > FEW_LISTS and held < MIN_LIST_ROWS * lists:
            lists, length = lists // STEP, length * STEP
        if held > MAX_LIST_ROWS * lists:
            length = max(self.shortest, length // STEP)
        return length

    def list_anew(self, stored: Words, rows: Words, times: Words, length: int) -> None:
        """Build the lists again, with intervals of another length. `rows` are all rows."""
        self.length = length
        self.lists = {}
        self._order = []
        self.add(stored, rows, times)

    def add(self, stored: Words, rows: Words, times: Words) -> None:
        """Add stored rows, at least one."""
        intervals = times // self.length
        first, last = int(intervals.min()), int(intervals.max())
        if last - first < DENSE:
            lists = intervals - first
            used = np.flatnonzero(np.bincount(lists))
            names = (used + first).tolist()
            count = last - first + 1
        else:
            distinct, lists = np.unique(intervals, return_inverse=True)
            names, used = distinct.tolist(), np.arange(len(distinct))
            count = len(distinct)
        firsts, least, lengths = np.zeros(count, np.int64), np.full(count, END), np.zeros(count, np.int64)
        for position, name in zip(used.tolist(), names, strict=True):
            if name in self.lists:
                firsts[position], least[position], lengths[position] = self.lists[name]
            else:
                heappush(self._order, name)
        enlist(stored, stored.shape[1], rows, len(rows), lists, firsts, least, lengths)
        lists_of_names = zip(firsts[used].tolist(), least[used].tolist(), lengths[used].tolist(), strict=True)
        self.lists.update(zip(names, lists_of_names, strict=True))

    def take(self, stored: Words, low: int) -> Words:
        """Remove the rows before `low`, or all rows if `low` is END. Return them, roughly in the order of time."""
        whole = []
        while self._order and (low == END or (self._order[0] + 1) * self.length <= low):
            whole.append(self.lists.pop(heappop(self._order)))
        ends = np.cumsum([0, *(length for _, _, length in whole)])[1:]
        total = int(ends[-1]) if whole else 0
        cut = bool(self._order) and self.lists[self._order[0]][1] < low
        gone = np.empty(total + (self.lists[self._order[0]][2] if cut else 0), np.int64)
        take_lists(
            stored, stored.shape[1], np.array([first for first, _, _ in whole], np.int64), ends, len(whole), gone
        )
        if not cut:
            return gone
        name = self._order[0]
        first, _, length = self.lists[name]
        count = take_before(stored, stored.shape[1], first, low, gone[total:], self._left)
        if count < length:
            self.lists[name] = int(self._left[0]), int(self._left[1]), length - count
        else:
            del self.lists[heappop(self._order)]
        return gone[: total + count]

    def clear(self) -> None:
        """Remove all rows."""
        self.lists = {}
        self._order = []
        self.length = self.shortest
