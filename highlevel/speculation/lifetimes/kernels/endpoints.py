"""The kernel of snapshot operators: it turns changes of rows into changes of the snapshots of many groups.

A snapshot is the time between two neighbouring endpoints of lifetimes in a group. A group has two structures:

    entries   the endpoints up to the newest published one ("previous output synopsis"), in the order of time. An entry
              contains the state from its time until the next entry (`entries`)
    pending   a heap of the later ends ("endpoint compensation queue", `pending_ends`)

An entry is removed when no lifetime starts or ends at its time. (The paper removes an entry without rows. This loses
rows.) The row of the last entry is published when a later endpoint is known. The variant OP publishes this row at once,
without an end. The variant ML has no pending ends: all endpoints are entries.

The search for an entry begins at the newest entry. So a late row visits all entries after its start, most of which it
changes.
"""

from __future__ import annotations

from typing import NamedTuple

from capture.native import Integer, Integers, helper, kernel, outlined
from highlevel.speculation.lifetimes.kernels.entries import (
    AT_GROUP,
    CURSOR,
    EARLIEST,
    ENDLESS,
    ENDS,
    ENTRIES,
    ENTRY_WORDS,
    GROUP_WORDS,
    HEAD,
    HEAP,
    ITEM_TIME,
    ITEM_WORDS,
    LEAST_CTI,
    LINK,
    LIST,
    ORDERED,
    OUT_CTI,
    PENDING,
    PERFECT,
    PREVIOUS,
    SIGN,
    STARTS,
    TAIL,
    TIME,
    ChangeRows,
    SnapshotMemory,
    add_words,
    entry_base,
    find_entry,
    free_items,
    insert_after,
    is_single,
    item_base,
    next_of,
    published_until,
    remove_entry,
    time_of,
)
from highlevel.speculation.lifetimes.kernels.multiset import Trees, make_node
from highlevel.speculation.lifetimes.kernels.pending_ends import add_pending, remove_least
from highlevel.speculation.lifetimes.kernels.records import NONE
from highlevel.speculation.lifetimes.kernels.values import add_to_list, compute_results, move_cursor
from lowlevel.punctuation import BEGINNING, END

INSERT, RETRACTION, CTI = 0, 1, 2
"""Types of changes."""

KIND, START, STOP, NEW_STOP, GROUP, OUT_WORDS = range(6)
"""The first words of a returned change. The words and results of the entry follow."""

EXTRA_CHANGES = 4
"""One event causes at most two changes for each entry and pending end of its group, and EXTRA_CHANGES further changes.
"""


class Output(NamedTuple):
    """The buffer of returned changes: `count[0]` rows are in use, at most `room`."""

    rows: Integers
    room: Integer
    count: Integers


@helper
def write_change(snapshots: SnapshotMemory, output: Output, kind, group, entry, stop, new_stop):  # type: ignore[no-untyped-def]
    """Write a change with the state of an entry."""
    state_words = snapshots.words + snapshots.width
    base = output.count[0] * (OUT_WORDS + state_words)
    output.count[0] += 1
    rows, of_entry = output.rows, entry_base(snapshots, entry)
    rows[base + KIND] = kind
    rows[base + START] = snapshots.entries[of_entry + TIME]
    rows[base + STOP] = stop
    rows[base + NEW_STOP] = new_stop
    rows[base + GROUP] = group
    for word in range(state_words):
        rows[base + OUT_WORDS + word] = snapshots.entries[of_entry + ENTRY_WORDS + word]


@helper
def publish(snapshots: SnapshotMemory, output: Output, group, entry):  # type: ignore[no-untyped-def]
    """Write the result row of an entry, if the entry contains rows and has an end."""
    stop = published_until(snapshots, entry)
    if stop != BEGINNING and snapshots.entries[entry_base(snapshots, entry) + ENTRY_WORDS]:
        write_change(snapshots, output, INSERT, group, entry, stop, stop)


@helper
def shorten(snapshots: SnapshotMemory, output: Output, group, entry, new_stop):  # type: ignore[no-untyped-def]
    """Shorten the published row of an entry to `new_stop`, or retract it completely if it begins later."""
    stop = published_until(snapshots, entry)
    new_stop = max(new_stop, time_of(snapshots, entry))
    if stop != BEGINNING and new_stop < stop and snapshots.entries[entry_base(snapshots, entry) + ENTRY_WORDS]:
        write_change(snapshots, output, RETRACTION, group, entry, stop, new_stop)


