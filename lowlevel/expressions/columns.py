"""Columns of values for expressions, as vectors: arrays with one value per row.

A constant is a vector of 0-dimensional arrays: one value for all rows. `valid` is a mask of the values that are not
NULL, or None if no value is NULL. At the index of a NULL, the array contains an arbitrary number.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from capture.lazy_dataclasses import dataclass
from lowlevel.expressions.address_constants import Address

Mask = npt.NDArray[np.bool_]

IPV4_VERSION, IPV4_HIGH = np.array(4), np.zeros((), np.uint64)
"""Version and upper half of a column of IPv4 addresses."""


@dataclass(frozen=True, slots=True)
class Vector:
    """Numbers (int64 or float64), booleans, or MACs (48 bits in an int64).

    `null_number`: the number that `data` contains for every NULL, or None if these numbers differ.
    """

    data: npt.NDArray[Any]
    valid: Mask | None = None
    null_number: int | None = None


@dataclass(frozen=True, slots=True)
class AddressVector:
    """IP addresses: `version` is 4, 6, or 0 for a NULL; `high` and `low` are the halves as uint64.

    `high` is 0 for IPv4. A 0-dimensional `version` is the version of all rows. With such a version,
    addresses are as fast as integers as the keys of a table.
    """

    version: npt.NDArray[Any]
    high: npt.NDArray[np.uint64]
    low: npt.NDArray[np.uint64]
    valid: Mask | None = None

    @classmethod
    def of_ipv4(cls, numbers: npt.NDArray[np.int64]) -> AddressVector:
        """Return a column of IPv4 addresses without NULLs, from their numbers."""
        return cls(IPV4_VERSION, IPV4_HIGH, numbers.view(np.uint64))

    @classmethod
    def constant(cls, address: Address) -> AddressVector:
        """Return a constant."""
        high, low = divmod(address.value, 2**64)
        return cls(np.array(address.version), np.array(high, np.uint64), np.array(low, np.uint64))


@dataclass(frozen=True, slots=True)
class TextVector:
    """Texts: `ids` (int64) are indexes into `names`. Names are appended and never removed, so old IDs stay valid.

    `names` has no duplicates, so two texts are equal if and only if their IDs are equal.
    """

    ids: npt.NDArray[np.int64]
    names: Sequence[str]
    valid: Mask | None = None

    @classmethod
    def constant(cls, text: str) -> TextVector:
        """Return a constant."""
        return cls(np.zeros((), np.int64), (text,))


@dataclass(frozen=True, slots=True)
class BytesVector:
    """Byte strings: the bytes `[start, start + length)` of `data`. NULL has start and length 0."""

    data: npt.NDArray[np.uint8]
    start: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    valid: Mask | None = None


AnyVector = Vector | AddressVector | TextVector | BytesVector
Columns = Mapping[str, AnyVector]


def shape_of(vector: AnyVector) -> tuple[int, ...]:
    """Return the shape of a vector's arrays: () for a constant."""
    match vector:
        case Vector(data):
            return data.shape
        case AddressVector(low=low):
            return low.shape
        case TextVector(ids):
            return ids.shape
        case BytesVector(start=start):
            return start.shape


