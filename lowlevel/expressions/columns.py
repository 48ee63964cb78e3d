"""Columns of expressions: one value per row, or a 0-dimensional array with one value for all rows.

`valid` is a mask of the values that are not NULL; None if no value is NULL. The number in the place of a NULL is
arbitrary.
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

    `null`: the number in the place of every NULL; None if it is not known.
    """

    data: npt.NDArray[Any]
    valid: Mask | None = None
    null: int | None = None


@dataclass(frozen=True, slots=True)
class AddressVector:
    """IP addresses: `version` is 4, 6, or 0 for a NULL; `high` and `low` are the halves as uint64.

    `high` is 0 for IPv4. If `version` is 0-dimensional all rows have that version; then a table is as fast as one
    without addresses.
    """

    version: npt.NDArray[Any]
    high: npt.NDArray[np.uint64]
    low: npt.NDArray[np.uint64]
    valid: Mask | None = None

    @classmethod
    def of_ipv4(cls, numbers: npt.NDArray[np.int64]) -> AddressVector:
        """Return decoded addresses of version 4, none of them NULL."""
        return cls(FOUR, NO_HALF, numbers.view(np.uint64))

    @classmethod
    def of(cls, address: Address) -> AddressVector:
        """Make a constant."""
        high, low = divmod(address.value, 2**64)
        return cls(np.array(address.version), np.array(high, np.uint64), np.array(low, np.uint64))


@dataclass(frozen=True, slots=True)
class TextVector:
    """Texts: `ids` (int64) are indexes into `names`. Names are only appended, so old IDs stay valid.

    `names` has no duplicates: two texts are equal if and only if their IDs are.
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
    """Byte strings: `[start, start + length)` of `data`, inside its bounds; both are 0 for a NULL."""

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
    """Return the values of a vector at the row numbers `places`; a constant stays a constant."""

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


def choose(mask: Mask, one: AnyVector, other: AnyVector) -> AnyVector:
    """Return the values of `one` where `mask` is True, otherwise those of `other`: vectors of one kind.

    Two columns of texts must have equal `names`.
    """
    valid = None
    if one.valid is not None or other.valid is not None:
        known = [np.True_ if vector.valid is None else vector.valid for vector in (one, other)]
        valid = np.asarray(np.where(mask, *known))
    match one, other:
        case Vector(), Vector():
            return Vector(np.where(mask, one.data, other.data), valid)
        case AddressVector(), AddressVector():
            version = np.where(mask, one.version, other.version)
            version = version if valid is None else np.where(valid, version, 0)
            return AddressVector(
                version, np.where(mask, one.high, other.high), np.where(mask, one.low, other.low), valid
            )
        case TextVector(), TextVector():
            return TextVector(np.where(mask, one.ids, other.ids), one.names, valid)
    raise TypeError(f"got {type(one).__name__} and {type(other).__name__}, expected two numbers, addresses or texts")


def with_common_names(one: TextVector, other: TextVector, constants: Sequence[str]) -> tuple[TextVector, TextVector]:
    """Return two columns of texts with one list of names: `constants`, and then the other names.

    If only one of the columns has growing names beside the constants, the IDs of the result stay valid too.
    """
    known = [vector for vector in (one, other) if not is_null(vector)]
    places: dict[str, int] = {}
    for name in (*constants, *(name for vector in known for name in vector.names)):
        places.setdefault(name, len(places))
    names = list(places) or [""]

    def recoded(vector: TextVector) -> TextVector:
        if is_null(vector) or not vector.names:
            return replace(vector, ids=np.zeros_like(vector.ids), names=names)
        ids = np.array([places[name] for name in vector.names], np.int64)
        ids = ids[vector.ids if vector.valid is None else np.where(vector.valid, vector.ids, 0)]
        return TextVector(np.asarray(ids), names, vector.valid)

    return recoded(one), recoded(other)


def is_null(vector: TextVector) -> bool:
    """Return whether a vector is the constant NULL."""
    return vector.ids.ndim == 0 and vector.valid is not None and not vector.valid


# If few rows pass a predicate, keys and arguments are evaluated for these rows only.


SHARE = 4
"""Passing rows are copied out if at most 1/SHARE of a batch passes. Otherwise the copy costs as much as it saves."""


class ChosenRows(Mapping[str, AnyVector]):
    """Columns of the rows `places` (ascending), copied at the first access. Valid as long as the batch is."""

    def __init__(self, columns: Columns, places: npt.NDArray[np.int64]) -> None:
        """Select rows; no column is copied yet."""
        self._columns = columns
        self._places = places
        self._made: dict[str, AnyVector] = {}
        self._versions: dict[int, npt.NDArray[np.int64]] = {}  # the addresses of one header share their versions

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
        """Return the number of columns of the batch."""
        return len(self._columns)


# A decoder fills the same buffers with every block, so a kernel needs the address of a column only once. To look it up
# for a few columns takes as long as hundreds of rows.


Numbers = npt.NDArray[np.int64]


class SettledColumns(Mapping[str, AnyVector]):
    """Columns whose buffers keep their address from batch to batch."""

    @property
    @abstractmethod
    def memory(self) -> Numbers:
        """The buffers. If two batches have the same buffers, their columns have the same addresses."""

    @property
    @abstractmethod
    def only_ipv4(self) -> bool:
        """Whether all addresses are IPv4."""

    @abstractmethod
    def integers(self, name: str) -> tuple[Numbers, bool] | None:
        """Return a column of integers or MACs and whether -1 means NULL; None for other columns."""

    @abstractmethod
    def halves(self, name: str) -> tuple[Numbers, Numbers] | None:
        """Return the upper and lower half of a column of addresses (IPv4: the lower); None for other columns."""


class Names:
    """A growing list of distinct texts: the names of `TextVector` over many batches."""

    def __init__(self) -> None:
        """Create an empty list."""
        self.texts: list[str] = []
        self._places: dict[str, int] = {}

    def add(self, text: str) -> int:
        """Return the ID of a text; add the text if it is new."""
        place = self._places.setdefault(text, len(self.texts))
        if place == len(self.texts):
            self.texts.append(text)
        return place


def equal(left: TextVector, right: TextVector) -> Mask:
    """Return which texts are equal, of two columns or a column and a constant. The result for NULL is arbitrary."""
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
    """Return which texts pass a test."""
    return np.asarray(_of_names(vector, test, np.bool_))


def matching(vector: TextVector, pattern: str) -> Mask:
    """Return which texts contain a match of a regular expression of RE2."""
    import pyarrow as pa
    import pyarrow.compute as pc

    used, places = np.unique(vector.ids, return_inverse=True)
    named = [vector.names[each] if vector.names else "" for each in used.tolist()]
    found = pc.match_substring_regex(pa.array(named, pa.string()), pattern)
    return np.asarray(np.asarray(found)[places.reshape(vector.ids.shape)])


def lengths(vector: TextVector) -> npt.NDArray[np.int64]:
    """Return the number of characters of each text."""
    return _of_names(vector, len, np.int64)


def _of_names(vector: TextVector, function: Callable[[str], object], kind: type) -> npt.NDArray[Any]:
    """Apply a function to the names that occur, without a pass over a long list of names for a few rows."""
    if not vector.names:  # all are NULL
        return np.zeros(vector.ids.shape, kind)
    if len(vector.names) <= vector.ids.size:
        return np.array([function(name) for name in vector.names], kind)[vector.ids]
    distinct, places = np.unique(vector.ids, return_inverse=True)
    return np.array([function(vector.names[each]) for each in distinct.tolist()], kind)[
        places.reshape(vector.ids.shape)
    ]
