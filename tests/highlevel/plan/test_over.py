"""Over returns a window as soon as it is final, and has exact values where sums of floats and NaN could leak.

`test_plan_registry` compares it with its reference implementation on random streams.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from highlevel.aggregation import Output
from highlevel.plan.nodes import Over, RowFunction, RowFunctionKind, SortKey
from highlevel.plan.operators.over import OverOperator, evaluate
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.punctuation import END, Punctuation
from tests.references.plan_references import ROWS, schema_of

OUTPUTS = (Output("n", Column("n", Type.INT)), Output("r", Column("r", Type.INT)))
RANK = RowFunction("r", RowFunctionKind.RANK, Type.INT, order=(SortKey("n", descending=True),))


def batch_of(rows: list[tuple]) -> pa.RecordBatch:
    named = [dict(zip(["ts", "other", "g", "n"], row, strict=True)) for row in rows]
    return pa.RecordBatch.from_pylist(named, schema_of(ROWS))


def test_a_window_is_returned_when_it_is_final_and_then_forgotten() -> None:
    operator = OverOperator(Over(ROWS, (RANK,), OUTPUTS, ("ts",)))
    assert list(operator.rows(0, batch_of([(1, 0, "a", 5), (9, 0, "a", 7), (1, 0, "b", 6)]))) == []
    results, watermark = operator.punctuate(0, Punctuation("", 5))
    assert results.to_pylist() == [{"ts": 1, "n": 6, "r": 1}, {"ts": 1, "n": 5, "r": 2}]
    assert watermark == Punctuation("", 5)
    assert (operator.rows_held, operator.received, operator.results) == (1, 3, 2)
    list(operator.rows(0, batch_of([(4, 0, "late", 1)])))
    assert (operator.rows_held, operator.late) == (1, 1)
    results, _ = operator.punctuate(0, Punctuation("", END))
    assert results.to_pylist() == [{"ts": 9, "n": 7, "r": 1}]


def test_without_windows_rows_wait_for_the_end_and_no_watermark_precedes_it() -> None:
    operator = OverOperator(Over(ROWS, (RANK,), OUTPUTS))
    list(operator.rows(0, batch_of([(1, 0, "a", 5)])))
    assert list(operator.punctuate(0, Punctuation("", 7))) == []
    results, watermark = operator.punctuate(0, Punctuation("", END))
    assert (results.num_rows, watermark) == (1, Punctuation("", END))


@pytest.mark.parametrize(
    "kind, expected",
    [
        (RowFunctionKind.SUM, [1e300, 0.1, 0.3, math.nan]),
        (RowFunctionKind.MIN, [1e300, 0.1, 0.1, 2.0]),
        (RowFunctionKind.MAX, [1e300, 0.1, 0.2, math.nan]),
    ],
)
def test_values_of_one_partition_do_not_reach_another(kind: RowFunctionKind, expected: list[float]) -> None:
    rows = pa.table({"g": ["a", "b", "b", "c", "c"], "k": [1, 1, 2, 1, 1], "x": [1e300, 0.1, 0.2, math.nan, 2.0]})
    function = RowFunction("f", kind, Type.FLOAT, "x", ("g",), (SortKey("k"),))
    values, _ = evaluate(function, rows, ())
    found = values.to_pylist()
    assert found[:2] == expected[:2]
    assert found[2] == pytest.approx(expected[2], abs=1e-15)
    assert [found[3], found[4]] == pytest.approx([expected[3]] * 2, nan_ok=True)


def test_zeros_are_peers_and_so_are_all_nan() -> None:
    """-0.0 is equal to 0.0; an operation of the processor returns another NaN than `math.nan`."""
    other_nan = np.array([0xFFF8 << 48], np.uint64).view(np.float64)[0]
    rows = pa.table({"x": [0.0, -0.0, math.nan, other_nan, 0.0, math.nan], "n": range(6)})
    for partition, order in (((), (SortKey("x"),)), (("x",), ())):
        function = RowFunction("f", RowFunctionKind.COUNT, Type.INT, None, partition, order)
        values, positions = evaluate(function, rows, ())
        counts = dict(zip(positions.tolist(), values.to_pylist(), strict=True))
        assert counts == {0: 3, 1: 3, 4: 3, **dict.fromkeys((2, 3, 5), 3 if partition else 6)}


def test_the_minimum_of_null_and_nan_is_nan() -> None:
    rows = pa.table({"x": pa.array([None, math.nan, None], pa.float64()), "n": range(3)})
    values, _ = evaluate(RowFunction("f", RowFunctionKind.MIN, Type.FLOAT, "x", (), (SortKey("n"),)), rows, ())
    assert values.to_pylist()[0] is None
    assert values.to_pylist()[1:] == pytest.approx([math.nan] * 2, nan_ok=True)
