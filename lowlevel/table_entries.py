"""The entries of the fixed-size tables, as their kernels see them: where they are, what they hold, how they begin.

The tables are larger than the processor's own caches, so packets are taken AHEAD at a time: the memory of all their
slots is asked for, then their entries are found, then each sub-aggregate is brought up to date in all of them.
"""

from __future__ import annotations

import numpy as np

from capture.native import helper
from lowlevel.opcodes import (
    BIT_AND,
    BIT_OR,
    BIT_XOR,
    COUNT,
    EARLIEST,
    FIRST,
    FIRST_FLOAT,
    LAST,
    LATEST,
    MAX,
    MAX_FLOAT,
    MIN,
    MIN_FLOAT,
    SUM,
    SUM_FLOAT,
)

AHEAD = 64
"""Packets whose slots are asked for together; their cache lines fit into any cache."""


@helper
def mix(mixed, word):  # type: ignore[no-untyped-def]
    """Mix a word of a key into a hash."""
    mixed = (mixed ^ np.uint64(word)) * np.uint64(0xFF51AFD7ED558CCD)
    return mixed ^ (mixed >> np.uint64(32))


@helper
def take_in_at(slots, slots_float, kind, at, time, value, value_float):  # type: ignore[no-untyped-def]
    """Keep a value with its time, in the word before it, where they come before what is kept, or after."""
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
def take_in(  # type: ignore[no-untyped-def]
    slots, slots_float, first, ops, op_count, args, args_float, arg_at, homes, begin, end
):  # fmt: skip
    """Update the entries at `homes[2 * AHEAD + number]`, for numbers in `[begin, end)`, with their rows' arguments.

    An entry's sub-aggregates stand from its word `first` on.
    """
    for op in range(op_count):
        kind = ops[op]
        base = arg_at[op]
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
                time = args[arg_at[op - 1] + homes[number]]
                take_in_at(slots, slots_float, kind, at, time, args[place], args_float[place])


@helper
def holds_key(slots, at, key_words, words, word_at, row):  # type: ignore[no-untyped-def]
    """Whether the key of the entry at word `at` is that of a row; its pane is for the caller to compare."""
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
def begin_entry(  # type: ignore[no-untyped-def]
    slots, at, pane, key_words, words, word_at, row, starts, op_count
):  # fmt: skip
    """Write an entry of a pane with the key of a row at word `at`, as it is before its first packet."""
    slots[at] = pane
    for word in range(key_words):
        slots[at + 1 + word] = words[word_at[word] + row]
    for op in range(op_count):
        slots[at + 1 + key_words + op] = starts[op]


@helper
def append_entry(slots, width, at, out, out_rows):  # type: ignore[no-untyped-def]
    """Append the entry at word `at` to `out`; returns the rows of `out` then."""
    for word in range(width):
        out[out_rows * width + word] = slots[at + word]
    return out_rows + 1
