"""Rows of one side of a join by time, so that a watermark removes rows without reading all rows.

Time is divided into intervals. The rows of an interval form a linked list: each stored row contains the number of the
next row in its first word (see LIST in `hash_table`). The lists are in a map, so gaps of years need no memory. A
watermark removes complete lists, and reads only the list that contains the time of the watermark. The number of rows
determines the length of the intervals.
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
"""Minimum and maximum of the average number of rows per list. Outside these limits the length of the intervals changes.
"""

MIN_LISTS = 16
"""With at most this number of lists, the intervals are not made longer."""

LENGTH_FACTOR = 8
"""Factor by which the length of the intervals changes."""

MAX_COUNTED_INTERVALS = 4096
"""If the rows of a batch span fewer intervals, the used intervals are found with an array of counts, otherwise by
sorting (np.unique)."""


@kernel("i64(i64*, i64, i64*, i64, i64*, i64*, i64*, i64*)")
def enlist(stored, width, rows, count, list_numbers, firsts, smallest_times, lengths):  # type: ignore[no-untyped-def]
    """Put each row at the front of its list.

    `list_numbers`: the list of each row. For each list, `firsts` contains 1 + its first row, `smallest_times`
    its smallest time, and `lengths` its length.
    """
    for each in range(count):
        base = rows[each] * width
        position = list_numbers[each]
        stored[base] = (stored[base] & 0xFFFFFFFF) | (firsts[position] << LIST)
        firsts[position] = rows[each] + 1
        smallest_times[position] = min(smallest_times[position], stored[base + TIME])
        lengths[position] += 1
    return count


@kernel("i64(i64*, i64, i64*, i64*, i64, i64*)")
def take_lists(stored, width, firsts, ends, list_count, removed):  # type: ignore[no-untyped-def]
    """Write the rows of `list_count` lists to `removed`, one list after the other. Return the number of rows.

    The rows of a list are in reverse order, the last row first. Before the call, `ends[i]` is the position in `removed`
    after the rows of list i. After the call it is the position of the first row. The lists are read in turns, so that
    their memory accesses overlap.
    """
    count = 0
    unfinished = list_count
    while unfinished:
        unfinished = 0
        for each in range(list_count):
            if firsts[each]:
                row = firsts[each] - 1
                ends[each] -= 1
                removed[ends[each]] = row
                count += 1
                firsts[each] = stored[row * width] >> LIST
                if firsts[each]:
                    prefetch(stored, (firsts[each] - 1) * width)
                    unfinished += 1
    return count


@kernel("i64(i64*, i64, i64, i64, i64*, i64*)")
def take_before(stored, width, first, before, removed, remaining):  # type: ignore[no-untyped-def]
    """Remove the rows whose time is below `before` from a list, and write them to `removed`. Return their number.

    `remaining` receives 1 + the first remaining row, or 0, and the smallest remaining time.
    """
    count = 0
    remaining[0] = 0
    remaining[1] = END
    while first:
        row = first - 1
        base = row * width
        first = stored[base] >> LIST
        if stored[base + TIME] < before:
            removed[count] = row
            count += 1
        else:
            stored[base] = (stored[base] & 0xFFFFFFFF) | (remaining[0] << LIST)
            remaining[0] = row + 1
            remaining[1] = min(remaining[1], stored[base + TIME])
    return count


class TimeLists:
    """The lists of one side of a join. Intervals are at least `shortest_interval` ns long."""

    def __init__(self, shortest_interval: int) -> None:
        """Create empty lists."""
        self.shortest_interval = shortest_interval
        self.interval_length = shortest_interval
        self.lists: dict[int, tuple[int, int, int]] = {}  # by interval: 1 + first row, smallest time, length
        self._interval_heap: list[int] = []  # a heap of intervals
        self._remaining = np.zeros(2, np.int64)

    def choose_length(self, row_count: int) -> int:
        """Return the best interval length for `row_count` rows.

        If the length differs from `interval_length`, the caller calls `rebuild`.
        """
        lists, length = len(self.lists), self.interval_length
        while lists > MIN_LISTS and row_count < MIN_LIST_ROWS * lists:
            lists, length = lists // LENGTH_FACTOR, length * LENGTH_FACTOR
        if row_count > MAX_LIST_ROWS * lists:
            length = max(self.shortest_interval, length // LENGTH_FACTOR)
        return length

    def rebuild(self, stored: Words, rows: Words, times: Words, length: int) -> None:
        """Build the lists again, with intervals of another length. `rows` are all rows."""
        self.interval_length = length
        self.lists = {}
        self._interval_heap = []
        self.add(stored, rows, times)

    def add(self, stored: Words, rows: Words, times: Words) -> None:
        """Add stored rows, at least one."""
        intervals = times // self.interval_length
        first, last = int(intervals.min()), int(intervals.max())
        if last - first < MAX_COUNTED_INTERVALS:
            lists = intervals - first
            used = np.flatnonzero(np.bincount(lists))
            names = (used + first).tolist()
            count = last - first + 1
        else:
            distinct, lists = np.unique(intervals, return_inverse=True)
            names, used = distinct.tolist(), np.arange(len(distinct))
            count = len(distinct)
        firsts, smallest_times, lengths = np.zeros(count, np.int64), np.full(count, END), np.zeros(count, np.int64)
        for position, name in zip(used.tolist(), names, strict=True):
            if name in self.lists:
                firsts[position], smallest_times[position], lengths[position] = self.lists[name]
            else:
                heappush(self._interval_heap, name)
        enlist(stored, stored.shape[1], rows, len(rows), lists, firsts, smallest_times, lengths)
        lists_of_names = zip(firsts[used].tolist(), smallest_times[used].tolist(), lengths[used].tolist(), strict=True)
        self.lists.update(zip(names, lists_of_names, strict=True))

    def take(self, stored: Words, low: int) -> Words:
        """Remove the rows with times below `low`, or all rows if `low` is END.

        Return the removed rows, approximately in the order of time.
        """
        whole = []
        while self._interval_heap and (low == END or (self._interval_heap[0] + 1) * self.interval_length <= low):
            whole.append(self.lists.pop(heappop(self._interval_heap)))
        ends = np.cumsum([0, *(length for _, _, length in whole)])[1:]
        total = int(ends[-1]) if whole else 0
        cut = bool(self._interval_heap) and self.lists[self._interval_heap[0]][1] < low
        removed = np.empty(total + (self.lists[self._interval_heap[0]][2] if cut else 0), np.int64)
        take_lists(
            stored, stored.shape[1], np.array([first for first, _, _ in whole], np.int64), ends, len(whole), removed
        )
        if not cut:
            return removed
        name = self._interval_heap[0]
        first, _, length = self.lists[name]
        count = take_before(stored, stored.shape[1], first, low, removed[total:], self._remaining)
        if count < length:
            self.lists[name] = int(self._remaining[0]), int(self._remaining[1]), length - count
        else:
            del self.lists[heappop(self._interval_heap)]
        return removed[: total + count]

    def clear(self) -> None:
        """Remove all rows."""
        self.lists = {}
        self._interval_heap = []
        self.interval_length = self.shortest_interval
