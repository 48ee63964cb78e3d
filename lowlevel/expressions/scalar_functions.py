"""Functions of numbers and texts over whole columns.

The result is NULL for NULL, and if a function is not defined for its argument.

Texts are IDs of names (`TextVector`). A function of texts is computed once for each name. Equal results have one ID,
and the IDs of the results stay valid as long as the IDs of the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from lowlevel.expressions.assigned_numbers import NUMBER_COUNTS, names_of
from lowlevel.expressions.columns import Names, TextVector, Vector, and_masks
from lowlevel.expressions.types import NAME_FUNCTIONS, Scalar

Floats = npt.NDArray[np.float64]

TWO_TO_63 = 2.0**63
"""The first float above all integers of 64 bits."""

FLOAT_FUNCTIONS: dict[Scalar, Callable[[Any], Any]] = {
    Scalar.SQRT: np.sqrt,
    Scalar.EXP: np.exp,
    Scalar.LN: np.log,
    Scalar.LOG2: np.log2,
    Scalar.LOG10: np.log10,
}
"""Functions of a float."""

MIN_ARGUMENTS: dict[Scalar, float] = {
    Scalar.SQRT: 0.0,
    **dict.fromkeys((Scalar.LN, Scalar.LOG2, Scalar.LOG10), float(np.nextafter(0.0, 1.0))),
}
"""The smallest number for which a function is defined."""


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # integers wrap, floats become infinite
def call_number_function(
    function: Scalar, operand: Vector, argument: Vector | None, constants: Sequence[Any]
) -> Vector | TextVector:
    """Return a function of numbers. `argument`: the exponent of power. `constants`: the digits of round."""
    if function in NAME_FUNCTIONS:
        return _names(function, operand)
    data, valid = operand.data, operand.valid
    whole = data.dtype.kind != "f"
    if function is Scalar.ABS:
        return Vector(np.abs(data), valid)
    if function is Scalar.SIGN:
        return Vector(np.asarray(np.where(np.isnan(data), 0, np.sign(data))).astype(np.int64), valid)
    if function in (Scalar.ROUND, Scalar.FLOOR, Scalar.CEIL):
        if whole:
            return operand
        if function is Scalar.ROUND:
            return Vector(_round(np.asarray(data), constants[0] if constants else 0), valid)
        return Vector(np.asarray(np.floor(data) if function is Scalar.FLOOR else np.ceil(data)), valid)
    if function is Scalar.INTEGER:
        nearest = np.rint(data)
        fits = np.asarray((nearest >= -TWO_TO_63) & (nearest < TWO_TO_63))
        return Vector(np.where(fits, nearest, 0.0).astype(np.int64), and_masks(valid, fits))
    numbers = np.asarray(data).astype(np.float64)
    if function is Scalar.DOUBLE:
        return Vector(numbers, valid)
    if function is Scalar.POWER:
        assert argument is not None
        exponents = np.asarray(argument.data).astype(np.float64)
        result = np.asarray(np.power(numbers, exponents))
        known = np.asarray(~np.isnan(result) | np.isnan(numbers) | np.isnan(exponents))
        return Vector(result, and_masks(and_masks(valid, argument.valid), known))
    if function not in MIN_ARGUMENTS:
        return Vector(np.asarray(FLOAT_FUNCTIONS[function](numbers)), valid)
    known = np.asarray(~(numbers < MIN_ARGUMENTS[function]))  # NaN has the value NaN
    return Vector(np.asarray(FLOAT_FUNCTIONS[function](np.where(known, numbers, 1.0))), and_masks(valid, known))


def call_text_function(function: Scalar, texts: TextVector, constants: Sequence[Any]) -> TextVector:
    """Return a function of texts. `constants` are its other arguments."""
    change = _TEXT_FUNCTIONS[function]
    if not texts.names:  # all are NULL
        return texts
    results = Names()
    ids = np.array([results.add(change(name, *constants)) for name in texts.names], np.int64)
    known = texts.ids if texts.valid is None else np.where(texts.valid, texts.ids, 0)
    return TextVector(np.asarray(ids[known]), results.texts, texts.valid)


def _round(numbers: Floats, digits: int) -> Floats:
    """Round half away from zero, to a number of decimals."""
    scaled = numbers * 10.0**digits
    whole = np.trunc(scaled)
    rounded = (whole + np.sign(scaled) * (np.abs(scaled - whole) >= 0.5)) / 10.0**digits
    return np.where(np.isfinite(rounded), rounded, numbers)


def _names(function: Scalar, numbers: Vector) -> TextVector:
    names, ids = _table(function)
    inside = np.asarray((numbers.data >= 0) & (numbers.data < NUMBER_COUNTS[function]))
    name_ids = ids[np.where(inside, numbers.data, -1)]
    return TextVector(np.maximum(name_ids, 0), names, and_masks(numbers.valid, np.asarray(name_ids >= 0)))


@cache
def _table(function: Scalar) -> tuple[tuple[str, ...], npt.NDArray[np.int64]]:
    """Return the names, and for each number the index of its name.

    The index is -1 for a number without a name. The last index is also -1.
    """
    by_number = names_of(function)
    ids = np.full(NUMBER_COUNTS[function] + 1, -1, np.int64)
    ids[list(by_number)] = np.arange(len(by_number))
    return tuple(by_number.values()), ids


def _substring(text: str, start: int, count: int | None = None) -> str:
    """Return characters from position `start` on, counted from 1, or from the end if it is negative.

    Positions before the first character count, as in SQL: the first two positions from 0 on contain one character.
    """
    first = len(text) + start if start < 0 else start - 1
    end = len(text) if count is None else first + count
    return text[max(0, first) : max(0, end)]


def _split_part(text: str, separator: str, number: int) -> str:
    """Return a part of a text, counted from 1, or from the end if `number` is negative; empty if it does not exist.

    The parts between empty separators are the characters.
    """
    parts = text.split(separator) if separator else list(text)
    if number == 0 or abs(number) > len(parts):
        return ""
    return parts[number - 1 if number > 0 else number]


_TEXT_FUNCTIONS: dict[Scalar, Callable[..., str]] = {
    Scalar.LOWER: str.lower,
    Scalar.UPPER: str.upper,
    Scalar.TRIM: lambda text: text.strip(" "),
    Scalar.SUBSTRING: _substring,
    Scalar.REPLACE: lambda text, old, new: text.replace(old, new) if old else text,
    Scalar.SPLIT_PART: _split_part,
    Scalar.CONCAT: lambda text, before, after: before + text + after,
}
