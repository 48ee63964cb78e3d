"""The kernels of a table whose old entries leave bit by bit (`lowlevel.table.flushing`); the table itself is as ever.

    oldest kept            current
       | pane c-M … c-1 |  pane c  |        residents are of these panes only, each with a counter
    ---+----------------+----------+--->    old panes: what the hand, other groups and the bound move out
       direct             limit ^  direct

A packet's own pane decides (Li 2008, §8.2, corrected): it never meets an entry of another pane, and a late one is
booked where it belongs. A packet of a later pane *opens* it, if it is not beyond the limit; then entries M panes behind
must leave, if any are left. A packet that is older than that, or beyond the limit, leaves **directly**, a partial of
its own: it neither waits in the table nor moves what does. So residents are always of M + 1 panes, whatever clocks
say; and since each pane's are counted, the smallest resident pane is known without looking.

A group has the same home in every pane: one that recurs finds its own old entry there and takes its place, so that old
entries of recurring groups leave one by one, whatever the policy. Here a packet looks at slots one by one from home on
(`lowlevel.table.flush_kernels`), as in Gigascope; tables out of order have tags (`lowlevel.table.bucket_flush_kernel`).
"""

from __future__ import annotations

import numpy as np

from capture.column_matrix import LINE_WORDS
from capture.native import helper, kernel, outlined
from capture.prefetch import prefetch
from lowlevel.subaggregates import INT_MIN
from lowlevel.table.entries import AHEAD, append_entry, begin_entry, holds_key, mix, take_in, write_tag

# What a table whose old entries leave bit by bit (`lowlevel.table.flushing`) knows of itself: words that its kernels
# share.
#
# | word | is |
# | --- | --- |
# | CURRENT | the current pane, EMPTY before the first |
# | PACKETS | packets since it was opened |
# | TARGET | packets of it by which PACED's hand is over all slots |
# | HAND | the slot that the hand looks at next |
# | CREDIT | packets that SLOW has not yet paid for with an entry |
# | OLD, RESIDENT | entries of panes before the current one, and of all |
# | COLLISIONS | packets that found their home slot taken |
# | EVICTED, SWEPT | entries that left for another group, and by the hand |
# | FORCED | entries that left by the bound, or for the sake of order |
# | FLUSHED | entries that left because their pane was complete |
# | DIRECT | packets that left directly |
# | BURST | the most that left for AHEAD packets, or for a pane that a promise opened |


IOP_SLOW, IOP_TWO_SLOT, SLOW, LAZY, PACED = range(5)
"""How the kernels know the policies: two in order, then those out of order; up to SLOW the hand counts packets."""

CURRENT, PACKETS, TARGET, HAND, CREDIT, OLD, RESIDENT = range(7)
COLLISIONS, EVICTED, SWEPT, FORCED, FLUSHED, DIRECT, BURST = range(7, 14)

WORDS = 14


EMPTY = INT_MIN
"""The pane of a slot that holds nothing."""

NEAR = 2
"""Slots whose memory is asked for."""


@helper
def find_homes(  # type: ignore[no-untyped-def]
    slots, slot_count, width, key_words, words, word_at, times, chosen, choose, begin, end, pane_length, origin, homes,
):  # fmt: skip
    """Write rows, panes and home slots of the chosen rows in `[begin, end)` to `homes`; return how many there are.

    The memory of the slots is asked for. A group's home is the same in all panes.
    """
    mask = np.uint64(slot_count - 1)
    pane = np.int64(0)
    pane_start = np.int64(0)
    pane_end = np.int64(0)  # an empty interval: the first packet finds its pane by division
    found = 0
    # Small entries never straddle two lines and are mostly alone; the neighbours of large ones are looked at as often,
    # and lie in lines that nobody else has asked for.
    reach = 0 if width <= LINE_WORDS // 2 else NEAR * width
    for row in range(begin, end):
        if choose and not chosen[row]:
            continue
        time = times[row]
        if time < pane_start or time >= pane_end:
            pane = (time - origin) // pane_length
            pane_start = origin + pane * pane_length
            pane_end = pane_start + pane_length
        mixed = np.uint64(0)
        for word in range(key_words):
            mixed = mix(mixed, words[word_at[word] + row])
        slot = np.int64(mixed & mask)
        prefetch(slots, slot * width)
        for place in range(LINE_WORDS, reach, LINE_WORDS):
            prefetch(slots, slot * width + place)
        homes[found] = row
        homes[AHEAD + found] = pane
        homes[2 * AHEAD + found] = slot
        found += 1
    return found


