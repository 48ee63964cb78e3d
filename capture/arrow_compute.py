"""The functions of `pyarrow.compute`, without its import.

The import of `pyarrow.compute` creates 300 documented functions, which takes half as long as the import of numpy. The
functions here have the same parameters and call the same C++ code. A call with options that are not defined here
imports `pyarrow.compute`. Methods of Arrow arrays, such as `cast` and `take`, import it too. `pyarrow.array` of a numpy
array imports `numpy.ma`, so code that many queries run calls `array_of` instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import _compute


def __getattr__(name: str) -> Any:
    if name.startswith("_"):  # the import system asks for __path__
        raise AttributeError(name)
    try:
        function = _compute.get_function(name.rstrip("_"))
    except KeyError:
        return _pyarrow_function(name)

    def call(*arguments: Any, **options: Any) -> Any:
        if options or len(arguments) != function.arity:
            return _pyarrow_function(name)(*arguments, **options)
        return function.call(list(arguments))

    globals()[name] = call
    return call


def _pyarrow_function(name: str) -> Any:
    import pyarrow.compute

    return getattr(pyarrow.compute, name)


def array_of(values: npt.NDArray[Any], mask: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return an array of integers, floats (over the same memory) or booleans; NULL if `mask` is true."""
    contiguous = np.ascontiguousarray(values)
    arrow_type = pa.from_numpy_dtype(contiguous.dtype)
    data = _pack_bits(contiguous) if contiguous.dtype == np.bool_ else pa.py_buffer(contiguous)
    return pa.Array.from_buffers(arrow_type, len(contiguous), [None if mask is None else _pack_bits(~mask), data])


def _pack_bits(values: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def cast(values: Any, target_type: pa.DataType, *, safe: bool = True) -> Any:
    """Convert values to a type. If `safe`, raises ArrowInvalid for a value that the type cannot store."""
    if values.type == target_type:
        return values
    options = _compute.CastOptions.safe(target_type) if safe else _compute.CastOptions.unsafe(target_type)
    return _compute.call_function("cast", [values], options)


def take(values: Any, indices: Any) -> Any:
    """Return the values at `indices`."""
    return _compute.call_function("take", [values, indices], _compute.TakeOptions())


def filter(values: Any, mask: Any) -> Any:
    """Return the values, or the rows of a batch or table, whose mask is true."""
    return _compute.call_function("filter", [values, mask], _compute.FilterOptions())


def sort_indices(values: Any, sort_keys: Any = ()) -> Any:
    """Return the indices that sort values, or the rows of a table by keys (column, "ascending" or "descending").

    The sort is stable, and NULL is last.
    """
    return _compute.call_function("sort_indices", [values], _compute.SortOptions(sort_keys=sort_keys))


def dictionary_encode(values: Any) -> Any:
    """Return the distinct values, and for each value its index among them."""
    return _compute.call_function("dictionary_encode", [values], _compute.DictionaryEncodeOptions("mask"))


def fill_null(values: Any, fill_value: object) -> Any:
    """Replace NULL by a value of the same type."""
    scalar = fill_value if isinstance(fill_value, pa.Array | pa.Scalar) else pa.scalar(fill_value, values.type)
    return _compute.call_function("coalesce", [values, scalar])


def equal(left: Any, right: Any) -> Any:
    """Return a mask of equal values of two columns, or of the values of a column that are equal to a value."""
    return _compute.call_function("equal", [left, right])


def all(values: Any) -> Any:
    """Return whether all values are true, as a scalar; NULL is ignored."""
    return _compute.call_function("all", [values], _compute.ScalarAggregateOptions())


def any(values: Any) -> Any:
    """Return whether some value is true, as a scalar; NULL is ignored."""
    return _compute.call_function("any", [values], _compute.ScalarAggregateOptions())


def max(values: Any) -> Any:
    """Return the largest value as a scalar; NULL is ignored."""
    return _compute.call_function("max", [values], _compute.ScalarAggregateOptions())


def min(values: Any) -> Any:
    """Return the smallest value as a scalar; NULL is ignored."""
    return _compute.call_function("min", [values], _compute.ScalarAggregateOptions())


def binary_length(values: Any) -> Any:
    """Return the number of bytes of each value."""
    return _compute.call_function("binary_length", [values])


def utf8_length(values: Any) -> Any:
    """Return the number of characters of each text."""
    return _compute.call_function("utf8_length", [values])


def utf8_lpad(values: Any, width: int) -> Any:
    """Write blanks before texts that are shorter than `width` characters."""
    return _compute.call_function("utf8_lpad", [values], _compute.PadOptions(width))


def utf8_rpad(values: Any, width: int) -> Any:
    """Write blanks after texts that are shorter than `width` characters."""
    return _compute.call_function("utf8_rpad", [values], _compute.PadOptions(width))


def utf8_rtrim(values: Any, characters: str) -> Any:
    """Remove `characters` from the end of texts."""
    return _compute.call_function("utf8_rtrim", [values], _compute.TrimOptions(characters))


def binary_join_element_wise(*values: Any) -> Any:
    """Join the texts of each row; the last argument is the separator. NULL if one of the texts is NULL."""
    return _compute.call_function("binary_join_element_wise", list(values), _compute.JoinOptions())


def match_substring_regex(values: Any, pattern: str, *, ignore_case: bool = False) -> Any:
    """Return for each text whether it contains a match of a regular expression (RE2)."""
    options = _compute.MatchSubstringOptions(pattern, ignore_case=ignore_case)
    return _compute.call_function("match_substring_regex", [values], options)


def replace_substring(values: Any, pattern: str, replacement: str) -> Any:
    """Replace every occurrence of a text."""
    options = _compute.ReplaceSubstringOptions(pattern, replacement)
    return _compute.call_function("replace_substring", [values], options)


def replace_substring_regex(values: Any, pattern: str, replacement: str) -> Any:
    """Replace every match of a regular expression (RE2)."""
    options = _compute.ReplaceSubstringOptions(pattern, replacement)
    return _compute.call_function("replace_substring_regex", [values], options)
