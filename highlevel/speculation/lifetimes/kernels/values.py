"""For kernels: the sorted values of the rows that are true at an entry, and the results that are computed from them.

Sorted values are not copied for each entry. An entry lists only the values that begin or end at its time. Each group
has ONE multiset for each sorted value, which always belongs to one entry. To move it to another entry, the values that
begin or end between the entries are added or removed. The multiset stays at the entry at which it was used last. So a
row in order causes one change of the multiset, and a late row causes the changes between its time and the newest entry.
"""

from __future__ import annotations

import numpy as np

from capture.native import helper, outlined
from highlevel.speculation.lifetimes.kernels.entries import (
    CURSOR,
    ENTRY_WORDS,
    GROUP_WORDS,
    ITEM_WORDS,
    LINK,
    LIST,
    NEXT,
    NULLS,
    PREVIOUS,
    SIGN,
    ChangeRows,
    SnapshotMemory,
    entry_base,
    item_base,
    make_item,
    time_of,
)
from highlevel.speculation.lifetimes.kernels.multiset import (
    COUNT,
    LEFT,
    NODE_WORDS,
    RIGHT,
    SIZE,
    Trees,
    add_key,
    copy_first,
    remove_key,
    value_at,
)
from highlevel.speculation.lifetimes.kernels.records import NONE
from lowlevel.punctuation import END

SMALLEST, GREATEST, DIFFERENT, QUANTILE, UPWARD, DOWNWARD = range(6)
"""Functions: minimum, maximum, number of values, quantile (2 words), the smallest values, the greatest values."""


@helper
def apply_item(snapshots: SnapshotMemory, trees: Trees, group, item, direction, phase):  # type: ignore[no-untyped-def]
    """Apply an item to the multisets of a group, if it adds values (`phase` 0) or if it removes values (`phase` 1)."""
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
def apply_list(snapshots: SnapshotMemory, trees: Trees, group, entry, direction):  # type: ignore[no-untyped-def]
    """Apply the items of an entry to the multisets of a group: first add values, then remove values."""
    for phase in range(2):
        item = snapshots.entries[entry_base(snapshots, entry) + LIST]
        while item != NONE:
            apply_item(snapshots, trees, group, item, direction, phase)
            item = snapshots.items[item_base(snapshots, item) + LINK]


@outlined
def move_cursor(snapshots: SnapshotMemory, trees: Trees, group, target):  # type: ignore[no-untyped-def]
    """Move the multisets of a group to the entry `target`."""
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
def add_to_list(snapshots: SnapshotMemory, trees: Trees, group, entry, sign, rows: ChangeRows, row):  # type: ignore[no-untyped-def]
    """Record that the values of a row begin (+1) or end (-1) at an entry."""
    if not snapshots.keys or time_of(snapshots, entry) == END:
        return
    item = make_item(snapshots, 0, sign, rows, row)
    base = entry_base(snapshots, entry)
    snapshots.items[item_base(snapshots, item) + LINK] = snapshots.entries[base + LIST]
    snapshots.entries[base + LIST] = item
    if time_of(snapshots, entry) <= time_of(snapshots, snapshots.groups[group * GROUP_WORDS + CURSOR]):
        apply_item(snapshots, trees, group, item, 1, 0 if sign > 0 else 1)


@outlined
def compute_results(snapshots: SnapshotMemory, trees: Trees, group, entry):  # type: ignore[no-untyped-def]
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
            copy_first(trees, header, np.int64(parameter), LEFT if function == UPWARD else RIGHT, entries, place)
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
