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
    append_entry,
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
    BURST,
    COLLISIONS,
    CURRENT,
    DIRECT,
    EVICTED,
    OLD,
    PACED,
    PACKETS,
    RESIDENT,
    SLOW,
    move_out,
    open_pane,
    sweep_by_count,
    sweep_in_time,
)


@kernel(
    "i64(i64*, f64*, u64*, i64, i64, i64, i64*, i64*, i64, i64*, i64*, i64*, f64*, i64*, i64*, u8*, i64, i64, i64, "
    "i64, u64*, i64*, i64*, i64, i64, i64, i64, i64*, i64, i64, i64*)"
)
def update_tagged_flushing(  # type: ignore[no-untyped-def]
    slots, slots_float, tags, slot_count, width, key_words, ops, starts, op_count, words, word_at, args, args_float,
    arg_at, times, chosen, choose, rows, pane_length, origin, hashes, homes, out, out_rows, limit, policy, every,
    counts, panes, mask, state,
):  # fmt: skip
    """Add packets to the table and move old entries to `out`; return the number of rows in `out`.

    Same contract as `lowlevel.table.flush_kernels.update_flushing`; `tags` and `hashes` as in
    `lowlevel.table.bucket_table`.
    """
    first = 1 + key_words
    buckets = np.uint64(slot_count // BUCKET - 1)
    pane_of_row = np.int64(0)
    pane_start = np.int64(0)
    pane_end = np.int64(0)  # an empty interval: the first packet finds its pane by division
    end = 0
    while end < rows:
        begin = end
        found, end = next_rows(homes, chosen, choose, begin, rows)
        if found == 0:
            continue
        for number in range(found):
            time = times[homes[number]]
            if time < pane_start or time >= pane_end:
                pane_of_row = (time - origin) // pane_length
                pane_start = origin + pane_of_row * pane_length
                pane_end = pane_start + pane_length
            homes[AHEAD + number] = pane_of_row
            hashes[number] = np.uint64(0)
        hash_keys(hashes, homes, found, key_words, words, word_at, begin, choose)
        rows_before = out_rows
        taken = 0  # packets whose arguments are in their entries
        late = False  # whether those of a packet of an old pane may not be
        if homes[AHEAD] > state[CURRENT] and homes[AHEAD] <= limit:
            out_rows = open_pane(
                slots, tags, slot_count, width, homes[AHEAD], policy, counts, panes, mask, state, out, out_rows
            )  # fmt: skip
        state[PACKETS] += found
        if policy == SLOW and state[OLD] > 0:
            out_rows = sweep_by_count(
                slots, tags, slot_count, width, found, policy, every, counts, mask, state, out, out_rows
            )  # fmt: skip
        find_tagged(slots, tags, buckets, width, hashes, homes, found)
        current = state[CURRENT]
        old_before = state[OLD]
        for number in range(found):
            row = homes[number]
            pane = homes[AHEAD + number]
            if pane > current and pane <= limit:
                take_in(
                    slots, slots_float, first, ops, op_count, args, args_float, arg_at, homes, taken, number
                )  # fmt: skip
                taken = number
                late = False
                state[PACKETS] -= found - number
                out_rows = open_pane(
                    slots, tags, slot_count, width, pane, policy, counts, panes, mask, state, out, out_rows
                )  # fmt: skip
                state[PACKETS] = found - number
                old_before = state[OLD]
                current = pane
            at = homes[2 * AHEAD + number]
            if pane > current or pane <= current - panes:
                at = slot_count * width
                homes[2 * AHEAD + number] = at
                begin_entry(slots, at, pane, key_words, words, word_at, row, starts, op_count)
                take_in(
                    slots, slots_float, first, ops, op_count, args, args_float, arg_at, homes, taken, number + 1
                )  # fmt: skip
                taken = number + 1
                out_rows = append_entry(slots, width, at, out, out_rows)
                state[DIRECT] += 1
                continue
            late = late or pane < current
            if at >= 0 and slots[at] == pane and holds_key(slots, at, key_words, words, word_at, row):
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
                if holds_key(slots, at, key_words, words, word_at, row):
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
                        take_in(
                            slots, slots_float, first, ops, op_count, args, args_float, arg_at, homes, taken, number
                        )  # fmt: skip
                        taken = number
                        late = pane < current
                    slot = slot if old < 0 else old
                    state[COLLISIONS] += old < 0
                    out_rows = move_out(slots, tags, width, slot, current, counts, mask, state, out, out_rows)
                    state[EVICTED] += 1
                else:
                    state[COLLISIONS] += slot != bucket * BUCKET + np.int64(home)
                at = slot * width
                write_tag(tags, bucket, np.uint64(slot & 7), tag)
                begin_entry(slots, at, pane, key_words, words, word_at, row, starts, op_count)
                counts[pane & mask] += 1
                state[RESIDENT] += 1
                if pane < current:
                    state[OLD] += 1
            homes[2 * AHEAD + number] = at
        take_in(slots, slots_float, first, ops, op_count, args, args_float, arg_at, homes, taken, found)
        if policy == PACED and state[OLD] > 0:
            out_rows = sweep_in_time(
                slots, tags, slot_count, width, min(found, state[PACKETS]), out_rows - rows_before, old_before, counts,
                mask, state, out, out_rows,
            )  # fmt: skip
        state[BURST] = max(state[BURST], out_rows - rows_before)
    return out_rows
