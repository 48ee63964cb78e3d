"""The kernels of the fixed-size table (`lowlevel.table`): finding entries, updating them, moving them out.

The table is larger than the processor's own caches, so packets are taken AHEAD at a time: the memory of all their slots
is asked for, then their entries are found, then each sub-aggregate is brought up to date in all of them.
"""

from __future__ import annotations

import numpy as np

from capture.native import helper, kernel
from capture.prefetch import prefetch
from lowlevel.opcodes import COUNT, MAX, MIN, MIN_FLOAT, SUM, SUM_FLOAT
from lowlevel.subaggregates import INT_MAX, INT_MIN

EMPTY = INT_MIN
"""The pane of a slot that holds nothing."""

CACHE_LINE = 64
"""Bytes."""

LINE_WORDS = CACHE_LINE // 8

PROBES = 4
"""Slots a packet may look at before it evicts: with entries of 32 bytes they are two cache lines."""

AHEAD = 64
"""Packets whose slots are asked for together; their cache lines fit into any cache."""


@helper
def find_homes(  # type: ignore[no-untyped-def]
    slots, slot_count, width, key_words, words, capacity, times, chosen, choose, begin, end, pane_length, origin, homes,
    scatter,
):  # fmt: skip
    """Write (row, pane, home slot) of each chosen row in `[begin, end)` to `homes` and ask for its slot's memory.

    Where `scatter` is 1 a group's home is another in each pane; where it is 0, in all panes the same.
    """
    mask = np.uint64(slot_count - 1)
    pane = np.int64(0)
    pane_start = np.int64(0)
    pane_end = np.int64(0)  # an empty interval: the first packet finds its pane by division
    found = 0
    # Small entries never straddle two lines and are mostly alone; the neighbours of large ones are looked at as often,
    # and lie in lines that nobody else has asked for.
    reach = 0 if width <= LINE_WORDS // 2 else PROBES * width
    for row in range(begin, end):
        if choose and not chosen[row]:
            continue
        time = times[row]
        if time < pane_start or time >= pane_end:
            pane = (time - origin) // pane_length
            pane_start = origin + pane * pane_length
            pane_end = pane_start + pane_length
        mixed = np.uint64(pane * scatter) * np.uint64(0x9E3779B97F4A7C15)
        for word in range(key_words):
            mixed = (mixed ^ np.uint64(words[word * capacity + row])) * np.uint64(0xFF51AFD7ED558CCD)
            mixed ^= mixed >> np.uint64(32)
        slot = np.int64(mixed & mask)
        prefetch(slots, slot * width)
        for place in range(LINE_WORDS, reach, LINE_WORDS):
            prefetch(slots, slot * width + place)
        homes[3 * found] = row
        homes[3 * found + 1] = pane
        homes[3 * found + 2] = slot
        found += 1
    return found


@helper
def take_in(  # type: ignore[no-untyped-def]
    slots, slots_float, first, ops, op_count, args, args_float, capacity, homes, begin, end
):  # fmt: skip
    """Update the entries at `homes[3 * number + 2]`, for numbers in `[begin, end)`, with the arguments of their rows.

    An entry's sub-aggregates stand from its word `first` on.
    """
    for op in range(op_count):
        kind = ops[op]
        base = op * capacity
        if kind == COUNT:
            for number in range(begin, end):
                slots[homes[3 * number + 2] + first + op] += 1
        elif kind == SUM:
            for number in range(begin, end):
                slots[homes[3 * number + 2] + first + op] += args[base + homes[3 * number]]
        elif kind == MIN:
            for number in range(begin, end):
                at = homes[3 * number + 2] + first + op
                slots[at] = min(slots[at], args[base + homes[3 * number]])
        elif kind == MAX:
            for number in range(begin, end):
                at = homes[3 * number + 2] + first + op
                slots[at] = max(slots[at], args[base + homes[3 * number]])
        elif kind == SUM_FLOAT:
            for number in range(begin, end):
                slots_float[homes[3 * number + 2] + first + op] += args_float[base + homes[3 * number]]
        elif kind == MIN_FLOAT:
            for number in range(begin, end):
                at = homes[3 * number + 2] + first + op
                slots_float[at] = min(slots_float[at], args_float[base + homes[3 * number]])
        else:
            for number in range(begin, end):
                at = homes[3 * number + 2] + first + op
                slots_float[at] = max(slots_float[at], args_float[base + homes[3 * number]])


