"""Group keys as machine words: how the key columns of a plan are packed for the table, and unpacked into Arrow.

Columns are laid side by side, each as wide as its values need, in as few 64-bit words as their order allows: a pair
of IPv4 addresses is one word, the IPv4 5-tuple two. Addresses have the width of their version; the node keeps a table
for each. A NULL of a narrow column is packed as 0 and its values one higher; a NULL of a 64-bit column sets a bit of
its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture.native import kernel
from lowlevel.addresses import to_arrow
from lowlevel.evaluate import AddressVector, Columns, evaluate
from lowlevel.expressions import Column, Type
from lowlevel.plan import ARROW_TYPES, Key


@kernel("i64(i64*, i64*, i64, i64, i64, i64)")
def pack_word(word, codes, rows, shift, add, keep):  # type: ignore[no-untyped-def]
    """Lay `codes[i] + add` into `word[i]` from bit `shift` up; what the word held stays only if `keep`."""
    if keep:
        for row in range(rows):
            word[row] |= (codes[row] + add) << shift
    else:
        for row in range(rows):
            word[row] = (codes[row] + add) << shift
    return rows


@dataclass(frozen=True, slots=True)
class Slice:
    """Where a code stands: bits `[shift, shift + bits)` of word `word`."""

    word: int
    shift: int
    bits: int


def code_widths(key: Key, version: int) -> list[int]:
    """Bits of each code a key is packed as. Addresses are of IP version `version`."""
    expression = key.expression
    match expression.type:
        case Type.ADDRESS:
            return [32] if version == 4 else [64, 64]
        case Type.BOOL:
            return [2] if expression.nullable else [1]
        case Type.INT if isinstance(expression, Column) and expression.bits < 64:
            return [expression.bits + expression.nullable]
        case Type.INT | Type.FLOAT:
            return [64, 1] if expression.nullable else [64]
        case _:
            raise ValueError(f"a key of type {expression.type} cannot be kept in the low level: {key.name}")


class KeyLayout:
    """The words of one table's keys. `version` says which addresses the table is for; 0 where no key is an address."""

    def __init__(self, keys: Sequence[Key], version: int) -> None:
        """Lay the keys out."""
        self.keys = keys
        self.version = version
        self.slices: list[list[Slice]] = []
        used: list[int] = []  # bits taken in each word
        for key in keys:
            places = []
            for bits in code_widths(key, version):
                word = next((number for number, taken in enumerate(used) if taken + bits <= 64), len(used))
                if word == len(used):
                    used.append(0)
                places.append(Slice(word, used[word], bits))
                used[word] += bits
            self.slices.append(places)
        self.words = len(used)

    def pack(self, columns: Columns, rows: int, words: npt.NDArray[np.int64]) -> None:
        """Evaluate the keys over `rows` packets into `words` (number of words x capacity)."""
        for key, places in zip(self.keys, self.slices, strict=True):
            for place, (codes, add) in zip(places, self._codes(key, columns, rows, len(places)), strict=True):
                pack_word(words[place.word], codes, rows, place.shift, add, place.shift > 0)

    def _codes(self, key: Key, columns: Columns, rows: int, count: int) -> list[tuple[npt.NDArray[np.int64], int]]:
        """Return a key's codes as int64 columns, each with what to add to it."""
        vector = evaluate(key.expression, columns)
        if isinstance(vector, AddressVector):
            halves = [vector.low] if self.version == 4 else [vector.high, vector.low]
            return [(half.view(np.int64), 0) for half in halves]
        data = np.broadcast_to(vector.data, rows)
        if key.expression.type is Type.FLOAT:
            data = (data + 0.0).view(np.int64)  # adding 0.0 makes the two zeros one
        data = np.ascontiguousarray(data, np.int64)
        if not key.expression.nullable:
            return [(data, 0)]
        valid = np.ones((), np.bool_) if vector.valid is None else vector.valid
        if count == 1:
            return [(np.where(valid, data, -1), 1)]
        absent = np.ascontiguousarray(np.broadcast_to(~valid, rows), np.int64)
        return [(np.where(valid, data, 0), 0), (absent, 0)]

    def unpack(self, words: npt.NDArray[np.int64]) -> list[pa.Array]:
        """Return the key columns of entries whose key words are the columns of `words` (entries x words)."""
        columns = []
        for key, places in zip(self.keys, self.slices, strict=True):
            codes = [self._read(words, place) for place in places]
            columns.append(self._column(key, codes))
        return columns

    @staticmethod
    def _read(words: npt.NDArray[np.int64], place: Slice) -> npt.NDArray[np.uint64]:
        codes = np.ascontiguousarray(words[:, place.word]).view(np.uint64)
        return codes if place.bits == 64 else codes >> np.uint64(place.shift) & np.uint64((1 << place.bits) - 1)

    def _column(self, key: Key, codes: list[npt.NDArray[np.uint64]]) -> pa.Array:
        kind = key.expression.type
        if kind is Type.ADDRESS:
            return to_arrow(self.version, codes[0], codes[-1])
        data = codes[0].view(np.int64)
        absent = None
        if key.expression.nullable:
            absent = data == 0 if len(codes) == 1 else codes[1] != 0
            data = data - 1 if len(codes) == 1 else data
        if kind is Type.FLOAT:
            data = data.view(np.float64)
        return pa.array(data, mask=absent).cast(ARROW_TYPES[kind])
