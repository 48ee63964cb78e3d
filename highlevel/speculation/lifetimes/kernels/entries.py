"""The memory of snapshot operators, for kernels: groups, their published entries, and items.

    group ──► entries in the order of time: the state from the time of an entry until the next entry entry ──► items:
    the values that begin or end at its time group ──► heap of items: later ends (`pending_ends`)

An entry counts the starts and ends of lifetimes at its time. Its words contain the state that is added and subtracted
(counts, sums), and the results that are computed from sorted values (`values`).
"""

from __future__ import annotations

from typing import NamedTuple

from capture.native import Floats, Integer, Integers, helper, outlined
from highlevel.speculation.lifetimes.kernels.records import LIST_WORDS, NONE, free_record, take_record
from lowlevel.punctuation import BEGINNING, END

PERFECT, ORDERED, EARLIEST = 0, 1, 2
"""Variants: preserve perfect input (PP), preserve order (OP), and minimum latency (ML)."""

TIME, PREVIOUS, NEXT, STARTS, ENDS, LIST, ENTRY_WORDS = range(7)
"""Words of an entry. LIST is the first item with a value that begins or ends here. The words and results of the entry
follow.
"""

ITEM_TIME, SIGN, CHILD, LINK, NULLS, ITEM_WORDS = range(6)
"""Words of an item. SIGN: +1 for a start, -1 for an end. CHILD, LINK: the heap. NULLS: bit mask of values that are
NULL. The words and keys of the row follow.
"""

HEAD, TAIL, CURSOR, HEAP, ENDLESS, ENTRIES, PENDING, GROUP_WORDS = range(8)
"""Words of a group: its first and last entry, the entry to which the multisets belong, the heap of pending ends, the
number of lifetimes without an end, and the numbers of entries and pending ends.
"""

ENTRY_LIST, ITEM_LIST = 0, LIST_WORDS
"""Words of the state at which the lists of entries and items begin (`records`)."""

OUT_CTI, AT_GROUP, LEAST_CTI, STATE = range(2 * LIST_WORDS, 2 * LIST_WORDS + 4)
"""Further words of the state: the last CTI of the output, and, for a CTI that was interrupted because there was no
room, the next group and the smallest CTI so far.
"""


class SnapshotMemory(NamedTuple):
    """Groups with their entries and pending ends, for kernels.

    `words` is the number of words that are added per row, `keys` the number of its sorted values. Result i of `results`
    is computed from the sorted value `of[i]` with `function[i]` and `parameter[i]`, and stored from word `place[i]` on.
    All results together have `width` words. `headers` are the multisets of each group. `exact`: after a full
    retraction, the snapshots before and after the start of the removed row are joined again. `whole`: no full
    retraction occurs.
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


@helper
def entry_base(snapshots: SnapshotMemory, entry):  # type: ignore[no-untyped-def]
    """Return the first word of an entry."""
    return entry * (ENTRY_WORDS + snapshots.words + snapshots.width)


@helper
def item_base(snapshots: SnapshotMemory, item):  # type: ignore[no-untyped-def]
    """Return the first word of an item."""
    return item * (ITEM_WORDS + snapshots.words + snapshots.keys)


@helper
def time_of(snapshots: SnapshotMemory, entry):  # type: ignore[no-untyped-def]
    """Return the time of an entry."""
    return snapshots.entries[entry_base(snapshots, entry) + TIME]


@helper
def next_of(snapshots: SnapshotMemory, entry):  # type: ignore[no-untyped-def]
    """Return the next entry, or NONE."""
    return snapshots.entries[entry_base(snapshots, entry) + NEXT]


@outlined
def make_item(snapshots: SnapshotMemory, time, sign, rows: ChangeRows, row):  # type: ignore[no-untyped-def]
    """Return a new item with the words and values of a row."""
    items, state = snapshots.items, snapshots.state
    item = take_record(items, state, ITEM_LIST, ITEM_WORDS + snapshots.words + snapshots.keys, LINK)
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
def free_items(snapshots: SnapshotMemory, item):  # type: ignore[no-untyped-def]
    """Put the items of a list into the free list."""
    items, state = snapshots.items, snapshots.state
    while item != NONE:
        following = items[item_base(snapshots, item) + LINK]
        free_record(items, state, ITEM_LIST, ITEM_WORDS + snapshots.words + snapshots.keys, LINK, item)
        item = following


@outlined
def insert_after(snapshots: SnapshotMemory, group, entry, time):  # type: ignore[no-untyped-def]
    """Insert an entry after `entry`, with a copy of its state.

    If `entry` is NONE, the new entry is the first of the group.
    """
    entries, groups, state = snapshots.entries, snapshots.groups, snapshots.state
    added = take_record(entries, state, ENTRY_LIST, ENTRY_WORDS + snapshots.words + snapshots.width, NEXT)
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
def remove_entry(snapshots: SnapshotMemory, group, entry):  # type: ignore[no-untyped-def]
    """Remove an entry. The multisets must belong to another entry, unless the items of the entry cancel each other."""
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
    free_record(entries, state, ENTRY_LIST, ENTRY_WORDS + snapshots.words + snapshots.width, NEXT, entry)
    groups[of_group + ENTRIES] -= 1


@helper
def find_entry(snapshots: SnapshotMemory, group, time):  # type: ignore[no-untyped-def]
    """Return the last entry of a group at or before `time`, or NONE."""
    entry = snapshots.groups[group * GROUP_WORDS + TAIL]
    while entry != NONE and time_of(snapshots, entry) > time:
        entry = snapshots.entries[entry_base(snapshots, entry) + PREVIOUS]
    return entry


@helper
def published_until(snapshots: SnapshotMemory, entry):  # type: ignore[no-untyped-def]
    """Return the end of the published row of an entry, or BEGINNING if the row is not published."""
    following = next_of(snapshots, entry)
    if following != NONE:
        return time_of(snapshots, following)
    return END if snapshots.variant == ORDERED and time_of(snapshots, entry) < END else BEGINNING


@helper
def is_single(snapshots: SnapshotMemory, entry):  # type: ignore[no-untyped-def]
    """Return True if exactly one lifetime starts or ends at an entry."""
    base = entry_base(snapshots, entry)
    return snapshots.entries[base + STARTS] + snapshots.entries[base + ENDS] == 1


@helper
def add_words(snapshots: SnapshotMemory, entry, rows: ChangeRows, row, sign):  # type: ignore[no-untyped-def]
    """Add the words of a row to the state of an entry (`sign` 1), or subtract them (-1)."""
    base = entry_base(snapshots, entry) + ENTRY_WORDS
    for word in range(snapshots.words):
        snapshots.entries[base + word] += sign * rows.added[row * snapshots.words + word]
