"""The kernels of a table whose old entries are flushed gradually (`lowlevel.table.flushing`).

    oldest kept            current
       | pane c-M … c-1 |  pane c  |        resident entries have these panes only, each with a counter
    ---+----------------+----------+--->    old panes: the hand, other groups and the bound flush their entries
       direct             limit ^  direct

The pane of the packet decides (Li 2008, §8.2, corrected): a packet never updates an entry of another pane, and a late
packet updates the entry of its own pane. A packet of a later pane *opens* it, unless the pane is beyond the limit; then
entries more than M panes old must leave. A packet that is older, or beyond the limit, leaves **directly**, as a partial
of its own, and does not change the table. So resident entries always have M + 1 panes, even with wrong clocks. Because
the entries of each pane are counted, the smallest resident pane is known without a search.

A group has the same home slot in every pane. A group that occurs again finds its own old entry there and replaces it.
So old entries of such groups leave one by one, with every policy. These kernels test slots one after the other from the
home slot on, as in Gigascope; policies without order use tags (`lowlevel.table.bucket_flush_kernel`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capture.column_matrix import LINE_WORDS
from capture.native import Integer, Integers, helper, kernel, outlined
from capture.prefetch import prefetch
from lowlevel.subaggregates import INT_MIN
from lowlevel.table.entries import (
    AHEAD,
    TableMemory,
    TableRows,
    append_entry,
    begin_entry,
    holds_key,
    mix,
    take_in,
    write_tag,
)

# The state of such a table: words that its kernels share.
#
# | word | content |
# | --- | --- |
# | CURRENT | the current pane, EMPTY before the first |
# | PACKETS | packets since it was opened |
# | TARGET | packets of the pane after which PACED's hand has visited all slots |
# | HAND | the next slot of the hand |
# | CREDIT | packets for which SLOW has not yet flushed an entry |
# | OLD, RESIDENT | entries of panes before the current one, and all entries |
# | COLLISIONS | packets whose home slot had another entry |
# | EVICTED, SWEPT | entries replaced by another group, and flushed by the hand |
# | FORCED | entries flushed by the bound, or to keep the order |
# | FLUSHED | entries flushed because their pane was closed |
# | DIRECT | packets that left directly |
# | BURST | the most entries that left for AHEAD packets, or for a pane that a watermark opened |


IOP_SLOW, IOP_TWO_SLOT, SLOW, LAZY, PACED = range(5)
"""Codes of the policies: two that keep the order, then the others. Up to SLOW the hand counts packets."""

CURRENT, PACKETS, TARGET, HAND, CREDIT, OLD, RESIDENT = range(7)
COLLISIONS, EVICTED, SWEPT, FORCED, FLUSHED, DIRECT, BURST = range(7, 14)

WORDS = 14


EMPTY = INT_MIN
"""The pane of an empty slot."""

NEAR = 2
"""Number of slots that are prefetched."""


class FlushState(NamedTuple):
    """Policy and state of gradual flushes, for the kernels of a table; built once per table.

    * `policy`: its code. `every`: packets per entry, for SLOW.
    * `counts`: entries of each of the `panes` (M + 1) resident panes, at index pane & `mask`.
    * `state`: WORDS words.
    """

    policy: Integer
    every: Integer
    counts: Integers
    panes: Integer
    mask: Integer
    state: Integers


@helper
def find_homes(table, rows, begin, end):  # type: ignore[no-untyped-def]
    """Write rows, panes and home slots of the chosen rows in `[begin, end)` to `homes`; return their number.

    The slots are prefetched. The home slot of a group is the same in all panes.
    """
    slots, width, homes = table.slots, table.width, table.homes
    mask = np.uint64(table.slot_count - 1)
    pane = np.int64(0)
    pane_start = np.int64(0)
    pane_end = np.int64(0)  # an empty interval: the first packet finds its pane by division
    found = 0
    # A small entry is in one cache line. The neighbours of large entries are tested as often, and are in other lines.
    reach = 0 if width <= LINE_WORDS // 2 else NEAR * width
    for row in range(begin, end):
        if rows.choose and not rows.chosen[row]:
            continue
        time = rows.times[row]
        if time < pane_start or time >= pane_end:
            pane = (time - rows.origin) // rows.pane_length
            pane_start = rows.origin + pane * rows.pane_length
            pane_end = pane_start + rows.pane_length
        mixed = np.uint64(0)
        for word in range(table.key_words):
            mixed = mix(mixed, rows.words[rows.word_at[word] + row])
        slot = np.int64(mixed & mask)
        prefetch(slots, slot * width)
        for place in range(LINE_WORDS, reach, LINE_WORDS):
            prefetch(slots, slot * width + place)
        homes[found] = row
        homes[AHEAD + found] = pane
        homes[2 * AHEAD + found] = slot
        found += 1
    return found


# The bound: entries of panes that are too old leave together. The entries of each pane are counted, so a scan stops
# when the last of them has left.


EARLY = 2
"""PACED's hand visits all slots in 1/EARLY of the last pane's packets: this pane may have fewer packets."""


@helper
def move_out(table, flushes, slot, current, out_rows):  # type: ignore[no-untyped-def]
    """Append the entry in a slot to `out` and clear the slot; return the number of rows in `out`."""
    slots, state = table.slots, flushes.state
    at = slot * table.width
    pane = slots[at]
    flushes.counts[pane & flushes.mask] -= 1
    state[RESIDENT] -= 1
    if pane < current:
        state[OLD] -= 1
    out_rows = append_entry(table, at, out_rows)
    slots[at] = EMPTY
    write_tag(table.tags, slot >> 3, np.uint64(slot & 7), np.uint64(0))
    return out_rows


@outlined
def move_out_before(table, flushes, before, current, out_rows):  # type: ignore[no-untyped-def]
    """Flush the entries of all panes below `before`; stop the scan after the last of them."""
    left = np.int64(0)
    for pane in range(flushes.panes):
        place = current - pane
        if place < before:
            left += flushes.counts[place & flushes.mask]
    slot = np.int64(0)
    while left > 0 and slot < table.slot_count:
        pane = table.slots[slot * table.width]
        if pane != EMPTY and pane < before:
            out_rows = move_out(table, flushes, slot, current, out_rows)
            left -= 1
        slot += 1
    return out_rows


@outlined
def force_out(table, flushes, before, out_rows):  # type: ignore[no-untyped-def]
    """Flush the entries of all panes below `before`, and count them as forced."""
    state = flushes.state
    rows = out_rows
    out_rows = move_out_before(table, flushes, before, state[CURRENT], out_rows)
    state[FORCED] += out_rows - rows
    return out_rows


@outlined
def open_pane(table, flushes, pane, out_rows):  # type: ignore[no-untyped-def]
    """Make a later `pane` the current one, after flushing entries that would be older than the bound."""
    state = flushes.state
    if flushes.policy <= IOP_TWO_SLOT and state[OLD] > 0:
        out_rows = force_out(table, flushes, state[CURRENT], out_rows)
    if state[RESIDENT] > 0:
        out_rows = force_out(table, flushes, pane - flushes.panes + 1, out_rows)
    if state[PACKETS] > 0:  # a pane without packets does not predict the next
        state[TARGET] = state[PACKETS] // EARLY
    state[OLD] = state[RESIDENT]
    state[CURRENT] = pane
    state[HAND] = 0
    state[PACKETS] = 0
    return out_rows


# The hand visits the slots of a table once in each pane. PACED divides the expected packets of a pane (those of the
# last pane) as follows:
#
#     0            1/4            1/2                          1
#     +-------------+--------------+---------------------------+
#       the hand waits   it visits the slots       reserve, if fewer packets arrive
#
# At first nearly every packet's group occurs again and replaces its own old entry. Packets are slowest then, and the
# hand would flush entries that leave anyway. So it waits while one slot per packet is still enough. Then it moves in
# equal steps, less the entries that packets flush themselves. Together they flush at most one entry per packet, unless
# old entries would then stay too long.


WAIT = 2
"""The hand waits at most until TARGET divided by WAIT."""


@outlined
def sweep(table, flushes, visits, entries, out_rows):  # type: ignore[no-untyped-def]
    """Move the hand until it has visited `visits` slots or flushed `entries` old entries, or has visited all slots."""
    state = flushes.state
    rows = out_rows
    slot = state[HAND]
    end = min(table.slot_count, slot + visits)
    current = state[CURRENT]
    while slot < end and out_rows - rows < entries and state[OLD] > 0:
        pane = table.slots[slot * table.width]
        if pane != EMPTY and pane < current:
            out_rows = move_out(table, flushes, slot, current, out_rows)
        slot += 1
    state[HAND] = slot
    state[SWEPT] += out_rows - rows
    return out_rows


@outlined
def sweep_by_count(table, flushes, packets, out_rows):  # type: ignore[no-untyped-def]
    """Flush the entries that the ordered policies and SLOW must flush before the next packets."""
    state, every = flushes.state, flushes.every
    if flushes.policy <= IOP_TWO_SLOT:
        entries = packets
    else:
        state[CREDIT] += packets
        entries = state[CREDIT] // every
        state[CREDIT] -= entries * every
    return sweep(table, flushes, table.slot_count, entries, out_rows)


@outlined
def sweep_in_time(table, flushes, packets, left, old_before, out_rows):  # type: ignore[no-untyped-def]
    """Flush PACED's share of entries after some packets.

    `left` entries have left for these packets already, some of them old before.
    """
    state = flushes.state
    ahead = state[TARGET] - state[PACKETS] + packets  # packets until the hand must have visited all slots, with these
    visits = table.slot_count - state[HAND]
    entries = state[OLD]
    if ahead > packets:
        if ahead > visits and state[PACKETS] < state[TARGET] // WAIT:
            return out_rows
        visits = (visits * packets + ahead - 1) // ahead
        entries -= old_before * (ahead - packets) // ahead  # entries that may stay: old entries leave in equal steps
    return sweep(table, flushes, visits, max(entries, packets - left), out_rows)


# Steps that the kernels of both kinds of tables share. A group of packets is AHEAD packets at most.


@helper
def begin_group(table, flushes, found, limit, out_rows):  # type: ignore[no-untyped-def]
    """Open the pane of the first of `found` packets if it is later, and flush what the policy must flush before."""
    state, pane = flushes.state, table.homes[AHEAD]
    if pane > state[CURRENT] and pane <= limit:
        out_rows = open_pane(table, flushes, pane, out_rows)
    state[PACKETS] += found
    if flushes.policy <= SLOW and state[OLD] > 0:
        out_rows = sweep_by_count(table, flushes, found, out_rows)
    return out_rows


@helper
def open_within(table, rows, flushes, pane, taken, number, found, out_rows):  # type: ignore[no-untyped-def]
    """Open the later `pane` of packet `number`, after the arguments of packets from `taken` on are in their entries."""
    state = flushes.state
    take_in(table, rows, taken, number)
    state[PACKETS] -= found - number
    out_rows = open_pane(table, flushes, pane, out_rows)
    state[PACKETS] = found - number
    return out_rows


@helper
def leave_directly(table, rows, flushes, pane, taken, number, out_rows):  # type: ignore[no-untyped-def]
    """Append packet `number` as a partial of its own, after packets from `taken` on are in their entries."""
    at = table.slot_count * table.width
    table.homes[2 * AHEAD + number] = at
    begin_entry(table, at, pane, rows, table.homes[number])
    take_in(table, rows, taken, number + 1)
    flushes.state[DIRECT] += 1
    return append_entry(table, at, out_rows)


@helper
def count_entry(flushes, pane, current):  # type: ignore[no-untyped-def]
    """Count a new entry of `pane`."""
    flushes.counts[pane & flushes.mask] += 1
    flushes.state[RESIDENT] += 1
    if pane < current:
        flushes.state[OLD] += 1


@helper
def end_group(table, rows, flushes, taken, found, old_before, rows_before, out_rows):  # type: ignore[no-untyped-def]
    """Add the arguments of the last packets to their entries, and move PACED's hand."""
    state = flushes.state
    take_in(table, rows, taken, found)
    if flushes.policy == PACED and state[OLD] > 0:
        out_rows = sweep_in_time(
            table, flushes, min(found, state[PACKETS]), out_rows - rows_before, old_before, out_rows
        )
    state[BURST] = max(state[BURST], out_rows - rows_before)
    return out_rows


