"""Group keys as machine words: how the key columns of a plan are packed for the table, and unpacked into Arrow.

Columns are packed side by side, each with the bits that its values need, into as few 64-bit words as their order
allows: a pair of IPv4 addresses is one word, the IPv4 5-tuple two. An address has the width of its version, and no bits
if it is NULL; there is a table for each tuple of versions that occurs. In other narrow columns NULL is packed as 0 and
values are one higher. A NULL of a 64-bit column sets a separate bit. A text is packed as its ID.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture.native import kernel
from lowlevel.expressions.arrow import macs_to_arrow, to_arrow
from lowlevel.expressions.columns import AddressVector, Columns, TextVector, Vector
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.tree import bits_of
from lowlevel.expressions.types import Type
from lowlevel.plan import ARROW_TYPES, Key

ADDRESS_BITS = {0: [], 4: [32], 6: [64, 64]}
"""Bits of each code of an address by IP version; 0 is NULL."""

TEXT_BITS = 32
"""Bits of the ID of a text."""

MAC_BITS = 48

TOGETHER = 3
"""Codes that are packed into a word in one pass."""

TILE = 64
"""Number of entries whose codes are read together."""


@kernel("i64(i64*, i64, i64*, i64, i64, i64*, i64, i64, i64*, i64, i64, i64, i64)")
def pack_word(  # type: ignore[no-untyped-def]
    word, keep, codes, shift, add, second, second_shift, second_add, third, third_shift, third_add, count, rows
):  # fmt: skip
    """Write `codes[i] + add` into `word[i]` from bit `shift` on; other bits keep their value only if `keep`.

    If not `keep` and `count` is 2 or 3, the codes of `second` and `third` are written too. One pass for all of them
    avoids a second read and write of the word, which costs as much as the column.
    """
    if keep:
        for row in range(rows):
            word[row] |= (codes[row] + add) << shift
    elif count == 1:
        for row in range(rows):
            word[row] = (codes[row] + add) << shift
    elif count == 2:
        for row in range(rows):
            word[row] = ((codes[row] + add) << shift) | ((second[row] + second_add) << second_shift)
    else:
        for row in range(rows):
            first_two = ((codes[row] + add) << shift) | ((second[row] + second_add) << second_shift)
            word[row] = first_two | ((third[row] + third_add) << third_shift)
    return rows


@kernel("i64(i64*, i64, i64, i64*, i64, i64*)")
def read_slices(entries, rows, width, slices, count, out):  # type: ignore[no-untyped-def]
    """Write code i of each of `rows` entries of `width` words to `out[i * rows + row]`; return rows.

    `slices` has four numbers for each code: its word, its shift, the mask of its bits, and the number to subtract. The
    codes of TILE entries are read together, while these entries are in the nearest cache.
    """
    begin = np.int64(0)
    while begin < rows:
        end = min(rows, begin + TILE)
        for code in range(count):
            word = slices[4 * code]
            shift = np.uint64(slices[4 * code + 1])
            mask = np.uint64(slices[4 * code + 2])
            less = slices[4 * code + 3]
            for row in range(begin, end):
                bits = np.uint64(entries[row * width + word]) >> shift
                out[code * rows + row] = np.int64(bits & mask) - less
        begin = end
    return rows


def codes_of(entries: npt.NDArray[np.int64], slices: Sequence[tuple[int, int, int, int]]) -> npt.NDArray[np.int64]:
    """Return a row for each slice (as in `read_slices`) with its code in each of `entries`, which are rows of words."""
    codes = np.empty((len(slices), len(entries)), np.int64)
    numbers = np.array(slices, np.int64).reshape(-1)
    read_slices(entries, len(entries), entries.shape[1], numbers, len(slices), codes)
    return codes


def whole_words(first: int, end: int) -> list[tuple[int, int, int, int]]:
    """Return the slices that are the words `[first, end)`."""
    return [(word, 0, -1, 0) for word in range(first, end)]


@dataclass(frozen=True, slots=True)
class Slice:
    """The position of a code: bits `[shift, shift + bits)` of word `word`."""

    word: int
    shift: int
    bits: int


def code_widths(key: Key, version: int) -> list[int]:
    """Return the bits of each code of a key. `version` is the IP version of an address, 0 for NULL."""
    expression = key.expression
    match expression.type:
        case Type.ADDRESS:
            return ADDRESS_BITS[version]
        case Type.TEXT:
            return [TEXT_BITS + expression.nullable]
        case Type.MAC:
            return [MAC_BITS + expression.nullable]
        case Type.BOOL:
            return [2] if expression.nullable else [1]
        case Type.INT if bits_of(expression) < 64:
            return [bits_of(expression) + expression.nullable]
        case Type.INT | Type.TIME | Type.FLOAT:
            return [64, 1] if expression.nullable else [64]
        case _:
            raise ValueError(f"a key of type {expression.type} cannot be kept in the low level: {key.name}")


class KeyLayout:
    """The layout of one table's keys. `versions` has the IP version of each address key, in their order."""

    def __init__(self, keys: Sequence[Key], versions: Sequence[int] = ()) -> None:
        """Compute the layout."""
        self.keys = keys
        each = iter(versions)
        self.versions = [next(each) if key.expression.type is Type.ADDRESS else 0 for key in keys]
        self.slices: list[list[Slice]] = []
        self.names: dict[str, Sequence[str]] = {}  # of each text key: the texts of the IDs
        used: list[int] = []  # used bits of each word
        for key, version in zip(keys, self.versions, strict=True):
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
        """Evaluate the keys over `rows` rows into `words` (number of words x capacity)."""
        of_words: list[list[tuple[npt.NDArray[np.int64], int, int]]] = [[] for _ in range(self.words)]
        for key, version, places in zip(self.keys, self.versions, self.slices, strict=True):
            codes = self._codes(key, version, columns, rows, len(places))
            for place, (code, add) in zip(places, codes, strict=True):
                of_words[place.word].append((code, place.shift, add))
        for word, pieces in zip(words, of_words, strict=False):
            first = pieces[:TOGETHER]
            unread = pieces[:1] * (TOGETHER - len(first))
            pack_word(word, False, *chain.from_iterable(first + unread), len(first), rows)
            for piece in pieces[TOGETHER:]:
                pack_word(word, True, *piece * TOGETHER, 1, rows)

    def _codes(
        self, key: Key, version: int, columns: Columns, rows: int, count: int
    ) -> Iterator[tuple[npt.NDArray[np.int64], int]]:
        """Yield the codes of a key as int64 columns, each with the number to add."""
        vector = evaluate(key.expression, columns)
        if isinstance(vector, AddressVector):
            for half in {0: [], 4: [vector.low], 6: [vector.high, vector.low]}[version]:
                whole = np.ascontiguousarray(half) if half.ndim else np.full(rows, half)
                yield whole.view(np.int64), 0
            return
        if isinstance(vector, TextVector):
            self.names[key.name] = vector.names
            vector = Vector(vector.ids, vector.valid)
        assert isinstance(vector, Vector)
        data = vector.data if vector.data.ndim else np.broadcast_to(vector.data, rows)
        if key.expression.type is Type.FLOAT:
            data = (data + 0.0).view(np.int64)  # 0.0 and -0.0 become one value
        data = np.ascontiguousarray(data, np.int64)
        if not key.expression.nullable:
            yield data, 0
            return
        valid = np.ones((), np.bool_) if vector.valid is None else vector.valid
        if count == 1:
            yield data if vector.null == -1 else np.where(valid, data, -1), 1
            return
        yield np.where(valid, data, 0), 0
        yield np.ascontiguousarray(np.broadcast_to(~valid, rows), np.int64), 0

    def unpack(self, entries: npt.NDArray[np.int64], first: int = 0) -> list[pa.Array]:
        """Return the key columns of `entries`: contiguous rows of words, keys from word `first` on."""
        places = [
            (first + place.word, place.shift, -1 if place.bits == 64 else (1 << place.bits) - 1, self._added(key, each))
            for key, each in zip(self.keys, self.slices, strict=True)
            for place in each
        ]
        codes = codes_of(entries, places)
        columns = []
        at = 0
        for key, version, each in zip(self.keys, self.versions, self.slices, strict=True):
            own = codes[at : at + len(each)]
            at += len(each)
            if key.expression.type is Type.ADDRESS:
                columns.append(
                    to_arrow(version, own[0].view(np.uint64), own[-1].view(np.uint64))
                    if each
                    else pa.nulls(len(entries), pa.binary())
                )
            else:
                columns.append(self._column(key, own))
        return columns

    @staticmethod
    def _added(key: Key, places: Sequence[Slice]) -> int:
        """Return the number added to the values of a narrow column in the table, where 0 means NULL."""
        return int(len(places) == 1 and key.expression.nullable and key.expression.type is not Type.ADDRESS)

    def _column(self, key: Key, codes: npt.NDArray[np.int64]) -> pa.Array:
        kind = key.expression.type
        data = codes[0]
        absent = None
        if key.expression.nullable:
            absent = data == -1 if len(codes) == 1 else codes[1] != 0
            absent = absent if absent.any() else None
        if kind is Type.TEXT:
            distinct, places = np.unique(data, return_inverse=True)  # -1 is NULL
            names = self.names[key.name]
            texts = [None if each < 0 else names[each] for each in distinct.tolist()]
            return pa.array(texts, pa.string()).take(pa.array(places))
        if kind is Type.MAC:
            return macs_to_arrow(data, None if absent is None else ~absent)
        if kind is Type.FLOAT:
            data = data.view(np.float64)
        return pa.array(data, mask=absent).cast(ARROW_TYPES[kind])
