"""The functions of `capture.arrow_compute` against `pyarrow.compute`: a difference would be a wrong value."""

import inspect
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from capture import arrow_compute

TEXTS = pa.array(["a b", None, "", "äö  ", "192.0.2.1"])
NUMBERS = pa.array([3, None, -1, 2**40], pa.int64())
FLAGS = pa.array([True, None, False])
BYTES = pa.array([b"\xc0\x00\x02\x01", None, b"", b"\xc0\x00\x02\x01"])
CALLS: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("cast", [NUMBERS, pa.string()], {}),
    ("cast", [NUMBERS, pa.int64()], {}),
    ("cast", [NUMBERS, pa.int8()], {}),
    ("cast", [NUMBERS, pa.int8()], {"safe": False}),
    ("cast", [pa.chunked_array([NUMBERS, NUMBERS]), pa.timestamp("ns", tz="UTC")], {}),
    ("take", [TEXTS, pa.array([1, 0, 4, 0])], {}),
    ("filter", [TEXTS, pa.array([True, False, None, True, True])], {}),
    ("filter", [pa.record_batch({"a": NUMBERS}), pa.array([True, False, True, False])], {}),
    ("filter", [pa.table({"a": NUMBERS}), pa.array([True, False, True, False])], {}),
    ("sort_indices", [pa.table({"a": NUMBERS}), [("a", "descending")]], {}),
    ("sort_indices", [pa.table({"a": NUMBERS, "b": NUMBERS})], {"sort_keys": [("a", "ascending"), ("b", "ascending")]}),
    ("dictionary_encode", [BYTES], {}),
    ("fill_null", [TEXTS, "NULL"], {}),
    ("fill_null", [NUMBERS, 7], {}),
    ("equal", [NUMBERS, 3], {}),
    ("equal", [TEXTS, TEXTS], {}),
    ("all", [FLAGS], {}),
    ("all", [FLAGS.slice(0, 2)], {}),
    ("all", [pa.array([], pa.bool_())], {}),
    ("any", [FLAGS], {}),
    ("any", [pa.array([None], pa.bool_())], {}),
    ("max", [NUMBERS], {}),
    ("max", [pa.array([], pa.int64())], {}),
    ("min", [NUMBERS], {}),
    ("min", [pa.array([None], pa.int64())], {}),
    ("binary_length", [BYTES], {}),
    ("utf8_length", [TEXTS], {}),
    ("utf8_lpad", [TEXTS, 6], {}),
    ("utf8_rpad", [TEXTS, 6], {}),
    ("utf8_rtrim", [TEXTS, " "], {}),
    ("binary_join_element_wise", [TEXTS, TEXTS, "-"], {}),
    ("match_substring_regex", [TEXTS, r"\p{L}"], {}),
    ("match_substring_regex", [TEXTS, "A"], {"ignore_case": True}),
    ("replace_substring", [TEXTS, " ", "T"], {}),
    ("replace_substring_regex", [TEXTS, "[a-z ]+$", "x"], {}),
]


def outcome(function: Any, arguments: list[Any], named: dict[str, Any]) -> Any:
    """The value of a call, or the text of its error."""
    try:
        return function(*arguments, **named)
    except pa.ArrowInvalid as error:
        return str(error)


@pytest.mark.parametrize(("name", "arguments", "named"), CALLS)
def test_a_function_returns_the_value_of_pyarrow(name: str, arguments: list[Any], named: dict[str, Any]) -> None:
    value = outcome(vars(arrow_compute)[name], arguments, named)
    expected = outcome(getattr(pc, name), arguments, named)
    assert value == expected
    assert type(value) is type(expected)


def test_every_function_has_a_call_above() -> None:
    functions = {name: value for name, value in vars(arrow_compute).items() if inspect.isfunction(value)}
    own = {name for name, value in functions.items() if name[0] != "_" and "<locals>" not in value.__qualname__}
    assert own - {"array_of"} == {name for name, _, _ in CALLS}


@pytest.mark.parametrize(
    ("name", "arguments", "named"),
    [
        ("is_valid", [NUMBERS], {}),
        ("is_null", [pa.array([1.5, None, float("nan")])], {}),
        ("is_null", [pa.array([1.5, None, float("nan")])], {"nan_is_null": True}),
        ("less_equal", [NUMBERS, 3], {}),
        ("and_", [FLAGS, FLAGS], {}),
        ("invert", [FLAGS], {}),
        ("if_else", [FLAGS, FLAGS, False], {}),
        ("coalesce", [NUMBERS, pa.scalar(5)], {}),
        ("unique", [TEXTS], {}),
        ("sum", [NUMBERS], {}),
        ("sum", [pa.array([], pa.int64())], {}),
        ("count", [NUMBERS], {"mode": "only_null"}),
        ("min_max", [NUMBERS], {}),
        ("starts_with", [TEXTS, "a"], {}),
        ("split_pattern", [TEXTS, " "], {}),
        ("index_in", [TEXTS, TEXTS], {}),
        ("add", [NUMBERS, 1], {}),
        ("drop_null", [NUMBERS], {}),
    ],
)
def test_a_function_that_is_not_defined_has_the_value_of_pyarrow(
    name: str, arguments: list[Any], named: dict[str, Any]
) -> None:
    function = getattr(arrow_compute, name)
    value, expected = outcome(function, arguments, named), outcome(getattr(pc, name), arguments, named)
    assert str(value) == str(expected)
    assert type(value) is type(expected)


def test_unknown_names_are_errors() -> None:
    with pytest.raises(AttributeError, match="no_such_function"):
        _ = arrow_compute.no_such_function


def test_an_array_of_booleans_and_masks_has_the_values_that_pyarrow_gives() -> None:
    flags, numbers = np.arange(20) % 3 == 0, np.arange(20)
    for part in (slice(0, 20), slice(0, 0), slice(3, 9), slice(0, 20, 2)):
        assert arrow_compute.array_of(flags[part]) == pa.array(flags[part])
        assert arrow_compute.array_of(numbers[part], flags[part]) == pa.array(numbers[part], mask=flags[part])
        assert arrow_compute.array_of(~flags[part], flags[part]) == pa.array(~flags[part], mask=flags[part])


@pytest.mark.parametrize("dtype", ["int64", "uint64", "int32", "uint8", "float64"])
def test_an_array_of_numbers_has_the_values_and_the_type_that_pyarrow_gives(dtype: str) -> None:
    numbers = np.arange(20).astype(dtype)
    for values in (numbers, numbers[:0], numbers[3:9], numbers[::2], numbers[::-1]):
        assert arrow_compute.array_of(values) == pa.array(values)