@kernel("i64(TableMemory, TableRows, FlushState, i64, i64, i64)")
def update_flushing(  # type: ignore[no-untyped-def]
    table: TableMemory, rows: TableRows, flushes: FlushState, probes, limit, out_rows
):
    """Add packets to the table, as `update_table` does, and flush old entries; return the number of rows in `out`.

    `out` has room for out_rows + slot_count + rows. A packet tests `probes` slots. `limit` is the largest pane that a
    packet can open. With policies that keep no order, a packet of the current pane replaces the first old entry on its
    way: mostly that of its own group, at home.
    """
    slots, width, homes, policy, state = table.slots, table.width, table.homes, flushes.policy, flushes.state
    for begin in range(0, rows.row_count, AHEAD):
        found = find_homes(table, rows, begin, min(rows.row_count, begin + AHEAD))
        if found == 0:
            continue
        rows_before = out_rows
        taken = 0  # packets whose arguments are in their entries
        late = False  # whether those of a packet of an old pane may not be
        out_rows = begin_group(table, flushes, found, limit, out_rows)
        current = state[CURRENT]
        old_before = state[OLD]
        for number in range(found):
            row = homes[number]
            pane = homes[AHEAD + number]
            slot = homes[2 * AHEAD + number]
            if pane > current and pane <= limit:
                out_rows = open_within(table, rows, flushes, pane, taken, number, found, out_rows)
                taken = number
                late = False
                old_before = state[OLD]
                current = pane
            if pane > current or pane <= current - flushes.panes:
                out_rows = leave_directly(table, rows, flushes, pane, taken, number, out_rows)
                taken = number + 1
                continue
            at = slot * width
            state_of_slot = 0  # 0 evict, 1 found, 2 empty
            home = slot
            old = np.int64(-1)
            for probe in range(probes):
                at = slot * width
                resident = slots[at]
                if resident == EMPTY:
                    state_of_slot = 2
                    break
                if resident == pane and holds_key(table, at, rows, row):
                    state_of_slot = 1
                    break
                if resident < current:
                    old = slot if old < 0 else old
                    if policy > IOP_TWO_SLOT and pane == current:
                        break  # its own entry would be before this slot, unless a late packet replaced it
                state[COLLISIONS] += probe == 0
                slot = (slot + 1) & (table.slot_count - 1)
            if state_of_slot == 0:
                if old < 0 or late:
                    take_in(table, rows, taken, number)
                    taken = number
                    late = False
                slot = old
                if old < 0:
                    slot = home
                    if policy <= IOP_TWO_SLOT and state[OLD] > 0:
                        out_rows = force_out(table, flushes, current, out_rows)
                at = slot * width
                out_rows = move_out(table, flushes, slot, current, out_rows)
                state[EVICTED] += 1
            late = late or pane < current
            homes[2 * AHEAD + number] = at
            if state_of_slot != 1:
                begin_entry(table, at, pane, rows, row)
                count_entry(flushes, pane, current)
        out_rows = end_group(table, rows, flushes, taken, found, old_before, rows_before, out_rows)
    return out_rows


@kernel("i64(TableMemory, FlushState, i64, i64, i64, i64)")
def settle_table(table: TableMemory, flushes: FlushState, pane, before, visits, out_rows):  # type: ignore[no-untyped-def]
    """Flush entries without packets; return the number of rows in `out`.

    `pane` becomes the current pane if it is later. The hand visits up to `visits` slots and flushes at most AHEAD
    entries. Entries of panes below `before` leave. `out` has room for out_rows + slot_count.
    """
    state = flushes.state
    rows = out_rows
    if pane > state[CURRENT]:
        out_rows = open_pane(table, flushes, pane, out_rows)
    if visits > 0:
        out_rows = sweep(table, flushes, visits, AHEAD, out_rows)
    state[BURST] = max(state[BURST], out_rows - rows)
    current = state[CURRENT]
    closed = out_rows
    if before > current and state[OLD] > 0:
        out_rows = move_out_before(table, flushes, current, current, out_rows)
    if state[RESIDENT] > 0:
        out_rows = move_out_before(table, flushes, before, current, out_rows)
    state[FLUSHED] += out_rows - closed
    return out_rows
