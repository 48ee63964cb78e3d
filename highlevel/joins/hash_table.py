"""Hash table of one side of a join: rows as words, in chains of rows with the same key and pane.

    row     link, time, key words, words of the result columns            row-major, one after the other
    link    bits 0..30   the next row of its chain
            bit 31       1 if the row has had a match
            bits 32..62  1 + the next row of its time list, or 0                    (`highlevel.joins.time_lists`)
    places  two of 32 bits in each int64: 1 + the LAST row of a chain, or 0 for an empty chain

A chain is a ring: its last row links to its first. So a row is appended without reading the chain, and rows are read in
arrival order. The oldest rows, which are usually removed first, are first in the chain. A chain contains the rows of
one pane, so few of them are outside of the time band. A probe reads the rows of at most two panes, for any number of
rows with the key.

Free rows are a stack of row numbers, so that the memory of the next rows can be prefetched.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capture.native import Integer, Integers, helper, kernel
from capture.prefetch import prefetch

LINK, TIME, WORDS = 0, 1, 2
"""Words of a row: its link, its time, and the first word of its columns."""

NEXT = 2**31 - 1
MATCHED = 2**31
LIST = 32
REMOVING = 2**31 - 1
"""Parts of a link: the next row of the chain, the bit of a row with a match, and the shift of the time list.

REMOVING is stored in place of the time list while a row is removed; no list contains this value.
"""

PREFETCH_ROWS = 64
"""Rows whose memory is prefetched together."""

FREE, USED = 0, 1
"""Counters: number of rows on the stack of free rows, and number of rows of memory that have been used."""

ROW, TURN, AT = 0, 1, 2
"""Position of an interrupted probe: its row, the first or second pane, and the next stored row (-1: a new chain)."""


class RowTable(NamedTuple):
    """The table, for kernels.

    * `stored`: rows of `width` words, of which `keys` are key words.
    * `places`: `mask` + 1 chains. Panes are `pane` ns long from `origin` on.
    * `counters`: FREE and USED. `free`: the stack of free rows.
    * `ahead`: scratch space for 2 x PREFETCH_ROWS places.
    """

    stored: Integers
    width: Integer
    keys: Integer
    places: Integers
    mask: Integer
    origin: Integer
    pane: Integer
    counters: Integers
    free: Integers
    ahead: Integers


@helper
def place_of(words, at, stride, keys, pane, mask):  # type: ignore[no-untyped-def]
    """Return the slot of the chain of the key `words[at], words[at + stride], …` in a pane."""
    mixed = np.uint64(pane) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(32)
    for key in range(keys):
        mixed = (mixed ^ np.uint64(words[at + key * stride])) * np.uint64(0xFF51AFD7ED558CCD)
        mixed ^= mixed >> np.uint64(32)
    return np.int64((mixed * np.uint64(0xC4CEB9FE1A85EC53)) >> np.uint64(32)) & mask


@helper
def place_of_stored(table: RowTable, base):  # type: ignore[no-untyped-def]
    """Return the slot of the chain of the stored row at word `base`."""
    pane = (table.stored[base + TIME] - table.origin) // table.pane
    return place_of(table.stored, base + WORDS, 1, table.keys, pane, table.mask)


@helper
def last_at(places, slot):  # type: ignore[no-untyped-def]
    """Return 1 + the last row of a chain, or 0."""
    return (places[slot >> 1] >> (32 * (slot & 1))) & 0x7FFFFFFF


@helper
def set_last(places, slot, last):  # type: ignore[no-untyped-def]
    """Set the result of `last_at` to `last`."""
    shift = 32 * (slot & 1)
    places[slot >> 1] = (places[slot >> 1] & ~(0x7FFFFFFF << shift)) | (last << shift)


@helper
def append(table: RowTable, slot, row):  # type: ignore[no-untyped-def]
    """Append a row to a chain. The rest of the row's link does not change."""
    stored, width = table.stored, table.width
    last = last_at(table.places, slot) - 1
    first = row
    if last >= 0:
        first = stored[last * width] & NEXT
        stored[last * width] = (stored[last * width] & ~NEXT) | row
    stored[row * width] = (stored[row * width] & ~NEXT) | first
    set_last(table.places, slot, row + 1)


