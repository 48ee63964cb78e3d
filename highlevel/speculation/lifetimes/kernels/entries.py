"""The memory of snapshot operators: groups, their published entries, and items, for kernels.

    group ──► entries in the order of time: the state from the time of an entry until that of the next one
    entry ──► items: the values that begin or end at its time
    group ──► heap of items: ends that are still to come (`pending_ends`)

An entry counts the starts and ends of lifetimes at its time. State that can be added and subtracted (counts, sums) is
in the words of an entry, and so are the results that are computed from sorted values (`values`).
"""

from __future__ import annotations

from typing import NamedTuple

from capture.native import Floats, Integer, Integers, helper, outlined
from highlevel.speculation.lifetimes.kernels.records import LIST_WORDS, NONE, free_record, take_record
from lowlevel.punctuation import BEGINNING, END

PERFECT, ORDERED, EARLIEST = 0, 1, 2
"""Variants: preserve perfect input (PP), preserve order (OP), and minimum latency (ML)."""

TIME, PREVIOUS, NEXT, STARTS, ENDS, LIST, ENTRY_WORDS = range(7)
"""Words of an entry. LIST is the first item with a value that begins or ends here. Then words and results follow."""

ITEM_TIME, SIGN, CHILD, LINK, NULLS, ITEM_WORDS = range(6)
"""Words of an item: +1 for a start, -1 for an end; links of the heap; bits of absent values. Then words and keys."""

HEAD, TAIL, CURSOR, HEAP, ENDLESS, ENTRIES, PENDING, GROUP_WORDS = range(8)
"""Words of a group: its first and last entry, the entry of the multisets, the heap, ends without limit, and sizes."""

ENTRY_LIST, ITEM_LIST = 0, LIST_WORDS
"""Where the state has the lists of entries and items (`records`)."""

OUT_CTI, AT_GROUP, LEAST_CTI, STATE = range(2 * LIST_WORDS, 2 * LIST_WORDS + 4)
"""Further words of the state: the last CTI, and where a CTI continues that had no room."""


class SnapshotMemory(NamedTuple):
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
    """Make the items of a list available."""
    items, state = snapshots.items, snapshots.state
    while item != NONE:
        following = items[item_base(snapshots, item) + LINK]
        free_record(items, state, ITEM_LIST, ITEM_WORDS + snapshots.words + snapshots.keys, LINK, item)
        item = following


@outlined
def insert_after(snapshots: SnapshotMemory, group, entry, time):  # type: ignore[no-untyped-def]
    """Insert an entry after another one, or with NONE the first one of the group. The state is copied."""
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
    free_record(entries, state, ENTRY_LIST, ENTRY_WORDS + snapshots.words + snapshots.width, NEXT, entry)
    groups[of_group + ENTRIES] -= 1


@helper
def find_entry(snapshots: SnapshotMemory, group, time):  # type: ignore[no-untyped-def]
    """Return the last entry of a group that is not after `time`, or NONE."""
    entry = snapshots.groups[group * GROUP_WORDS + TAIL]
    while entry != NONE and time_of(snapshots, entry) > time:
        entry = snapshots.entries[entry_base(snapshots, entry) + PREVIOUS]
    return entry


@helper
def published_until(snapshots: SnapshotMemory, entry):  # type: ignore[no-untyped-def]
    """Return until when the row of an entry is published; BEGINNING if it is not."""
    following = next_of(snapshots, entry)
    if following != NONE:
        return time_of(snapshots, following)
    return END if snapshots.variant == ORDERED and time_of(snapshots, entry) < END else BEGINNING


@helper
def is_single(snapshots: SnapshotMemory, entry):  # type: ignore[no-untyped-def]
    """Return whether one lifetime only starts or ends at an entry."""
    base = entry_base(snapshots, entry)
    return snapshots.entries[base + STARTS] + snapshots.entries[base + ENDS] == 1


@helper
def add_words(snapshots: SnapshotMemory, entry, rows: ChangeRows, row, sign):  # type: ignore[no-untyped-def]
    """Add the words of a row to the state of an entry, or subtract them."""
    base = entry_base(snapshots, entry) + ENTRY_WORDS
    for word in range(snapshots.words):
        snapshots.entries[base + word] += sign * rows.added[row * snapshots.words + word]
