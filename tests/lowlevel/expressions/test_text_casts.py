"""Casts between values and texts, against plain Python, value by value.

The tests detect a value of another row, a text with two IDs, NULL as a value, and digits that only Python reads.
"""

from __future__ import annotations

import math
from ipaddress import ip_address
from random import Random
from typing import Any

import numpy as np
import pytest

from lowlevel.expressions.columns import AddressVector, AnyVector, TextVector, Vector
from lowlevel.expressions.text_casts import concatenate, read_texts, write_texts
from lowlevel.expressions.types import Type
from lowlevel.times import time_text

INTEGERS = [0, -1, 7, 2**63 - 1, -(2**63), 7]
FLOATS = [0.0, -0.0, 0.1, 1e300, -1.5, math.inf, -math.inf, math.nan, 1 / 3, 5e-324]
TIMES = [0, -1, 1_470_104_373_025_824_000, 2**63 - 1, 60 * 10**9]
MACS = [0, 1, 0x001122AABBCC, 2**48 - 1]
ADDRESSES = ["0.0.0.0", "10.0.0.1", "255.255.255.255", "::", "2001:db8::1", "::ffff:10.0.0.1", "fe80::1:0:0:1"]
WORDS = ["", "a", "b", "ab", "é"]


def texts_of(vector: TextVector) -> list[str | None]:
    assert len(set(vector.names)) == len(vector.names)
    valid = np.broadcast_to(True if vector.valid is None else vector.valid, vector.ids.shape)
    return [vector.names[i] if known else None for i, known in zip(vector.ids.tolist(), valid.tolist(), strict=True)]


def addresses(values: list[str], valid: np.ndarray | None) -> AddressVector:
    numbers = [ip_address(value) for value in values]
    halves = [divmod(int(number), 2**64) for number in numbers]
    version = np.array([number.version for number in numbers])
    high, low = (np.array([half[i] for half in halves], np.uint64) for i in (0, 1))
    return AddressVector(version if valid is None else np.where(valid, version, 0), high, low, valid)


def words(random: Random, count: int, valid: np.ndarray | None) -> TextVector:
    return TextVector(np.array([random.randrange(len(WORDS)) for _ in range(count)]), WORDS, valid)


@pytest.mark.parametrize(
    "kind, choices, written",
    [
        (Type.INT, INTEGERS, str),
        (Type.FLOAT, FLOATS, lambda number: repr(number + 0.0)),
        (Type.TIME, TIMES, time_text),
        (Type.MAC, MACS, lambda mac: ":".join(f"{mac:012x}"[at : at + 2] for at in range(0, 12, 2))),
        (Type.ADDRESS, ADDRESSES, str),
    ],
)
@pytest.mark.parametrize("has_null", [False, True])
def test_a_value_is_written_as_text_and_read_again(kind: Type, choices: list, written: Any, has_null: bool) -> None:
    random = Random(f"{kind} {has_null}")
    values = [random.choice(choices) for _ in range(200)]
    valid = np.array([random.random() < 0.7 for _ in values]) if has_null else None
    vector: AnyVector = (
        addresses(values, valid)
        if kind is Type.ADDRESS
        else Vector(np.array(values, np.float64 if kind is Type.FLOAT else np.int64), valid)
    )
    found = write_texts(vector, kind)
    known = [True] * len(values) if valid is None else valid.tolist()
    pairs = zip(values, known, strict=True)
    assert texts_of(found) == [written(value) if is_known else None for value, is_known in pairs]
    again = read_texts(found, kind)
    assert np.broadcast_to(True if again.valid is None else again.valid, 200).tolist() == known
    for name in ("data", "version", "high", "low"):
        if hasattr(vector, name):
            before, after = (getattr(each, name)[np.array(known)] for each in (vector, again))
            assert np.array_equal(before, after, equal_nan=kind is Type.FLOAT)


@pytest.mark.parametrize("seed", range(20))
def test_texts_are_joined_row_by_row(seed: int) -> None:
    random = Random(seed)
    sides = []
    for _ in range(2):
        valid = np.array([random.random() < 0.8 for _ in range(60)]) if random.random() < 0.5 else None
        sides.append(words(random, 60, valid) if random.random() < 0.8 else TextVector.constant(random.choice(WORDS)))
    texts = [texts_of(TextVector(np.broadcast_to(side.ids, 60), side.names, side.valid)) for side in sides]
    found = concatenate(*sides)
    expected = [None if None in pair else "".join(pair) for pair in zip(*texts, strict=True)]
    assert texts_of(TextVector(np.broadcast_to(found.ids, 60), found.names, found.valid)) == expected


@pytest.mark.parametrize(
    "kind, text, value",
    [
        (Type.INT, "12", 12),
        (Type.INT, " -12 ", -12),
        (Type.INT, "12.6", 13),
        (Type.INT, "1e3", 1000),
        (Type.INT, "9223372036854775807", 2**63 - 1),
        (Type.INT, "9223372036854775808", None),
        (Type.INT, "1_000", None),
        (Type.INT, "\u0661", None),  # a digit of another alphabet
        (Type.INT, "inf", None),
        (Type.INT, "nan", None),
        (Type.INT, "", None),
        (Type.INT, "0x10", None),
        (Type.FLOAT, ".5", 0.5),
        (Type.FLOAT, "-Infinity", -math.inf),
        (Type.FLOAT, "1e999", math.inf),
        (Type.FLOAT, "1,5", None),
        (Type.BOOL, "TRUE", True),
        (Type.BOOL, "f", False),
        (Type.BOOL, "maybe", None),
        (Type.TIME, "1970-01-01T00:00:01Z", 10**9),
        (Type.TIME, "yesterday", None),
        (Type.MAC, "00-00-00-00-00-0A", 10),
        (Type.MAC, "00:00", None),
    ],
)
def test_a_text_that_is_no_value_becomes_null(kind: Type, text: str, value: object) -> None:
    found = read_texts(TextVector.constant(text), kind)
    assert isinstance(found, Vector)
    assert found.valid is not None
    assert (found.data.item() if found.valid else None) == value


def test_a_text_that_is_no_address_becomes_null() -> None:
    found = read_texts(TextVector(np.array([0, 1, 2]), ["10.0.0.1", "10.0.0.256", "::1"]), Type.ADDRESS)
    assert isinstance(found, AddressVector)
    assert (found.version.tolist(), found.low.tolist()) == ([4, 0, 6], [10 * 2**24 + 1, 0, 1])
    assert found.valid is not None
    assert found.valid.tolist() == [True, False, True]
