"""The kernels of the table with tags (`lowlevel.tagged_table`): updating entries, moving them out."""

from __future__ import annotations

import numpy as np

from capture.native import kernel
from lowlevel.table_entries import AHEAD, append_entry, begin_entry, holds_key, take_in
from lowlevel.tagged_homes import find_tagged, hash_keys, next_rows, write_tag
from lowlevel.tags import ANY, BUCKET, first_of, free, home_of, mark_of, tag_of, tagged


@kernel(
    "i64(i64*, f64*, u64*, i64, i64, i64, i64*, i64*, i64, i64*, i64*, i64*, f64*, i64*, i64*, u8*, i64, i64, i64, "
    "i64, u64*, i64*, i64*, i64, i64*)"
)
def update_table(  # type: ignore[no-untyped-def]
    slots, slots_float, tags, slot_count, width, key_words, ops, starts, op_count, words, word_at, args, args_float,
    arg_at, times, chosen, choose, rows, pane_length, origin, hashes, homes, out, out_rows, tally,
):  # fmt: skip
    """Add packets to the table; return how many rows `out` holds then.

    `slots` is slot_count (a power of two, at least BUCKET) x width, `tags` a word for each bucket. The column of key
    word w begins at `words[word_at[w]]`, that of an argument at `args[arg_at[op]]`, wherever that is; `times` are ts in
    ns; all of them have `rows` values. Where `choose`, only packets with `chosen` = 1 count. Evicted entries are
    appended to `out`, which has room for out_rows + rows. `starts` are the words of a new entry before its first
    packet. `hashes` has room for AHEAD, `homes` for 3 x AHEAD. `tally` counts entries that began where their home slot
    was taken, and entries that filled an empty slot. The `_float` pointers are the same memory seen as float64.
    """
    if rows == 0:
        return out_rows
    collisions = np.int64(0)
    inserted = np.int64(0)
    buckets = np.uint64(slot_count // BUCKET - 1)
    least = times[0]
    most = times[0]
    for row in range(rows):
        least = min(least, times[row])
        most = max(most, times[row])
    pane = (least - origin) // pane_length
    pane_start = origin + pane * pane_length
    pane_end = pane_start + pane_length
    of_one_pane = most < pane_end
    for number in range(AHEAD):
        homes[AHEAD + number] = pane
    end = 0
    while end < rows:
        begin = end
        found, end = next_rows(homes, chosen, choose, begin, rows)
        if not of_one_pane:
            for number in range(found):
                time = times[homes[number]]
                if time < pane_start or time >= pane_end:
                    pane = (time - origin) // pane_length
                    pane_start = origin + pane * pane_length
                    pane_end = pane_start + pane_length
                homes[AHEAD + number] = pane
        for number in range(found):
            hashes[number] = np.uint64(homes[AHEAD + number]) * np.uint64(0x9E3779B97F4A7C15)
        hash_keys(hashes, homes, found, key_words, words, word_at, begin, choose)
        find_tagged(slots, tags, buckets, width, hashes, homes, found)
        taken = 0  # packets whose arguments are in their entries
        for number in range(found):
            row = homes[number]
            pane_of_row = homes[AHEAD + number]
            at = homes[2 * AHEAD + number]
            if at >= 0 and slots[at] == pane_of_row and holds_key(slots, at, key_words, words, word_at, row):
                continue
            mixed = hashes[number]
            tag = tag_of(mixed)
            bucket = np.int64(mixed & buckets)
            held = tags[bucket]
            home = home_of(mixed)
            same = tagged(held, tag)
            known = False
            while same != np.uint64(0) and not known:
                at = (bucket * BUCKET + np.int64(first_of(same))) * width
                known = slots[at] == pane_of_row and holds_key(slots, at, key_words, words, word_at, row)
                same &= same - np.uint64(1)
            if not known:
                place = first_of(free(held, home))
                at = (bucket * BUCKET + np.int64(place)) * width
                if held & mark_of(place) != np.uint64(0):
                    take_in(
                        slots, slots_float, 1 + key_words, ops, op_count, args, args_float, arg_at, homes, taken,
                        number,
                    )  # fmt: skip
                    taken = number
                    out_rows = append_entry(slots, width, at, out, out_rows)
                    collisions += 1
                else:
                    inserted += 1
                    collisions += place != home
                write_tag(tags, bucket, place, tag)
                begin_entry(slots, at, pane_of_row, key_words, words, word_at, row, starts, op_count)
            homes[2 * AHEAD + number] = at
        take_in(slots, slots_float, 1 + key_words, ops, op_count, args, args_float, arg_at, homes, taken, found)
    tally[0] += collisions
    tally[1] += inserted
    return out_rows


@kernel("i64(i64*, u64*, i64, i64, i64, i64*, i64, i64*)")
def flush_table(slots, tags, slot_count, width, before, out, room, hand):  # type: ignore[no-untyped-def]
    """Move entries whose pane is below `before` to `out`, whose `room` is BUCKET of them at least; return how many.

    It is done bucket by bucket from `hand[0]` on, which becomes the next bucket: that behind the last where all is
    done. `hand[1]` becomes the smallest pane that stayed, if that is smaller.
    """
    rows = 0
    bucket = hand[0]
    smallest = hand[1]
    while bucket < slot_count // BUCKET and rows + BUCKET <= room:
        held = tags[bucket]
        full = held & np.uint64(ANY)
        while full != np.uint64(0):
            place = first_of(full)
            full &= full - np.uint64(1)
            at = (bucket * BUCKET + np.int64(place)) * width
            if slots[at] < before:
                rows = append_entry(slots, width, at, out, rows)
                held &= ~(np.uint64(0xFF) << (place << np.uint64(3)))
            else:
                smallest = min(smallest, slots[at])
        tags[bucket] = held
        bucket += 1
    hand[0] = bucket
    hand[1] = smallest
    return rows
