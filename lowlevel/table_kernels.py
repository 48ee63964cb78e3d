"""The kernels of the fixed-size table (`lowlevel.table`): updating entries, moving them out."""

from __future__ import annotations

import numpy as np

from capture.native import kernel
from lowlevel.subaggregates import INT_MAX
from lowlevel.table_entries import AHEAD, EMPTY, append_entry, begin_entry, find_homes, holds_key, take_in


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
                if resident == pane and holds_key(slots, at, key_words, words, capacity, row):
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
                    out_rows = append_entry(slots, width, at, out, out_rows)
                else:
                    inserted += 1
                begin_entry(slots, at, pane, key_words, words, capacity, row, starts, op_count)
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
        rows = append_entry(slots, width, at, out, rows)
        slots[at] = EMPTY
    oldest[0] = smallest
    return rows
