"""Pending ends, for kernels: the ends of lifetimes after the newest entry of a group ("endpoint compensation queue").

The ends are items in a pairing heap. To retract a pending end, an item with the opposite sign is added, because a
search in the heap would be slow. If the signs of all items of a time add up to 0, no lifetime ends at this time.
Lifetimes without an end are only counted.
"""

from __future__ import annotations

from capture.native import helper, outlined
from highlevel.speculation.lifetimes.kernels.entries import (
    CHILD,
    ENDLESS,
    GROUP_WORDS,
    HEAP,
    ITEM_TIME,
    LINK,
    PENDING,
    ChangeRows,
    SnapshotMemory,
    item_base,
    make_item,
)
from highlevel.speculation.lifetimes.kernels.records import NONE
from lowlevel.punctuation import END


@helper
def meld_heaps(snapshots: SnapshotMemory, one, other):  # type: ignore[no-untyped-def]
    """Merge two pairing heaps, either of which may be NONE. Return the root."""
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
def remove_least(snapshots: SnapshotMemory, root):  # type: ignore[no-untyped-def]
    """Remove the root of a heap. Its children are merged in pairs. Return the new root."""
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
def add_pending(snapshots: SnapshotMemory, group, time, sign, rows: ChangeRows, row):  # type: ignore[no-untyped-def]
    """Add an end to the pending ends of a group (`sign` -1), or cancel an end (`sign` +1)."""
    groups = snapshots.groups
    base = group * GROUP_WORDS
    if time == END:
        groups[base + ENDLESS] -= sign
        return
    item = make_item(snapshots, time, sign, rows, row)
    groups[base + HEAP] = meld_heaps(snapshots, groups[base + HEAP], item)
    groups[base + PENDING] += 1
