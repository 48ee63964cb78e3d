"""The kernel of a bucket table whose old entries are flushed gradually, in any order (`lowlevel.table.flush_kernels`).

An entry is in any slot of its group's bucket, whatever its pane. A group that occurs again finds its own old entry by
the tag and replaces it. Another group takes an empty slot or, if there is none, its home slot: a search for an old
entry in the other slots would cost more than it saves.
"""

from __future__ import annotations

import numpy as np

from capture.native import kernel
from lowlevel.table.entries import (
    AHEAD,
    BUCKET,
    TableMemory,
    TableRows,
    begin_entry,
    find_tagged,
    first_of,
    free,
    hash_keys,
    holds_key,
    home_of,
    mark_of,
    next_rows,
    tag_of,
    tagged,
    take_in,
    write_tag,
)
from lowlevel.table.flush_kernels import (
    COLLISIONS,
    CURRENT,
    EVICTED,
    OLD,
    FlushState,
    begin_group,
    count_entry,
    end_group,
    leave_directly,
    move_out,
    open_within,
)


@kernel("i64(TableMemory, TableRows, FlushState, i64, i64)")
def update_tagged_flushing(  # type: ignore[no-untyped-def]
    table: TableMemory, rows: TableRows, flushes: FlushState, limit, out_rows
):
    """Add packets to the table and move old entries to `out`; return the number of rows in `out`.

    Same contract as `lowlevel.table.flush_kernels.update_flushing`.
    """
    slots, tags, width, hashes, homes = table.slots, table.tags, table.width, table.hashes, table.homes
    state = flushes.state
    buckets = np.uint64(table.slot_count // BUCKET - 1)
    pane_of_row = np.int64(0)
    pane_start = np.int64(0)
    pane_end = np.int64(0)  # an empty interval: the first packet finds its pane by division
    end = 0
    while end < rows.row_count:
        begin = end
        found, end = next_rows(table, rows, begin)
        if found == 0:
            continue
        for number in range(found):
            time = rows.times[homes[number]]
            if time < pane_start or time >= pane_end:
                pane_of_row = (time - rows.origin) // rows.pane_length
                pane_start = rows.origin + pane_of_row * rows.pane_length
                pane_end = pane_start + rows.pane_length
            homes[AHEAD + number] = pane_of_row
            hashes[number] = np.uint64(0)
        hash_keys(table, rows, found, begin)
        rows_before = out_rows
        taken = 0  # packets whose arguments are in their entries
        late = False  # whether those of a packet of an old pane may not be
        out_rows = begin_group(table, flushes, found, limit, out_rows)
        find_tagged(table, buckets, found)
        current = state[CURRENT]
        old_before = state[OLD]
        for number in range(found):
            row = homes[number]
            pane = homes[AHEAD + number]
            if pane > current and pane <= limit:
                out_rows = open_within(table, rows, flushes, pane, taken, number, found, out_rows)
                taken = number
                late = False
                old_before = state[OLD]
                current = pane
            at = homes[2 * AHEAD + number]
            if pane > current or pane <= current - flushes.panes:
                out_rows = leave_directly(table, rows, flushes, pane, taken, number, out_rows)
                taken = number + 1
                continue
            late = late or pane < current
            if at >= 0 and slots[at] == pane and holds_key(table, at, rows, row):
                continue
            mixed = hashes[number]
            tag = tag_of(mixed)
            bucket = np.int64(mixed & buckets)
            held = tags[bucket]
            home = home_of(mixed)
            same = tagged(held, tag)
            old = np.int64(-1)  # the slot of an entry that makes room
            known = False
            while same != np.uint64(0) and not known:
                slot = bucket * BUCKET + np.int64(first_of(same))
                same &= same - np.uint64(1)
                at = slot * width
                if holds_key(table, at, rows, row):
                    known = slots[at] == pane
                    if slots[at] < current and old < 0:
                        old = slot
            if not known:
                slot = bucket * BUCKET + np.int64(first_of(free(held, home)))
                full = (held & mark_of(np.uint64(slot & 7))) != np.uint64(0)
                if full or (old >= 0 and pane == current):
                    if old < 0 and slots[slot * width] < current:
                        old = slot
                    if old < 0 or late:
                        take_in(table, rows, taken, number)
                        taken = number
                        late = pane < current
                    slot = slot if old < 0 else old
                    state[COLLISIONS] += old < 0
                    out_rows = move_out(table, flushes, slot, current, out_rows)
                    state[EVICTED] += 1
                else:
                    state[COLLISIONS] += slot != bucket * BUCKET + np.int64(home)
                at = slot * width
                write_tag(tags, bucket, np.uint64(slot & 7), tag)
                begin_entry(table, at, pane, rows, row)
                count_entry(flushes, pane, current)
            homes[2 * AHEAD + number] = at
        out_rows = end_group(table, rows, flushes, taken, found, old_before, rows_before, out_rows)
    return out_rows
