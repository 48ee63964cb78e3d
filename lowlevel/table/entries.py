"""The entries of the fixed-size tables, for their kernels: slots, tags, hashes, and updates of sub-aggregates.

The tables do not fit into the processor caches. So packets are processed in groups of AHEAD: prefetch all their slots,
then find all their entries, then update each sub-aggregate for the whole group.
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
"""The operation that updates a word of an entry with an argument; `count(*)` has no argument and is COUNT."""

IDENTITIES: dict[int, int | float] = {
    SUM: 0,
    MIN: INT_MAX,
    MAX: INT_MIN,
    SUM_FLOAT: 0.0,
    MIN_FLOAT: float("inf"),
    MAX_FLOAT: float("-inf"),
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
"""The value that replaces a NULL argument: the identity of the operation."""


def start(kind: int) -> int:
    """Return the initial word of a sub-aggregate, as an integer."""
    identity = IDENTITIES.get(kind, 0)
    return int(np.array(identity, np.float64).view(np.int64)) if isinstance(identity, float) else identity


def opcode(sub: SubAggregate) -> int:
    """Return the operation with which kernels update this sub-aggregate."""
    return COUNT if sub.argument is None else OPCODES[sub.kind, sub.type]


# Tags: one byte for each slot of a table. It tells whether the slot is full and, nearly always, of which group.
#
# Eight slots are a bucket, and their tags are one word. One read of that word, which is likely in a processor cache,
# finds the slot to compare, without a branch (as in Google's Swiss tables, with a word instead of a vector). The tag of
# a full slot is 0x80 and seven bits of its group's hash; the tag of an empty slot is 0.
#
#     word    00 00 9c 00 81 d2 00 9c        tag 9c: slots 0 and 5 may be it        slots 1, 4, 6 and 7 are empty
#     slot     7  6  5  4  3  2  1  0
#
# Marks are words with 0x80 in the bytes of the slots that they select.


BUCKET = 8
"""Slots of a bucket."""

ANY = 0x8080808080808080
"""The marks of all slots of a bucket."""

EACH = 0x0101010101010101
"""A byte times this is a word of eight such bytes."""

OTHERS = 0x7F7F7F7F7F7F7F7F

PLACES = 0x0001020304050607
"""Multiplied by 256**n, its highest byte is n."""


@helper
def tag_of(mixed):  # type: ignore[no-untyped-def]
    """Return the tag of a group from the highest bits of its hash."""
    return (mixed >> np.uint64(56)) | np.uint64(0x80)


@helper
def home_of(mixed):  # type: ignore[no-untyped-def]
    """Return the home slot of a group in its bucket, 0..7."""
    return (mixed >> np.uint64(40)) & np.uint64(7)


@helper
def mark_of(place):  # type: ignore[no-untyped-def]
    """Return the mark of the slot `place` (uint64, 0..7)."""
    return np.uint64(0x80) << (place << np.uint64(3))


@helper
def tagged(held, tag):  # type: ignore[no-untyped-def]
    """Mark the slots whose tag is `tag`; `held` are the tags of a bucket."""
    differing = held ^ (tag * np.uint64(EACH))
    return ~(((differing & np.uint64(OTHERS)) + np.uint64(OTHERS)) | differing | np.uint64(OTHERS))


@helper
def free(held, home):  # type: ignore[no-untyped-def]
    """Mark the slots for a new group: its home if that is empty or no slot is empty, otherwise all empty slots."""
    empty = ~held & np.uint64(ANY)
    mark = mark_of(home)
    return mark if (empty & mark) != np.uint64(0) or empty == np.uint64(0) else empty


@helper
def first_of(marks):  # type: ignore[no-untyped-def]
    """Return the lowest marked slot, 0..7; 0 if no slot is marked."""
    lowest = marks & (~marks + np.uint64(1))
    return ((lowest >> np.uint64(7)) * np.uint64(PLACES)) >> np.uint64(56)


AHEAD = 64
"""Packets whose slots are prefetched together; their cache lines fit into every cache."""


class TableMemory(NamedTuple):
    """The memory of a table, for its kernels; built once per table.

    * `slots`: slot_count (a power of two) x width words, and a row of scratch. `slots_float`: the same, as float64.
    * `tags`: one word for each bucket.
    * `ops`, `starts`: for each sub-aggregate its operation, and the word of a new entry before its first packet.
    * `hashes`, `homes`: scratch, AHEAD and 3 x AHEAD words.
    * `out`: receives the entries that leave.
    """

    slots: Integers
    slots_float: Floats
    tags: Unsigned
    slot_count: Integer
    width: Integer
    key_words: Integer
    ops: Integers
    starts: Integers
    op_count: Integer
    hashes: Unsigned
    homes: Integers
    out: Integers


class TableRows(NamedTuple):
    """The packets of a batch, for the kernels of a table; built once per batch.

    * The column of key word w begins at `words[word_at[w]]`, the column of an argument at `args[arg_at[op]]`.
    * `args_float`: the memory of `args`, as float64.
    * `times`: ts in ns. Columns and times have `row_count` values.
    * If `choose`, only packets with `chosen` = 1 are added.
    * Panes are `pane_length` ns long from `origin` on.
    """

    words: Integers
    word_at: Integers
    args: Integers
    args_float: Floats
    arg_at: Integers
    times: Integers
    chosen: Bytes
    choose: Integer
    row_count: Integer
    pane_length: Integer
    origin: Integer


@helper
def mix(mixed, word):  # type: ignore[no-untyped-def]
    """Mix a word of a key into a hash."""
    mixed = (mixed ^ np.uint64(word)) * np.uint64(0xFF51AFD7ED558CCD)
    return mixed ^ (mixed >> np.uint64(32))


@helper
def take_in_at(slots, slots_float, kind, at, time, value, value_float):  # type: ignore[no-untyped-def]
    """Store a value and its time if the time is earlier than the stored one (FIRST) or later (LAST).

    The value is in word `at`, its time in word `at - 1`. For equal times FIRST keeps the smaller value, LAST the
    larger.
    """
    precedes = time < slots[at - 1] if kind in (FIRST, FIRST_FLOAT) else time > slots[at - 1]
    if time == slots[at - 1]:
        if kind == FIRST:
            precedes = value < slots[at]
        elif kind == LAST:
            precedes = value > slots[at]
        elif kind == FIRST_FLOAT:
            precedes = value_float < slots_float[at]
        else:
            precedes = value_float > slots_float[at]
    if precedes:
        slots[at - 1] = time
        slots[at] = value


@helper
def take_in(table, rows, begin, end):  # type: ignore[no-untyped-def]
    """Update the entries at `homes[2 * AHEAD + number]`, for numbers in `[begin, end)`, with their rows' arguments."""
    slots, slots_float, homes = table.slots, table.slots_float, table.homes
    args, args_float = rows.args, rows.args_float
    first = 1 + table.key_words
    for op in range(table.op_count):
        kind = table.ops[op]
        base = rows.arg_at[op]
        if kind == COUNT:
            for number in range(begin, end):
                slots[homes[2 * AHEAD + number] + first + op] += 1
        elif kind == SUM:
            for number in range(begin, end):
                slots[homes[2 * AHEAD + number] + first + op] += args[base + homes[number]]
        elif kind == MIN:
            for number in range(begin, end):
                at = homes[2 * AHEAD + number] + first + op
                slots[at] = min(slots[at], args[base + homes[number]])
        elif kind == MAX:
            for number in range(begin, end):
                at = homes[2 * AHEAD + number] + first + op
                slots[at] = max(slots[at], args[base + homes[number]])
        elif kind == SUM_FLOAT:
            for number in range(begin, end):
                slots_float[homes[2 * AHEAD + number] + first + op] += args_float[base + homes[number]]
        elif kind == MIN_FLOAT:
            for number in range(begin, end):
                at = homes[2 * AHEAD + number] + first + op
                slots_float[at] = min(slots_float[at], args_float[base + homes[number]])
        elif kind == MAX_FLOAT:
            for number in range(begin, end):
                at = homes[2 * AHEAD + number] + first + op
                slots_float[at] = max(slots_float[at], args_float[base + homes[number]])
        elif kind == BIT_AND:
            for number in range(begin, end):
                slots[homes[2 * AHEAD + number] + first + op] &= args[base + homes[number]]
        elif kind == BIT_OR:
            for number in range(begin, end):
                slots[homes[2 * AHEAD + number] + first + op] |= args[base + homes[number]]
        elif kind == BIT_XOR:
            for number in range(begin, end):
                slots[homes[2 * AHEAD + number] + first + op] ^= args[base + homes[number]]
        elif kind not in (EARLIEST, LATEST):
            for number in range(begin, end):
                at = homes[2 * AHEAD + number] + first + op
                place = base + homes[number]
                time = args[rows.arg_at[op - 1] + homes[number]]
                take_in_at(slots, slots_float, kind, at, time, args[place], args_float[place])