def take_rows(vector: AnyVector, rows: npt.NDArray[np.int64]) -> AnyVector:
    """Return the values of a vector at the indexes `rows`; a constant stays a constant."""

    def take(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return array if array.ndim == 0 else array[rows]

    valid = None if vector.valid is None else take(vector.valid)
    match vector:
        case Vector():
            return replace(vector, data=take(vector.data), valid=valid)
        case AddressVector(version, high, low):
            return AddressVector(take(version), take(high), take(low), valid)
        case TextVector():
            return replace(vector, ids=take(vector.ids), valid=valid)
        case BytesVector():
            return replace(vector, start=take(vector.start), length=take(vector.length), valid=valid)


def and_masks(one: Mask | None, other: Mask | None) -> Mask | None:
    """Return the AND of two masks; None means that every row is True."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def choose(mask: Mask, one: AnyVector, other: AnyVector) -> AnyVector:
    """Return the value of `one` for rows with a True `mask`, and the value of `other` for the other rows.

    Both vectors have the same class; two TextVectors have equal `names`.
    """
    valid = None
    if one.valid is not None or other.valid is not None:
        not_null = [np.True_ if vector.valid is None else vector.valid for vector in (one, other)]
        valid = np.asarray(np.where(mask, *not_null))
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
    """Return two columns of texts with a common list of names: `constants`, and then the other names.

    A name keeps its ID in later batches if only one of the two lists grows, and the names of the other are in
    `constants`.
    """
    not_null = [vector for vector in (one, other) if not is_null(vector)]
    ids_by_name: dict[str, int] = {}
    for name in (*constants, *(name for vector in not_null for name in vector.names)):
        ids_by_name.setdefault(name, len(ids_by_name))
    names = list(ids_by_name) or [""]

    def recoded(vector: TextVector) -> TextVector:
        if is_null(vector) or not vector.names:
            return replace(vector, ids=np.zeros_like(vector.ids), names=names)
        ids = np.array([ids_by_name[name] for name in vector.names], np.int64)
        ids = ids[vector.ids if vector.valid is None else np.where(vector.valid, vector.ids, 0)]
        return TextVector(np.asarray(ids), names, vector.valid)

    return recoded(one), recoded(other)


def is_null(vector: TextVector) -> bool:
    """Return whether a vector is the constant NULL."""
    return vector.ids.ndim == 0 and vector.valid is not None and not vector.valid


class CachedColumns(Mapping[str, AnyVector]):
    """Columns of a batch that are made at their first access."""

    def __init__(self) -> None:
        self._cached: dict[str, AnyVector] = {}

    def __getitem__(self, name: str) -> AnyVector:
        """Return a column by its name."""
        if name not in self._cached:
            self._cached[name] = self._make(name)
        return self._cached[name]

    @abstractmethod
    def _make(self, name: str) -> AnyVector: ...


# If few rows of a batch pass a predicate, keys and arguments are evaluated only for copies of these rows.


COPY_DIVISOR = 4
"""Rows that pass are copied if they are at most 1/COPY_DIVISOR of the batch; otherwise the copy saves no time."""


class ChosenRows(Mapping[str, AnyVector]):
    """Columns of the rows with the ascending indexes `rows`, copied at the first access.

    Valid until the batch changes.
    """

    def __init__(self, columns: Columns, rows: npt.NDArray[np.int64]) -> None:
        """Select rows of a batch; no column is copied yet."""
        self._columns = columns
        self._rows = rows
        self._copies: dict[str, AnyVector] = {}
        self._versions: dict[int, npt.NDArray[np.int64]] = {}  # both addresses of a header have one array of versions

    def __getitem__(self, name: str) -> AnyVector:
        """Return a column of the chosen rows."""
        if name not in self._copies:
            whole = self._columns[name]
            vector = take_rows(whole, self._rows)
            if isinstance(whole, AddressVector) and isinstance(vector, AddressVector):
                version = self._versions.setdefault(id(whole.version), vector.version)
                vector = replace(vector, version=version)
            self._copies[name] = vector
        return self._copies[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the batch's columns."""
        return iter(self._columns)

    def __len__(self) -> int:
        """Return the number of columns of the batch."""
        return len(self._columns)


# A decoder writes every block into the same buffers. So the memory addresses of columns are looked up once for many
# blocks. The look-up of a few columns takes as long as the evaluation of hundreds of rows.


Numbers = npt.NDArray[np.int64]


class BufferColumns(Mapping[str, AnyVector]):
    """Columns in buffers that keep their memory address from batch to batch."""

    @property
    @abstractmethod
    def memory(self) -> Numbers:
        """The array that contains the buffers.

        If two batches have the same array, their columns have the same memory addresses.
        """

    @property
    @abstractmethod
    def has_only_ipv4(self) -> bool:
        """True if all IP addresses are IPv4."""

    @abstractmethod
    def integers(self, name: str) -> tuple[Numbers, bool] | None:
        """Return a column of integers or MACs, and whether -1 means NULL. Return None for columns of other types."""

    @abstractmethod
    def halves(self, name: str) -> tuple[Numbers, Numbers] | None:
        """Return the upper and lower halves of a column of addresses; None for other types of columns."""


class Names:
    """A growing list of distinct texts: the `names` of the `TextVector` of many batches."""

    def __init__(self) -> None:
        """Create an empty list."""
        self.texts: list[str] = []
        self._ids: dict[str, int] = {}

    def add(self, text: str) -> int:
        """Return the ID of a text; add the text if it is new."""
        text_id = self._ids.setdefault(text, len(self.texts))
        if text_id == len(self.texts):
            self.texts.append(text)
        return text_id


def equal(left: TextVector, right: TextVector) -> Mask:
    """Compare two columns of texts, or a column and a constant. The result for a NULL is arbitrary."""
    if right.ids.ndim == 0:
        expected = right.names[int(right.ids)]
        return check_texts(left, lambda name: name == expected)
    if left.ids.ndim == 0:
        return equal(right, left)
    if left.names is right.names:
        return np.asarray(left.ids == right.ids)
    right_ids = {name: text_id for text_id, name in enumerate(right.names)}
    translated = np.array([right_ids.get(name, -1) for name in left.names], np.int64)
    return np.asarray(translated[left.ids] == right.ids)


def check_texts(vector: TextVector, test: Callable[[str], bool]) -> Mask:
    """Return a mask of the texts that pass a test."""
    return np.asarray(_map_texts(vector, test, np.bool_))


def match_regex(vector: TextVector, pattern: str) -> Mask:
    """Return a mask of the texts that contain a match of a regular expression (RE2 syntax)."""
    import pyarrow as pa

    from capture import arrow_compute as pc

    distinct, indexes = np.unique(vector.ids, return_inverse=True)
    names = [vector.names[text_id] if vector.names else "" for text_id in distinct.tolist()]
    matches = pc.match_substring_regex(pa.array(names, pa.string()), pattern)
    return np.asarray(np.asarray(matches)[indexes.reshape(vector.ids.shape)])


def lengths(vector: TextVector) -> npt.NDArray[np.int64]:
    """Return the number of characters of each text."""
    return _map_texts(vector, len, np.int64)


def _map_texts(vector: TextVector, compute: Callable[[str], object], dtype: type) -> npt.NDArray[Any]:
    """Return `compute` of each text. If there are fewer rows than names, compute only the names that occur."""
    if not vector.names:  # all are NULL
        return np.zeros(vector.ids.shape, dtype)
    if len(vector.names) <= vector.ids.size:
        return np.array([compute(name) for name in vector.names], dtype)[vector.ids]
    distinct, indexes = np.unique(vector.ids, return_inverse=True)
    results: npt.NDArray[Any] = np.array([compute(vector.names[text_id]) for text_id in distinct.tolist()], dtype)
    return results[indexes.reshape(vector.ids.shape)]
