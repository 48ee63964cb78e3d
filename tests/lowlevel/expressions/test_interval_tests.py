"""Comparisons in one pass, against the same condition evaluated step by step.

* Comparisons with numbers at the ends of int64 and around the column's values detect a bound that is one off or wraps.
  They detect a NULL that is read as -1.
* The kernel as plain Python, with numpy's bound checks, catches a row too many.
"""

from random import Random

import numpy as np
import pytest

from lowlevel.expressions.columns import Vector
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.predicate import NULL_NUMBER, clear_failed_rows, interval_test
from lowlevel.expressions.tree import Binary, Column, Expression, Literal
from lowlevel.expressions.types import COMPARISON, Op, Type
from lowlevel.subaggregates import INT_MAX, INT_MIN

FLAGS, LENGTH = Column("flags", Type.INT, True, 8), Column("length", Type.INT, False, 64)
ROWS = 50


def columns(random: Random) -> dict[str, Vector]:
    flags = np.array([random.choice([NULL_NUMBER, 0, 1, 2, 3, 255]) for _ in range(ROWS)], np.int64)
    length = np.array([random.choice([INT_MIN, -2, -1, 0, 1, 2, INT_MAX]) for _ in range(ROWS)], np.int64)
    return {"flags": Vector(flags, flags != NULL_NUMBER, NULL_NUMBER), "length": Vector(length)}


def number(value: int) -> Literal:
    return Literal(value, Type.INT)


@pytest.mark.parametrize("op", sorted(COMPARISON))
@pytest.mark.parametrize("bits", [None, 0, 2, -1, INT_MIN])
@pytest.mark.parametrize("column", [FLAGS, LENGTH], ids=lambda column: column.name)
def test_a_test_passes_the_rows_for_which_its_condition_is_true(op: Op, bits: int | None, column: Column) -> None:
    random = Random(f"{op}{bits}{column.name}")
    made = columns(random)
    tested = 0
    for value in (INT_MIN, -2, -1, 0, 1, 2, 3, 255, INT_MAX):
        left: Expression = column if bits is None else Binary(Op.BIT_AND, column, number(bits))
        condition = Binary(op, left, number(value))
        test = interval_test(condition)
        if test is None:
            assert (op, value) in ((Op.LT, INT_MIN), (Op.GT, INT_MAX))  # the bound would not be an int64
            continue
        vector = evaluate(condition, made)
        assert isinstance(vector, Vector)
        before = np.array([random.random() < 0.8 for _ in range(ROWS)])
        expected = before & vector.data & (True if vector.valid is None else vector.valid)
        passed = before.copy()
        assert test.narrow(made, passed)
        assert passed.tolist() == expected.tolist()
        slow = before.copy()
        clear_failed_rows.function(
            made[column.name].data, ROWS, test.bits, test.minimum, test.maximum, test.is_outside, column.nullable,
            slow.view(np.uint8),
        )  # fmt: skip
        assert slow.tolist() == expected.tolist()
        tested += 1
    assert tested >= 8


def test_what_is_no_such_comparison_is_none() -> None:
    real = Column("real", Type.FLOAT)
    assert interval_test(Binary(Op.EQ, real, Literal(1.0, Type.FLOAT))) is None
    assert interval_test(Binary(Op.EQ, FLAGS, LENGTH)) is None
    assert interval_test(Binary(Op.EQ, Binary(Op.BIT_OR, FLAGS, number(1)), number(1))) is None
    assert interval_test(Binary(Op.EQ, FLAGS, Literal(None, Type.INT))) is None


@pytest.mark.parametrize(
    "vector",
    [
        Vector(np.zeros((), np.int64)),
        Vector(np.zeros(2 * ROWS, np.int64)[::2]),
        Vector(np.zeros(ROWS, np.float64)),
        Vector(np.zeros(ROWS, np.int64), np.zeros(ROWS, np.bool_)),
    ],
    ids=["a constant", "strided", "no integers", "anything under a NULL"],
)
def test_columns_of_another_form_are_left_to_who_evaluates_step_by_step(vector: Vector) -> None:
    test = interval_test(Binary(Op.EQ, FLAGS, number(1)))
    passed = np.ones(ROWS, np.bool_)
    assert test is not None
    assert not test.narrow({"flags": vector}, passed)
    assert passed.all()
