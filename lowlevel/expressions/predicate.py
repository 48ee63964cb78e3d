"""Conditions of WHERE and HAVING: the rows for which they are TRUE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from capture.native import kernel, pointer
from lowlevel.expressions.columns import AnyVector, BytesVector, Columns, Mask, SettledColumns, Vector
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.tree import Binary, Column, Expression, Literal, columns_of
from lowlevel.expressions.types import Op, Type
from lowlevel.subaggregates import INT_MAX, INT_MIN

# A comparison of an integer column, or of some of its bits, with a constant is an interval test in one pass:
#
#     protocol = 6           6 <= protocol <= 6
#     tcp_flags & 2 <> 2     not 2 <= tcp_flags & 2 <= 2
#     len > 1000             1001 <= len
#
# The general evaluation writes four columns to memory and reads them again: the bits, the comparison, the mask of NULL
# and the result.


NULL = -1
"""The number in the place of a NULL, in columns that an interval test supports."""


@kernel("i64(i64*, i64, i64, i64, i64, i64, i64, u8*)")
def keep_inside(values, rows, bits, least, most, outside, nullable, passed):  # type: ignore[no-untyped-def]
    """Clear `passed` (1 or 0 per row) for rows with `values & bits` not within `[least, most]`.

    With `outside`, for rows with a value within it. With `nullable`, also for NULL. Returns `rows`.
    """
    for row in range(rows):
        value = values[row] & bits
        hit = (value >= least) & (value <= most)
        known = (values[row] != NULL) | (nullable == 0)
        passed[row] &= np.uint8((hit != (outside != 0)) & known)
    return rows


@dataclass(frozen=True, slots=True)
class IntervalTest:
    """A condition that is TRUE if `column & bits` is within `[least, most]`, or outside of it; NULL for a NULL."""

    expression: Expression
    column: str
    bits: int
    least: int
    most: int
    outside: bool = False

    def narrow(self, columns: Columns, passed: Mask) -> bool:
        """Clear `passed` for rows that fail. Returns False, without any effect, for unsupported columns."""
        found = (
            columns.integers(self.column) if isinstance(columns, SettledColumns) else _integers(columns[self.column])
        )
        if found is None or found[0].shape != passed.shape:
            return False
        values, nullable = found
        keep_inside.at(
            pointer(values, "i64"), len(passed), self.bits, self.least, self.most, self.outside, nullable,
            pointer(passed.view(np.uint8), "u8"),
        )  # fmt: skip
        return True


def _integers(vector: AnyVector) -> tuple[npt.NDArray[np.int64], bool] | None:
    """Return a column of integers and whether it can have NULL; None for unsupported columns."""
    if not isinstance(vector, Vector) or not vector.data.flags.c_contiguous or vector.data.dtype != np.int64:
        return None
    return (vector.data, vector.valid is not None) if vector.valid is None or vector.null == NULL else None


def interval_test(condition: Expression) -> IntervalTest | None:
    """Return the interval test of a condition; None if it is not such a comparison."""
    match condition:
        case Binary(
            op, Column(name=name, type=Type.INT | Type.TIME), Literal(value=int(value), type=Type.INT | Type.TIME)
        ):
            bits = -1
        case Binary(
            op,
            Binary(Op.BIT_AND, Column(name=name, type=Type.INT), Literal(value=int(bits), type=Type.INT)),
            Literal(value=int(value), type=Type.INT),
        ):
            pass
        case _:
            return None
    intervals = {
        Op.EQ: (value, value),
        Op.NE: (value, value),
        Op.LT: (INT_MIN, value - 1),
        Op.LE: (INT_MIN, value),
        Op.GT: (value + 1, INT_MAX),
        Op.GE: (value, INT_MAX),
    }
    if op not in intervals:
        return None
    least, most = intervals[op]
    if not all(INT_MIN <= number <= INT_MAX for number in (bits, least, most)):
        return None
    return IntervalTest(condition, name, bits, least, most, op is Op.NE)


class Condition:
    """A condition, prepared for many blocks. Queries with an equal condition can share the object.

    Parts of an AND that search byte strings are evaluated last, and only for rows that pass the other parts, because a
    search costs most. Interval tests take one pass each.
    """

    def __init__(self, expression: Expression) -> None:
        """Prepare a BOOL expression."""
        self._last: tuple[Columns, Mask] | None = None  # the last result, for the next query that shares the condition
        parts = list(_conjuncts(expression))
        self._searches = [part for part in parts if _looks_into_bytes(part)]
        tests = [(part, interval_test(part)) for part in parts if not _looks_into_bytes(part)]
        self._tests = [test for _, test in tests if test is not None]
        self._others = [part for part, test in tests if test is None]

    def true_rows(self, columns: Columns, rows: int) -> Mask:
        """Return one bool per row: whether the condition is TRUE (not FALSE or NULL). Do not change the result."""
        if self._last is not None and self._last[0] is columns:
            return self._last[1]
        passed = np.ones(rows, np.bool_)
        for test in self._tests:
            if not test.narrow(columns, passed):
                passed = passed & _true(test.expression, columns, rows)
        for other in self._others:
            passed = passed & _true(other, columns, rows)
        for search in self._searches:
            passed = passed & _true(search, _Passed(columns, passed), rows)
        self._last = columns, passed
        return passed


def _true(condition: Expression, columns: Columns, rows: int) -> Mask:
    chosen = _truth(condition, columns)
    return np.ascontiguousarray(chosen if chosen.ndim else np.broadcast_to(chosen, rows))


def _truth(condition: Expression, columns: Columns) -> Mask:
    """Return which rows are TRUE. AND and OR need no distinction of FALSE and NULL, which saves most of the work."""
    if isinstance(condition, Binary) and condition.op is Op.AND:
        return _truth(condition.left, columns) & _truth(condition.right, columns)
    if isinstance(condition, Binary) and condition.op is Op.OR:
        return _truth(condition.left, columns) | _truth(condition.right, columns)
    vector = evaluate(condition, columns)
    assert isinstance(vector, Vector)
    chosen: Mask = vector.data if vector.valid is None else vector.data & vector.valid
    return chosen


def _conjuncts(condition: Expression) -> Iterator[Expression]:
    if isinstance(condition, Binary) and condition.op is Op.AND:
        yield from _conjuncts(condition.left)
        yield from _conjuncts(condition.right)
    else:
        yield condition


def _looks_into_bytes(expression: Expression) -> bool:
    return any(column.type is Type.BYTES for column in columns_of(expression))


class _Passed(Mapping[str, AnyVector]):
    """Columns with empty byte strings for rows that have failed already: their result has no effect."""

    def __init__(self, columns: Columns, passed: Mask) -> None:
        self._columns = columns
        self._passed = passed

    def __getitem__(self, name: str) -> AnyVector:
        vector = self._columns[name]
        if isinstance(vector, BytesVector):
            return replace(vector, length=np.where(self._passed, vector.length, 0))
        return vector

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)
