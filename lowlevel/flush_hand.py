"""The hand that goes over the slots of a table once in each pane: helpers of `lowlevel.flush_kernels`.

PACED, of the packets that a pane is expected to have (those of the last one):

    0            1/4            1/2                          1
    +-------------+--------------+---------------------------+
      the hand waits   it goes over the slots    rest, lest fewer packets come

At first nearly every packet's group recurs and takes its own old entry's place: what the hand did then it would do
beside the packets at their slowest, and for entries that leave anyway. So it waits while one slot for each packet is
still enough. Then it goes in equal steps, and leaves to the packets what they move out themselves: together they move
out no more entries than there are packets, unless the old ones would not be out in time.
"""

from __future__ import annotations

from capture.native import outlined
from lowlevel.flush_panes import move_out
from lowlevel.flush_state import CREDIT, CURRENT, HAND, IOP_TWO_SLOT, OLD, PACKETS, SWEPT, TARGET
from lowlevel.probing import EMPTY

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
