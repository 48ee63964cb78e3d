"""The entries of the fixed-size tables, for their kernels: slots, tags, hashes, and updates of sub-aggregates.

The tables do not fit into the processor caches. So packets are processed in chunks of CHUNK_ROWS: prefetch all their
slots, then find all their entries, then update each sub-aggregate for the whole chunk.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capture.native import Bytes, Floats, Integer, Integers, Unsigned, helper
from capture.prefetch import prefetch
from lowlevel.expressions.types import Type
from lowlevel.subaggregates import INT_MAX, INT_MIN, Kind, SubAggregate

COUNT, SUM, MIN, MAX, SUM_FLOAT, MIN_FLOAT, MAX_FLOAT, BIT_AND, BIT_OR, BIT_XOR = range(10)
EARLIEST, FIRST, FIRST_FLOAT, LATEST, LAST, LAST_FLOAT = range(10, 16)

OPCODES: dict[tuple[Kind, Type], int] = {
    (Kind.COUNT, Type.INT): SUM,  # over the 0/1 column of non-NULL arguments
    (Kind.SUM, Type.INT): SUM,
    (Kind.UPPER_SUM, Type.INT): SUM,
    (Kind.LOWER_SUM, Type.INT): SUM,
    (Kind.MIN, Type.INT): MIN,
    (Kind.MAX, Type.INT): MAX,
    (Kind.SUM, Type.FLOAT): SUM_FLOAT,
    (Kind.MIN, Type.FLOAT): MIN_FLOAT,
    (Kind.MAX, Type.FLOAT): MAX_FLOAT,
    (Kind.BIT_AND, Type.INT): BIT_AND,
    (Kind.BIT_OR, Type.INT): BIT_OR,
    (Kind.BIT_XOR, Type.INT): BIT_XOR,
    (Kind.EARLIEST, Type.INT): EARLIEST,
    (Kind.FIRST, Type.INT): FIRST,
    (Kind.FIRST, Type.FLOAT): FIRST_FLOAT,
    (Kind.LATEST, Type.INT): LATEST,
    (Kind.LAST, Type.INT): LAST,
    (Kind.LAST, Type.FLOAT): LAST_FLOAT,
}
"""Sub-aggregate and type -> operation that updates a word of an entry with an argument. `count(*)` is COUNT."""

IDENTITIES: dict[int, int | float] = {
    SUM: 0,
    MIN: INT_MAX,
    MAX: INT_MIN,
    SUM_FLOAT: 0.0,
    MIN_FLOAT: float("nan"),
    MAX_FLOAT: float("nan"),
    BIT_AND: -1,
    BIT_OR: 0,
    BIT_XOR: 0,
    EARLIEST: INT_MAX,
    FIRST: INT_MAX,
    FIRST_FLOAT: float("inf"),
    LATEST: INT_MIN,
    LAST: INT_MIN,
    LAST_FLOAT: float("-inf"),
}
"""Operation -> value that replaces a NULL argument: the identity of the operation.

