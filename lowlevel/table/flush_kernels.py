"""The kernels of a table whose old entries are flushed gradually (`lowlevel.table.flushing`).

       too old       |  old panes     | current pane |       later panes
    -----------------+----------------+--------------+---------------------+------------------>  panes
                     | c - M … c - 1  |      c       |                     limit
    packets leave    | packets update entries of     | packets open their   packets leave
    directly         | their own pane                | pane                 directly

* A packet updates only the entry of its own pane, even if the packet is late (Li 2008, §8.2, corrected).
* A packet of a later pane *opens* this pane, which becomes the current pane. Entries that are then more than M panes
  old must leave. M is the **bound** (`Flushing.disorder`).
* The limit is the latest pane that a packet may open. The clock of a packet beyond the limit is probably wrong.
* A packet that is too old, or beyond the limit, leaves **directly**: it becomes a partial, without an entry.

So the table contains only entries of these M + 1 panes, even if clocks are wrong. Each pane has a counter of its
entries, so the smallest pane is known without a search.

An old entry leaves when its group occurs again, when another group needs its slot, when the *hand* visits it, or at
the bound. The hand is a slot number that moves over the slots. Old entries in the slots that it visits are flushed.

A group has the same home slot in every pane. A group that occurs again finds its own old entry there and replaces it.
So with every policy, old entries of recurring groups leave gradually. These kernels test consecutive slots from the
home slot on, as Gigascope does. Policies without order use tags (`lowlevel.table.bucket_flush_kernel`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capture.column_matrix import LINE_WORDS
from capture.native import Integer, Integers, helper, kernel, outlined
from capture.prefetch import prefetch
from lowlevel.subaggregates import INT_MIN
from lowlevel.table.entries import (
    CHUNK_ROWS,
    ENTRIES_OFFSET,
    PANES_OFFSET,
    TableMemory,
    TableRows,
    append_entry,
    begin_entry,
    has_key,
    mix,
    update_entries,
    write_tag,
)

# The state of such a table: words that its kernels share.
#
# | word | content |
# | --- | --- |
# | CURRENT | the current pane; EMPTY before the first packet |
# | PACKETS | packets since the current pane was opened |
# | TARGET | number of packets of a pane in which PACED's hand visits all slots |
# | HAND | the next slot of the hand |
# | CREDIT | packets for which SLOW has not yet flushed an entry |
# | OLD, RESIDENT | number of entries of old panes, and of all entries |
# | COLLISIONS | packets whose home slot had another entry |
# | EVICTED, SWEPT | entries replaced by new entries, and entries flushed by the hand |
# | FORCED | entries flushed at the bound, or to keep the order |
# | FLUSHED | entries flushed because their pane was closed |
# | DIRECT | packets that left directly |
# | BURST | largest number of entries that left for one chunk of packets, or for a pane that a watermark opened |


IOP_SLOW, IOP_TWO_SLOT, SLOW, LAZY, PACED = range(5)
"""Codes of the policies. The first two keep the order. With the first three, the hand moves by numbers of packets."""

CURRENT, PACKETS, TARGET, HAND, CREDIT, OLD, RESIDENT = range(7)
COLLISIONS, EVICTED, SWEPT, FORCED, FLUSHED, DIRECT, BURST = range(7, 14)

STATE_WORDS = 14


EMPTY = INT_MIN
"""The pane of an empty slot."""

PREFETCHED_SLOTS = 2
"""Number of slots that are prefetched for a packet."""


class FlushState(NamedTuple):
    """Policy and state of gradual flushes, for the kernels of a table. It is built once per table.

    * `policy`: its code. `every`: with SLOW, the hand flushes one entry per this number of packets.
    * `pane_counts`: number of entries of each pane, at index `pane & pane_mask`. `max_panes`: maximum number of panes,
      M + 1.
    * `state`: STATE_WORDS words.
    """

    policy: Integer
    every: Integer
    pane_counts: Integers
    max_panes: Integer
    pane_mask: Integer
    state: Integers


@helper
def find_homes(table, rows, begin, end):  # type: ignore[no-untyped-def]
    """Write the chosen rows in `[begin, end)`, their panes and home slots to `chunk`; return the number of these rows.

    The slots are prefetched. The home slot of a group is the same in all panes.
    """
    slots, width, chunk = table.slots, table.width, table.chunk
    mask = np.uint64(table.slot_count - 1)
    pane = np.int64(0)
    pane_start = np.int64(0)
    pane_end = np.int64(0)  # an empty interval, so that the pane of the first packet is computed
    count = 0
    # Small entries are in the cache line of their neighbours. Neighbours of large entries are in other lines.
    prefetched_words = 0 if width <= LINE_WORDS // 2 else PREFETCHED_SLOTS * width
    for row in range(begin, end):
        if rows.uses_chosen and not rows.chosen[row]:
            continue
        time = rows.times[row]
        if time < pane_start or time >= pane_end:
            pane = (time - rows.origin) // rows.pane_length
            pane_start = rows.origin + pane * rows.pane_length
            pane_end = pane_start + rows.pane_length
        hash_value = np.uint64(0)
        for word in range(table.key_words):
            hash_value = mix(hash_value, rows.words[rows.key_offsets[word] + row])
        slot = np.int64(hash_value & mask)
        prefetch(slots, slot * width)
        for word in range(LINE_WORDS, prefetched_words, LINE_WORDS):
            prefetch(slots, slot * width + word)
        chunk[count] = row
        chunk[PANES_OFFSET + count] = pane
        chunk[ENTRIES_OFFSET + count] = slot
        count += 1
    return count


EARLY_DIVISOR = 2
"""PACED's hand visits all slots in 1/EARLY_DIVISOR of the last pane's packets, as this pane may have fewer packets."""


@helper
def flush_entry(table, flushes, slot, current, out_rows):  # type: ignore[no-untyped-def]
    """Move the entry in a slot to `out`. Return the number of rows in `out`."""
    slots, state = table.slots, flushes.state
    offset = slot * table.width
    pane = slots[offset]
    flushes.pane_counts[pane & flushes.pane_mask] -= 1
    state[RESIDENT] -= 1
    if pane < current:
        state[OLD] -= 1
    out_rows = append_entry(table, offset, out_rows)
    slots[offset] = EMPTY
    write_tag(table.tags, slot >> 3, np.uint64(slot & 7), np.uint64(0))
    return out_rows


@outlined
def flush_before(table, flushes, end_pane, current, out_rows):  # type: ignore[no-untyped-def]
    """Flush the entries of all panes below `end_pane`. Return the number of rows in `out`.

    The number of these entries is known, so the scan stops after the last entry.
    """
    remaining = np.int64(0)
    for age in range(flushes.max_panes):
        pane = current - age
        if pane < end_pane:
            remaining += flushes.pane_counts[pane & flushes.pane_mask]
    slot = np.int64(0)
    while remaining > 0 and slot < table.slot_count:
        pane = table.slots[slot * table.width]
        if pane != EMPTY and pane < end_pane:
            out_rows = flush_entry(table, flushes, slot, current, out_rows)
            remaining -= 1
        slot += 1
    return out_rows


@outlined
def force_flush(table, flushes, end_pane, out_rows):  # type: ignore[no-untyped-def]
    """Flush the entries of all panes below `end_pane`, and count them as forced. Return the number of rows in `out`."""
    state = flushes.state
    rows_before = out_rows
    out_rows = flush_before(table, flushes, end_pane, state[CURRENT], out_rows)
    state[FORCED] += out_rows - rows_before
    return out_rows


@outlined
def open_pane(table, flushes, pane, out_rows):  # type: ignore[no-untyped-def]
    """Make a later `pane` the current pane. First flush the entries that the policy does not keep in this pane.

    Returns the number of rows in `out`.
    """
    state = flushes.state
    if flushes.policy <= IOP_TWO_SLOT and state[OLD] > 0:
        out_rows = force_flush(table, flushes, state[CURRENT], out_rows)
    if state[RESIDENT] > 0:
        out_rows = force_flush(table, flushes, pane - flushes.max_panes + 1, out_rows)
    if state[PACKETS] > 0:  # a pane without packets does not predict the packets of the next pane
        state[TARGET] = state[PACKETS] // EARLY_DIVISOR
    state[OLD] = state[RESIDENT]
    state[CURRENT] = pane
    state[HAND] = 0
    state[PACKETS] = 0
    return out_rows


# The hand visits the slots of a table once in each pane. PACED expects as many packets as in the last pane, and divides
# them as follows:
#
#     0                1/4                     1/2                                   1
#     +-----------------+-----------------------+------------------------------------+
#       the hand waits    it visits all slots     reserve, if fewer packets arrive
#
# At the beginning of a pane nearly every packet replaces the old entry of its own group. This is the slowest part of a
# pane, and the hand would flush entries that packets will replace anyway. So the hand waits, as long as one slot per
# packet is enough to visit all slots in time. Then it moves in equal steps. Entries that packets replaced are
# subtracted from its steps. So packets and hand together flush at most one entry per packet, unless old entries would
# then stay too long.


WAIT_DIVISOR = 2
"""The hand waits for at most TARGET / WAIT_DIVISOR packets."""


@outlined
def sweep(table, flushes, visits, entries, out_rows):  # type: ignore[no-untyped-def]
    """Move the hand by up to `visits` slots, until it has flushed `entries` old entries.

    Returns the number of rows in `out`.
    """
    state = flushes.state
    rows_before = out_rows
    slot = state[HAND]
    end = min(table.slot_count, slot + visits)
    current = state[CURRENT]
    while slot < end and out_rows - rows_before < entries and state[OLD] > 0:
        pane = table.slots[slot * table.width]
        if pane != EMPTY and pane < current:
            out_rows = flush_entry(table, flushes, slot, current, out_rows)
        slot += 1
    state[HAND] = slot
    state[SWEPT] += out_rows - rows_before
    return out_rows


@outlined
def sweep_by_count(table, flushes, packets, out_rows):  # type: ignore[no-untyped-def]
    """Move the hand for `packets` packets, with an ordered policy or SLOW. Return the number of rows in `out`."""
    state, every = flushes.state, flushes.every
    if flushes.policy <= IOP_TWO_SLOT:
        entries = packets
    else:
        state[CREDIT] += packets
        entries = state[CREDIT] // every
        state[CREDIT] -= entries * every
    return sweep(table, flushes, table.slot_count, entries, out_rows)


@outlined
def sweep_in_time(table, flushes, packets, flushed, old_before, out_rows):  # type: ignore[no-untyped-def]
    """Move PACED's hand after a chunk of `packets` packets. Return the number of rows in `out`.

    `flushed`: number of entries that have already left for this chunk. `old_before`: number of old entries before it.
    """
    state = flushes.state
    remaining = state[TARGET] - state[PACKETS] + packets  # packets, with this chunk, for the rest of the visits
    visits = table.slot_count - state[HAND]
    entries = state[OLD]
    if remaining > packets:
        if remaining > visits and state[PACKETS] < state[TARGET] // WAIT_DIVISOR:
            return out_rows
        visits = (visits * packets + remaining - 1) // remaining
        entries -= old_before * (remaining - packets) // remaining  # these may stay: old entries leave in equal steps
    return sweep(table, flushes, visits, max(entries, packets - flushed), out_rows)


# Steps that the kernels of both table classes share. All except `count_entry` return the number of rows in `out`.
#
# A packet is *pending* if its entry is known but does not contain its arguments yet. Before an entry leaves, the
# pending packets (from `first_pending` on) must update their entries.


@helper
def begin_chunk(table, flushes, count, limit, out_rows):  # type: ignore[no-untyped-def]
    """Open the pane of the first packet of a chunk, if it is a later pane. Then move the hand for `count` packets."""
    state, pane = flushes.state, table.chunk[PANES_OFFSET]
    if pane > state[CURRENT] and pane <= limit:
        out_rows = open_pane(table, flushes, pane, out_rows)
    state[PACKETS] += count
    if flushes.policy <= SLOW and state[OLD] > 0:
        out_rows = sweep_by_count(table, flushes, count, out_rows)
    return out_rows


@helper
def open_pane_in_chunk(table, rows, flushes, pane, first_pending, index, count, out_rows):  # type: ignore[no-untyped-def]
    """Update the entries of pending packets, then open the later `pane` of the packet `index` of the chunk."""
    state = flushes.state
    update_entries(table, rows, first_pending, index)
    state[PACKETS] -= count - index
    out_rows = open_pane(table, flushes, pane, out_rows)
    state[PACKETS] = count - index
    return out_rows


@helper
def append_direct(table, rows, flushes, pane, first_pending, index, out_rows):  # type: ignore[no-untyped-def]
    """Update the entries of pending packets, then append the packet `index` of the chunk to `out` as a partial."""
    offset = table.slot_count * table.width
    table.chunk[ENTRIES_OFFSET + index] = offset
    begin_entry(table, offset, pane, rows, table.chunk[index])
    update_entries(table, rows, first_pending, index + 1)
    flushes.state[DIRECT] += 1
    return append_entry(table, offset, out_rows)


@helper
def count_entry(flushes, pane, current):  # type: ignore[no-untyped-def]
    """Count a new entry of `pane`."""
    flushes.pane_counts[pane & flushes.pane_mask] += 1
    flushes.state[RESIDENT] += 1
    if pane < current:
        flushes.state[OLD] += 1


@helper
def end_chunk(table, rows, flushes, first_pending, count, old_before, rows_before, out_rows):  # type: ignore[no-untyped-def]
    """Update the entries of pending packets, then move PACED's hand."""
    state = flushes.state
    update_entries(table, rows, first_pending, count)
    if flushes.policy == PACED and state[OLD] > 0:
        out_rows = sweep_in_time(
            table, flushes, min(count, state[PACKETS]), out_rows - rows_before, old_before, out_rows
        )
    state[BURST] = max(state[BURST], out_rows - rows_before)
    return out_rows


