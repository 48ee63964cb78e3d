"""The bucket table: buckets of eight slots with tags; `flush` writes all entries of closed panes at once.

An entry is in any of the eight slots of its group's bucket. If all are full, a new entry evicts the entry in its own
home slot. A word of tags (`lowlevel.table.entries`) tells the slot. So a packet reads one cache line of the
table, which is larger than the processor caches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from capture.native import kernel, pointer
from lowlevel.subaggregates import INT_MAX, SubAggregate
from lowlevel.table.entries import (
    AHEAD,
    ANY,
    BUCKET,
    TableMemory,
    TableRows,
    append_entry,
    begin_entry,
    find_tagged,
    first_of,
    free,
    hash_keys,
    holds_key,
    home_of,
    mark_of,
    next_rows,
    tag_of,
    tagged,
    take_in,
    write_tag,
)
from lowlevel.table.table import Table, Tally


@kernel("i64(TableMemory, TableRows, i64, i64*)")
def update_table(table: TableMemory, rows: TableRows, out_rows, tally):  # type: ignore[no-untyped-def]
    """Add packets to the table; return the number of rows in `out` afterwards.

    `out` receives evicted entries, after the `out_rows` that it contains; has room for out_rows + rows. `tally` counts
    entries whose home slot was full when they began, and entries in slots that were empty.
    """
    slots, tags, width, hashes, homes = table.slots, table.tags, table.width, table.hashes, table.homes
    times, pane_length, origin = rows.times, rows.pane_length, rows.origin
    if rows.row_count == 0:
        return out_rows
    collisions = np.int64(0)
    inserted = np.int64(0)
    buckets = np.uint64(table.slot_count // BUCKET - 1)
    least = times[0]
    most = times[0]
    for row in range(rows.row_count):
        least = min(least, times[row])
        most = max(most, times[row])
    pane = (least - origin) // pane_length
    pane_start = origin + pane * pane_length
    pane_end = pane_start + pane_length
    of_one_pane = most < pane_end
    for number in range(AHEAD):
        homes[AHEAD + number] = pane
    end = 0
    while end < rows.row_count:
        begin = end
        found, end = next_rows(table, rows, begin)
        if not of_one_pane:
            for number in range(found):
                time = times[homes[number]]
                if time < pane_start or time >= pane_end:
                    pane = (time - origin) // pane_length
                    pane_start = origin + pane * pane_length
                    pane_end = pane_start + pane_length
                homes[AHEAD + number] = pane
        for number in range(found):
            hashes[number] = np.uint64(homes[AHEAD + number]) * np.uint64(0x9E3779B97F4A7C15)
        hash_keys(table, rows, found, begin)
        find_tagged(table, buckets, found)
        taken = 0  # packets whose arguments are in their entries
        for number in range(found):
            row = homes[number]
            pane_of_row = homes[AHEAD + number]
            at = homes[2 * AHEAD + number]
            if at >= 0 and slots[at] == pane_of_row and holds_key(table, at, rows, row):
                continue
            mixed = hashes[number]
            tag = tag_of(mixed)
            bucket = np.int64(mixed & buckets)
            held = tags[bucket]
            home = home_of(mixed)
            same = tagged(held, tag)
            known = False
            while same != np.uint64(0) and not known:
                at = (bucket * BUCKET + np.int64(first_of(same))) * width
                known = slots[at] == pane_of_row and holds_key(table, at, rows, row)
                same &= same - np.uint64(1)
            if not known:
                place = first_of(free(held, home))
                at = (bucket * BUCKET + np.int64(place)) * width
                if held & mark_of(place) != np.uint64(0):
                    take_in(table, rows, taken, number)
                    taken = number
                    out_rows = append_entry(table, at, out_rows)
                    collisions += 1
                else:
                    inserted += 1
                    collisions += place != home
                write_tag(tags, bucket, place, tag)
                begin_entry(table, at, pane_of_row, rows, row)
            homes[2 * AHEAD + number] = at
        take_in(table, rows, taken, found)
    tally[0] += collisions
    tally[1] += inserted
    return out_rows


@kernel("i64(TableMemory, i64, i64, i64*)")
def flush_table(table: TableMemory, before, room, hand):  # type: ignore[no-untyped-def]
    """Move entries whose pane is below `before` to `out`; return their number.

    `room` is the number of entries that fit into `out`, at least BUCKET. The kernel continues at bucket `hand[0]` and
    writes the next bucket there, or the number of buckets at the end. `hand[1]` becomes the smallest pane that stayed,
    if that is smaller.
    """
    slots, tags = table.slots, table.tags
    rows = 0
    bucket = hand[0]
    smallest = hand[1]
    while bucket < table.slot_count // BUCKET and rows + BUCKET <= room:
        held = tags[bucket]
        full = held & np.uint64(ANY)
        while full != np.uint64(0):
            place = first_of(full)
            full &= full - np.uint64(1)
            at = (bucket * BUCKET + np.int64(place)) * table.width
            if slots[at] < before:
                rows = append_entry(table, at, rows)
                held &= ~(np.uint64(0xFF) << (place << np.uint64(3)))
            else:
                smallest = min(smallest, slots[at])
        tags[bucket] = held
        bucket += 1
    hand[0] = bucket
    hand[1] = smallest
    return rows


class TaggedTable(Table):
    """The bucket table. Memory: `slots * (width * 8 + 1)` bytes, and buffers for evicted and flushed entries."""

    def __init__(self, key_words: int, subaggregates: Sequence[SubAggregate], slots: int, capacity: int) -> None:
        """Make a table of `slots` (a power of two, at least BUCKET) for batches of up to `capacity` packets."""
        super().__init__(key_words, subaggregates, slots, capacity, BUCKET, max(capacity, BUCKET))
        self.evicted_before = 0  # evicted entries that the caller has taken
        self.flushed = 0
        self.burst = 0
        self.oldest = INT_MAX  # lower bound of the panes of entries that the last flush left
        self.counted = np.zeros(2, np.int64)  # collisions, and entries that filled an empty slot
        self.hand = np.zeros(2, np.int64)  # of a flush: the next bucket, and the smallest pane that stayed
        self._counted = pointer(self.counted, "i64")

    def update(
        self,
        times: npt.NDArray[np.int64],
        chosen: npt.NDArray[np.uint8] | None,
        pane: int,
        origin: int,
        limit: int = INT_MAX,
    ) -> None:
        """Add the packets in the columns `words` and `args`. Call `evictions_due` before.

        `limit` has no effect here: this table has no current pane.
        """
        self.evicted_rows = update_table.at(
            self.record, self.rows(times, chosen, pane, origin), self.evicted_rows, self._counted
        )

    def take_evicted(self) -> npt.NDArray[np.int64]:
        """Return the evicted entries, a row of words each; valid until the next update or flush."""
        taken = super().take_evicted()
        self.evicted_before += len(taken)
        return taken

    def flush(self, before: int) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the entries of all panes below `before`, some at a time. Call `take_evicted` before.

        Each array is valid until the next is requested. After the last one, `oldest` is the smallest pane that stays.
        """
        self.hand[:] = 0, INT_MAX
        left = 0
        while self.hand[0] < len(self.tags):
            rows = flush_table(self.record, before, len(self.evicted), self.hand)
            left += rows
            self.flushed += rows
            if rows:
                yield self.evicted[:rows]
        self.oldest = int(self.hand[1])
        self.burst = max(self.burst, left)

    @property
    def residents(self) -> npt.NDArray[np.int64]:
        """Return a copy of the entries in the table."""
        return self.slots[self.tags.view(np.uint8) != 0]

    @property
    def tally(self) -> Tally:
        """Return the counters. This reads all slots, to find their panes."""
        collisions, inserted = self.counted.tolist()
        panes = self.slots[:, 0][self.tags.view(np.uint8) != 0]
        several = len(panes) > 0 and panes.min() != panes.max()
        return Tally(
            collisions=collisions,
            evicted=self.evicted_before + self.evicted_rows,
            flushed=self.flushed,
            burst=self.burst,
            resident=inserted - self.flushed,
            panes=len(np.unique(panes)) if several else min(1, len(panes)),
        )
