"""The bucket table: a hash table with buckets of eight slots. `flush` writes all entries of closed panes at once.

An entry is in any of the eight slots of its group's bucket. If all eight are full, a new entry evicts the entry in its
home slot. The tags of the bucket (`lowlevel.table.entries`) show the slot of an entry. So a packet reads only one cache
line of the slots, which do not fit into the processor caches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from capture.native import kernel, pointer
from lowlevel.subaggregates import INT_MAX, SubAggregate
from lowlevel.table.entries import (
    ALL_MARKS,
    BUCKET,
    CHUNK_ROWS,
    ENTRIES_OFFSET,
    PANES_OFFSET,
    TableMemory,
    TableRows,
    append_entry,
    begin_entry,
    choose_slots,
    collect_rows,
    find_by_tag,
    find_first,
    has_key,
    hash_keys,
    hash_pane,
    home_of,
    mark_of,
    match_tags,
    mix,
    tag_of,
    update_entries,
    write_tag,
)
from lowlevel.table.table import Table, Tally


@kernel("i64(TableMemory, TableRows, i64, i64*)")
def update_table(table: TableMemory, rows: TableRows, out_rows, tally):  # type: ignore[no-untyped-def]
    """Add packets to the table; return the number of rows in `out` afterwards.

    Evicted entries are appended to `out`, which contains `out_rows` rows and has room for `rows.row_count` more.
    `tally[0]` counts new entries whose home slot was full, `tally[1]` new entries in an empty slot.
    """
    slots, tags, width, hashes, chunk = table.slots, table.tags, table.width, table.hashes, table.chunk
    times, pane_length, origin = rows.times, rows.pane_length, rows.origin
    if rows.row_count == 0:
        return out_rows
    collisions = np.int64(0)
    inserted = np.int64(0)
    bucket_mask = np.uint64(table.slot_count // BUCKET - 1)
    min_time = times[0]
    max_time = times[0]
    for row in range(rows.row_count):
        min_time = min(min_time, times[row])
        max_time = max(max_time, times[row])
    pane = (min_time - origin) // pane_length
    pane_start = origin + pane * pane_length
    pane_end = pane_start + pane_length
    one_pane = max_time < pane_end
    for index in range(CHUNK_ROWS):
        chunk[PANES_OFFSET + index] = pane
    end = 0
    while end < rows.row_count:
        begin = end
        count, end = collect_rows(table, rows, begin)
        if not one_pane:
            for index in range(count):
                time = times[chunk[index]]
                if time < pane_start or time >= pane_end:
                    pane = (time - origin) // pane_length
                    pane_start = origin + pane * pane_length
                    pane_end = pane_start + pane_length
                chunk[PANES_OFFSET + index] = pane
        for index in range(count):
            hashes[index] = hash_pane(chunk[PANES_OFFSET + index])
        hash_keys(table, rows, count, begin)
        find_by_tag(table, bucket_mask, count)
        first_pending = 0  # packets before this one have updated their entries
        for index in range(count):
            row = chunk[index]
            pane_of_row = chunk[PANES_OFFSET + index]
            offset = chunk[ENTRIES_OFFSET + index]
            if offset >= 0 and slots[offset] == pane_of_row and has_key(table, offset, rows, row):
                continue
            hash_value = hashes[index]
            tag = tag_of(hash_value)
            bucket = np.int64(hash_value & bucket_mask)
            bucket_tags = tags[bucket]
            home = home_of(hash_value)
            matches = match_tags(bucket_tags, tag)
            exists = False
            while matches != np.uint64(0) and not exists:
                offset = (bucket * BUCKET + np.int64(find_first(matches))) * width
                exists = slots[offset] == pane_of_row and has_key(table, offset, rows, row)
                matches &= matches - np.uint64(1)
            if not exists:
                bucket_slot = find_first(choose_slots(bucket_tags, home))
                offset = (bucket * BUCKET + np.int64(bucket_slot)) * width
                if bucket_tags & mark_of(bucket_slot) != np.uint64(0):
                    update_entries(table, rows, first_pending, index)
                    first_pending = index
                    out_rows = append_entry(table, offset, out_rows)
                    collisions += 1
                else:
                    inserted += 1
                    collisions += bucket_slot != home
                write_tag(tags, bucket, bucket_slot, tag)
                begin_entry(table, offset, pane_of_row, rows, row)
            chunk[ENTRIES_OFFSET + index] = offset
        update_entries(table, rows, first_pending, count)
    tally[0] += collisions
    tally[1] += inserted
    return out_rows


@kernel("i64(TableMemory, i64, i64, i64*)")
def flush_table(table: TableMemory, end_pane, out_capacity, progress):  # type: ignore[no-untyped-def]
    """Move entries whose pane is below `end_pane` to `out`; return their number.

    * `out_capacity`: number of entries that fit into `out`, at least BUCKET. If more entries must be flushed, the
      caller repeats the call.
    * `progress[0]`: before the call, its first bucket; after the call, the first bucket of the next call, or the
      number of buckets.
    * `progress[1]`: a pane. If the smallest pane of the remaining entries is smaller, the kernel replaces it.
    """
    slots, tags = table.slots, table.tags
    rows = 0
    bucket = progress[0]
    smallest = progress[1]
    while bucket < table.slot_count // BUCKET and rows + BUCKET <= out_capacity:
        bucket_tags = tags[bucket]
        full = bucket_tags & np.uint64(ALL_MARKS)
        while full != np.uint64(0):
            bucket_slot = find_first(full)
            full &= full - np.uint64(1)
            offset = (bucket * BUCKET + np.int64(bucket_slot)) * table.width
            if slots[offset] < end_pane:
                rows = append_entry(table, offset, rows)
                bucket_tags &= ~(np.uint64(0xFF) << (bucket_slot << np.uint64(3)))
            else:
                smallest = min(smallest, slots[offset])
        tags[bucket] = bucket_tags
        bucket += 1
    progress[0] = bucket
    progress[1] = smallest
    return rows


@kernel("i64(TableMemory, TableMemory)")
def move_entries(table: TableMemory, larger: TableMemory):  # type: ignore[no-untyped-def]
    """Move all entries into an empty table with more buckets, a power of two. Return their number.

    The entries of a bucket of `larger` come from one bucket of `table`, so no bucket is too small.
    """
    slots, tags, width = table.slots, table.tags, table.width
    bucket_mask = np.uint64(larger.slot_count // BUCKET - 1)
    moved = 0
    for bucket in range(table.slot_count // BUCKET):
        full = tags[bucket] & np.uint64(ALL_MARKS)
        while full != np.uint64(0):
            offset = (bucket * BUCKET + np.int64(find_first(full))) * width
            full &= full - np.uint64(1)
            hash_value = hash_pane(slots[offset])
            for word in range(table.key_words):
                hash_value = mix(hash_value, slots[offset + 1 + word])
            new_bucket = np.int64(hash_value & bucket_mask)
            bucket_slot = find_first(choose_slots(larger.tags[new_bucket], home_of(hash_value)))
            new_offset = (new_bucket * BUCKET + np.int64(bucket_slot)) * width
            for word in range(width):
                larger.slots[new_offset + word] = slots[offset + word]
            write_tag(larger.tags, new_bucket, bucket_slot, tag_of(hash_value))
            moved += 1
    return moved


class TaggedTable(Table):
    """The bucket table. Memory: `slots * (width * 8 + 1)` bytes, and buffers for evicted and flushed entries."""

    def __init__(self, key_words: int, subaggregates: Sequence[SubAggregate], slots: int, capacity: int) -> None:
        """Make a table of `slots` (a power of two, at least BUCKET) for batches of up to `capacity` packets."""
        super().__init__(key_words, subaggregates, slots, capacity, BUCKET, max(capacity, BUCKET))
        self.taken_count = 0  # number of evicted entries that the caller has taken
        self.flushed_count = 0
        self.burst = 0
        self.oldest_pane = INT_MAX  # smallest pane of the entries that the last flush did not write
        self.insertion_counts = np.zeros(2, np.int64)  # collisions, and entries that filled an empty slot
        self.flush_progress = np.zeros(2, np.int64)  # of a flush: the next bucket, and the smallest pane that stays
        self._insertion_counts = pointer(self.insertion_counts, "i64")

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
            self.record, self.rows(times, chosen, pane, origin), self.evicted_rows, self._insertion_counts
        )

    @property
    def entry_count(self) -> int:
        """Number of entries in the table."""
        return int(self.insertion_counts[1]) - self.flushed_count

    @property
    def evicted_count(self) -> int:
        """Number of entries that new entries have replaced so far."""
        return self.taken_count + self.evicted_rows

    def replace(self, table: TaggedTable) -> None:
        """Take over the entries and counters of a table with fewer slots, whose evicted entries were taken.

        This table must be empty.
        """
        move_entries(table.record, self.record)
        self.insertion_counts[:] = table.insertion_counts
        self.taken_count, self.flushed_count = table.taken_count, table.flushed_count
        self.burst, self.oldest_pane = table.burst, table.oldest_pane

    def take_evicted(self) -> npt.NDArray[np.int64]:
        """Return the evicted entries, one row of words per entry. They are valid until the next update or flush."""
        entries = super().take_evicted()
        self.taken_count += len(entries)
        return entries

    def flush(self, end_pane: int) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the entries of all panes below `end_pane`, in several arrays. Call `take_evicted` before.

        An array is valid until the next array is requested. At the end, `oldest_pane` is the smallest remaining pane.
        """
        self.flush_progress[:] = 0, INT_MAX
        flushed = 0
        while self.flush_progress[0] < len(self.tags):
            rows = flush_table(self.record, end_pane, len(self.evicted), self.flush_progress)
            flushed += rows
            self.flushed_count += rows
            if rows:
                yield self.evicted[:rows]
        self.oldest_pane = int(self.flush_progress[1])
        self.burst = max(self.burst, flushed)

    @property
    def residents(self) -> npt.NDArray[np.int64]:
        """Return a copy of the entries in the table."""
        return self.slots[self.tags.view(np.uint8) != 0]

    @property
    def tally(self) -> Tally:
        """Return the counters. This reads all slots, to find their panes."""
        panes = self.slots[:, 0][self.tags.view(np.uint8) != 0]
        has_several_panes = len(panes) > 0 and panes.min() != panes.max()  # usually not, and `unique` sorts
        return Tally(
            collisions=int(self.insertion_counts[0]),
            evicted=self.evicted_count,
            flushed=self.flushed_count,
            burst=self.burst,
            resident=self.entry_count,
            panes=len(np.unique(panes)) if has_several_panes else min(1, len(panes)),
        )