@helper
def holds_key(table, at, rows, row):  # type: ignore[no-untyped-def]
    """Return whether the entry at word `at` has the key of `row`. The caller compares the pane."""
    slots, key_words, words, word_at = table.slots, table.key_words, rows.words, rows.word_at
    if key_words == 1:
        return slots[at + 1] == words[word_at[0] + row]
    if key_words == 2:
        return (slots[at + 1] == words[word_at[0] + row]) & (slots[at + 2] == words[word_at[1] + row])
    same = True
    for word in range(key_words):
        if slots[at + 1 + word] != words[word_at[word] + row]:
            same = False
            break
    return same


@helper
def begin_entry(table, at, pane, rows, row):  # type: ignore[no-untyped-def]
    """Write a new entry at word `at`, with a pane and the key of a row, as it is before its first packet."""
    slots, key_words = table.slots, table.key_words
    slots[at] = pane
    for word in range(key_words):
        slots[at + 1 + word] = rows.words[rows.word_at[word] + row]
    for op in range(table.op_count):
        slots[at + 1 + key_words + op] = table.starts[op]


@helper
def append_entry(table, at, out_rows):  # type: ignore[no-untyped-def]
    """Append the entry at word `at` to `out`; return the number of rows in `out`."""
    for word in range(table.width):
        table.out[out_rows * table.width + word] = table.slots[at + word]
    return out_rows + 1


