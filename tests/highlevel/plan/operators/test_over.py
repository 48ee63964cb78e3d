"""Over returns a window as soon as it is final, and has exact values where sums of floats and NaN could leak.

`test_plan_registry` compares it with its reference implementation on random streams.
"""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from highlevel.aggregation import Output
from highlevel.plan.answer_nodes import Frame, Over, RowFunction, RowFunctionKind, SortKey
from highlevel.plan.operators.over import OverOperator, evaluate, fold_frames, sorted_partitions
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.punctuation import END, Punctuation
from tests.references.plan_references import ROWS, schema_of

OUTPUTS = (Output("n", Column("n", Type.INT)), Output("r", Column("r", Type.INT)))
RANK = RowFunction("r", RowFunctionKind.RANK, Type.INT, order=(SortKey("n", descending=True),))
RANK_IN_WINDOW = replace(RANK, partition=("ts",))


def batch_of(rows: list[tuple]) -> pa.RecordBatch:
    named = [dict(zip(["ts", "other", "g", "n"], row, strict=True)) for row in rows]
    return pa.RecordBatch.from_pylist(named, schema_of(ROWS))


def test_a_window_is_returned_when_it_is_final_and_then_forgotten() -> None:
    operator = OverOperator(Over(ROWS, (RANK_IN_WINDOW,), OUTPUTS, ("ts",)))
    assert list(operator.process_rows(0, batch_of([(1, 0, "a", 5), (9, 0, "a", 7), (1, 0, "b", 6)]))) == []
    results, watermark = operator.punctuate(0, Punctuation("", 5))
    assert results.to_pylist() == [{"ts": 1, "n": 6, "r": 1}, {"ts": 1, "n": 5, "r": 2}]
    assert watermark == Punctuation("", 5)
    assert (operator.rows_held, operator.received, operator.results) == (1, 3, 2)
    list(operator.process_rows(0, batch_of([(4, 0, "late", 1)])))
    assert (operator.rows_held, operator.late) == (1, 1)
    results, _ = operator.punctuate(0, Punctuation("", END))
    assert results.to_pylist() == [{"ts": 9, "n": 7, "r": 1}]


def test_without_windows_rows_wait_for_the_end_and_no_watermark_precedes_it() -> None:
    operator = OverOperator(Over(ROWS, (RANK,), OUTPUTS))
    list(operator.process_rows(0, batch_of([(1, 0, "a", 5)])))
    assert list(operator.punctuate(0, Punctuation("", 7))) == []
    results, watermark = operator.punctuate(0, Punctuation("", END))
    assert (results.num_rows, watermark) == (1, Punctuation("", END))


def test_rows_sorted_by_time_are_final_by_the_watermark_and_only_those_in_reach_are_kept() -> None:
    recent = RowFunction(
        "r", RowFunctionKind.SUM, Type.INT, "n", ("g",), (SortKey("ts"),), frame=Frame(-5, 0, by_values=True)
    )
    operator = OverOperator(Over(ROWS, (recent,), OUTPUTS))
    list(operator.process_rows(0, batch_of([(1, 0, "a", 1), (4, 0, "a", 2), (6, 0, "a", 4), (9, 0, "b", 8)])))
    results, watermark = operator.punctuate(0, Punctuation("", 6))
    assert watermark == Punctuation("", 6)
    assert results.to_pylist() == [{"n": 1, "r": 1}, {"n": 2, "r": 3}]
    assert operator.rows_held == 4  # two that are not final; ts = 6 may use those from ts = 1
    restored = OverOperator(operator.node)
    restored.restore(operator.snapshot())
    for each in (operator, restored):
        results, _ = each.punctuate(0, Punctuation("", 12))
        assert results.to_pylist() == [{"n": 4, "r": 7}, {"n": 8, "r": 8}]
        assert each.rows_held == 1  # ts = 9: later rows begin at 12, and reach back to 7


