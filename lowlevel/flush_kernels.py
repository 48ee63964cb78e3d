"""The kernels of a table whose old entries leave bit by bit (`lowlevel.flushing`); the table itself is as ever.

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
(`lowlevel.probing`), as in Gigascope; tables out of order have tags (`lowlevel.tagged_flush_kernel`).
"""

from __future__ import annotations

import numpy as np

from capture.native import kernel
from lowlevel.flush_hand import sweep, sweep_by_count, sweep_in_time
from lowlevel.flush_panes import force_out, move_out, move_out_before, open_pane
from lowlevel.flush_state import (
    BURST,
    COLLISIONS,
    CURRENT,
    DIRECT,
    EVICTED,
    FLUSHED,
    IOP_TWO_SLOT,
    OLD,
    PACED,
    PACKETS,
    RESIDENT,
    SLOW,
)
from lowlevel.probing import EMPTY, find_homes
from lowlevel.table_entries import AHEAD, append_entry, begin_entry, holds_key, take_in


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