@helper
def next_rows(table, rows, begin):  # type: ignore[no-untyped-def]
    """Write the next AHEAD chosen rows from `begin` on to `homes`; return their number and the next row."""
    homes = table.homes
    end = min(rows.row_count, begin + AHEAD)
    found = np.int64(end - begin)
    if rows.choose:
        end = begin
        found = np.int64(0)
        while end < rows.row_count and found < AHEAD:
            homes[found] = end
            found += rows.chosen[end]
            end += 1
    else:
        for number in range(found):
            homes[number] = begin + number
    return found, end


@helper
def hash_keys(table, rows, found, begin):  # type: ignore[no-untyped-def]
    """Hash the keys of the `found` rows in `homes`, or of the rows from `begin` on if all rows are chosen."""
    hashes, words, word_at = table.hashes, rows.words, rows.word_at
    for word in range(table.key_words):
        if rows.choose:
            for number in range(found):
                hashes[number] = mix(hashes[number], words[word_at[word] + table.homes[number]])
        else:
            for number in range(found):
                hashes[number] = mix(hashes[number], words[word_at[word] + begin + number])


@helper
def find_tagged(table, buckets, found):  # type: ignore[no-untyped-def]
    """Write the likely word of each entry in `slots` to `homes[2 * AHEAD + number]`; -1 if no tag matches.

    The memory is prefetched, also the slot of a new entry. `buckets` is the number of buckets minus one.
    """
    slots, tags, width, hashes = table.slots, table.tags, table.width, table.hashes
    straddles = (width & (width - 1)) != 0  # an entry may lie in two cache lines
    for number in range(found):
        prefetch(tags, np.int64(hashes[number] & buckets))
    for number in range(found):
        mixed = hashes[number]
        bucket = mixed & buckets
        held = tags[np.int64(bucket)]
        same = tagged(held, tag_of(mixed))
        place = first_of(same if same != np.uint64(0) else free(held, home_of(mixed)))
        at = np.int64(bucket * np.uint64(BUCKET) + place) * width
        prefetch(slots, at)
        if straddles:
            prefetch(slots, at + width - 1)
        # an empty slot may contain an entry that was flushed
        table.homes[2 * AHEAD + number] = at if same != np.uint64(0) else -1


@helper
def write_tag(tags, bucket, place, tag):  # type: ignore[no-untyped-def]
    """Set the tag of the slot `place` (uint64) of a bucket; 0 means empty."""
    shift = place << np.uint64(3)
    tags[bucket] = (tags[bucket] & ~(np.uint64(0xFF) << shift)) | (tag << shift)
