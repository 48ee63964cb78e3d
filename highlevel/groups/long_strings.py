"""Numbers of distinct strings of any length: the first string is 0, the next new string 1, and so on.

The algorithm is that of `highlevel.groups.ids`, but the keys are byte strings, which are stored consecutively on a
heap.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from capture.native import helper, kernel
from capture.prefetch import prefetch
from highlevel.groups.ids import MIN_GROUPS, NO_GROUP, PREFETCH_ROWS, move_slots
from highlevel.groups.key_words import Words, is_text, string_bytes, string_offsets, validity

UNKNOWN = -2
"""Number of an unknown string. The number of a NULL is NO_GROUP."""


@helper
def string_tag(data, first, end):  # type: ignore[no-untyped-def]
    """Return a hash of `data[first:end]`, 32 bits."""
    mixed = np.uint64(end - first) + np.uint64(0x9E3779B97F4A7C15)
    at = first
    while at + 8 <= end:
        word = np.uint64(0)
        for position in range(8):
            word |= np.uint64(data[at + position]) << np.uint64(8 * position)
        mixed = (mixed ^ word) * np.uint64(0xFF51AFD7ED558CCD)
        mixed ^= mixed >> np.uint64(32)
        at += 8
    word = np.uint64(0)
    for position in range(end - at):
        word |= np.uint64(data[at + position]) << np.uint64(8 * position)
    mixed = (mixed ^ word) * np.uint64(0xC4CEB9FE1A85EC53)
    return (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xFF51AFD7ED558CCD) >> np.uint64(32)


@kernel("i64(u8*, i64*, u8*, i64, i64, i64, i64*, i64, u8*, i64, i64*, i64, i64, i64*, i64*, i64*)")
def number_strings(  # type: ignore[no-untyped-def]
    data, offsets, valid, has_nulls, begin, rows, slots, slot_count, heap, heap_size, ends, limit, inserts, count, tags,
    out,
):  # fmt: skip
    """Write the numbers of strings `[begin, rows)` to `out`. Return the first row that was not processed.

    String i is `data[offsets[i]:offsets[i + 1]]`. With `has_nulls` it is NULL unless `valid[i]`. Known string n is
    `heap[ends[n]:ends[n + 1]]`. `ends` has limit + 1 words, `slots` slot_count (a power of two above limit), `tags`
    PREFETCH_ROWS. With `inserts` the kernel returns before a string that does not fit into `ends` or `heap`.
    """
    mask = np.uint64(slot_count - 1)
    half = np.uint64(32)
    for first in range(begin, rows, PREFETCH_ROWS):
        end = min(rows, first + PREFETCH_ROWS)
        for row in range(first, end):
            tag = string_tag(data, offsets[row], offsets[row + 1])
            tags[row - first] = np.int64(tag)
            prefetch(slots, np.int64(tag & mask))
        for row in range(first, end):
            if has_nulls and not valid[row]:
                out[row] = NO_GROUP
                continue
            start = offsets[row]
            length = offsets[row + 1] - start
            tag = np.uint64(tags[row - first])
            slot = np.int64(tag & mask)
            found = np.int64(UNKNOWN)
            while slots[slot] != NO_GROUP:
                entry = slots[slot]
                number = entry & 0xFFFFFFFF
                if np.uint64(entry) >> half == tag and ends[number + 1] - ends[number] == length:
                    same = True
                    for position in range(length):
                        if heap[ends[number] + position] != data[start + position]:
                            same = False
                            break
                    if same:
                        found = number
                        break
                slot = (slot + 1) & np.int64(mask)
            if found == UNKNOWN and inserts:
                found = count[0]
                if found == limit or ends[found] + length > heap_size:
                    return row
                for position in range(length):
                    heap[ends[found] + position] = data[start + position]
                ends[found + 1] = ends[found] + length
                slots[slot] = np.int64(tag << half | np.uint64(found))
                count[0] = found + 1
            out[row] = found
    return rows


class LongStrings:
    """The distinct strings of a column."""

    def __init__(self, kind: pa.DataType) -> None:
        """Create an empty table. `kind` is the type of the column."""
        self.kind = kind
        self.heap = np.empty(16 * MIN_GROUPS, np.uint8)
        self.ends = np.zeros(MIN_GROUPS + 1, np.int64)
        self.slots = np.full(2 * MIN_GROUPS, NO_GROUP, np.int64)
        self._count = np.zeros(1, np.int64)
        self._tags = np.empty(PREFETCH_ROWS, np.int64)

    @property
    def bytes(self) -> int:
        """Bytes of the strings."""
        return int(self.heap.nbytes + self.ends.nbytes + self.slots.nbytes)

    def numbers(self, column: pa.Array, inserts: bool) -> Words:
        """Return the number of each string. A new string gets the next number if `inserts`, otherwise UNKNOWN."""
        offsets, data, valid = string_offsets(column), string_bytes(column), validity(column)
        rows = len(column)
        out = np.empty(rows, np.int64)
        done = 0
        while done < rows:
            done = number_strings(
                data, offsets, valid, len(valid) > 0, done, rows, self.slots, len(self.slots), self.heap,
                len(self.heap), self.ends, len(self.ends) - 1, inserts, self._count, self._tags, out,
            )  # fmt: skip
            if done < rows:
                self._grow(int(offsets[done + 1] - offsets[done]))
        return out

    def _grow(self, length: int) -> None:
        """Allocate memory for another string of `length` bytes."""
        count = int(self._count[0])
        if int(self.ends[count]) + length > len(self.heap):
            self.heap = np.append(self.heap, np.empty(len(self.heap) + length, np.uint8))
        if count == len(self.ends) - 1:
            self.ends = np.append(self.ends, np.zeros(count, np.int64))
            wider = np.full(2 * len(self.slots), NO_GROUP, np.int64)
            move_slots(self.slots, len(self.slots), wider, len(wider))
            self.slots = wider

    def take(self, numbers: Words) -> pa.Array:
        """Return the strings of some numbers; NO_GROUP is NULL."""
        wide = pa.large_string() if is_text(self.kind) else pa.large_binary()  # the heap may be beyond 2**31 bytes
        buffers = [None, pa.py_buffer(self.ends), pa.py_buffer(self.heap)]
        strings = pa.Array.from_buffers(wide, int(self._count[0]), buffers)
        return strings.take(pa.array(numbers, mask=numbers == NO_GROUP)).cast(self.kind)
