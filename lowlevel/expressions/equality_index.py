"""An index of the rows of a batch by the value of a column, for many conditions `column = constant`.

Queries that differ only in constants, such as `destPort = 53` and `destPort = 80`, read the same column of each batch.
The index finds the rows of all constants in one pass. So a query whose constant does not occur in a batch reads no
rows.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from lowlevel.expressions.address_constants import Address
from lowlevel.expressions.columns import AddressVector, AnyVector, Columns, Vector
from lowlevel.expressions.tree import Binary, Column, Expression, Literal
from lowlevel.expressions.types import Op, Type

MIN_CONSTANTS = 8
"""Minimum number of different constants of a column for which an index is faster than a pass for each condition."""

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""Odd number that mixes the upper half of an address into its word."""

Constant = int | Address
Numbers = npt.NDArray[np.int64]

NO_ROWS: Numbers = np.empty(0, np.int64)


def equality_of(condition: Expression) -> tuple[Column, Constant] | None:
    """Return column and constant of `column = constant` over an integer, time or address; None for other conditions.

    >>> equality_of(Binary(Op.EQ, Column("ttl", Type.INT), Literal(64, Type.INT)))[1]
    64
    """
    match condition:
        case Binary(
            Op.EQ, Column(type=Type.INT | Type.TIME) as column, Literal(value=int(value), type=Type.INT | Type.TIME)
        ):
            return column, value
        case Binary(Op.EQ, Column(type=Type.ADDRESS) as column, Literal(value=Address() as address)):
            return column, address
    return None


class EqualityIndex:
    """The rows of the constants of one column, computed once per batch."""

    def __init__(self, column: Column, constants: Iterable[Constant]) -> None:
        """Index `column` by `constants`, which are integers of 64 bits with sign or addresses."""
        self.column = column
        words = {constant: _word(constant) for constant in constants}
        self._words = np.unique(np.array(list(words.values()), np.int64))
        self._position = {constant: int(np.searchsorted(self._words, word)) for constant, word in words.items()}
        self._columns: Columns | None = None
        self._vector: AnyVector | None = None
        self._rows: Numbers = NO_ROWS
        self._starts: list[int] = []

    def rows(self, columns: Columns, count: int, constant: Constant) -> Numbers:
        """Return the ascending indexes of the rows whose column is equal to `constant`, which must be indexed.

        `columns` are those of a batch of `count` rows. Each batch has its own object.
        """
        if self._columns is not columns:
            self._build(columns, count)
        position = self._position[constant]
        start, end = self._starts[position], self._starts[position + 1]
        if start == end:
            return NO_ROWS
        rows = self._rows[start:end]
        if not isinstance(constant, Address):
            return rows
        # Different addresses may have equal words.
        vector = self._vector
        assert isinstance(vector, AddressVector)
        high, low = divmod(constant.value, 2**64)
        same = (_values_at(vector.low, rows) == np.uint64(low)) & (_values_at(vector.high, rows) == np.uint64(high))
        same &= _values_at(vector.version, rows) == constant.version
        return rows[np.broadcast_to(same, len(rows))]

    def _build(self, columns: Columns, count: int) -> None:
        """Sort the rows of all constants by their constant."""
        vector = columns[self.column.name]
        assert isinstance(vector, Vector | AddressVector)
        words = np.broadcast_to(_words(vector), count)
        positions = np.searchsorted(self._words, words)
        positions[positions == len(self._words)] = 0
        is_indexed = self._words[positions] == words
        if vector.valid is not None:
            is_indexed = is_indexed & vector.valid
        rows = np.flatnonzero(is_indexed)
        order = np.argsort(positions[rows], kind="stable")
        self._rows = rows[order]
        self._starts = np.searchsorted(positions[self._rows], np.arange(len(self._words) + 1)).tolist()
        self._columns, self._vector = columns, vector


def _word(constant: Constant) -> int:
    """Return the word of a constant: an integer unchanged, for an address a hash of its halves."""
    if not isinstance(constant, Address):
        return constant
    return int(_words(AddressVector.constant(constant)))


def _words(vector: Vector | AddressVector) -> Numbers:
    if isinstance(vector, Vector):
        return np.asarray(vector.data, np.int64)
    with np.errstate(over="ignore"):  # the product wraps
        words = vector.low ^ (vector.high * MULTIPLIER)
    return np.asarray(words).view(np.int64)


def _values_at(values: npt.NDArray[np.generic], rows: Numbers) -> npt.NDArray[np.generic]:
    """Return the values of `rows`. A 0-dimensional array has one value for all rows."""
    return values[rows] if values.ndim else values
