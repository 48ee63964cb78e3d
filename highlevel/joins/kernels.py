"""The hash table of a side of a join: rows as words, in chains of those with the same key and the same pane of time.

    row     link, time, key words, words of the columns that leave        row-major, one behind the other
    link    bits 0..30   the next row of its chain
            bit 31       whether it found a partner
            bits 32..62  1 + the next row of its list of times; 0 at the end       (`highlevel.joins.time_lists`)
    places  two in each int64, of 32 bits: 1 + the LAST row of a chain, 0 where there is none

A chain is a ring: its last row links to its first. So a row is added at the end without a walk, rows are met in the
order in which they came, and the first of them, which mostly go first, are found at once. Panes keep what a row cannot
meet out of its chains: however many rows one key has, it is never more than that of two panes.

Rows that are free are a stack of their numbers, so that the memory of those that come next can be asked for.
"""

from __future__ import annotations

import numpy as np

from capture.native import helper, kernel
from capture.prefetch import prefetch

LINK, TIME, WORDS = 0, 1, 2
"""Words of a row: its link, its time, and where the words of its columns begin."""

NEXT = 2**31 - 1
MATCHED = 2**31
LIST = 32
GOING = 2**31 - 1
"""Parts of a link: the next of its chain, the bit of a row with a partner, and how far up the list of times is. There
a row that is being removed has what none has that is in a list."""

AHEAD = 64
"""Rows whose memory is asked for together."""

FREE, USED = 0, 1
"""Counters: rows on the stack of free ones, and rows of memory that were ever taken."""

ROW, TURN, AT = 0, 1, 2
"""Where a probe goes on: its row, which of the two panes, and the stored row that is next, or a new chain at -1."""


@helper
def place_of(words, at, stride, keys, pane, mask):  # type: ignore[no-untyped-def]
    """Return the place of the chain of the key `words[at], words[at + stride], …` in a pane."""
    mixed = np.uint64(pane) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(32)
    for key in range(keys):
        mixed = (mixed ^ np.uint64(words[at + key * stride])) * np.uint64(0xFF51AFD7ED558CCD)
        mixed ^= mixed >> np.uint64(32)
    return np.int64((mixed * np.uint64(0xC4CEB9FE1A85EC53)) >> np.uint64(32)) & mask


@helper
def last_at(places, place):  # type: ignore[no-untyped-def]
    """Return 1 + the last row of a chain, or 0."""
    return (places[place >> 1] >> (32 * (place & 1))) & 0x7FFFFFFF


@helper
def set_last(places, place, last):  # type: ignore[no-untyped-def]
    """Make `last` what `last_at` returns."""
    shift = 32 * (place & 1)
    places[place >> 1] = (places[place >> 1] & ~(0x7FFFFFFF << shift)) | (last << shift)


@helper
def append(stored, width, places, place, row):  # type: ignore[no-untyped-def]
    """Put a row, the rest of whose link stays, behind the others of a chain."""
    last = last_at(places, place) - 1
    first = row
    if last >= 0:
        first = stored[last * width] & NEXT
        stored[last * width] = (stored[last * width] & ~NEXT) | row
    stored[row * width] = (stored[row * width] & ~NEXT) | first
    set_last(places, place, row + 1)


