"""The kernel of snapshot operators: published snapshots, and endpoints that are still to come, of many groups.

A snapshot is the time between two neighbouring endpoints of lifetimes in a group. Two structures contain a group:

    entries   the endpoints up to the newest one that was published ("previous output synopsis"), in the order of time.
              An entry contains the state from its time until that of the next entry.
    pending   the later ends ("endpoint compensation queue"): a heap

An entry counts the starts and ends of lifetimes at its time. It is removed when it has none: with the payloads as
counter, as printed, rows are lost (digest A1). The row of the last entry is published when a later endpoint is known;
in the variant OP at once, without end. ML has no pending ends: all endpoints are entries.

State that can be added and subtracted (counts, sums) is in the words of an entry. Sorted values are not copied: each
entry lists the values that begin and end there, and ONE multiset per group is moved from entry to entry. It stays where
it was needed last. So rows in order cost one change of the multiset, and a late row costs the changes between its time
and the newest entry. The results that are computed from the multiset are in the entry.

A retraction of a pending end adds an item that compensates it, instead of a search in the heap. The items of a time
whose ends add up to 0 are no endpoint. Ends without limit are only counted.

An entry is searched for from the newest one. The steps are the entries that a late row is behind, most of which it
changes anyway.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capture.native import Floats, Integer, Integers, helper, kernel, outlined
from highlevel.speculation.lifetimes.multiset import (
    COUNT,
    NODE_WORDS,
    NONE,
    SIZE,
    Trees,
    add_key,
    make_node,
    remove_key,
    value_at,
)
from lowlevel.punctuation import BEGINNING, END

INSERT, RETRACTION, CTI = 0, 1, 2
"""Types of changes."""

PERFECT, ORDERED, EARLIEST = 0, 1, 2
"""Variants: preserve perfect input (PP), preserve order (OP), and minimum latency (ML)."""

TIME, PREVIOUS, NEXT, STARTS, ENDS, LIST, ENTRY_WORDS = range(7)
"""Words of an entry. LIST is the first item with a value that begins or ends here. Then words and results follow."""

ITEM_TIME, SIGN, CHILD, LINK, NULLS, ITEM_WORDS = range(6)
"""Words of an item: +1 for a start, -1 for an end; links of the heap; bits of absent values. Then words and keys."""

HEAD, TAIL, CURSOR, HEAP, ENDLESS, ENTRIES, PENDING, GROUP_WORDS = range(8)
"""Words of a group: its first and last entry, the entry of the multisets, the heap, ends without limit, and sizes."""

KIND, START, STOP, NEW_STOP, GROUP, OUT_WORDS = range(6)
"""Words of a change that is returned. Then the words and results of its entry follow."""

FREE_ENTRY, USED_ENTRIES, FREE_ITEM, USED_ITEMS, OUT_CTI, AT_GROUP, LEAST_CTI, LIVE_ENTRIES, LIVE_ITEMS, STATE = range(
    10
)
"""Words of the state. AT_GROUP and LEAST_CTI: where a CTI continues that had no room."""

SMALLEST, GREATEST, DIFFERENT, QUANTILE, UPWARD, DOWNWARD = range(6)
"""Results: the minimum, the maximum, the number of values, a quantile (2 words), the first values, the last values."""

ROOM = 4
"""Changes of an event in addition to two for each entry and pending end of its group."""


class Snapshots(NamedTuple):
    """Groups with their entries and pending ends, for kernels.

    `words` are the words that are added, `keys` the sorted values of a row. Result i of `results` is computed from the
    values `of[i]` with `function[i]` and `parameter[i]`, and stored at word `place[i]` of `width`. `headers` are the
    multisets of each group. `exact`: after a full retraction the neighbours of the start are joined again.
    `whole`: no full retraction occurs.
    """

    variant: Integer
    exact: Integer
    whole: Integer
    words: Integer
    keys: Integer
    results: Integer
    width: Integer
    function: Integers
    of: Integers
    parameter: Floats
    place: Integers
    entries: Integers
    items: Integers
    groups: Integers
    headers: Integers
    state: Integers


class ChangeRows(NamedTuple):
    """Changes in the order of arrival, for kernels. `added` has rows x words, `sorted` rows x keys."""

    kind: Integers
    start: Integers
    stop: Integers
    new_stop: Integers
    group: Integers
    added: Integers
    sorted: Integers
    nulls: Integers


class Output(NamedTuple):
    """Where changes are written: `count[0]` of at most `room` rows."""

    rows: Integers
    room: Integer
    count: Integers


@helper
def entry_base(snapshots: Snapshots, entry):  # type: ignore[no-untyped-def]
    """Return the first word of an entry."""
    return entry * (ENTRY_WORDS + snapshots.words + snapshots.width)


@helper
def item_base(snapshots: Snapshots, item):  # type: ignore[no-untyped-def]
    """Return the first word of an item."""
    return item * (ITEM_WORDS + snapshots.words + snapshots.keys)


@helper
def time_of(snapshots: Snapshots, entry):  # type: ignore[no-untyped-def]
    """Return the time of an entry."""
    return snapshots.entries[entry_base(snapshots, entry) + TIME]


@helper
def next_of(snapshots: Snapshots, entry):  # type: ignore[no-untyped-def]
    """Return the next entry, or NONE."""
    return snapshots.entries[entry_base(snapshots, entry) + NEXT]


@outlined
def make_item(snapshots: Snapshots, time, sign, rows: ChangeRows, row):  # type: ignore[no-untyped-def]
    """Return a new item with the words and values of a row."""
    items, state = snapshots.items, snapshots.state
    item = state[FREE_ITEM]
    if item == NONE:
        item = state[USED_ITEMS]
        state[USED_ITEMS] += 1
    else:
        state[FREE_ITEM] = items[item_base(snapshots, item) + LINK]
    state[LIVE_ITEMS] += 1
    base = item_base(snapshots, item)
    items[base + ITEM_TIME] = time
    items[base + SIGN] = sign
    items[base + CHILD] = NONE
    items[base + LINK] = NONE
    items[base + NULLS] = rows.nulls[row]
    for word in range(snapshots.words):
        items[base + ITEM_WORDS + word] = rows.added[row * snapshots.words + word]
    for key in range(snapshots.keys):
        items[base + ITEM_WORDS + snapshots.words + key] = rows.sorted[row * snapshots.keys + key]
    return item


@helper
def free_items(snapshots: Snapshots, item):  # type: ignore[no-untyped-def]
    """Make the items of a list available."""
    items, state = snapshots.items, snapshots.state
    while item != NONE:
        base = item_base(snapshots, item)
        following = items[base + LINK]
        items[base + LINK] = state[FREE_ITEM]
        state[FREE_ITEM] = item
        state[LIVE_ITEMS] -= 1
        item = following


@helper
def meld_heaps(snapshots: Snapshots, one, other):  # type: ignore[no-untyped-def]
    """Return the root of two pairing heaps, either of which may be NONE."""
    items = snapshots.items
    if one == NONE:
        return other
    if other == NONE:
        return one
    if items[item_base(snapshots, other) + ITEM_TIME] < items[item_base(snapshots, one) + ITEM_TIME]:
        one, other = other, one
    base = item_base(snapshots, one)
    items[item_base(snapshots, other) + LINK] = items[base + CHILD]
    items[base + CHILD] = other
    return one


@outlined
def remove_least(snapshots: Snapshots, root):  # type: ignore[no-untyped-def]
    """Return the heap without its root: its children, melded in pairs."""
    items = snapshots.items
    child = items[item_base(snapshots, root) + CHILD]
    pairs = NONE
    while child != NONE:
        second = items[item_base(snapshots, child) + LINK]
        following = NONE
        items[item_base(snapshots, child) + LINK] = NONE
        if second != NONE:
            following = items[item_base(snapshots, second) + LINK]
            items[item_base(snapshots, second) + LINK] = NONE
        pair = meld_heaps(snapshots, child, second)
        items[item_base(snapshots, pair) + LINK] = pairs
        pairs = pair
        child = following
    heap = NONE
    while pairs != NONE:
        following = items[item_base(snapshots, pairs) + LINK]
        items[item_base(snapshots, pairs) + LINK] = NONE
        heap = meld_heaps(snapshots, heap, pairs)
        pairs = following
    return heap


@helper
def add_pending(snapshots: Snapshots, group, time, sign, rows: ChangeRows, row):  # type: ignore[no-untyped-def]
    """Add an end to the pending ends of a group, or with the sign +1 compensate one."""
    groups = snapshots.groups
    base = group * GROUP_WORDS
    if time == END:
        groups[base + ENDLESS] -= sign
        return
    item = make_item(snapshots, time, sign, rows, row)
    groups[base + HEAP] = meld_heaps(snapshots, groups[base + HEAP], item)
    groups[base + PENDING] += 1


@helper
def apply_item(snapshots: Snapshots, trees: Trees, group, item, direction, phase):  # type: ignore[no-untyped-def]
    """Change the multisets of a group by an item, if that adds values (phase 0) or removes them (phase 1)."""
    items = snapshots.items
    base = item_base(snapshots, item)
    adds = items[base + SIGN] * direction > 0
    if adds != (phase == 0):
        return
    for key in range(snapshots.keys):
        if items[base + NULLS] >> key & 1:
            continue
        value = items[base + ITEM_WORDS + snapshots.words + key]
        header = snapshots.headers[group * snapshots.keys + key]
        if adds:
            add_key(trees, header, value)
        else:
            remove_key(trees, header, value)


@helper
def apply_list(snapshots: Snapshots, trees: Trees, group, entry, direction):  # type: ignore[no-untyped-def]
    """Change the multisets of a group by the items of an entry. Values are added before others are removed."""
    for phase in range(2):
        item = snapshots.entries[entry_base(snapshots, entry) + LIST]
        while item != NONE:
            apply_item(snapshots, trees, group, item, direction, phase)
            item = snapshots.items[item_base(snapshots, item) + LINK]


@outlined
def move_cursor(snapshots: Snapshots, trees: Trees, group, target):  # type: ignore[no-untyped-def]
    """Make the multisets of a group those of the entry `target`."""
    entries, base = snapshots.entries, group * GROUP_WORDS
    at = snapshots.groups[base + CURSOR]
    if time_of(snapshots, target) > time_of(snapshots, at):
        while at != target:
            at = entries[entry_base(snapshots, at) + NEXT]
            apply_list(snapshots, trees, group, at, 1)
    else:
        while at != target:
            apply_list(snapshots, trees, group, at, -1)
            at = entries[entry_base(snapshots, at) + PREVIOUS]
    snapshots.groups[base + CURSOR] = target


@helper
def add_to_list(snapshots: Snapshots, trees: Trees, group, entry, sign, rows: ChangeRows, row):  # type: ignore[no-untyped-def]
    """Let the values of a row begin (+1) or end (-1) at an entry."""
    if not snapshots.keys or time_of(snapshots, entry) == END:
        return
    item = make_item(snapshots, 0, sign, rows, row)
    base = entry_base(snapshots, entry)
    snapshots.items[item_base(snapshots, item) + LINK] = snapshots.entries[base + LIST]
    snapshots.entries[base + LIST] = item
    if time_of(snapshots, entry) <= time_of(snapshots, snapshots.groups[group * GROUP_WORDS + CURSOR]):
        apply_item(snapshots, trees, group, item, 1, 0 if sign > 0 else 1)


@outlined
def compute_results(snapshots: Snapshots, trees: Trees, group, entry):  # type: ignore[no-untyped-def]
    """Compute the results of an entry from the multisets."""
    if not snapshots.keys:
        return
    move_cursor(snapshots, trees, group, entry)
    base = entry_base(snapshots, entry) + ENTRY_WORDS + snapshots.words
    nodes, entries = trees.nodes, snapshots.entries
    for result in range(snapshots.results):
        header = snapshots.headers[group * snapshots.keys + snapshots.of[result]]
        size = nodes[header * NODE_WORDS + SIZE]
        function, place = snapshots.function[result], base + snapshots.place[result]
        parameter = snapshots.parameter[result]
        if function == DIFFERENT:
            entries[place] = nodes[header * NODE_WORDS + COUNT]
        elif function >= UPWARD:
            for position in range(np.int64(parameter)):
                value = 0
                if position < size:
                    value = value_at(nodes, header, position if function == UPWARD else size - 1 - position)
                entries[place + position] = value
        elif size == 0:
            entries[place] = 0
            if function == QUANTILE:
                entries[place + 1] = 0
        elif function == SMALLEST:
            entries[place] = value_at(nodes, header, 0)
        elif function == GREATEST:
            entries[place] = value_at(nodes, header, size - 1)
        else:
            lower = np.int64(parameter * (size - 1))
            entries[place] = value_at(nodes, header, lower)
            entries[place + 1] = value_at(nodes, header, min(lower + 1, size - 1))


@outlined
def insert_after(snapshots: Snapshots, group, entry, time):  # type: ignore[no-untyped-def]
    """Insert an entry after another one, or with NONE the first one of the group. The state is copied."""
    entries, groups, state = snapshots.entries, snapshots.groups, snapshots.state
    added = state[FREE_ENTRY]
    if added == NONE:
        added = state[USED_ENTRIES]
        state[USED_ENTRIES] += 1
    else:
        state[FREE_ENTRY] = entries[entry_base(snapshots, added) + NEXT]
    state[LIVE_ENTRIES] += 1
    base = entry_base(snapshots, added)
    entries[base + TIME] = time
    entries[base + PREVIOUS] = entry
    entries[base + STARTS] = 0
    entries[base + ENDS] = 0
    entries[base + LIST] = NONE
    following = NONE
    if entry == NONE:
        for word in range(snapshots.words + snapshots.width):
            entries[base + ENTRY_WORDS + word] = 0
        groups[group * GROUP_WORDS + HEAD] = added
    else:
        before = entry_base(snapshots, entry)
        following = entries[before + NEXT]
        entries[before + NEXT] = added
        for word in range(snapshots.words + snapshots.width):
            entries[base + ENTRY_WORDS + word] = entries[before + ENTRY_WORDS + word]
    entries[base + NEXT] = following
    if following == NONE:
        groups[group * GROUP_WORDS + TAIL] = added
    else:
        entries[entry_base(snapshots, following) + PREVIOUS] = added
    groups[group * GROUP_WORDS + ENTRIES] += 1
    return added


@outlined
def remove_entry(snapshots: Snapshots, group, entry):  # type: ignore[no-untyped-def]
    """Remove an entry. The multisets must be those of another entry, unless its items add up to nothing."""
    entries, groups, state = snapshots.entries, snapshots.groups, snapshots.state
    base, of_group = entry_base(snapshots, entry), group * GROUP_WORDS
    before, following = entries[base + PREVIOUS], entries[base + NEXT]
    if groups[of_group + CURSOR] == entry:
        groups[of_group + CURSOR] = before
    if before == NONE:
        groups[of_group + HEAD] = following
    else:
        entries[entry_base(snapshots, before) + NEXT] = following
    if following == NONE:
        groups[of_group + TAIL] = before
    else:
        entries[entry_base(snapshots, following) + PREVIOUS] = before
    free_items(snapshots, entries[base + LIST])
    entries[base + NEXT] = state[FREE_ENTRY]
    state[FREE_ENTRY] = entry
    state[LIVE_ENTRIES] -= 1
    groups[of_group + ENTRIES] -= 1


@helper
def find_entry(snapshots: Snapshots, group, time):  # type: ignore[no-untyped-def]
    """Return the last entry of a group that is not after `time`, or NONE."""
    entry = snapshots.groups[group * GROUP_WORDS + TAIL]
    while entry != NONE and time_of(snapshots, entry) > time:
        entry = snapshots.entries[entry_base(snapshots, entry) + PREVIOUS]
    return entry


@helper
def published_until(snapshots: Snapshots, entry):  # type: ignore[no-untyped-def]
    """Return until when the row of an entry is published; BEGINNING if it is not."""
    following = next_of(snapshots, entry)
    if following != NONE:
        return time_of(snapshots, following)
    return END if snapshots.variant == ORDERED and time_of(snapshots, entry) < END else BEGINNING


@helper
def write_change(snapshots: Snapshots, output: Output, kind, group, entry, stop, new_stop):  # type: ignore[no-untyped-def]
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
def publish(snapshots: Snapshots, output: Output, group, entry):  # type: ignore[no-untyped-def]
    """Write the row of an entry, if it has rows and an end."""
    stop = published_until(snapshots, entry)
    if stop != BEGINNING and snapshots.entries[entry_base(snapshots, entry) + ENTRY_WORDS]:
        write_change(snapshots, output, INSERT, group, entry, stop, stop)


@helper
def shorten(snapshots: Snapshots, output: Output, group, entry, new_stop):  # type: ignore[no-untyped-def]
    """Retract the published row of an entry until `new_stop`, or wholly if it begins later."""
    stop = published_until(snapshots, entry)
    new_stop = max(new_stop, time_of(snapshots, entry))
    if stop != BEGINNING and new_stop < stop and snapshots.entries[entry_base(snapshots, entry) + ENTRY_WORDS]:
        write_change(snapshots, output, RETRACTION, group, entry, stop, new_stop)


@outlined
def drain(snapshots: Snapshots, trees: Trees, output: Output, group, until, start):  # type: ignore[no-untyped-def]
    """Make entries of the pending ends up to `until`, and one at `start` unless it is BEGINNING. Publish the rows.

    The row of an entry at `start` is not published: its caller changes it first.
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
def add_words(snapshots: Snapshots, entry, rows: ChangeRows, row, sign):  # type: ignore[no-untyped-def]
    """Add the words of a row to the state of an entry, or subtract them."""
    base = entry_base(snapshots, entry) + ENTRY_WORDS
    for word in range(snapshots.words):
        snapshots.entries[base + word] += sign * rows.added[row * snapshots.words + word]


