"""Rules to merge the partials of a group, with their kernels.

Integer sums and XOR can be undone exactly, because integers wrap. FLOAT sums cannot, because they are rounded.

    sum    a + b                  min    the smaller; NaN if all are NaN          first  the value of the smallest time
    and    bits in all values     max    the greater; NaN if all are NaN          last   the value of the greatest time
    or     bits in any value      xor    bits in an odd number of values
FIRST and LAST are pairs of columns, time and value. If times are equal, FIRST keeps the smaller value and LAST the
greater.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import numpy as np

from capture.lazy_dataclasses import dataclass
from capture.native import helper, kernel
from lowlevel.subaggregates import INT_MAX, INT_MIN, MERGE, TIME_OF, SubAggregate


class MergeFunction(StrEnum):
    """A function that merges two values, with its name in `MERGE` and in Arrow."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    AND = "bit_and"
    OR = "bit_or"
    XOR = "bit_xor"
    FIRST = "first"
    LAST = "last"


PAIRS = frozenset({MergeFunction.FIRST, MergeFunction.LAST})
"""Functions over two columns, time and value."""

INVERTIBLE = frozenset({MergeFunction.SUM, MergeFunction.XOR})
"""Functions that can be undone, over integers."""

SUM, MIN, MAX, AND, OR, XOR, SUBTRACT, SUM_FLOAT, MIN_FLOAT, MAX_FLOAT = range(10)

OPCODES: dict[tuple[MergeFunction, bool], int] = {
    (MergeFunction.SUM, False): SUM,
    (MergeFunction.MIN, False): MIN,
    (MergeFunction.MAX, False): MAX,
    (MergeFunction.AND, False): AND,
    (MergeFunction.OR, False): OR,
    (MergeFunction.XOR, False): XOR,
    (MergeFunction.SUM, True): SUM_FLOAT,
    (MergeFunction.MIN, True): MIN_FLOAT,
    (MergeFunction.MAX, True): MAX_FLOAT,
}
"""Operation of the kernel, by the function and by True for FLOAT columns."""

INVERSES = {SUM: SUBTRACT, XOR: XOR}
"""Inverse operations."""

NAN_WORD = int(np.array(np.nan).view(np.int64))
NEUTRAL_WORDS: dict[int, int] = {
    SUM: 0,
    OR: 0,
    XOR: 0,
    SUM_FLOAT: 0,
    MIN: INT_MAX,
    MAX: INT_MIN,
    AND: -1,
    MIN_FLOAT: NAN_WORD,
    MAX_FLOAT: NAN_WORD,
}
"""The value of a new group before the first merge, by operation."""


@kernel("i64(i64, i64*, f64*, i64*, i64*, f64*, i64)")
def merge_values(op, words, words_float, ids, values, values_float, rows):  # type: ignore[no-untyped-def]
    """Merge `values[i]` into `words[ids[i]]` by `op`. The `_float` pointers are the same memory as float64."""
    if op == SUM:
        for row in range(rows):
            words[ids[row]] += values[row]
    elif op == SUBTRACT:
        for row in range(rows):
            words[ids[row]] -= values[row]
    elif op == MIN:
        for row in range(rows):
            words[ids[row]] = min(words[ids[row]], values[row])
    elif op == MAX:
        for row in range(rows):
            words[ids[row]] = max(words[ids[row]], values[row])
    elif op == AND:
        for row in range(rows):
            words[ids[row]] &= values[row]
    elif op == OR:
        for row in range(rows):
            words[ids[row]] |= values[row]
    elif op == XOR:
        for row in range(rows):
            words[ids[row]] ^= values[row]
    elif op == SUM_FLOAT:
        for row in range(rows):
            words_float[ids[row]] += values_float[row]
    else:
        for row in range(rows):
            stored = words_float[ids[row]]
            value = values_float[row]
            if stored != stored or (value < stored if op == MIN_FLOAT else value > stored):
                words_float[ids[row]] = value
    return rows


@helper
def precedes(time, value, other_time, other_value):  # type: ignore[no-untyped-def]
    """Return True if a pair of time and value precedes another. NaN follows all other values of its time."""
    if time != other_time:
        return time < other_time
    return value < other_value or (other_value != other_value and value == value)


@kernel("i64(i64, i64, i64*, i64*, f64*, i64*, i64*, i64*, f64*, i64)")
def merge_pairs(  # type: ignore[no-untyped-def]
    is_last, is_float, stored_times, stored, stored_float, ids, times, values, values_float, rows
):  # fmt: skip
    """Merge pairs of time and value: keep the pair with the smallest time, or if `is_last` the greatest.

    If times are equal, the smaller value is kept, or if `is_last` the greater value.
    """
    for row in range(rows):
        at = ids[row]
        if is_float:
            value = values_float[row]
            other = stored_float[at]
            if is_last:
                better = precedes(stored_times[at], other, times[row], value)
            else:
                better = precedes(times[row], value, stored_times[at], other)
        elif is_last:
            better = precedes(stored_times[at], stored[at], times[row], values[row])
        else:
            better = precedes(times[row], values[row], stored_times[at], stored[at])
        if better:
            stored_times[at] = times[row]
            stored[at] = values[row]
    return rows


@dataclass(frozen=True, slots=True)
class MergeRule:
    """Columns that are merged by one function: one column, or time and value for FIRST and LAST."""

    columns: tuple[str, ...]
    function: MergeFunction


def list_merge_rules(subaggregates: Iterable[SubAggregate]) -> list[MergeRule]:
    """Return the merge rules of the columns of sub-aggregates. In a pair, the time is followed by the value."""
    rules: list[MergeRule] = []
    for sub in subaggregates:
        if sub.kind in TIME_OF:
            (time,) = rules.pop().columns
            rules.append(MergeRule((time, sub.name), MergeFunction(MERGE[sub.kind])))
        else:
            rules.append(MergeRule((sub.name,), MergeFunction(MERGE[sub.kind])))
    return rules