# How entries of old panes leave a table together, by the bound: helpers of `lowlevel.table.flush_kernels`.
#
# Each pane's residents are counted, so what must leave is known without looking, and nothing is looked at once it has.


EARLY = 2
"""PACED's hand is over all slots after the last pane's packets divided by this: fewer may come this time."""


@helper
def move_out(slots, tags, width, slot, current, counts, mask, state, out, out_rows):  # type: ignore[no-untyped-def]
    """Append the entry in a slot to `out` and empty the slot; returns the rows of `out` then."""
    at = slot * width
    pane = slots[at]
    counts[pane & mask] -= 1
    state[RESIDENT] -= 1
    if pane < current:
        state[OLD] -= 1
    out_rows = append_entry(slots, width, at, out, out_rows)
    slots[at] = EMPTY
    write_tag(tags, slot >> 3, np.uint64(slot & 7), np.uint64(0))
    return out_rows


@outlined
def move_out_before(  # type: ignore[no-untyped-def]
    slots, tags, slot_count, width, before, current, counts, panes, mask, state, out, out_rows
):  # fmt: skip
    """Move every entry out whose pane is below `before`; looks at no slot more than it must."""
    left = np.int64(0)
    for pane in range(panes):
        place = current - pane
        if place < before:
            left += counts[place & mask]
    slot = np.int64(0)
    while left > 0 and slot < slot_count:
        pane = slots[slot * width]
        if pane != EMPTY and pane < before:
            out_rows = move_out(slots, tags, width, slot, current, counts, mask, state, out, out_rows)
            left -= 1
        slot += 1
    return out_rows


@outlined
def force_out(  # type: ignore[no-untyped-def]
    slots, tags, slot_count, width, before, counts, panes, mask, state, out, out_rows
):  # fmt: skip
    """Move every entry out whose pane is below `before`, because it may stay no longer."""
    rows = out_rows
    out_rows = move_out_before(
        slots, tags, slot_count, width, before, state[CURRENT], counts, panes, mask, state, out, out_rows
    )
    state[FORCED] += out_rows - rows
    return out_rows


@outlined
def open_pane(  # type: ignore[no-untyped-def]
    slots, tags, slot_count, width, pane, policy, counts, panes, mask, state, out, out_rows
):  # fmt: skip
    """Make `pane`, later than the current one, the current one. What would be older than the bound leaves before."""
    if policy <= IOP_TWO_SLOT and state[OLD] > 0:
        out_rows = force_out(slots, tags, slot_count, width, state[CURRENT], counts, panes, mask, state, out, out_rows)
    if state[RESIDENT] > 0:
        out_rows = force_out(
            slots, tags, slot_count, width, pane - panes + 1, counts, panes, mask, state, out, out_rows
        )
    if state[PACKETS] > 0:  # a pane that a promise opened and another one closed says nothing of the next
        state[TARGET] = state[PACKETS] // EARLY
    state[OLD] = state[RESIDENT]
    state[CURRENT] = pane
    state[HAND] = 0
    state[PACKETS] = 0
    return out_rows


# The hand that goes over the slots of a table once in each pane: helpers of `lowlevel.table.flush_kernels`.
#
# PACED, of the packets that a pane is expected to have (those of the last one):
#
#     0            1/4            1/2                          1
#     +-------------+--------------+---------------------------+
#       the hand waits   it goes over the slots    rest, lest fewer packets come
#
# At first nearly every packet's group recurs and takes its own old entry's place: what the hand did then it would do
# beside the packets at their slowest, and for entries that leave anyway. So it waits while one slot for each packet is
# still enough. Then it goes in equal steps, and leaves to the packets what they move out themselves: together they move
# out no more entries than there are packets, unless the old ones would not be out in time.


WAIT = 2
"""The hand waits at most until TARGET divided by this."""


