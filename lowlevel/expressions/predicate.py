"""Conditions of WHERE and HAVING: find the rows for which they are TRUE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from capture.lazy_dataclasses import dataclass
from capture.native import kernel, pointer
from lowlevel.expressions.columns import AnyVector, BufferColumns, BytesVector, ChosenRows, Columns, Mask, Vector
from lowlevel.expressions.equality_index import Constant, EqualityIndex, equality_of
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.tree import Binary, Column, Expression, Literal, calls_user, columns_of
from lowlevel.expressions.types import Op, Type
from lowlevel.subaggregates import INT_MAX, INT_MIN

# A comparison of an integer column, or of some of its bits, with a constant is computed as an interval test, in one
# pass:
#
#     protocol = 6           6 <= protocol <= 6
#     tcp_flags & 2 <> 2     not 2 <= tcp_flags & 2 <= 2
#     len > 1000             1001 <= len
#
# The general evaluation needs four passes: it writes the bits, the comparison, the mask of NULL and the result to
# memory, and reads them again.


NULL_NUMBER = -1
"""The number that an integer column with NULLs must have for a NULL, so that an interval test supports it."""


@kernel("i64(i64*, i64, i64, i64, i64, i64, i64, u8*)")
def clear_failed_rows(values, rows, bits, minimum, maximum, is_outside, is_nullable, passed):  # type: ignore[no-untyped-def]
    """Set `passed` (0 or 1) to 0 for the rows that fail an interval test; return `rows`.

    A row fails if `values & bits` is outside `[minimum, maximum]`. If `is_outside` is 1, a row fails if `values &
    bits` is inside. If `is_nullable` is 1, the value NULL_NUMBER means NULL, and such a row fails too.
    """
    for row in range(rows):
        value = values[row] & bits
        inside = (value >= minimum) & (value <= maximum)
        known = (values[row] != NULL_NUMBER) | (is_nullable == 0)
        passed[row] &= np.uint8((inside != (is_outside != 0)) & known)
    return rows


@dataclass(frozen=True, slots=True)
class IntervalTest:
    """A condition: `column & bits` is inside `[least, most]`, or outside if `is_outside`.

    NULL if the column is NULL.
    """

    expression: Expression
    column: str
    bits: int
    minimum: int
    maximum: int
    is_outside: bool = False

    def narrow(self, columns: Columns, passed: Mask) -> bool:
        """Set `passed` to False for rows that fail. Returns False, without a change, if the column is not supported."""
        integers = (
            columns.integers(self.column) if isinstance(columns, BufferColumns) else _integers(columns[self.column])
        )
        if integers is None or integers[0].shape != passed.shape:
            return False
        values, nullable = integers
        clear_failed_rows.at(
            pointer(values, "i64"), len(passed), self.bits, self.minimum, self.maximum, self.is_outside, nullable,
            pointer(passed.view(np.uint8), "u8"),
        )  # fmt: skip
        return True


def _integers(vector: AnyVector) -> tuple[npt.NDArray[np.int64], bool] | None:
    """Return the integers of a column and whether it can have NULLs; None if the column is not supported."""
    if not isinstance(vector, Vector) or not vector.data.flags.c_contiguous or vector.data.dtype != np.int64:
        return None
    return (
        (vector.data, vector.valid is not None) if vector.valid is None or vector.null_number == NULL_NUMBER else None
    )


def interval_test(condition: Expression) -> IntervalTest | None:
    """Return the interval test that is equivalent to a condition; None if there is none."""
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
    """A condition, prepared for many batches of rows. Queries with equal conditions can share the object.

    The parts of an AND are evaluated in the order of their costs: interval tests, other parts, searches in byte
    strings, user-defined functions. Rows that have failed are not searched, and functions are not called for them. So
    `destPort = 53 AND is_query(payload)` calls `is_query` only with payloads of this port.
    """

    def __init__(self, expression: Expression) -> None:
        """Prepare a BOOL expression."""
        self._last_result: tuple[Columns, Mask] | None = None  # a cache for the queries that share the condition
        parts = list(conjuncts(expression))
        self.equalities = [(part, equality) for part in parts if (equality := equality_of(part)) is not None]
        """The parts `column = constant`."""
        self._index: tuple[EqualityIndex, Constant] | None = None
        self._user_calls = [part for part in parts if calls_user(part)]
        parts = [part for part in parts if part not in self._user_calls]
        self._searches = [part for part in parts if _reads_bytes(part)]
        tests = [(part, interval_test(part)) for part in parts if not _reads_bytes(part)]
        self._tests = [test for _, test in tests if test is not None]
        self._general_tests = [part for part, test in tests if test is None]

    def use_index(self, index: EqualityIndex) -> None:
        """Find the rows of one part `column = constant` with an index, which other conditions also use."""
        part, (_, constant) = next(equality for equality in self.equalities if equality[1][0] == index.column)
        self._index = index, constant
        self._tests = [test for test in self._tests if test.expression != part]
        self._general_tests = [other for other in self._general_tests if other != part]

    def excludes_all(self, columns: Columns, rows: int) -> bool:
        """Return True if an index shows that no row of a batch passes. If False, rows may pass."""
        if self._index is None:
            return False
        index, constant = self._index
        return len(index.rows(columns, rows, constant)) == 0

    def true_rows(self, columns: Columns, rows: int) -> Mask:
        """Return a mask of the rows for which the condition is TRUE (not FALSE or NULL). Callers must not change it."""
        if self._last_result is not None and self._last_result[0] is columns:
            return self._last_result[1]
        if self._index is None:
            passed = np.ones(rows, np.bool_)
        else:
            passed = np.zeros(rows, np.bool_)
            index, constant = self._index
            passed[index.rows(columns, rows, constant)] = True
        for test in self._tests:
            if not test.narrow(columns, passed):
                passed = passed & _true_rows(test.expression, columns, rows)
        for other in self._general_tests:
            passed = passed & _true_rows(other, columns, rows)
        for search in self._searches:
            passed = passed & _true_rows(search, _BytesOfPassed(columns, passed), rows)
        for call in self._user_calls:
            remaining = np.flatnonzero(passed)
            passed = np.zeros(rows, np.bool_)
            passed[remaining[_true_rows(call, ChosenRows(columns, remaining), len(remaining))]] = True
        self._last_result = columns, passed
        return passed


def _true_rows(condition: Expression, columns: Columns, rows: int) -> Mask:
    """Return a mask of the rows for which the condition is TRUE."""
    mask = _truth(condition, columns)
    return np.ascontiguousarray(mask if mask.ndim else np.broadcast_to(mask, rows))


def _truth(condition: Expression, columns: Columns) -> Mask:
    """Return a mask of the rows for which the condition is TRUE, or one bool for all rows.

    AND and OR do not distinguish FALSE and NULL here, which saves most of the work.
    """
    if isinstance(condition, Binary) and condition.op is Op.AND:
        return _truth(condition.left, columns) & _truth(condition.right, columns)
    if isinstance(condition, Binary) and condition.op is Op.OR:
        return _truth(condition.left, columns) | _truth(condition.right, columns)
    vector = evaluate(condition, columns)
    assert isinstance(vector, Vector)
    mask: Mask = vector.data if vector.valid is None else vector.data & vector.valid
    return mask


def conjuncts(condition: Expression) -> Iterator[Expression]:
    """Yield the conditions that AND connects."""
    if isinstance(condition, Binary) and condition.op is Op.AND:
        yield from conjuncts(condition.left)
        yield from conjuncts(condition.right)
    else:
        yield condition


def _reads_bytes(expression: Expression) -> bool:
    return any(column.type is Type.BYTES for column in columns_of(expression))


class _BytesOfPassed(Mapping[str, AnyVector]):
    """Columns of a batch, with empty byte strings for rows that have failed: a search skips these rows."""

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
