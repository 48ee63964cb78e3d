"""Kernels over open sessions: slots that are linked per group in the order of time.

    at[group] ──► slot        newer[slot] ──► … ──► NOBODY       each GAP or more after the one older than it
                              older[slot] ──► … ──► NOBODY

Open sessions of a group are at least GAP apart, so the order by end is the order by start. The search starts from the
position of the group's previous partial. So its cost is the distance between the two partials, not the number of open
sessions.

Emitted sessions are older than open ones. The newest one of each group, `answered[group]`, decides if a row below the
watermark would have joined it.
"""

from __future__ import annotations

from capture.native import kernel
from lowlevel.subaggregates import INT_MAX

NOBODY = -1
"""No slot."""

FREE = INT_MAX
"""The end in a free slot."""

NEVER = -(2**62)
"""Value of `answered` for a group without an emitted session: before all times."""


@kernel("i64(i64*, i64*, i64*, i64, i64, i64, i64*, i64*, i64*, i64*, i64*, i64*, i64*, i64*, i64*, i64*, i64*, i64*)")
def place_partials(  # type: ignore[no-untyped-def]
    groups, begins, ends, rows, gap, low, at, answered, first, last, newer, older, group_of, free, free_count, slots,
    gone, into,
):  # fmt: skip
    """Write the session of each partial to `slots`, or NOBODY if it is late. Return the number of joined sessions.

    A partial is the times `[begins[i], ends[i]]`, both included. `free` is a stack of free slots, at least `rows` of
    them; `free_count` is its size. Session `gone[k]` was joined to the open session `into[k]`, and its slot was
    released. `gone` and `into` have room for every session that is open and every row.
    """
    joined = 0
    for row in range(rows):
        group = groups[row]
        begin = begins[row]
        end = ends[row]
        # Find the newest session that begins less than GAP after the partial, and the next newer one.
        here = at[group]
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
        answered_before = begin - answered[group] < gap or (not touches and end + gap <= low)
        if end < low and not within and answered_before:
            slots[row] = -1
            continue
        if not touches:
            free_count[0] -= 1
            slot = free[free_count[0]]
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
                    gone[joined] = below
                    into[joined] = here
                    joined += 1
                    below = older[below]
                older[here] = below
                if below != -1:
                    newer[below] = here
            last[here] = max(last[here], end)
        at[group] = here
        slots[row] = here
    # The target of a join may have been joined to another session later.
    for back in range(joined):
        place = joined - 1 - back
        if last[into[place]] == FREE:
            into[place] = older[into[place]]
        older[gone[place]] = into[place]
    return joined


@kernel("i64(i64*, i64, i64, i64, i64*, i64*, i64*, i64*, i64*, i64*, i64*)")
def take_final(  # type: ignore[no-untyped-def]
    last, slots, gap, low, newer, older, group_of, at, answered, final, least
):  # fmt: skip
    """Write the slots whose session ends by `low` to `final`, and unlink them. Return their number.

    `least` receives the smallest `last` of the other slots, or FREE without other slots.
    """
    final_count = 0
    smallest = FREE
    for slot in range(slots):
        end = last[slot]
        if end == FREE:
            continue
        if end + gap <= low:
            final[final_count] = slot
            final_count += 1
        elif end < smallest:
            smallest = end
    least[0] = smallest
    for place in range(final_count):
        slot = final[place]
        group = group_of[slot]
        answered[group] = max(answered[group], last[slot])
        above = newer[slot]
        if above == -1:
            at[group] = -1
        elif last[above] + gap > low:
            older[above] = -1
            at[group] = above
    return final_count
