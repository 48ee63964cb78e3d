"""The kernel of a bucket table whose old entries are flushed gradually, in any order (`lowlevel.table.flush_kernels`).

An entry, of any pane, is in any slot of its group's bucket. If a group occurs again in a later pane, its old entry is
found by the tag and replaced. A new group gets an empty slot or, if the bucket is full, its home slot. A search for old
entries in the other slots would cost more than it saves.
"""

from __future__ import annotations

import numpy as np

from capture.native import kernel
from lowlevel.table.entries import (
    BUCKET,
    ENTRIES_OFFSET,
    PANES_OFFSET,
    TableMemory,
    TableRows,
    begin_entry,
    choose_slots,
    collect_rows,
    find_by_tag,
    find_first,
    has_key,
    hash_keys,
    home_of,
    mark_of,
    match_tags,
    tag_of,
    update_entries,
    write_tag,
)
from lowlevel.table.flush_kernels import (
    COLLISIONS,
    CURRENT,
    EVICTED,
    OLD,
    FlushState,
    append_direct,
    begin_chunk,
    count_entry,
    end_chunk,
    flush_entry,
    open_pane_in_chunk,
)


@kernel("i64(TableMemory, TableRows, FlushState, i64, i64)")
def update_tagged_flushing(  # type: ignore[no-untyped-def]
    table: TableMemory, rows: TableRows, flushes: FlushState, limit, out_rows
):
    """Add packets to the table and flush old entries; return the number of rows in `out`.

    Parameters and result are the same as for `lowlevel.table.flush_kernels.update_flushing`.
    """
    slots, tags, width, hashes, chunk = table.slots, table.tags, table.width, table.hashes, table.chunk
    state = flushes.state
    bucket_mask = np.uint64(table.slot_count // BUCKET - 1)
    pane_of_row = np.int64(0)
    pane_start = np.int64(0)
    pane_end = np.int64(0)  # an empty interval, so that the pane of the first packet is computed
    end = 0
    while end < rows.row_count:
        begin = end
        count, end = collect_rows(table, rows, begin)
        if count == 0:
            continue
        for index in range(count):
            time = rows.times[chunk[index]]
            if time < pane_start or time >= pane_end:
                pane_of_row = (time - rows.origin) // rows.pane_length
                pane_start = rows.origin + pane_of_row * rows.pane_length
                pane_end = pane_start + rows.pane_length
            chunk[PANES_OFFSET + index] = pane_of_row
            hashes[index] = np.uint64(0)
        hash_keys(table, rows, count, begin)
        rows_before = out_rows
        first_pending = 0  # packets before this one have updated their entries
        late_pending = False  # whether a packet of an old pane may be pending
        out_rows = begin_chunk(table, flushes, count, limit, out_rows)
        find_by_tag(table, bucket_mask, count)
        current = state[CURRENT]
        old_before = state[OLD]
        for index in range(count):
            row = chunk[index]
            pane = chunk[PANES_OFFSET + index]
            if pane > current and pane <= limit:
                out_rows = open_pane_in_chunk(table, rows, flushes, pane, first_pending, index, count, out_rows)
                first_pending = index
                late_pending = False
                old_before = state[OLD]
                current = pane
            offset = chunk[ENTRIES_OFFSET + index]
            if pane > current or pane <= current - flushes.max_panes:
                out_rows = append_direct(table, rows, flushes, pane, first_pending, index, out_rows)
                first_pending = index + 1
                continue
            late_pending = late_pending or pane < current
            if offset >= 0 and slots[offset] == pane and has_key(table, offset, rows, row):
                continue
            hash_value = hashes[index]
            tag = tag_of(hash_value)
            bucket = np.int64(hash_value & bucket_mask)
            bucket_tags = tags[bucket]
            home = home_of(hash_value)
            matches = match_tags(bucket_tags, tag)
            old = np.int64(-1)  # the slot of an old entry that can be replaced
            exists = False
            while matches != np.uint64(0) and not exists:
                slot = bucket * BUCKET + np.int64(find_first(matches))
                matches &= matches - np.uint64(1)
                offset = slot * width
                if has_key(table, offset, rows, row):
                    exists = slots[offset] == pane
                    if slots[offset] < current and old < 0:
                        old = slot
            if not exists:
                slot = bucket * BUCKET + np.int64(find_first(choose_slots(bucket_tags, home)))
                full = (bucket_tags & mark_of(np.uint64(slot & 7))) != np.uint64(0)
                if full or (old >= 0 and pane == current):
                    if old < 0 and slots[slot * width] < current:
                        old = slot
                    if old < 0 or late_pending:
                        update_entries(table, rows, first_pending, index)
                        first_pending = index
                        late_pending = pane < current
                    slot = slot if old < 0 else old
                    state[COLLISIONS] += old < 0
                    out_rows = flush_entry(table, flushes, slot, current, out_rows)
                    state[EVICTED] += 1
                else:
                    state[COLLISIONS] += slot != bucket * BUCKET + np.int64(home)
                offset = slot * width
                write_tag(tags, bucket, np.uint64(slot & 7), tag)
                begin_entry(table, offset, pane, rows, row)
                count_entry(flushes, pane, current)
            chunk[ENTRIES_OFFSET + index] = offset
        out_rows = end_chunk(table, rows, flushes, first_pending, count, old_before, rows_before, out_rows)
    return out_rows