@kernel("i64(i64*, i64*, i64*, i64, i64, i64, i64, i64*, i64, i64*, i64, i64, i64, i64*, i64*, i64*, i64*, i64)")
def probe(  # type: ignore[no-untyped-def]
    words, low, high, rows, keys, origin, pane, stored, width, places, mask, once, fresh, ahead, at, probing, found,
    room,
):  # fmt: skip
    """Write pairs of rows and stored rows of the same key with a time in `[low, high]`; return how many.

    `words` is keys x rows, `ahead` has room for 2 x AHEAD, `probing` and `found` for `room`. With `once` a row has one
    pair at most; with `fresh` stored rows that have a partner are passed over. Where there is no more room `at` says
    where to go on; at the end its row is `rows`.
    """
    count = 0
    for first in range(at[ROW], rows, AHEAD):
        end = min(rows, first + AHEAD)
        for row in range(first, end):
            for turn in range(2):
                time = high[row] if turn else low[row]
                place = place_of(words, row, rows, keys, (time - origin) // pane, mask)
                ahead[2 * (row - first) + turn] = place
                prefetch(places, place >> 1)
        for near in range(2 * (end - first)):
            last = last_at(places, ahead[near])
            if last:
                prefetch(stored, (last - 1) * width)
        for near in range(2 * (end - first)):
            last = last_at(places, ahead[near])
            if last:
                prefetch(stored, (stored[(last - 1) * width] & NEXT) * width)
        for row in range(first, end):
            turn = at[TURN]
            begun = at[AT]
            at[TURN] = 0
            at[AT] = -1
            while turn < 2:
                place = ahead[2 * (row - first) + turn]
                last = last_at(places, place) - 1
                if low[row] > high[row] or last < 0 or (turn == 1 and place == ahead[2 * (row - first)]):
                    turn += 1
                    continue
                each = stored[last * width] & NEXT if begun < 0 else begun
                begun = -1
                while True:
                    base = each * width
                    time = stored[base + TIME]
                    same = low[row] <= time and time <= high[row] and not (fresh and stored[base] & MATCHED)
                    if same:
                        for key in range(keys):
                            if stored[base + WORDS + key] != words[key * rows + row]:
                                same = False
                                break
                    if same:
                        if count == room:
                            at[ROW] = row
                            at[TURN] = turn
                            at[AT] = each
                            return count
                        probing[count] = row
                        found[count] = each
                        count += 1
                        if once:
                            turn = 2
                            break
                    if each == last:
                        break
                    each = stored[base] & NEXT
                turn += 1
    at[ROW] = rows
    return count


@kernel("i64(i64*, i64*, u8*, i64, i64, i64, i64, i64*, i64, i64*, i64, i64*, i64*, i64*, i64*)")
def insert(  # type: ignore[no-untyped-def]
    words, times, matched, rows, keys, origin, pane, stored, width, places, mask, counters, free, ahead, placed
):  # fmt: skip
    """Store rows of words (width - 2) x rows, for which there is room; write where to `placed`. Returns rows."""
    for first in range(0, rows, AHEAD):
        end = min(rows, first + AHEAD)
        for row in range(first, end):
            place = place_of(words, row, rows, keys, (times[row] - origin) // pane, mask)
            ahead[row - first] = place
            prefetch(places, place >> 1)
            if counters[FREE]:
                counters[FREE] -= 1
                placed[row] = free[counters[FREE]]
                prefetch(stored, placed[row] * width)
            else:
                placed[row] = counters[USED]
                counters[USED] += 1
        for row in range(first, end):
            last = last_at(places, ahead[row - first])
            if last:
                prefetch(stored, (last - 1) * width)
        for row in range(first, end):
            base = placed[row] * width
            stored[base] = MATCHED if matched[row] else 0
            stored[base + TIME] = times[row]
            for word in range(width - WORDS):
                stored[base + WORDS + word] = words[word * rows + row]
            append(stored, width, places, ahead[row - first], placed[row])
    return rows


@kernel("i64(i64*, i64, i64, i64, i64, i64*, i64, i64*, i64, i64*, i64*, i64*)")
def remove(  # type: ignore[no-untyped-def]
    stored, width, keys, origin, pane, places, mask, gone, count, counters, free, ahead
):  # fmt: skip
    """Take rows, which are in no list, out of their chains and put them on the stack of free ones, which has room.

    A walk to one of them takes those on its way out as well: so it does not matter in which order they came. Returns
    how many there are.
    """
    for each in range(count):
        stored[gone[each] * width] |= GOING << LIST
    for first in range(0, count, AHEAD):
        end = min(count, first + AHEAD)
        for each in range(first, end):
            base = gone[each] * width
            place = place_of(stored, base + WORDS, 1, keys, (stored[base + TIME] - origin) // pane, mask)
            ahead[each - first] = place
            prefetch(places, place >> 1)
        for each in range(first, end):
            last = last_at(places, ahead[each - first])
            if last:
                prefetch(stored, (last - 1) * width)
        for each in range(first, end):
            sought = gone[each]
            place = ahead[each - first]
            before = last_at(places, place) - 1
            while stored[sought * width] >> LIST == GOING:
                row = stored[before * width] & NEXT
                if stored[row * width] >> LIST != GOING:
                    before = row
                    continue
                if row == before:
                    set_last(places, place, 0)
                else:
                    stored[before * width] = (stored[before * width] & ~NEXT) | (stored[row * width] & NEXT)
                    if row == last_at(places, place) - 1:
                        set_last(places, place, before + 1)
                stored[row * width] = 0
                free[counters[FREE]] = row
                counters[FREE] += 1
    return count


@kernel("i64(i64*, i64, i64*, i64, i64*)")
def all_rows(stored, width, places, count, out):  # type: ignore[no-untyped-def]
    """Write all rows of `count` chains, one chain after the other; return how many."""
    found = 0
    for place in range(count):
        last = last_at(places, place) - 1
        each = last
        while each >= 0:
            each = stored[each * width] & NEXT
            out[found] = each
            found += 1
            if each == last:
                break
    return found


@kernel("i64(i64*, i64, i64, i64, i64, i64*, i64, i64*, i64, i64*)")
def chain(stored, width, keys, origin, pane, rows, count, places, mask, ahead):  # type: ignore[no-untyped-def]
    """Put rows into the chains of `places`, which is empty; return how many."""
    for first in range(0, count, AHEAD):
        end = min(count, first + AHEAD)
        for each in range(first, end):
            base = rows[each] * width
            place = place_of(stored, base + WORDS, 1, keys, (stored[base + TIME] - origin) // pane, mask)
            ahead[each - first] = place
            prefetch(places, place >> 1)
        for each in range(first, end):
            append(stored, width, places, ahead[each - first], rows[each])
    return count


@kernel("i64(i64*, i64, i64*, i64, i64*)")
def mark(stored, width, rows, count, out):  # type: ignore[no-untyped-def]
    """Note that rows have a partner; write those that had none to `out`, return how many."""
    found = 0
    for each in range(count):
        link = stored[rows[each] * width]
        if not link & MATCHED:
            stored[rows[each] * width] = link | MATCHED
            out[found] = rows[each]
            found += 1
    return found


@kernel("i64(i64*, i64, i64*, i64, i64*)")
def gather(stored, width, rows, count, out):  # type: ignore[no-untyped-def]
    """Write the words of rows to `out`, width x count; return count."""
    for each in range(count):
        for word in range(width):
            out[word * count + each] = stored[rows[each] * width + word]
    return count
