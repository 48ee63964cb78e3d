"""Kernels over the sessions that are open: slots, linked per group in the order of time.

    at[group] ──► slot        newer[slot] ──► … ──► NOBODY       each GAP or more after the one older than it
                              older[slot] ──► … ──► NOBODY

Sessions of a group that are open are apart by GAP, so by their ends they stand in the same order as by their starts. A
partial is placed from where the one before it was, so that partials that rise, fall or come from another hour cost the
way between them alone, however many sessions a group has open.

Sessions that have been answered are older than those that are open: the newest of each group, `answered[group]`, says
of a row below the promise whether it would have been of one.
"""

from __future__ import annotations

from capture.native import kernel
from lowlevel.subaggregates import INT_MAX

NOBODY = -1
"""No slot."""

FREE = INT_MAX
"""The end of a slot that no session has."""

NEVER = -(2**62)
"""Answered of a group that no session was answered of: before all times."""


@kernel("i64(i64*, i64*, i64*, i64, i64, i64, i64*, i64*, i64*, i64*, i64*, i64*, i64*, i64*, i64*, i64*, i64*, i64*)")
def place_partials(  # type: ignore[no-untyped-def]
    groups, begins, ends, rows, gap, low, at, answered, first, last, newer, older, group_of, free, free_count, slots,
    gone, into,
):  # fmt: skip
    """Write to `slots` the session of each partial, NOBODY where it is late; return how many sessions were joined.

    A partial is the times `[begins[i], ends[i]]`, both included. `free` are slots to take, from its end, `free_count`
    how many, not fewer than `rows`. Session `gone[k]` was joined to `into[k]`, which is open, and its slot has been
    given up. `gone` and `into` have room for every session that is open and every row.
    """
    joined = 0
    for row in range(rows):
        group = groups[row]
        begin = begins[row]
        end = ends[row]
        # The newest session that does not begin GAP or more after the partial, and the one after that.
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
    # What a session was joined to may have been joined to another later on.
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
    """Write to `final` the slots below `slots` whose session ends by `low`, and unlink them; return how many.

    `least` gets the smallest `last` of those that stay, FREE where there are none.
    """
    found = 0
    smallest = FREE
    for slot in range(slots):
        end = last[slot]
        if end == FREE:
            continue
        if end + gap <= low:
            final[found] = slot
            found += 1
        elif end < smallest:
            smallest = end
    least[0] = smallest
    for place in range(found):
        slot = final[place]
        group = group_of[slot]
        answered[group] = max(answered[group], last[slot])
        above = newer[slot]
        if above == -1:
            at[group] = -1
        elif last[above] + gap > low:
            older[above] = -1
            at[group] = above
    return found
