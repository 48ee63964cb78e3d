"""Functions of numbers and texts against Python's own, row by row, with NULL, NaN, infinity and large integers."""

import math
from random import Random
from typing import Any

import numpy as np
import pytest

from lowlevel.expressions import scalar_functions
from lowlevel.expressions.assigned_numbers import ALIASES, NUMBER_COUNTS, names_of
from lowlevel.expressions.columns import TextVector, Vector
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.tree import Column, Literal, ScalarCall
from lowlevel.expressions.types import NAME_FUNCTIONS, TEXT_FUNCTIONS, Scalar, Type
from tests.references.lowlevel_oracle import value

INTEGERS = [0, 1, -1, 2, 7, -10, 53, 255, 256, 443, 65535, 65536, 10**15, 2**63 - 1, -(2**63) + 1]
FLOATS = [0.0, -0.0, 0.5, 1.5, 2.5, -2.5, 1.005, 2.675, 0.49999999999999994, 1e300, -1e300, 2.0**63, -(2.0**63), 5e-324]
FLOATS += [math.nan, math.inf, -math.inf, 100.0, 3.3, -0.1]
TEXTS = ["", "a", "Main1", "main1", " x ", "a.b.c", "äÖ.ß", "..", "x" * 40]
CONSTANTS: dict[Scalar, list[list[Any]]] = {
    Scalar.ROUND: [[], [0], [2], [15]],
    Scalar.SUBSTRING: [[start, *count] for start in range(-4, 5) for count in ([], [0], [1], [3], [99])],
    Scalar.REPLACE: [["a", ""], ["", "x"], ["main", "MAIN"]],
    Scalar.SPLIT_PART: [[".", number] for number in (-4, -1, 0, 1, 2, 5)],
    Scalar.CONCAT: [["", "!"], ["<", ">"]],
}
OF_NUMBERS = sorted(set(Scalar) - (TEXT_FUNCTIONS - NAME_FUNCTIONS))


def constants_of(values: list[Any]) -> tuple[Literal, ...]:
    return tuple(Literal(each, Type.TEXT if isinstance(each, str) else Type.INT) for each in values)


def same(result: Any, expected: Any) -> bool:
    if result is None or expected is None or isinstance(expected, str):
        return bool(result == expected)
    assert type(result) is type(expected)
    return (
        result == expected
        or math.isclose(result, expected, rel_tol=1e-14)
        or (math.isnan(result) and math.isnan(expected))
    )


def rows_of(vector: Vector | TextVector, count: int) -> list[Any]:
    valid = np.broadcast_to(True if vector.valid is None else vector.valid, count)
    if isinstance(vector, TextVector):
        return [
            vector.names[text_id] if known else None for text_id, known in zip(vector.ids.tolist(), valid, strict=True)
        ]
    return [number if known else None for number, known in zip(vector.data.tolist(), valid, strict=True)]


@pytest.mark.parametrize("function", OF_NUMBERS)
@pytest.mark.parametrize("kind", [Type.INT, Type.FLOAT])
def test_functions_of_numbers(function: Scalar, kind: Type) -> None:
    if kind is Type.FLOAT and function in NAME_FUNCTIONS:
        pytest.skip("names are of integers")
    if kind is Type.INT and function is Scalar.INTEGER:
        pytest.skip("an integer needs no cast")
    numbers: list[Any] = INTEGERS if kind is Type.INT else FLOATS
    random = Random(function)
    rows = [(x, random.choice([None, 0.5, 2.0, -1.0, 0.0])) for x in [*numbers, None] for _ in range(4)]
    data = np.array([0 if x is None else x for x, _ in rows], np.int64 if kind is Type.INT else np.float64)
    columns = {
        "x": Vector(data, np.array([x is not None for x, _ in rows])),
        "y": Vector(np.array([y or 0.0 for _, y in rows]), np.array([y is not None for _, y in rows])),
    }
    exponent = Column("y", Type.FLOAT, nullable=True) if function is Scalar.POWER else None
    for constants in CONSTANTS.get(function, [[]]):
        call = ScalarCall(function, Column("x", kind, nullable=True), exponent, constants_of(constants))
        result = evaluate(call, columns)
        assert isinstance(result, Vector | TextVector)
        for (x, y), got in zip(rows, rows_of(result, len(rows)), strict=True):
            expected = value(call, {"x": x, "y": y})
            assert same(got, expected), (call, x, y, got, expected)


@pytest.mark.parametrize("function", sorted(TEXT_FUNCTIONS - NAME_FUNCTIONS))
def test_functions_of_texts(function: Scalar) -> None:
    ids = [*range(len(TEXTS)), 0, 3, 3]
    valid = np.array([number % 5 != 4 for number in range(len(ids))])
    for constants in CONSTANTS.get(function, [[]]):
        call = ScalarCall(function, Column("x", Type.TEXT, nullable=True), None, constants_of(constants))
        result = evaluate(call, {"x": TextVector(np.array(ids), TEXTS, valid)})
        assert isinstance(result, TextVector)
        assert len(set(result.names)) == len(result.names)
        rows = [TEXTS[text_id] if known else None for text_id, known in zip(ids, valid, strict=True)]
        assert rows_of(result, len(ids)) == [value(call, {"x": text}) for text in rows], call


def test_ids_of_results_stay_valid_when_names_are_appended() -> None:
    names = ["b", "B"]
    first = scalar_functions.call_text_function(Scalar.UPPER, TextVector(np.array([0, 1]), names), [])
    names += ["a", "A", "b "]
    second = scalar_functions.call_text_function(Scalar.UPPER, TextVector(np.array([2, 0, 4]), names), [])
    assert first.ids.tolist() == [0, 0]
    assert second.ids.tolist() == [1, 0, 2]
    assert second.names[: len(first.names)] == first.names


def test_a_column_of_null_and_a_constant_stay_what_they_are() -> None:
    null = TextVector(np.zeros(3, np.int64), [], np.zeros(3, np.bool_))
    assert scalar_functions.call_text_function(Scalar.LOWER, null, []) is null
    constant = scalar_functions.call_text_function(Scalar.LOWER, TextVector.constant("A"), [])
    assert (constant.ids.shape, constant.names[int(constant.ids)]) == ((), "a")


@pytest.mark.parametrize("function", sorted(NAME_FUNCTIONS))
def test_names_are_unique_and_in_range(function: Scalar) -> None:
    names = names_of(function)
    assert len(set(names.values())) == len(names)
    assert all(0 <= number < NUMBER_COUNTS[function] and name == name.lower() for number, name in names.items())
    assert not ALIASES[function].keys() & set(names.values())
    assert all(number in names for number in ALIASES[function].values())