@outlined
def drain(snapshots: SnapshotMemory, trees: Trees, output: Output, group, until, start):  # type: ignore[no-untyped-def]
    """Convert the pending ends up to `until` to entries and publish them.

    Unless `start` is BEGINNING, add an entry at `start`.

    The results of an entry at `start` are not computed or published, because the caller changes the entry first.
    """
    entries, items, groups = snapshots.entries, snapshots.items, snapshots.groups
    of_group = group * GROUP_WORDS
    old = groups[of_group + TAIL]
    words = snapshots.words
    changed = False
    while groups[of_group + HEAP] != NONE:
        time = items[item_base(snapshots, groups[of_group + HEAP]) + ITEM_TIME]
        if time > until:
            break
        ends = 0
        ended = NONE
        while groups[of_group + HEAP] != NONE:
            item = groups[of_group + HEAP]
            base = item_base(snapshots, item)
            if items[base + ITEM_TIME] != time:
                break
            groups[of_group + HEAP] = remove_least(snapshots, item)
            groups[of_group + PENDING] -= 1
            ends -= items[base + SIGN]
            items[base + LINK] = ended
            ended = item
        if ends == 0:
            free_items(snapshots, ended)
            continue
        if not changed:
            shorten(snapshots, output, group, old, time)
            changed = True
        entry = insert_after(snapshots, group, groups[of_group + TAIL], time)
        base = entry_base(snapshots, entry)
        entries[base + ENDS] = ends
        item = ended
        while item != NONE:
            of_item = item_base(snapshots, item)
            for word in range(words):
                change = items[of_item + SIGN] * items[of_item + ITEM_WORDS + word]
                entries[base + ENTRY_WORDS + word] += change
            item = items[of_item + LINK]
        if snapshots.keys:
            entries[base + LIST] = ended
            if time != start:
                compute_results(snapshots, trees, group, entry)
        else:
            free_items(snapshots, ended)
    if until == END and groups[of_group + ENDLESS]:
        entry = insert_after(snapshots, group, groups[of_group + TAIL], END)
        base = entry_base(snapshots, entry)
        entries[base + ENDS] = groups[of_group + ENDLESS]
        groups[of_group + ENDLESS] = 0
        for word in range(words + snapshots.width):
            entries[base + ENTRY_WORDS + word] = 0
        changed = True
    if start != BEGINNING and time_of(snapshots, groups[of_group + TAIL]) != start:
        if not changed:
            shorten(snapshots, output, group, old, start)
            changed = True
        insert_after(snapshots, group, groups[of_group + TAIL], start)
    if not changed:
        return
    entry = old
    while entry != NONE:
        skipped = entry == old and snapshots.variant == ORDERED
        if not skipped and time_of(snapshots, entry) != start:
            publish(snapshots, output, group, entry)
        entry = next_of(snapshots, entry)


@helper
def change_and_publish(  # type: ignore[no-untyped-def]
    snapshots: SnapshotMemory, trees: Trees, output: Output, group, entry, until, rows: ChangeRows, row, sign
):  # fmt: skip
    """Add a row to the entries from `entry` until `until` (`sign` 1), or subtract it (-1), and publish their rows."""
    while entry != NONE and time_of(snapshots, entry) < until:
        add_words(snapshots, entry, rows, row, sign)
        compute_results(snapshots, trees, group, entry)
        publish(snapshots, output, group, entry)
        entry = next_of(snapshots, entry)


@helper
def open_group(snapshots: SnapshotMemory, trees: Trees, group):  # type: ignore[no-untyped-def]
    """Create the first entry of a new group, without rows."""
    groups, base = snapshots.groups, group * GROUP_WORDS
    groups[base + ENTRIES] = 0
    groups[base + PENDING] = 0
    groups[base + ENDLESS] = 0
    groups[base + HEAP] = NONE
    groups[base + CURSOR] = insert_after(snapshots, group, NONE, BEGINNING)
    for key in range(snapshots.keys):
        if snapshots.headers[group * snapshots.keys + key] == NONE:
            snapshots.headers[group * snapshots.keys + key] = make_node(trees, 0, 0)


