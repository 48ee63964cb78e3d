"""The kernel of the filter join: one pass over rows in the order in which they came, asking and remembering.

Memory is buckets of WAYS entries, each a time and the words of a key. A key has one bucket, chosen by its hash, and is
there with the newest time at which it was seen. Entries of a bucket are filled from its first on and never emptied, so
the first empty one ends a search.
"""

from __future__ import annotations

import numpy as np

from capture.column_matrix import LINE_WORDS
from capture.native import helper, kernel
from capture.prefetch import prefetch
from lowlevel.subaggregates import INT_MIN

WAYS = 8
"""Entries of a bucket."""

AHEAD = 32
"""Rows whose buckets are asked for together, two of them each."""

EMPTY = INT_MIN
"""The time of an entry that holds nothing."""

NEWEST, HELD, ALIVE, OVER = range(4)
"""What is kept beside: the newest time remembered; entries; evictions of keys within the duration of it, and others."""

TALLIES = 4


@helper
def bucket_of(words, rows, row, count, mask):  # type: ignore[no-untyped-def]
    """Return the bucket of the key of a row, the words of which lie `rows` apart."""
    mixed = np.uint64(0x9E3779B97F4A7C15)
    for word in range(count):
        mixed = (mixed ^ np.uint64(words[word * rows + row])) * np.uint64(0xFF51AFD7ED558CCD)
        mixed ^= mixed >> np.uint64(32)
    return np.int64(mixed & np.uint64(mask))


@helper
def find_key(entries, home, width, words, rows, row):  # type: ignore[no-untyped-def]
    """Return where the key of a row stands in the bucket at `home`, else where it is empty, else -1."""
    for way in range(WAYS):
        at = home + way * width
        if entries[at] == EMPTY:
            return at
        same = True
        for word in range(width - 1):
            if entries[at + 1 + word] != words[word * rows + row]:
                same = False
                break
        if same:
            return at
    return -1


@helper
def oldest_entry(entries, home, width):  # type: ignore[no-untyped-def]
    """Return where the entry with the smallest time stands in a full bucket."""
    oldest = home
    for way in range(1, WAYS):
        if entries[home + way * width] < entries[oldest]:
            oldest = home + way * width
    return oldest


@kernel("i64(i64*, i64, i64, i64*, u8*, i64*, u8*, i64*, i64, i64, i64*, u8*, i64*)")
def recall(  # type: ignore[no-untyped-def]
    entries, mask, width, asked, ask, told, tell, times, rows, duration, homes, seen, tally
):  # fmt: skip
    """Say in `seen` of each of `rows` whether its key was told before, at a time not below its own less `duration`.

    `entries` is (mask + 1) * WAYS entries of `width` words, the first of which is a time. `asked` and `told` are the
    words (width - 1 times `rows`) of the key that a row asks for and of the one that it tells; rows without `ask`
    have seen nothing, rows without `tell` tell nothing. A row tells after it has asked. `homes` has room for 2 * AHEAD,
    `tally` for TALLIES. Where a bucket is full, the oldest of its keys and the new one is given up. Returns `rows`.
    """
    newest = tally[NEWEST]
    words = width - 1
    for begin in range(0, rows, AHEAD):
        end = min(rows, begin + AHEAD)
        for row in range(begin, end):
            place = 2 * (row - begin)
            if ask[row]:
                homes[place] = bucket_of(asked, rows, row, words, mask) * WAYS * width
                prefetch(entries, homes[place])
                prefetch(entries, homes[place] + LINE_WORDS)
            if tell[row]:
                homes[place + 1] = bucket_of(told, rows, row, words, mask) * WAYS * width
                prefetch(entries, homes[place + 1])
                prefetch(entries, homes[place + 1] + LINE_WORDS)
        for row in range(begin, end):
            place = 2 * (row - begin)
            time = times[row]
            seen[row] = 0
            if ask[row]:
                at = find_key(entries, homes[place], width, asked, rows, row)
                least = time - duration if time > EMPTY + duration else EMPTY + 1
                seen[row] = np.uint8(at >= 0 and entries[at] >= least)
            if tell[row]:
                newest = max(newest, time)
                home = homes[place + 1]
                at = find_key(entries, home, width, told, rows, row)
                if at >= 0 and entries[at] != EMPTY:
                    entries[at] = max(entries[at], time)
                    continue
                if at >= 0:
                    tally[HELD] += 1
                else:
                    at = oldest_entry(entries, home, width)
                    lost = min(entries[at], time)
                    edge = newest - duration if newest > EMPTY + duration else EMPTY
                    tally[ALIVE if lost >= edge else OVER] += 1
                    if time < entries[at]:
                        continue
                entries[at] = time
                for word in range(words):
                    entries[at + 1 + word] = told[word * rows + row]
    tally[NEWEST] = newest
    return rows