@outlined
def sweep(  # type: ignore[no-untyped-def]
    slots, tags, slot_count, width, visits, entries, counts, mask, state, out, out_rows
):  # fmt: skip
    """Let the hand go on until it has visited `visits` slots or moved `entries` old ones out, or is over all slots."""
    rows = out_rows
    slot = state[HAND]
    end = min(slot_count, slot + visits)
    current = state[CURRENT]
    while slot < end and out_rows - rows < entries and state[OLD] > 0:
        pane = slots[slot * width]
        if pane != EMPTY and pane < current:
            out_rows = move_out(slots, tags, width, slot, current, counts, mask, state, out, out_rows)
        slot += 1
    state[HAND] = slot
    state[SWEPT] += out_rows - rows
    return out_rows


@outlined
def sweep_by_count(  # type: ignore[no-untyped-def]
    slots, tags, slot_count, width, packets, policy, every, counts, mask, state, out, out_rows
):  # fmt: skip
    """Let the hand move out what the in-order policies and SLOW owe for so many packets, before these."""
    if policy <= IOP_TWO_SLOT:
        entries = packets
    else:
        state[CREDIT] += packets
        entries = state[CREDIT] // every
        state[CREDIT] -= entries * every
    return sweep(slots, tags, slot_count, width, slot_count, entries, counts, mask, state, out, out_rows)


@outlined
def sweep_in_time(  # type: ignore[no-untyped-def]
    slots, tags, slot_count, width, packets, left, old_before, counts, mask, state, out, out_rows
):  # fmt: skip
    """Let the hand do PACED's part beside so many packets, after these.

    `left` entries have left for them already, some of those that were old before them.
    """
    ahead = state[TARGET] - state[PACKETS] + packets  # until the hand is to be over all slots, these among them
    visits = slot_count - state[HAND]
    entries = state[OLD]
    if ahead > packets:
        if ahead > visits and state[PACKETS] < state[TARGET] // WAIT:
            return out_rows
        visits = (visits * packets + ahead - 1) // ahead
        entries -= old_before * (ahead - packets) // ahead  # what may stay, old ones by equal steps
    return sweep(
        slots, tags, slot_count, width, visits, max(entries, packets - left), counts, mask, state, out, out_rows
    )  # fmt: skip