@helper
def change_and_publish(  # type: ignore[no-untyped-def]
    snapshots: Snapshots, trees: Trees, output: Output, group, entry, until, rows: ChangeRows, row, sign
):  # fmt: skip
    """Add a row to the entries from `entry` until `until`, or subtract it, and publish their rows."""
    while entry != NONE and time_of(snapshots, entry) < until:
        add_words(snapshots, entry, rows, row, sign)
        compute_results(snapshots, trees, group, entry)
        publish(snapshots, output, group, entry)
        entry = next_of(snapshots, entry)


@helper
def open_group(snapshots: Snapshots, trees: Trees, group):  # type: ignore[no-untyped-def]
    """Give a new group its first entry, without rows."""
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
def insert_row(snapshots: Snapshots, trees: Trees, rows: ChangeRows, row, output: Output):  # type: ignore[no-untyped-def]
    """Process an insert. Return 0 if it is before all entries, otherwise 1."""
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


@helper
def is_single(snapshots: Snapshots, entry):  # type: ignore[no-untyped-def]
    """Return whether one lifetime only starts or ends at an entry."""
    base = entry_base(snapshots, entry)
    return snapshots.entries[base + STARTS] + snapshots.entries[base + ENDS] == 1


@outlined
def retract_row(snapshots: Snapshots, trees: Trees, rows: ChangeRows, row, output: Output):  # type: ignore[no-untyped-def]
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
    if inner:  # before the values are removed, which the multisets may not contain any more
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
def advance_group(snapshots: Snapshots, trees: Trees, output: Output, group, time):  # type: ignore[no-untyped-def]
    """Process a CTI in a group. Return the CTI of its changes."""
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
            remove_entry(snapshots, group, head)  # nothing is left of the group
        return time
    if second == NONE and snapshots.variant == PERFECT:
        return entries[base + TIME]  # the row that starts here is not published
    if not snapshots.exact or snapshots.whole:
        return time
    if second != NONE:
        of_second = entry_base(snapshots, second)
        if entries[of_second + TIME] == time and entries[of_second + ENDS]:
            return time  # a final end divides the rows here
    return entries[base + TIME]  # a full retraction may still change the row that starts here


@helper
def has_room(snapshots: Snapshots, group, output: Output):  # type: ignore[no-untyped-def]
    """Return whether all changes of one event of a group fit."""
    base = group * GROUP_WORDS
    needed = ROOM
    if snapshots.groups[base + HEAD] != NONE:
        needed += 2 * (snapshots.groups[base + ENTRIES] + snapshots.groups[base + PENDING])
    return output.count[0] + needed <= output.room


@helper
def advance_groups(snapshots: Snapshots, trees: Trees, output: Output, groups, time):  # type: ignore[no-untyped-def]
    """Process a CTI in all groups, and write the CTI of the changes. Return 0 if there is no room, otherwise 1."""
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


@kernel("i64(Snapshots, Trees, ChangeRows, i64, i64, i64, Output)")
def process_changes(  # type: ignore[no-untyped-def]
    snapshots: Snapshots, trees: Trees, rows: ChangeRows, begin, end, groups, output: Output
):  # fmt: skip
    """Process the changes `[begin, end)` of `groups` groups. Return the change reached, fewer than `end` without room.

    A change that contradicts earlier ones ends the processing: then the result is -1 - its number. Memory must have
    room for two more entries, three items and a node per key for each change, and an entry for each pending end.
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