class ProbingRows(NamedTuple):
    """Rows that search for stored rows, for kernels.

    `words`: keys x rows key words. A row matches stored rows with a time in `[low, high]`.
    """

    words: Integers
    low: Integers
    high: Integers
    rows: Integer


class Pairs(NamedTuple):
    """The output of a probe: rows in `probing`, stored rows in `found`. Both arrays have `room` elements."""

    probing: Integers
    found: Integers
    room: Integer


@kernel("i64(RowTable, ProbingRows, i64, i64, i64*, Pairs)")
def probe(table: RowTable, searching: ProbingRows, once, unmatched_only, at, pairs: Pairs):  # type: ignore[no-untyped-def]
    """Write pairs of rows and stored rows with the same key and a matching time. Return their number.

    With `once` a row has at most one pair. With `unmatched_only` stored rows that have had a match are skipped. If
    there is no room, `at` contains the position at which the probe continues. At the end, `at[ROW]` is the number of
    rows.
    """
    stored, width, keys, positions, ahead = table.stored, table.width, table.keys, table.places, table.ahead
    low, high, rows = searching.low, searching.high, searching.rows
    count = 0
    for first in range(at[ROW], rows, PREFETCH_ROWS):
        end = min(rows, first + PREFETCH_ROWS)
        for row in range(first, end):
            for turn in range(2):
                time = high[row] if turn else low[row]
                position = place_of(searching.words, row, rows, keys, (time - table.origin) // table.pane, table.mask)
                ahead[2 * (row - first) + turn] = position
                prefetch(positions, position >> 1)
        for index in range(2 * (end - first)):
            last = last_at(positions, ahead[index])
            if last:
                prefetch(stored, (last - 1) * width)
        for index in range(2 * (end - first)):
            last = last_at(positions, ahead[index])
            if last:
                prefetch(stored, (stored[(last - 1) * width] & NEXT) * width)
        for row in range(first, end):
            turn = at[TURN]
            begun = at[AT]
            at[TURN] = 0
            at[AT] = -1
            while turn < 2:
                position = ahead[2 * (row - first) + turn]
                last = last_at(positions, position) - 1
                if low[row] > high[row] or last < 0 or (turn == 1 and position == ahead[2 * (row - first)]):
                    turn += 1
                    continue
                candidate = stored[last * width] & NEXT if begun < 0 else begun
                begun = -1
                while True:
                    base = candidate * width
                    time = stored[base + TIME]
                    is_match = (
                        low[row] <= time and time <= high[row] and not (unmatched_only and stored[base] & MATCHED)
                    )
                    if is_match:
                        for key in range(keys):
                            if stored[base + WORDS + key] != searching.words[key * rows + row]:
                                is_match = False
                                break
                    if is_match:
                        if count == pairs.room:
                            at[ROW] = row
                            at[TURN] = turn
                            at[AT] = candidate
                            return count
                        pairs.probing[count] = row
                        pairs.found[count] = candidate
                        count += 1
                        if once:
                            turn = 2
                            break
                    if candidate == last:
                        break
                    candidate = stored[base] & NEXT
                turn += 1
    at[ROW] = rows
    return count


@kernel("i64(RowTable, i64*, i64*, u8*, i64, i64*)")
def insert(table: RowTable, words, times, matched, rows, placed):  # type: ignore[no-untyped-def]
    """Store rows of words (width - 2) x rows, if there is room. Write their positions to `placed`. Return `rows`."""
    stored, width, counters, ahead = table.stored, table.width, table.counters, table.ahead
    for first in range(0, rows, PREFETCH_ROWS):
        end = min(rows, first + PREFETCH_ROWS)
        for row in range(first, end):
            position = place_of(words, row, rows, table.keys, (times[row] - table.origin) // table.pane, table.mask)
            ahead[row - first] = position
            prefetch(table.places, position >> 1)
            if counters[FREE]:
                counters[FREE] -= 1
                placed[row] = table.free[counters[FREE]]
                prefetch(stored, placed[row] * width)
            else:
                placed[row] = counters[USED]
                counters[USED] += 1
        for row in range(first, end):
            last = last_at(table.places, ahead[row - first])
            if last:
                prefetch(stored, (last - 1) * width)
        for row in range(first, end):
            base = placed[row] * width
            stored[base] = MATCHED if matched[row] else 0
            stored[base + TIME] = times[row]
            for word in range(width - WORDS):
                stored[base + WORDS + word] = words[word * rows + row]
            append(table, ahead[row - first], placed[row])
    return rows


@kernel("i64(RowTable, i64*, i64)")
def remove(table: RowTable, removed, count):  # type: ignore[no-untyped-def]
    """Remove rows from their chains and put them on the stack of free rows. The rows are in no time list.

    Each chain is read once for all its removed rows, so the order of `removed` has no effect. Return the number of
    rows.
    """
    stored, width, positions, ahead, counters = table.stored, table.width, table.places, table.ahead, table.counters
    for index in range(count):
        stored[removed[index] * width] |= REMOVING << LIST
    for first in range(0, count, PREFETCH_ROWS):
        end = min(count, first + PREFETCH_ROWS)
        for index in range(first, end):
            base = removed[index] * width
            position = place_of_stored(table, base)
            ahead[index - first] = position
            prefetch(positions, position >> 1)
        for index in range(first, end):
            last = last_at(positions, ahead[index - first])
            if last:
                prefetch(stored, (last - 1) * width)
        for index in range(first, end):
            sought = removed[index]
            position = ahead[index - first]
            before = last_at(positions, position) - 1
            while stored[sought * width] >> LIST == REMOVING:
                row = stored[before * width] & NEXT
                if stored[row * width] >> LIST != REMOVING:
                    before = row
                    continue
                if row == before:
                    set_last(positions, position, 0)
                else:
                    stored[before * width] = (stored[before * width] & ~NEXT) | (stored[row * width] & NEXT)
                    if row == last_at(positions, position) - 1:
                        set_last(positions, position, before + 1)
                stored[row * width] = 0
                table.free[counters[FREE]] = row
                counters[FREE] += 1
    return count


@kernel("i64(i64*, i64, i64*, i64, i64*)")
def all_rows(stored, width, places, count, out):  # type: ignore[no-untyped-def]
    """Write all rows of `count` chains, one chain after the other. Return their number."""
    row_count = 0
    for position in range(count):
        last = last_at(places, position) - 1
        row = last
        while row >= 0:
            row = stored[row * width] & NEXT
            out[row_count] = row
            row_count += 1
            if row == last:
                break
    return row_count


@kernel("i64(RowTable, i64*, i64)")
def chain(table: RowTable, rows, count):  # type: ignore[no-untyped-def]
    """Insert rows into the empty chains of the table. Return their number."""
    ahead = table.ahead
    for first in range(0, count, PREFETCH_ROWS):
        end = min(count, first + PREFETCH_ROWS)
        for index in range(first, end):
            base = rows[index] * table.width
            position = place_of_stored(table, base)
            ahead[index - first] = position
            prefetch(table.places, position >> 1)
        for index in range(first, end):
            append(table, ahead[index - first], rows[index])
    return count


@kernel("i64(i64*, i64, i64*, i64, i64*)")
def mark(stored, width, rows, count, out):  # type: ignore[no-untyped-def]
    """Mark rows that have a match. Write the rows without an earlier match to `out` and return their number."""
    row_count = 0
    for index in range(count):
        link = stored[rows[index] * width]
        if not link & MATCHED:
            stored[rows[index] * width] = link | MATCHED
            out[row_count] = rows[index]
            row_count += 1
    return row_count


@kernel("i64(i64*, i64, i64*, i64, i64*, i64, i64*)")
def gather(stored, width, rows, count, chosen, chosen_count, out):  # type: ignore[no-untyped-def]
    """Write the `chosen` words of rows to `out`, width x count; its other words do not change. Return count."""
    for index in range(count):
        base = rows[index] * width
        for number in range(chosen_count):
            word = chosen[number]
            out[word * count + index] = stored[base + word]
    return count