@kernel(
    "i64(i64*, f64*, u64*, i64, i64, i64, i64*, i64*, i64, i64*, i64*, i64*, f64*, i64*, i64*, u8*, i64, i64, i64, "
    "i64, i64, i64*, i64*, i64, i64, i64, i64, i64*, i64, i64, i64*)"
)
def update_flushing(  # type: ignore[no-untyped-def]
    slots, slots_float, tags, slot_count, width, key_words, ops, starts, op_count, words, word_at, args, args_float,
    arg_at, times, chosen, choose, rows, pane_length, origin, probes, homes, out, out_rows, limit, policy, every,
    counts, panes, mask, state,
):  # fmt: skip
    """Add packets to the table, as `update_table` does, and let old entries leave; return how many rows `out` holds.

    `slots` has one row more than slot_count, scratch for packets that leave directly. `out` has room for out_rows +
    slot_count + rows. A packet's pane is opened if it is not above `limit`. `counts` are the residents of each of the
    `panes` (M + 1) kept, at the pane's lowest bits, which `mask` keeps; `state` are WORDS words. `every` is SLOW's.

    Out of order, a packet of the current pane takes the place of the first old entry that it meets: in most cases its
    own group's, at home.
    """
    first = 1 + key_words
    for begin in range(0, rows, AHEAD):
        end = min(rows, begin + AHEAD)
        found = find_homes(
            slots, slot_count, width, key_words, words, word_at, times, chosen, choose, begin, end, pane_length,
            origin, homes,
        )  # fmt: skip
        if found == 0:
            continue
        rows_before = out_rows
        taken = 0  # packets whose arguments are in their entries
        late = False  # whether those of a packet of an old pane may not be
        if homes[AHEAD] > state[CURRENT] and homes[AHEAD] <= limit:
            out_rows = open_pane(
                slots, tags, slot_count, width, homes[AHEAD], policy, counts, panes, mask, state, out, out_rows
            )  # fmt: skip
        state[PACKETS] += found
        if policy <= SLOW and state[OLD] > 0:
            out_rows = sweep_by_count(
                slots, tags, slot_count, width, found, policy, every, counts, mask, state, out, out_rows
            )  # fmt: skip
        current = state[CURRENT]
        old_before = state[OLD]
        for number in range(found):
            row = homes[number]
            pane = homes[AHEAD + number]
            slot = homes[2 * AHEAD + number]
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
            at = slot * width
            state_of_slot = 0  # 0 evict, 1 found, 2 empty, 3 leave directly
            if pane > current or pane <= current - panes:
                state_of_slot = 3
                at = slot_count * width
            else:
                home = slot
                old = np.int64(-1)
                for probe in range(probes):
                    at = slot * width
                    resident = slots[at]
                    if resident == EMPTY:
                        state_of_slot = 2
                        break
                    if resident == pane and holds_key(slots, at, key_words, words, word_at, row):
                        state_of_slot = 1
                        break
                    if resident < current:
                        old = slot if old < 0 else old
                        if policy > IOP_TWO_SLOT and pane == current:
                            break  # an entry of its own would be before it, unless a late packet took its place
                    state[COLLISIONS] += probe == 0
                    slot = (slot + 1) & (slot_count - 1)
                if state_of_slot == 0:
                    if old < 0 or late:
                        take_in(
                            slots, slots_float, first, ops, op_count, args, args_float, arg_at, homes, taken, number
                        )  # fmt: skip
                        taken = number
                        late = False
                    slot = old
                    if old < 0:
                        slot = home
                        if policy <= IOP_TWO_SLOT and state[OLD] > 0:
                            out_rows = force_out(
                                slots, tags, slot_count, width, current, counts, panes, mask, state, out, out_rows
                            )  # fmt: skip
                    at = slot * width
                    out_rows = move_out(slots, tags, width, slot, current, counts, mask, state, out, out_rows)
                    state[EVICTED] += 1
                late = late or pane < current
            homes[2 * AHEAD + number] = at
            if state_of_slot != 1:
                begin_entry(slots, at, pane, key_words, words, word_at, row, starts, op_count)
                if state_of_slot == 3:
                    take_in(
                        slots, slots_float, first, ops, op_count, args, args_float, arg_at, homes, taken, number + 1
                    )  # fmt: skip
                    taken = number + 1
                    out_rows = append_entry(slots, width, at, out, out_rows)
                    state[DIRECT] += 1
                else:
                    counts[pane & mask] += 1
                    state[RESIDENT] += 1
                    if pane < current:
                        state[OLD] += 1
        take_in(slots, slots_float, first, ops, op_count, args, args_float, arg_at, homes, taken, found)
        if policy == PACED and state[OLD] > 0:
            out_rows = sweep_in_time(
                slots, tags, slot_count, width, min(found, state[PACKETS]), out_rows - rows_before, old_before, counts,
                mask, state, out, out_rows,
            )  # fmt: skip
        state[BURST] = max(state[BURST], out_rows - rows_before)
    return out_rows


@kernel("i64(i64*, u64*, i64, i64, i64, i64, i64, i64, i64*, i64, i64, i64*, i64*, i64)")
def settle_table(  # type: ignore[no-untyped-def]
    slots, tags, slot_count, width, pane, before, visits, policy, counts, panes, mask, state, out, out_rows
):  # fmt: skip
    """Let entries leave without packets; return how many rows `out` holds then.

    `pane` is opened if it is later than the current one, the hand visits up to `visits` slots, and AHEAD entries leave
    there at most; entries of panes below `before` leave. `out` has room for out_rows + slot_count; the rest is as in
    `update_flushing`.
    """
    rows = out_rows
    if pane > state[CURRENT]:
        out_rows = open_pane(slots, tags, slot_count, width, pane, policy, counts, panes, mask, state, out, out_rows)
    if visits > 0:
        out_rows = sweep(slots, tags, slot_count, width, visits, AHEAD, counts, mask, state, out, out_rows)
    state[BURST] = max(state[BURST], out_rows - rows)
    current = state[CURRENT]
    closed = out_rows
    if before > current and state[OLD] > 0:
        out_rows = move_out_before(
            slots, tags, slot_count, width, current, current, counts, panes, mask, state, out, out_rows
        )
    if state[RESIDENT] > 0:
        out_rows = move_out_before(
            slots, tags, slot_count, width, before, current, counts, panes, mask, state, out, out_rows
        )
    state[FLUSHED] += out_rows - closed
    return out_rows
