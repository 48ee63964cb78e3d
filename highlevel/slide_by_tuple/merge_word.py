"""Merging in place within matrices of words: a row's values into a group's totals, or totals into totals.

The rules are those of `highlevel.groups.merging`, one word at a time. A pair of time and value is two words of one row;
their distance is the step. The operation of the first word also merges the second.
"""

from __future__ import annotations

from capture.native import helper
from highlevel.groups.merging import (
    AND,
    MAX,
    MAX_FLOAT,
    MIN,
    MIN_FLOAT,
    OR,
    SUM,
    SUM_FLOAT,
    XOR,
    precedes,
)

FIRST, FIRST_FLOAT, LAST, LAST_FLOAT, SECOND = range(100, 105)
"""Operations in addition to `highlevel.groups.merging`: for the time of a pair, and for its value (SECOND)."""


@helper
def merge_word(op, into, into_float, at, into_step, of, of_float, row, of_step):  # type: ignore[no-untyped-def]
    """Merge word `row` of the matrix `of` into word `at` of the matrix `into`.

    The second word of a pair is one step later.
    """
    if op == SUM:
        into[at] += of[row]
    elif op == MIN:
        into[at] = min(into[at], of[row])
    elif op == MAX:
        into[at] = max(into[at], of[row])
    elif op == SUM_FLOAT:
        into_float[at] += of_float[row]
    elif op in (MIN_FLOAT, MAX_FLOAT):
        stored = into_float[at]
        value = of_float[row]
        if stored != stored or (value < stored if op == MIN_FLOAT else value > stored):
            into_float[at] = value
    elif op == AND:
        into[at] &= of[row]
    elif op == OR:
        into[at] |= of[row]
    elif op == XOR:
        into[at] ^= of[row]
    elif op != SECOND:
        time = of[row]
        held_time = into[at]
        if op == FIRST:
            better = precedes(time, of[row + of_step], held_time, into[at + into_step])
        elif op == LAST:
            better = precedes(held_time, into[at + into_step], time, of[row + of_step])
        elif op == FIRST_FLOAT:
            better = precedes(time, of_float[row + of_step], held_time, into_float[at + into_step])
        else:
            better = precedes(held_time, into_float[at + into_step], time, of_float[row + of_step])
        if better:
            into[at] = time
            into[at + into_step] = of[row + of_step]