@outlined
def insert_row(snapshots: SnapshotMemory, trees: Trees, rows: ChangeRows, row, output: Output):  # type: ignore[no-untyped-def]
    """Process an insert. Return 0 if its start is before all entries, otherwise 1."""
    entries, groups = snapshots.entries, snapshots.groups
    start, stop, group = rows.start[row], rows.stop[row], rows.group[row]
    of_group = group * GROUP_WORDS
    if groups[of_group + HEAD] == NONE:
        open_group(snapshots, trees, group)
    if snapshots.variant != EARLIEST and start > time_of(snapshots, groups[of_group + TAIL]):
        drain(snapshots, trees, output, group, start, start)
        entry = groups[of_group + TAIL]
        entries[entry_base(snapshots, entry) + STARTS] += 1
        add_to_list(snapshots, trees, group, entry, 1, rows, row)
        add_pending(snapshots, group, stop, -1, rows, row)
        add_words(snapshots, entry, rows, row, 1)
        compute_results(snapshots, trees, group, entry)
        publish(snapshots, output, group, entry)
        return 1
    first = find_entry(snapshots, group, start)
    if first == NONE:
        return 0
    entry = first
    while entry != NONE and time_of(snapshots, entry) < stop:
        shorten(snapshots, output, group, entry, start)
        entry = next_of(snapshots, entry)
    inner = snapshots.variant == EARLIEST or stop <= time_of(snapshots, groups[of_group + TAIL])
    if time_of(snapshots, first) != start:
        first = insert_after(snapshots, group, first, start)
    entries[entry_base(snapshots, first) + STARTS] += 1
    added = NONE
    if inner:
        last = find_entry(snapshots, group, stop)
        if time_of(snapshots, last) != stop:
            last = insert_after(snapshots, group, last, stop)
            added = last
        entries[entry_base(snapshots, last) + ENDS] += 1
        add_to_list(snapshots, trees, group, first, 1, rows, row)
        add_to_list(snapshots, trees, group, last, -1, rows, row)
    else:
        add_to_list(snapshots, trees, group, first, 1, rows, row)
        add_pending(snapshots, group, stop, -1, rows, row)
    change_and_publish(snapshots, trees, output, group, first, stop, rows, row, 1)
    if added != NONE:
        publish(snapshots, output, group, added)
    return 1


@outlined
def retract_row(snapshots: SnapshotMemory, trees: Trees, rows: ChangeRows, row, output: Output):  # type: ignore[no-untyped-def]
    """Process a retraction. Return 0 if the row that it retracts cannot exist, otherwise 1."""
    entries, groups = snapshots.entries, snapshots.groups
    start, stop, new_stop, group = rows.start[row], rows.stop[row], rows.new_stop[row], rows.group[row]
    of_group = group * GROUP_WORDS
    if groups[of_group + HEAD] == NONE:
        return 0
    newest = time_of(snapshots, groups[of_group + TAIL])
    full = new_stop == start
    inner = snapshots.variant == EARLIEST or stop <= newest
    beyond = not inner and new_stop > newest
    first = last = NONE
    if not beyond:
        first = find_entry(snapshots, group, new_stop)
        if first == NONE or (full and time_of(snapshots, first) != start):
            return 0
    if inner:
        last = find_entry(snapshots, group, stop)
        if last == NONE or time_of(snapshots, last) != stop or entries[entry_base(snapshots, last) + ENDS] == 0:
            return 0
    else:
        add_pending(snapshots, group, stop, 1, rows, row)
        if beyond:
            add_pending(snapshots, group, new_stop, -1, rows, row)
            return 1
    entry = first
    while entry != NONE and time_of(snapshots, entry) < stop:
        shorten(snapshots, output, group, entry, new_stop)
        entry = next_of(snapshots, entry)
    if inner and is_single(snapshots, last):
        shorten(snapshots, output, group, last, stop)
    joins = full and snapshots.exact and is_single(snapshots, first)
    if joins:
        before = entries[entry_base(snapshots, first) + PREVIOUS]
        if before == NONE:
            return 0
        shorten(snapshots, output, group, before, time_of(snapshots, before))
    if not full:
        if time_of(snapshots, first) != new_stop:
            first = insert_after(snapshots, group, first, new_stop)
        entries[entry_base(snapshots, first) + ENDS] += 1
    if inner:  # first, because the multisets must still contain the values that are removed next
        add_to_list(snapshots, trees, group, last, 1, rows, row)
    add_to_list(snapshots, trees, group, first, -1, rows, row)
    entry = first
    while entry != NONE and time_of(snapshots, entry) < stop:
        add_words(snapshots, entry, rows, row, -1)
        entry = next_of(snapshots, entry)
    if inner:
        base = entry_base(snapshots, last)
        entries[base + ENDS] -= 1
        if entries[base + STARTS] + entries[base + ENDS] == 0:
            remove_entry(snapshots, group, last)
    if full and snapshots.exact:
        entries[entry_base(snapshots, first) + STARTS] -= 1
        if joins:
            removed = first
            first = entries[entry_base(snapshots, first) + PREVIOUS]
            remove_entry(snapshots, group, removed)
    entry = first
    while entry != NONE and time_of(snapshots, entry) < stop:
        compute_results(snapshots, trees, group, entry)
        publish(snapshots, output, group, entry)
        entry = next_of(snapshots, entry)
    return 1


