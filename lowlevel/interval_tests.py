"""Comparisons of an integer column, or of some of its bits, with a constant: an interval test in one pass.

    protocol = 6           6 <= protocol <= 6
    tcp_flags & 2 <> 2     not 2 <= tcp_flags & 2 <= 2
    len > 1000             1001 <= len

Step by step such a condition makes a column for the bits, one for the comparison, one for what is not NULL and one for
all of it together, each of which is written to memory and read again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from capture.native import kernel, pointer
from lowlevel.expressions import Binary, Column, Expression, Literal
from lowlevel.operations import Op
from lowlevel.settled_columns import SettledColumns
from lowlevel.subaggregates import INT_MAX, INT_MIN
from lowlevel.types import Type
from lowlevel.vectors import AnyVector, Columns, Mask, Vector

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
