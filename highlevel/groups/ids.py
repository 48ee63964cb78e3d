"""Dense ids of groups: the first group seen is 0, the next new one 1, and so on.

Open addressing with linear probing over slots of one word, `tag << 32 | id`. A tag consists of 32 bits of the group's
hash, and its low bits are the home slot. So the number of slots can be doubled without reading the keys, and keys are
compared only if the whole tags are equal. Rows are processed in groups of PREFETCH_ROWS: prefetch their slots, then
their keys, then compare.
"""

from __future__ import annotations

import sys

import numpy as np

from capture.native import kernel
from capture.prefetch import prefetch
from highlevel.groups.key_words import Words

NO_GROUP = -1
"""The value of an empty slot, which no group has, and the ID of an unknown group."""

PREFETCH_ROWS = 64
"""Rows whose memory is prefetched together."""

MIN_GROUPS = 64
"""Initial capacity of a table in groups."""


@kernel("i64(i64*, i64, i64, i64, i64*, i64, i64*, i64, i64, i64*, i64*, i64*)")
def find_ids(  # type: ignore[no-untyped-def]
    words, rows, begin, width, slots, slot_count, keys, limit, inserts, count, tags, ids
):  # fmt: skip
    """Write the IDs of the groups of rows `[begin, rows)` to `ids`. Return the first row that was not processed.

    - `words`: width x rows.
    - `keys`: limit x width.
    - `slots`: slot_count words, a power of two above limit.
    - `tags`: room for PREFETCH_ROWS words.

    With `inserts` a new group gets the ID `count[0]`, and the kernel returns before a row that would need the ID
    `limit`. Otherwise an unknown group gets NO_GROUP.
    """
    mask = np.uint64(slot_count - 1)
    half = np.uint64(32)
    for first in range(begin, rows, PREFETCH_ROWS):
        end = min(rows, first + PREFETCH_ROWS)
        for row in range(first, end):
            mixed = np.uint64(0x9E3779B97F4A7C15)
            for word in range(width):
                mixed = (mixed ^ np.uint64(words[word * rows + row])) * np.uint64(0xFF51AFD7ED558CCD)
                mixed ^= mixed >> half
            tag = (mixed * np.uint64(0xC4CEB9FE1A85EC53)) >> half
            tags[row - first] = np.int64(tag)
            prefetch(slots, np.int64(tag & mask))
        for row in range(first, end):
            tag = np.uint64(tags[row - first])
            entry = slots[np.int64(tag & mask)]
            if entry != NO_GROUP and np.uint64(entry) >> half == tag:
                prefetch(keys, (entry & 0xFFFFFFFF) * width)
        for row in range(first, end):
            tag = np.uint64(tags[row - first])
            slot = np.int64(tag & mask)
            found = np.int64(NO_GROUP)
            while slots[slot] != NO_GROUP:
                entry = slots[slot]
                if np.uint64(entry) >> half == tag:
                    at = (entry & 0xFFFFFFFF) * width
                    same = True
                    for word in range(width):
                        if keys[at + word] != words[word * rows + row]:
                            same = False
                            break
                    if same:
                        found = entry & 0xFFFFFFFF
                        break
                slot = (slot + 1) & np.int64(mask)
            if found == NO_GROUP and inserts:
                if count[0] == limit:
                    return row
                found = count[0]
                count[0] += 1
                slots[slot] = np.int64(tag << half | np.uint64(found))
                for word in range(width):
                    keys[found * width + word] = words[word * rows + row]
            ids[row] = found
    return rows


@kernel("i64(i64*, i64, i64*, i64)")
def move_slots(slots, slot_count, wider, wider_count):  # type: ignore[no-untyped-def]
    """Move the entries of `slots` into the empty table `wider`. Both sizes are powers of two.

    Return the number of entries.
    """
    moved = 0
    mask = np.uint64(wider_count - 1)
    for position in range(slot_count):
        entry = slots[position]
        if entry == NO_GROUP:
            continue
        slot = np.int64((np.uint64(entry) >> np.uint64(32)) & mask)
        while wider[slot] != NO_GROUP:
            slot = (slot + 1) & np.int64(mask)
        wider[slot] = entry
        moved += 1
    return moved


GROWTH = ((16_384, 6), (65_536, 2), (sys.maxsize, 1))
"""Pairs (limit, h): a table for fewer than `limit` groups grows by h halves of its capacity. For small tables, copies
cost more than unused memory."""


class GroupIds:
    """The ids of groups of `width` words.

    The memory grows by the factor 4, 2 or 1.5, depending on its size (`GROWTH`).
    """

    def __init__(self, width: int) -> None:
        """Create an empty table for keys of `width` words."""
        self.width = width
        self.keys: Words = np.empty((MIN_GROUPS, max(1, width)), np.int64)
        self.slots = np.full(2 * MIN_GROUPS, NO_GROUP, np.int64)
        self._count = np.zeros(1, np.int64)
        self._tags = np.empty(PREFETCH_ROWS, np.int64)

    @property
    def count(self) -> int:
        """Number of known groups. All IDs are smaller."""
        return int(self._count[0])

    @property
    def bytes(self) -> int:
        """Bytes of keys and slots."""
        return int(self.keys.nbytes + self.slots.nbytes)

    def find(self, words: Words, *, inserts: bool) -> Words:
        """Return the IDs of the groups of some rows, NO_GROUP for an unknown group.

        With `inserts`, insert unknown groups.

        `words` has the shape (width, rows).
        """
        rows = words.shape[1]
        ids = np.empty(rows, np.int64)
        done = 0
        while done < rows:
            done = find_ids(
                words, rows, done, self.width, self.slots, len(self.slots), self.keys, len(self.keys), inserts,
                self._count, self._tags, ids,
            )  # fmt: skip
            if done < rows:
                self._grow()
        return ids

    def _grow(self) -> None:
        capacity = len(self.keys)
        capacity = next(capacity + capacity * grown // 2 for limit, grown in GROWTH if capacity < limit)
        keys = np.empty((capacity, self.keys.shape[1]), np.int64)
        keys[: self.count] = self.keys[: self.count]
        self.keys = keys
        slot_count = len(self.slots)
        while 4 * capacity > 3 * slot_count:
            slot_count *= 2
        if slot_count > len(self.slots):
            wider = np.full(slot_count, NO_GROUP, np.int64)
            move_slots(self.slots, len(self.slots), wider, len(wider))
            self.slots = wider
