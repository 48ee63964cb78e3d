"""Kernels over open sessions. The sessions of a group are slots of arrays, linked in the order of time.

    search_slots[group] ──► slot      newer[slot] ──► … ──► NO_SLOT       neighbours are at least GAP apart
                                      older[slot] ──► … ──► NO_SLOT

Open sessions of a group are at least GAP apart, so they have the same order by start and by end. The search for the
session of a partial starts at the session of the group's previous partial. So its cost depends only on the number of
sessions between the two partials.

Emitted sessions are older than open sessions. `emitted_until[group]` is the last time of the newest emitted session of
a group. It decides whether a row below the watermark belongs to this session.
"""

from __future__ import annotations

from typing import NamedTuple

from capture.native import Integer, Integers, kernel
from lowlevel.subaggregates import INT_MAX

NO_SLOT = -1
"""A value instead of a slot number: the end of a list, or a late partial."""

FREE = INT_MAX
"""The value of `last` in a free slot."""

NEVER_EMITTED = -(2**62)
"""Value of `emitted_until` for a group without an emitted session: before all times."""


class SessionSlots(NamedTuple):
    """The open sessions, for kernels: a value for each slot, and for each group.

    * `first`, `last`: the time of the first and of the last row; FREE is the `last` of a free slot.
    * `newer`, `older`: slots of the next sessions of the group. `group_of`: the group.
    * `search_slots`: for each group, the slot at which the search starts: that of the group's previous partial.
    * `emitted_until`: for each group, the last time of its newest emitted session.
    * `free`: a stack of free slots; `free_count`: its size.
    """

    first: Integers
    last: Integers
    newer: Integers
    older: Integers
    group_of: Integers
    search_slots: Integers
    emitted_until: Integers
    free: Integers
    free_count: Integers


class Partials(NamedTuple):
    """Partials for kernels.

    Partial i has the group `groups[i]`, and covers the times from `begins[i]` to `ends[i]`, inclusive.
    """

    groups: Integers
    begins: Integers
    ends: Integers
    rows: Integer


@kernel("i64(SessionSlots, Partials, i64, i64, i64*, i64*, i64*)")
def place_partials(  # type: ignore[no-untyped-def]
    sessions: SessionSlots, partials: Partials, gap, watermark, slots, joined_slots, absorbing_slots
):  # fmt: skip
    """Write the slot of each partial's session to `slots`, or NO_SLOT if the partial is late.

    Return the number of joined sessions.

    The caller reserves at least one free slot per partial. Session `joined_slots[k]` was joined to session
    `absorbing_slots[k]`. The caller must merge the sub-aggregates and release slot `joined_slots[k]`. `joined_slots`
    and `absorbing_slots` must have an element for every open session and every partial.
    """
    first, last, newer, older = sessions.first, sessions.last, sessions.newer, sessions.older
    search_slots, emitted_until = sessions.search_slots, sessions.emitted_until
    group_of, free_count = sessions.group_of, sessions.free_count
    joined = 0
    for row in range(partials.rows):
        group = partials.groups[row]
        begin = partials.begins[row]
        end = partials.ends[row]
        # Find the newest session that begins less than GAP after the partial, and the next newer one.
        here = search_slots[group]
        above = -1
        if here != -1:
            if first[here] - end >= gap:
                while here != -1 and first[here] - end >= gap:
                    above = here
                    here = older[here]
            else:
                above = newer[here]
                while above != -1 and first[above] - end < gap:
                    here = above
                    above = newer[above]
        touches = here != -1 and begin - last[here] < gap
        within = touches and begin >= first[here]
        answered_before = begin - emitted_until[group] < gap or (not touches and end + gap <= watermark)
        if end < watermark and not within and answered_before:
            slots[row] = -1
            continue
        if not touches:
            free_count[0] -= 1
            slot = sessions.free[free_count[0]]
            first[slot] = begin
            last[slot] = end
            group_of[slot] = group
            newer[slot] = above
            older[slot] = here
            if here != -1:
                newer[here] = slot
            if above != -1:
                older[above] = slot
            here = slot
        else:
            if begin < first[here]:
                first[here] = begin
                below = older[here]
                while below != -1 and begin - last[below] < gap:
                    first[here] = min(first[here], first[below])
                    last[below] = FREE
                    joined_slots[joined] = below
                    absorbing_slots[joined] = here
                    joined += 1
                    below = older[below]
                older[here] = below
                if below != -1:
                    newer[below] = here
            last[here] = max(last[here], end)
        search_slots[group] = here
        slots[row] = here
    # The session that absorbed another session may itself be absorbed later.
    for back in range(joined):
        position = joined - 1 - back
        if last[absorbing_slots[position]] == FREE:
            absorbing_slots[position] = older[absorbing_slots[position]]
        older[joined_slots[position]] = absorbing_slots[position]
    return joined


@kernel("i64(SessionSlots, i64, i64, i64, i64*, i64*)")
def take_final(sessions: SessionSlots, slot_count, gap, watermark, final_slots, smallest_last):  # type: ignore[no-untyped-def]
    """Write the slots of sessions that end by `watermark` to `final_slots`, and unlink them. Return their number.

    `smallest_last` receives the smallest `last` of the other slots, or FREE if there are none.
    """
    last, newer, older = sessions.last, sessions.newer, sessions.older
    search_slots, emitted_until = sessions.search_slots, sessions.emitted_until
    final_count = 0
    smallest = FREE
    for slot in range(slot_count):
        end = last[slot]
        if end == FREE:
            continue
        if end + gap <= watermark:
            final_slots[final_count] = slot
            final_count += 1
        elif end < smallest:
            smallest = end
    smallest_last[0] = smallest
    for position in range(final_count):
        slot = final_slots[position]
        group = sessions.group_of[slot]
        emitted_until[group] = max(emitted_until[group], last[slot])
        above = newer[slot]
        if above == -1:
            search_slots[group] = -1
        elif last[above] + gap > watermark:
            older[above] = -1
            search_slots[group] = above
    return final_count