@outlined
def advance_group(snapshots: SnapshotMemory, trees: Trees, output: Output, group, time):  # type: ignore[no-untyped-def]
    """Process a CTI in a group. Return the CTI of its result changes."""
    entries, groups = snapshots.entries, snapshots.groups
    of_group = group * GROUP_WORDS
    if snapshots.variant != EARLIEST:
        drain(snapshots, trees, output, group, time, BEGINNING)
    while True:
        head = groups[of_group + HEAD]
        second = next_of(snapshots, head)
        if second == NONE or time_of(snapshots, second) >= time:
            break
        if snapshots.keys and groups[of_group + CURSOR] == head:
            move_cursor(snapshots, trees, group, second)
        remove_entry(snapshots, group, head)
    base = entry_base(snapshots, head)
    if not entries[base + ENTRY_WORDS]:
        if second == NONE and groups[of_group + HEAP] == NONE and not groups[of_group + ENDLESS]:
            groups[of_group + CURSOR] = NONE
            remove_entry(snapshots, group, head)  # the group is empty
        return time
    if second == NONE and snapshots.variant == PERFECT:
        return entries[base + TIME]  # the row that starts here is not published
    if not snapshots.exact or snapshots.whole:
        return time
    if second != NONE:
        of_second = entry_base(snapshots, second)
        if entries[of_second + TIME] == time and entries[of_second + ENDS]:
            return time  # rows that contain this time are divided permanently
    return entries[base + TIME]  # a full retraction may still change the row that starts here


@helper
def has_room(snapshots: SnapshotMemory, group, output: Output):  # type: ignore[no-untyped-def]
    """Return True if the output has room for all changes of one event of a group."""
    base = group * GROUP_WORDS
    needed = EXTRA_CHANGES
    if snapshots.groups[base + HEAD] != NONE:
        needed += 2 * (snapshots.groups[base + ENTRIES] + snapshots.groups[base + PENDING])
    return output.count[0] + needed <= output.room


@helper
def advance_groups(snapshots: SnapshotMemory, trees: Trees, output: Output, groups, time):  # type: ignore[no-untyped-def]
    """Process a CTI in all groups, and write the CTI of the result. Return 0 if there is no room, otherwise 1."""
    state = snapshots.state
    if state[AT_GROUP] == 0:
        state[LEAST_CTI] = time
    while state[AT_GROUP] < groups:
        group = state[AT_GROUP]
        if snapshots.groups[group * GROUP_WORDS + HEAD] != NONE:
            if not has_room(snapshots, group, output):
                return 0
            state[LEAST_CTI] = min(state[LEAST_CTI], advance_group(snapshots, trees, output, group, time))
        state[AT_GROUP] += 1
    if output.count[0] == output.room:
        return 0
    state[AT_GROUP] = 0
    if state[LEAST_CTI] > state[OUT_CTI]:
        state[OUT_CTI] = state[LEAST_CTI]
        base = output.count[0] * (OUT_WORDS + snapshots.words + snapshots.width)
        output.count[0] += 1
        for word in range(OUT_WORDS + snapshots.words + snapshots.width):
            output.rows[base + word] = 0
        output.rows[base + KIND] = CTI
        output.rows[base + START] = state[LEAST_CTI]
    return 1


@kernel("i64(SnapshotMemory, Trees, ChangeRows, i64, i64, i64, Output)")
def process_changes(  # type: ignore[no-untyped-def]
    snapshots: SnapshotMemory, trees: Trees, rows: ChangeRows, begin, end, groups, output: Output
):  # fmt: skip
    """Process the changes `[begin, end)` of `groups` groups.

    Return the number of the next change, which is less than `end` if there is no more room.

    If change i contradicts earlier changes, return -1 - i. The memory must have room for two more entries, three items
    and a node per key for each change, and an entry for each pending end.
    """
    for row in range(begin, end):
        if rows.kind[row] == CTI:
            if not advance_groups(snapshots, trees, output, groups, rows.start[row]):
                return row
            continue
        if not has_room(snapshots, rows.group[row], output):
            return row
        if rows.kind[row] == INSERT:
            if not insert_row(snapshots, trees, rows, row, output):
                return -1 - row
        elif not retract_row(snapshots, trees, rows, row, output):
            return -1 - row
    return end


@kernel("i64(SnapshotMemory, Trees, i64, i64, i64, Output)")
def publish_ends(snapshots: SnapshotMemory, trees: Trees, group, groups, time, output: Output):  # type: ignore[no-untyped-def]
    """Make entries of the pending ends up to `time`, in the groups from `group` on. Return the next group.

    It is less than `groups` if there is no more room. Memory must have room for an entry for each pending end.
    """
    while group < groups:
        if snapshots.groups[group * GROUP_WORDS + HEAD] != NONE:
            if not has_room(snapshots, group, output):
                return group
            drain(snapshots, trees, output, group, time, BEGINNING)
        group += 1
    return groups