@kernel("i64(TableMemory, TableRows, FlushState, i64, i64, i64)")
def update_flushing(  # type: ignore[no-untyped-def]
    table: TableMemory, rows: TableRows, flushes: FlushState, probes, limit, out_rows
):
    """Add packets to the table and flush old entries. Return the number of rows in `out`.

    * `probes`: number of slots that a packet tests. `limit`: the largest pane that a packet can open.
    * `out` contains `out_rows` rows and has room for slot_count + rows.row_count more.

    With policies without order, a packet of the current pane replaces the first old entry among the tested slots. This
    is usually the old entry of its own group, in the home slot.
    """
    slots, width, chunk, policy, state = table.slots, table.width, table.chunk, flushes.policy, flushes.state
    for begin in range(0, rows.row_count, CHUNK_ROWS):
        count = find_homes(table, rows, begin, min(rows.row_count, begin + CHUNK_ROWS))
        if count == 0:
            continue
        rows_before = out_rows
        first_pending = 0  # packets before this one have updated their entries
        late_pending = False  # whether a packet of an old pane may be pending
        out_rows = begin_chunk(table, flushes, count, limit, out_rows)
        current = state[CURRENT]
        old_before = state[OLD]
        for index in range(count):
            row = chunk[index]
            pane = chunk[PANES_OFFSET + index]
            slot = chunk[ENTRIES_OFFSET + index]
            if pane > current and pane <= limit:
                out_rows = open_pane_in_chunk(table, rows, flushes, pane, first_pending, index, count, out_rows)
                first_pending = index
                late_pending = False
                old_before = state[OLD]
                current = pane
            if pane > current or pane <= current - flushes.max_panes:
                out_rows = append_direct(table, rows, flushes, pane, first_pending, index, out_rows)
                first_pending = index + 1
                continue
            offset = slot * width
            exists = False
            is_empty = False
            home = slot
            old = np.int64(-1)  # the first slot with an old entry
            for probe in range(probes):
                offset = slot * width
                resident = slots[offset]
                if resident == EMPTY:
                    is_empty = True
                    break
                if resident == pane and has_key(table, offset, rows, row):
                    exists = True
                    break
                if resident < current:
                    old = slot if old < 0 else old
                    if policy > IOP_TWO_SLOT and pane == current:
                        break  # its group's entry would be before this slot, unless a late packet replaced it
                state[COLLISIONS] += probe == 0
                slot = (slot + 1) & (table.slot_count - 1)
            if not (exists or is_empty):
                if old < 0 or late_pending:
                    update_entries(table, rows, first_pending, index)
                    first_pending = index
                    late_pending = False
                slot = old
                if old < 0:
                    slot = home
                    if policy <= IOP_TWO_SLOT and state[OLD] > 0:
                        out_rows = force_flush(table, flushes, current, out_rows)
                offset = slot * width
                out_rows = flush_entry(table, flushes, slot, current, out_rows)
                state[EVICTED] += 1
            late_pending = late_pending or pane < current
            chunk[ENTRIES_OFFSET + index] = offset
            if not exists:
                begin_entry(table, offset, pane, rows, row)
                count_entry(flushes, pane, current)
        out_rows = end_chunk(table, rows, flushes, first_pending, count, old_before, rows_before, out_rows)
    return out_rows


@kernel("i64(TableMemory, FlushState, i64, i64, i64, i64)")
def advance_table(table: TableMemory, flushes: FlushState, pane, end_pane, visits, out_rows):  # type: ignore[no-untyped-def]
    """Flush entries for a watermark, without packets. Return the number of rows in `out`.

    `pane` becomes the current pane if it is later. The hand visits up to `visits` slots and flushes at most CHUNK_ROWS
    entries. Entries of panes below `end_pane` are flushed. `out` contains `out_rows` rows and has room for slot_count
    more.
    """
    state = flushes.state
    rows_before = out_rows
    if pane > state[CURRENT]:
        out_rows = open_pane(table, flushes, pane, out_rows)
    if visits > 0:
        out_rows = sweep(table, flushes, visits, CHUNK_ROWS, out_rows)
    state[BURST] = max(state[BURST], out_rows - rows_before)
    current = state[CURRENT]
    rows_before = out_rows
    if end_pane > current and state[OLD] > 0:
        out_rows = flush_before(table, flushes, current, current, out_rows)
    if state[RESIDENT] > 0:
        out_rows = flush_before(table, flushes, end_pane, current, out_rows)
    state[FLUSHED] += out_rows - rows_before
    return out_rows
