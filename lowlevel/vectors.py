"""Columns as expressions see them: one value per row, or one for all rows (then 0-dimensional), and which are NULL.

`valid` is a mask of the values that are not NULL, or None where none is. What stands under a NULL is arbitrary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lowlevel.address_constants import Address

Mask = npt.NDArray[np.bool_]

FOUR, NO_HALF = np.array(4), np.zeros((), np.uint64)
"""Version and upper half of IPv4 addresses, one for all rows."""


@dataclass(frozen=True, slots=True)
class Vector:
    """Numbers (int64 or float64), conditions, or MACs (48 bits in an int64).

    `null` is what stands under every NULL, where that is known.
    """

    data: npt.NDArray[Any]
    valid: Mask | None = None
    null: int | None = None


@dataclass(frozen=True, slots=True)
class AddressVector:
    """IP addresses: `version` is 4, 6, or 0 for a NULL; `high` and `low` are the halves as uint64.

    `high` is 0 for IPv4. A 0-dimensional `version` says that all rows have it, which is what makes a table of one
    version as fast as one without addresses.
    """

    version: npt.NDArray[Any]
    high: npt.NDArray[np.uint64]
    low: npt.NDArray[np.uint64]
    valid: Mask | None = None

    @classmethod
    def of_ipv4(cls, numbers: npt.NDArray[np.int64]) -> AddressVector:
        """Take addresses of version 4 as they are decoded, none of them NULL."""
        return cls(FOUR, NO_HALF, numbers.view(np.uint64))

    @classmethod
    def of(cls, address: Address) -> AddressVector:
        """Make a constant."""
        high, low = divmod(address.value, 2**64)
        return cls(np.array(address.version), np.array(high, np.uint64), np.array(low, np.uint64))


@dataclass(frozen=True, slots=True)
class TextVector:
    """Texts: `ids` (int64) are places in `names`, which is only ever appended to while ids of it are kept.

    No name stands in `names` twice: equal ids are equal texts, and unequal ids unequal ones.
    """

    ids: npt.NDArray[np.int64]
    names: Sequence[str]
    valid: Mask | None = None

    @classmethod
    def of(cls, text: str) -> TextVector:
        """Make a constant."""
        return cls(np.zeros((), np.int64), (text,))


@dataclass(frozen=True, slots=True)
class BytesVector:
    """Byte strings: `[start, start + length)` of `data`, all of it inside; under a NULL both are 0."""

    data: npt.NDArray[np.uint8]
    start: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    valid: Mask | None = None


AnyVector = Vector | AddressVector | TextVector | BytesVector
Columns = Mapping[str, AnyVector]


def shape_of(vector: AnyVector) -> tuple[int, ...]:
    """Return the shape of a vector: () for a constant."""
    match vector:
        case Vector(data):
            return data.shape
        case AddressVector(low=low):
            return low.shape
        case TextVector(ids):
            return ids.shape
        case BytesVector(start=start):
            return start.shape


def taken(vector: AnyVector, places: npt.NDArray[np.int64]) -> AnyVector:
    """Return the values of a vector at `places`; a constant stays one."""

    def at(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return array if array.ndim == 0 else array[places]

    valid = None if vector.valid is None else at(vector.valid)
    match vector:
        case Vector():
            return replace(vector, data=at(vector.data), valid=valid)
        case AddressVector(version, high, low):
            return AddressVector(at(version), at(high), at(low), valid)
        case TextVector():
            return replace(vector, ids=at(vector.ids), valid=valid)
        case BytesVector():
            return replace(vector, start=at(vector.start), length=at(vector.length), valid=valid)