Minima and maxima of floats ignore NaN, so NaN is their identity, as at the high level (`highlevel.groups.merging`).
"""


def initial_word(code: int) -> int:
    """Return the initial word of a sub-aggregate, as an integer."""
    identity = IDENTITIES.get(code, 0)
    return int(np.array(identity, np.float64).view(np.int64)) if isinstance(identity, float) else identity


def opcode(sub: SubAggregate) -> int:
    """Return the code of the operation that updates this sub-aggregate."""
    return COUNT if sub.argument is None else OPCODES[sub.kind, sub.type]


# Tags: the tag of a slot is a byte that shows whether the slot is full and (nearly always) to which group it belongs.
#
# Eight slots are a bucket, and their eight tags are one word, which is likely in a processor cache. A comparison of all
# eight tags without a branch finds the slot (as in Google's Swiss tables, with a word instead of a vector). The tag of
# a full slot is 0x80 and seven bits of its group's hash. The tag of an empty slot is 0.
#
#     tags    00 00 9c 00 81 d2 00 9c        a group with tag 9c may be in slot 0 or 5; slots 1, 4, 6 and 7 are empty
#     slot     7  6  5  4  3  2  1  0
#
# Functions select slots of a bucket by *marks*: a word with 0x80 in the bytes of the selected slots.


BUCKET = 8
"""Number of slots in a bucket."""

ALL_MARKS = 0x8080808080808080
"""The marks of all slots of a bucket."""

BYTE_ONES = 0x0101010101010101
"""A byte multiplied by this number is a word of eight copies of the byte."""

LOW_BITS = 0x7F7F7F7F7F7F7F7F
"""All bits of a word that are not marks."""

BYTE_INDEXES = 0x0001020304050607
"""The highest byte of the product of this number and 256**n is n."""


@helper
def tag_of(hash_value):  # type: ignore[no-untyped-def]
    """Return the tag of a group from the highest bits of its hash."""
    return (hash_value >> np.uint64(56)) | np.uint64(0x80)


@helper
def home_of(hash_value):  # type: ignore[no-untyped-def]
    """Return the home slot of a group in its bucket, 0..7."""
    return (hash_value >> np.uint64(40)) & np.uint64(7)


@helper
def mark_of(bucket_slot):  # type: ignore[no-untyped-def]
    """Return the mark of a slot of a bucket (uint64, 0..7)."""
    return np.uint64(0x80) << (bucket_slot << np.uint64(3))


@helper
def match_tags(bucket_tags, tag):  # type: ignore[no-untyped-def]
    """Return the marks of the slots of a bucket whose tag is `tag`."""
    differing = bucket_tags ^ (tag * np.uint64(BYTE_ONES))
    return ~(((differing & np.uint64(LOW_BITS)) + np.uint64(LOW_BITS)) | differing | np.uint64(LOW_BITS))


@helper
def choose_slots(bucket_tags, home):  # type: ignore[no-untyped-def]
    """Return the marks of the slots for a new group.

    This is the mark of the home slot if it is empty or the bucket is full, otherwise the marks of all empty slots.
    """
    empty = ~bucket_tags & np.uint64(ALL_MARKS)
    mark = mark_of(home)
    return mark if (empty & mark) != np.uint64(0) or empty == np.uint64(0) else empty


@helper
def find_first(marks):  # type: ignore[no-untyped-def]
    """Return the lowest marked slot, 0..7; 0 if there is no mark."""
    lowest = marks & (~marks + np.uint64(1))
    return ((lowest >> np.uint64(7)) * np.uint64(BYTE_INDEXES)) >> np.uint64(56)


CHUNK_ROWS = 64
"""Number of packets in a chunk. The cache lines of their slots fit into every cache."""

PANES_OFFSET = CHUNK_ROWS
"""Offset of the panes in `TableMemory.chunk`."""

ENTRIES_OFFSET = 2 * CHUNK_ROWS
"""Offset of the entries in `TableMemory.chunk`."""


class TableMemory(NamedTuple):
    """The memory of a table, for its kernels. It is built once per table.

    * `slots`: slot_count (a power of two) rows of `width` words, and one more row for packets without an entry.
    * `slots_float`: the memory of `slots`, as float64.
    * `tags`: one word for each bucket.
    * `ops`: the operation of each sub-aggregate. `initial_words`: its word in a new entry, before the first packet.
    * `hashes`: the hash of each packet of the chunk.
    * `chunk`: three arrays of CHUNK_ROWS words, one word per packet: its row in the batch; from PANES_OFFSET on, its
      pane; from ENTRIES_OFFSET on, its entry, as the offset of the entry's first word in `slots`.
    * `out`: receives the evicted and flushed entries.
    """

    slots: Integers
    slots_float: Floats
    tags: Unsigned
    slot_count: Integer
    width: Integer
    key_words: Integer
    ops: Integers
    initial_words: Integers
    op_count: Integer
    hashes: Unsigned
    chunk: Integers
    out: Integers


class TableRows(NamedTuple):
    """The packets of a batch, for the kernels of a table. It is built once per batch.

    * The column of key word w begins at `words[key_offsets[w]]`.
    * The column of the argument of sub-aggregate i begins at `args[arg_offsets[i]]`.
    * `args_float`: the memory of `args`, as float64.
    * `times`: ts in ns. Columns and times have `row_count` values.
    * If `uses_chosen` is 1, only packets with `chosen` = 1 are added.
    * Panes are `pane_length` ns long and counted from `origin`.
    """

    words: Integers
    key_offsets: Integers
    args: Integers
    args_float: Floats
    arg_offsets: Integers
    times: Integers
    chosen: Bytes
    uses_chosen: Integer
    row_count: Integer
    pane_length: Integer
    origin: Integer


@helper
def hash_pane(pane):  # type: ignore[no-untyped-def]
    """Return the hash of a pane, into which `mix` mixes the words of the key."""
    return np.uint64(pane) * np.uint64(0x9E3779B97F4A7C15)


@helper
def mix(hash_value, word):  # type: ignore[no-untyped-def]
    """Mix a further word of a key into a hash, and return the new hash."""
    hash_value = (hash_value ^ np.uint64(word)) * np.uint64(0xFF51AFD7ED558CCD)
    return hash_value ^ (hash_value >> np.uint64(32))


@helper
def update_first_or_last(slots, slots_float, code, offset, time, value, value_float):  # type: ignore[no-untyped-def]
    """Store a value and its time if the time is earlier than the stored time (FIRST), or later (LAST).

    The stored value is in word `offset` and its time in word `offset - 1`. For equal times FIRST keeps the smaller
    value, LAST the larger.
    """
    replaces = time < slots[offset - 1] if code in (FIRST, FIRST_FLOAT) else time > slots[offset - 1]
    if time == slots[offset - 1]:
        if code == FIRST:
            replaces = value < slots[offset]
        elif code == LAST:
            replaces = value > slots[offset]
        elif code == FIRST_FLOAT:
            replaces = value_float < slots_float[offset]
        else:
            replaces = value_float > slots_float[offset]
    if replaces:
        slots[offset - 1] = time
        slots[offset] = value


@helper
def update_entries(table, rows, begin, end):  # type: ignore[no-untyped-def]
    """Update the entries of the packets `[begin, end)` of the chunk with the arguments of these packets."""
    slots, slots_float, chunk = table.slots, table.slots_float, table.chunk
    args, args_float = rows.args, rows.args_float
    aggregates_offset = 1 + table.key_words
    for op in range(table.op_count):
        code = table.ops[op]
        column = rows.arg_offsets[op]
        if code == COUNT:
            for index in range(begin, end):
                slots[chunk[ENTRIES_OFFSET + index] + aggregates_offset + op] += 1
        elif code == SUM:
            for index in range(begin, end):
                slots[chunk[ENTRIES_OFFSET + index] + aggregates_offset + op] += args[column + chunk[index]]
        elif code == MIN:
            for index in range(begin, end):
                offset = chunk[ENTRIES_OFFSET + index] + aggregates_offset + op
                slots[offset] = min(slots[offset], args[column + chunk[index]])
        elif code == MAX:
            for index in range(begin, end):
                offset = chunk[ENTRIES_OFFSET + index] + aggregates_offset + op
                slots[offset] = max(slots[offset], args[column + chunk[index]])
        elif code == SUM_FLOAT:
            for index in range(begin, end):
                slots_float[chunk[ENTRIES_OFFSET + index] + aggregates_offset + op] += args_float[column + chunk[index]]
        elif code == MIN_FLOAT:
            for index in range(begin, end):
                offset = chunk[ENTRIES_OFFSET + index] + aggregates_offset + op
                value, stored = args_float[column + chunk[index]], slots_float[offset]
                if stored != stored or value < stored:
                    slots_float[offset] = value
        elif code == MAX_FLOAT:
            for index in range(begin, end):
                offset = chunk[ENTRIES_OFFSET + index] + aggregates_offset + op
                value, stored = args_float[column + chunk[index]], slots_float[offset]
                if stored != stored or value > stored:
                    slots_float[offset] = value
        elif code == BIT_AND:
            for index in range(begin, end):
                slots[chunk[ENTRIES_OFFSET + index] + aggregates_offset + op] &= args[column + chunk[index]]
        elif code == BIT_OR:
            for index in range(begin, end):
                slots[chunk[ENTRIES_OFFSET + index] + aggregates_offset + op] |= args[column + chunk[index]]
        elif code == BIT_XOR:
            for index in range(begin, end):
                slots[chunk[ENTRIES_OFFSET + index] + aggregates_offset + op] ^= args[column + chunk[index]]
        elif code not in (EARLIEST, LATEST):  # the words with their times are updated together with FIRST and LAST
            for index in range(begin, end):
                offset = chunk[ENTRIES_OFFSET + index] + aggregates_offset + op
                argument = column + chunk[index]
                time = args[rows.arg_offsets[op - 1] + chunk[index]]
                update_first_or_last(slots, slots_float, code, offset, time, args[argument], args_float[argument])


@helper
def has_key(table, offset, rows, row):  # type: ignore[no-untyped-def]
    """Return whether the entry at word `offset` has the key of `row`. The caller must compare the pane."""
    slots, key_words, words, key_offsets = table.slots, table.key_words, rows.words, rows.key_offsets
    if key_words == 1:
        return slots[offset + 1] == words[key_offsets[0] + row]
    if key_words == 2:
        return (slots[offset + 1] == words[key_offsets[0] + row]) & (slots[offset + 2] == words[key_offsets[1] + row])
    matches = True
    for word in range(key_words):
        if slots[offset + 1 + word] != words[key_offsets[word] + row]:
            matches = False
            break
    return matches


@helper
def begin_entry(table, offset, pane, rows, row):  # type: ignore[no-untyped-def]
    """Write a new entry with this pane and the key of `row` at word `offset`. No packet is counted yet."""
    slots, key_words = table.slots, table.key_words
    slots[offset] = pane
    for word in range(key_words):
        slots[offset + 1 + word] = rows.words[rows.key_offsets[word] + row]
    for op in range(table.op_count):
        slots[offset + 1 + key_words + op] = table.initial_words[op]


@helper
def append_entry(table, offset, out_rows):  # type: ignore[no-untyped-def]
    """Append the entry at word `offset` to `out`. Return the number of rows in `out`."""
    for word in range(table.width):
        table.out[out_rows * table.width + word] = table.slots[offset + word]
    return out_rows + 1


@helper
def collect_rows(table, rows, begin):  # type: ignore[no-untyped-def]
    """Fill the chunk with the next chosen rows from `begin` on. Return their number and the row after them."""
    chunk = table.chunk
    end = min(rows.row_count, begin + CHUNK_ROWS)
    count = np.int64(end - begin)
    if rows.uses_chosen:
        end = begin
        count = np.int64(0)
        while end < rows.row_count and count < CHUNK_ROWS:
            chunk[count] = end
            count += rows.chosen[end]
            end += 1
    else:
        for index in range(count):
            chunk[index] = begin + index
    return count, end


@helper
def hash_keys(table, rows, count, begin):  # type: ignore[no-untyped-def]
    """Mix the keys of the `count` rows of the chunk into `hashes`. If all rows are chosen, they begin at `begin`."""
    hashes, words, key_offsets = table.hashes, rows.words, rows.key_offsets
    for word in range(table.key_words):
        if rows.uses_chosen:
            for index in range(count):
                hashes[index] = mix(hashes[index], words[key_offsets[word] + table.chunk[index]])
        else:
            for index in range(count):
                hashes[index] = mix(hashes[index], words[key_offsets[word] + begin + index])


@helper
def find_by_tag(table, bucket_mask, count):  # type: ignore[no-untyped-def]
    """Write the likely entry of each packet to `chunk` from ENTRIES_OFFSET on, or -1 if no tag matches.

    Prefetches these entries, or the slots of new entries. `bucket_mask` is the number of buckets minus one.
    """
    slots, tags, width, hashes = table.slots, table.tags, table.width, table.hashes
    spans_lines = (width & (width - 1)) != 0  # an entry may be in two cache lines
    for index in range(count):
        prefetch(tags, np.int64(hashes[index] & bucket_mask))
    for index in range(count):
        hash_value = hashes[index]
        bucket = hash_value & bucket_mask
        bucket_tags = tags[np.int64(bucket)]
        matches = match_tags(bucket_tags, tag_of(hash_value))
        marks = matches if matches != np.uint64(0) else choose_slots(bucket_tags, home_of(hash_value))
        offset = np.int64(bucket * np.uint64(BUCKET) + find_first(marks)) * width
        prefetch(slots, offset)
        if spans_lines:
            prefetch(slots, offset + width - 1)
        # -1 for a new entry, because its slot may contain the words of a flushed entry
        table.chunk[ENTRIES_OFFSET + index] = offset if matches != np.uint64(0) else -1


@helper
def write_tag(tags, bucket, bucket_slot, tag):  # type: ignore[no-untyped-def]
    """Set the tag of a slot (uint64, 0..7) of a bucket. The tag 0 means empty."""
    shift = bucket_slot << np.uint64(3)
    tags[bucket] = (tags[bucket] & ~(np.uint64(0xFF) << shift)) | (tag << shift)
