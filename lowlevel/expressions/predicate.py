"""Which rows a WHERE or HAVING keeps: those for which its condition is TRUE."""

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

# Comparisons of an integer column, or of some of its bits, with a constant: an interval test in one pass.
#
#     protocol = 6           6 <= protocol <= 6
#     tcp_flags & 2 <> 2     not 2 <= tcp_flags & 2 <= 2
#     len > 1000             1001 <= len
#
# Step by step such a condition makes a column for the bits, one for the comparison, one for what is not NULL and one
# for all of it together, each of which is written to memory and read again.


NULL = -1
"""What stands under a NULL where the test can tell it."""


@kernel("i64(i64*, i64, i64, i64, i64, i64, i64, u8*)")
def keep_inside(values, rows, bits, least, most, outside, nullable, passed):  # type: ignore[no-untyped-def]
    """Set `passed` (1 or 0 for each of `rows`) to 0 where `values & bits` is not within `[least, most]`.

    With `outside` it is set to 0 where it is. With `nullable`, where the value is NULL as well. Returns `rows`.
    """
    for row in range(rows):
        value = values[row] & bits
        hit = (value >= least) & (value <= most)
        known = (values[row] != NULL) | (nullable == 0)
        passed[row] &= np.uint8((hit != (outside != 0)) & known)
    return rows


@dataclass(frozen=True, slots=True)
class IntervalTest:
    """A condition that is TRUE where `column & bits` is within `[least, most]`, or outside of it; NULL for a NULL."""

    expression: Expression
    column: str
    bits: int
    least: int
    most: int
    outside: bool = False

    def narrow(self, columns: Columns, passed: Mask) -> bool:
        """Let only rows pass for which it is TRUE; False, and nothing is done, where the column is of another form."""
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
    """Return a column of integers, and whether NULL stands under the NULLs of it; None where it is another."""
    if not isinstance(vector, Vector) or not vector.data.flags.c_contiguous or vector.data.dtype != np.int64:
        return None
    return (vector.data, vector.valid is not None) if vector.valid is None or vector.null == NULL else None


def interval_test(condition: Expression) -> IntervalTest | None:
    """Return what a condition tests, None where it is no such comparison."""
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
    """A condition, made ready to be tested block after block. Queries that have the same may ask the same object.

    Of conditions joined by AND, those that look into byte strings are evaluated last, and look only into those of rows
    that the others let pass: a search costs more than all else. Interval tests are made in one pass each.
    """

    def __init__(self, expression: Expression) -> None:
        """Take a BOOL expression."""
        self._last: tuple[Columns, Mask] | None = None  # what was asked last, for whoever asks it again
        parts = list(_conjuncts(expression))
        self._searches = [part for part in parts if _looks_into_bytes(part)]
        tests = [(part, interval_test(part)) for part in parts if not _looks_into_bytes(part)]
        self._tests = [test for _, test in tests if test is not None]
        self._others = [part for part, test in tests if test is None]

    def true_rows(self, columns: Columns, rows: int) -> Mask:
        """Return where it is TRUE (neither FALSE nor NULL), as one bool per row, which is not to be changed."""
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
    """Return where a condition is TRUE. AND and OR need not tell FALSE from NULL, which is most of their work."""
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
    """Columns whose byte strings are empty where a row has not passed: what is said of it does not matter any more."""

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