@pytest.mark.parametrize("kind, distance, kept", [(RowFunctionKind.LAG, 2, 2), (RowFunctionKind.LAG, 0, 0)])
def test_lag_keeps_the_last_rows_of_each_partition(kind: RowFunctionKind, distance: int, kept: int) -> None:
    function = RowFunction("r", kind, Type.INT, "n", ("g",), (SortKey("ts"),), distance)
    operator = OverOperator(Over(ROWS, (function,), OUTPUTS))
    for ts in range(10):
        list(operator.process_rows(0, batch_of([(ts, 0, group, ts) for group in "abc"])))
        list(operator.punctuate(0, Punctuation("", ts + 1)))
    assert operator.rows_held == 3 * kept


@pytest.mark.parametrize("fold", [np.add, np.fmin, np.maximum])
def test_frames_of_all_lengths_are_folded(fold: np.ufunc) -> None:
    values = np.random.default_rng(3).integers(-50, 50, 40)
    first, end = (each.ravel() for each in np.meshgrid(np.arange(41), np.arange(41)))
    is_frame = first <= end
    first, end = first[is_frame], end[is_frame]
    expected = [fold.reduce(values[a:b]) if a < b else -7 for a, b in zip(first, end, strict=True)]
    empty = 0 if fold is np.add else 100 if fold is np.fmin else -100
    found = fold_frames(fold, values, first, end, empty)
    assert [-7 if a == b else each for a, b, each in zip(first, end, found.tolist(), strict=True)] == expected
    assert set(found[first == end].tolist()) == {empty}


def test_distances_at_the_ends_of_the_integers_do_not_overflow() -> None:
    limits = np.iinfo(np.int64)
    keys = [limits.min, limits.min + 1, 0, limits.max - 1, limits.max]
    rows = pa.table({"x": keys, "n": range(5)})
    frame = Frame(-2, 2, by_values=True)
    for descending in (False, True):
        order = (SortKey("x", descending),)
        function = RowFunction("f", RowFunctionKind.COUNT, Type.INT, None, (), order, frame=frame)
        values = evaluate(function, sorted_partitions(function, rows), rows)
        assert values.to_pylist() == [2, 2, 1, 2, 2]


def test_sums_of_large_integers_are_exact_or_null() -> None:
    """Plain Python adds integers of any size."""
    random = Random(3)
    limits = np.iinfo(np.int64)
    for _ in range(50):
        values = [random.choice([limits.min, limits.max, -1, 7, None]) for _ in range(20)]
        rows = pa.table({"x": pa.array(values, pa.int64()), "n": range(20)})
        frame = Frame(-random.randrange(6), random.randrange(6))
        for kind, type_ in ((RowFunctionKind.SUM, Type.INT), (RowFunctionKind.AVG, Type.FLOAT)):
            function = RowFunction("f", kind, type_, "x", (), (SortKey("n"),), frame=frame)
            found = evaluate(function, sorted_partitions(function, rows), rows).to_pylist()
            for row, value in enumerate(found):
                frame_values = values[max(0, row + int(frame.first or 0)) : row + int(frame.last or 0) + 1]
                numbers = [each for each in frame_values if each is not None]
                total = sum(numbers)
                if kind is RowFunctionKind.AVG:
                    assert value == (pytest.approx(total / len(numbers), abs=1e4) if numbers else None)
                else:
                    assert value == (total if numbers and limits.min <= total <= limits.max else None)


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
    values = evaluate(function, sorted_partitions(function, rows), rows)
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
        partitions = sorted_partitions(function, rows)
        values = evaluate(function, partitions, rows)
        counts = dict(zip(partitions.positions.tolist(), values.to_pylist(), strict=True))
        assert counts == {0: 3, 1: 3, 4: 3, **dict.fromkeys((2, 3, 5), 3 if partition else 6)}


def test_the_minimum_of_null_and_nan_is_nan() -> None:
    rows = pa.table({"x": pa.array([None, math.nan, None], pa.float64()), "n": range(3)})
    function = RowFunction("f", RowFunctionKind.MIN, Type.FLOAT, "x", (), (SortKey("n"),))
    values = evaluate(function, sorted_partitions(function, rows), rows)
    assert values.to_pylist()[0] is None
    assert values.to_pylist()[1:] == pytest.approx([math.nan] * 2, nan_ok=True)