@kernel(
    "i64(i64*, f64*, i64, i64, i64, i64*, i64*, i64, i64*, i64, i64*, f64*, i64*, u8*, i64, i64, i64, i64, i64, i64*, "
    "i64*, i64, i64*)"
)
def update_table(  # type: ignore[no-untyped-def]
    slots, slots_float, slot_count, width, key_words, ops, starts, op_count, words, capacity, args, args_float, times,
    chosen, choose, rows, pane_length, origin, probes, homes, out, out_rows, tally,
):  # fmt: skip
    """Add packets to the table; return how many rows `out` holds then.

    `slots` is slot_count (a power of two) x width. `words` is key_words x capacity, `args` op_count x capacity,
    `times` capacity ts in ns. Where `choose`, only packets with `chosen` = 1 count. Evicted entries are appended to
    `out`, which has room for out_rows + rows. `starts` are the words of a new entry before its first packet. `homes`
    has room for 3 x AHEAD. `tally` counts packets that found their home slot taken, and entries that filled an empty
    slot. The `_float` pointers are the same memory seen as float64.
    """
    collisions = np.int64(0)
    inserted = np.int64(0)
    for begin in range(0, rows, AHEAD):
        end = min(rows, begin + AHEAD)
        found = find_homes(
            slots, slot_count, width, key_words, words, capacity, times, chosen, choose, begin, end, pane_length,
            origin, homes, 1,
        )  # fmt: skip
        taken = 0  # packets whose arguments are in their entries
        for number in range(found):
            row = homes[3 * number]
            pane = homes[3 * number + 1]
            slot = homes[3 * number + 2]
            at = slot * width
            state = 0  # 0 evict, 1 found, 2 empty
            for probe in range(probes):
                at = slot * width
                resident = slots[at]
                if resident == EMPTY:
                    state = 2
                    break
                if resident == pane:
                    same = True
                    for word in range(key_words):
                        if slots[at + 1 + word] != words[word * capacity + row]:
                            same = False
                            break
                    if same:
                        state = 1
                        break
                collisions += probe == 0
                slot = (slot + 1) & (slot_count - 1)
            if state != 1:
                if state == 0:
                    at = homes[3 * number + 2] * width
                    take_in(
                        slots, slots_float, 1 + key_words, ops, op_count, args, args_float, capacity, homes, taken,
                        number,
                    )  # fmt: skip
                    taken = number
                    for word in range(width):
                        out[out_rows * width + word] = slots[at + word]
                    out_rows += 1
                else:
                    inserted += 1
                slots[at] = pane
                for word in range(key_words):
                    slots[at + 1 + word] = words[word * capacity + row]
                for op in range(op_count):
                    slots[at + 1 + key_words + op] = starts[op]
            homes[3 * number + 2] = at
        take_in(
            slots, slots_float, 1 + key_words, ops, op_count, args, args_float, capacity, homes, taken, found
        )  # fmt: skip
    tally[0] += collisions
    tally[1] += inserted
    return out_rows


@kernel("i64(i64*, i64, i64, i64, i64*, i64*)")
def flush_table(slots, slot_count, width, before, out, oldest):  # type: ignore[no-untyped-def]
    """Move every entry whose pane is below `before` to `out` (room for slot_count rows); return how many.

    `oldest` (1) becomes the smallest pane that stays, or INT_MAX where none does.
    """
    rows = 0
    smallest = np.int64(INT_MAX)
    for slot in range(slot_count):
        at = slot * width
        pane = slots[at]
        if pane == EMPTY:
            continue
        if pane >= before:
            smallest = min(smallest, pane)
            continue
        for word in range(width):
            out[rows * width + word] = slots[at + word]
        slots[at] = EMPTY
        rows += 1
    oldest[0] = smallest
    return rows
