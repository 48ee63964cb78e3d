"""Columns as expressions see them: one value per row, or one for all rows (then 0-dimensional), and which are NULL.

`valid` is a mask of the values that are not NULL, or None where none is. What stands under a NULL is arbitrary.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lowlevel.expressions.address_constants import Address

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


# The columns of a batch at some of its rows, taken when they are asked for.
#
# Where a predicate lets few rows pass, keys and arguments of those alone are evaluated and packed; everything behind
# sees a smaller batch.


SHARE = 4
"""Rows of a batch for each one that passes, from which on those that pass are taken out. Of more it costs as much to
take out their columns as to pass over the others."""


class ChosenRows(Mapping[str, AnyVector]):
    """Columns at `places`, row numbers in ascending order. Valid as long as the batch is."""

    def __init__(self, columns: Columns, places: npt.NDArray[np.int64]) -> None:
        """Take nothing yet."""
        self._columns = columns
        self._places = places
        self._made: dict[str, AnyVector] = {}
        self._versions: dict[int, npt.NDArray[np.int64]] = {}  # addresses of one header share theirs, as in the batch

    def __getitem__(self, name: str) -> AnyVector:
        """Return a column of the chosen rows."""
        if name not in self._made:
            whole = self._columns[name]
            vector = taken(whole, self._places)
            if isinstance(whole, AddressVector) and isinstance(vector, AddressVector):
                version = self._versions.setdefault(id(whole.version), vector.version)
                vector = replace(vector, version=version)
            self._made[name] = vector
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the batch's columns."""
        return iter(self._columns)

    def __len__(self) -> int:
        """Count the batch's columns."""
        return len(self._columns)


# Columns that lie where those of the batch before did: what is told of one batch's memory holds for the next.
#
# A decoder fills the same buffers with every block. Whoever reads them need ask for their addresses once, which for a
# block of a few columns takes as long as hundreds of its rows.


Numbers = npt.NDArray[np.int64]


class SettledColumns(Mapping[str, AnyVector]):
    """Columns as expressions see them, some of which can be had as they lie in `memory`."""

    @property
    @abstractmethod
    def memory(self) -> Numbers:
        """The buffers: where they are the same as another batch's, each column begins where the other's does."""

    @property
    @abstractmethod
    def only_ipv4(self) -> bool:
        """Whether every address is of IPv4."""

    @abstractmethod
    def integers(self, name: str) -> tuple[Numbers, bool] | None:
        """Return a column of integers or MACs, and whether -1 is NULL in it; None for any other column."""

    @abstractmethod
    def halves(self, name: str) -> tuple[Numbers, Numbers] | None:
        """Return the higher and the lower half of a column of addresses, of which IPv4 has the lower; else None."""


class Names:
    """A list of distinct texts that grows at its end: what the ids of a `TextVector` stand for, over many batches."""

    def __init__(self) -> None:
        """Begin with none."""
        self.texts: list[str] = []
        self._places: dict[str, int] = {}

    def add(self, text: str) -> int:
        """Return the id of a text, a new one for a new text."""
        place = self._places.setdefault(text, len(self.texts))
        if place == len(self.texts):
            self.texts.append(text)
        return place


def equal(left: TextVector, right: TextVector) -> Mask:
    """Return where two columns, or a column and a constant, are the same text. What is NULL is arbitrary."""
    if right.ids.ndim == 0:
        wanted = right.names[int(right.ids)]
        return holds(left, lambda name: name == wanted)
    if left.ids.ndim == 0:
        return equal(right, left)
    if left.names is right.names:
        return np.asarray(left.ids == right.ids)
    places = {name: place for place, name in enumerate(right.names)}
    translated = np.array([places.get(name, -1) for name in left.names], np.int64)
    return np.asarray(translated[left.ids] == right.ids)


def holds(vector: TextVector, test: Callable[[str], bool]) -> Mask:
    """Return where a text passes a test."""
    return np.asarray(_of_names(vector, test, np.bool_))


def lengths(vector: TextVector) -> npt.NDArray[np.int64]:
    """Return how many characters each text has."""
    return _of_names(vector, len, np.int64)


def _of_names(vector: TextVector, function: Callable[[str], object], kind: type) -> npt.NDArray[Any]:
    """Apply a function to the names that can occur: a long list of names is not walked for a few rows."""
    if not vector.names:  # all are NULL
        return np.zeros(vector.ids.shape, kind)
    if len(vector.names) <= vector.ids.size:
        return np.array([function(name) for name in vector.names], kind)[vector.ids]
    distinct, places = np.unique(vector.ids, return_inverse=True)
    return np.array([function(vector.names[each]) for each in distinct.tolist()], kind)[
        places.reshape(vector.ids.shape)
    ]
