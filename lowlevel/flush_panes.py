"""How entries of old panes leave a table together, by the bound: helpers of `lowlevel.flush_kernels`.

Each pane's residents are counted, so what must leave is known without looking, and nothing is looked at once it has.
"""

from __future__ import annotations

import numpy as np

from capture.native import helper, outlined
from lowlevel.flush_state import CURRENT, FORCED, HAND, IOP_TWO_SLOT, OLD, PACKETS, RESIDENT, TARGET
from lowlevel.probing import EMPTY
from lowlevel.table_entries import append_entry
from lowlevel.tagged_homes import write_tag

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
