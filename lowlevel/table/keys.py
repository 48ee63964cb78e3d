"""Group keys as machine words: pack the key columns of a plan for the table, and unpack them into Arrow columns.

A key has one or more *codes*: integers with a fixed number of bits. Each code is packed into the first 64-bit word with
enough free bits. So a pair of IPv4 addresses is one word, and the IPv4 5-tuple two words.

* Address: 32 bits, or two codes of 64 bits, or no code for NULL. Each tuple of IP versions has its own table.
* Other columns of less than 64 bits: if they may be NULL, the code is the value plus 1, and 0 is NULL.
* Columns of 64 bits: if they may be NULL, a second code of one bit is 1 for NULL.
* Text: the code is the ID of the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from capture.lazy_dataclasses import dataclass
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
"""Number of bits in the ID of a text."""

MAC_BITS = 48

CODES_PER_PASS = 3
"""Number of codes that one pass packs into a word."""

TILE = 64
"""Number of entries whose codes are read together."""


@kernel("i64(i64*, i64, i64*, i64, i64, i64*, i64, i64, i64*, i64, i64, i64, i64)")
def pack_word(  # type: ignore[no-untyped-def]
    word, keep, codes, shift, add, second, second_shift, second_add, third, third_shift, third_add, count, rows
):  # fmt: skip
    """Write `codes[i] + add` into `word[i]` from bit `shift` on. If `keep`, the other bits keep their value.

    Without `keep`, one pass writes `count` (1 to 3) columns: `codes`, `second` and `third`. So each word is written
    only once, which is faster.
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
    """Read `count` codes of `rows` entries of `width` words. Write code i to `out[i * rows + row]`. Return `rows`.

    `slices`: four numbers for each code: its word, its shift, the mask of its bits, and the number to subtract. All
    codes of TILE entries are read while these entries are in the L1 cache.
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
    """Return a row of codes for each slice (see `read_slices`). Each row of `entries` is an entry."""
    codes = np.empty((len(slices), len(entries)), np.int64)
    numbers = np.array(slices, np.int64).reshape(-1)
    read_slices(entries, len(entries), entries.shape[1], numbers, len(slices), codes)
    return codes


def whole_words(first: int, end: int) -> list[tuple[int, int, int, int]]:
    """Return a slice for each of the words `[first, end)`."""
    return [(word, 0, -1, 0) for word in range(first, end)]


@dataclass(frozen=True, slots=True)
class Slice:
    """The bits of a code in a key: bits `[shift, shift + bits)` of the key word with index `word`."""

    word: int
    shift: int
    bits: int


def code_widths(key: Key, version: int) -> list[int]:
    """Return the number of bits of each code of a key. `version` is the IP version of an address, 0 for NULL."""
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
    """The layout of one table's keys. `slices`: the bits of each key's codes. `words`: number of key words."""

    def __init__(self, keys: Sequence[Key], versions: Sequence[int] = ()) -> None:
        """Compute the layout. `versions` are the IP versions of the address keys, in order."""
        self.keys = keys
        next_version = iter(versions)
        self.versions = [next(next_version) if key.expression.type is Type.ADDRESS else 0 for key in keys]
        self.slices: list[list[Slice]] = []
        self.names: dict[str, Sequence[str]] = {}  # the texts by ID, for each text key
        used_bits: list[int] = []  # by word
        for key, version in zip(keys, self.versions, strict=True):
            slices = []
            for bits in code_widths(key, version):
                word = next((word for word, used in enumerate(used_bits) if used + bits <= 64), len(used_bits))
                if word == len(used_bits):
                    used_bits.append(0)
                slices.append(Slice(word, used_bits[word], bits))
                used_bits[word] += bits
            self.slices.append(slices)
        self.words = len(used_bits)

    def pack(self, columns: Columns, rows: int, words: npt.NDArray[np.int64]) -> None:
        """Evaluate the keys over `rows` rows, and pack them into `words` (number of words x capacity)."""
        word_pieces: list[list[tuple[npt.NDArray[np.int64], int, int]]] = [[] for _ in range(self.words)]
        for key, version, slices in zip(self.keys, self.versions, self.slices, strict=True):
            codes = self._codes(key, version, columns, rows, len(slices))
            for bits, (code, add) in zip(slices, codes, strict=True):
                word_pieces[bits.word].append((code, bits.shift, add))
        for word, pieces in zip(words, word_pieces, strict=False):
            first = pieces[:CODES_PER_PASS]
            padding = pieces[:1] * (CODES_PER_PASS - len(first))
            pack_word(word, False, *chain.from_iterable(first + padding), len(first), rows)
            for piece in pieces[CODES_PER_PASS:]:
                pack_word(word, True, *piece * CODES_PER_PASS, 1, rows)

    def _codes(
        self, key: Key, version: int, columns: Columns, rows: int, count: int
    ) -> Iterator[tuple[npt.NDArray[np.int64], int]]:
        """Yield the `count` codes of a key as int64 columns, each with the number to add to its values."""
        vector = evaluate(key.expression, columns)
        if isinstance(vector, AddressVector):
            for half in {0: [], 4: [vector.low], 6: [vector.high, vector.low]}[version]:
                column = np.ascontiguousarray(half) if half.ndim else np.full(rows, half)
                yield column.view(np.int64), 0
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
            yield data if vector.null_number == -1 else np.where(valid, data, -1), 1
            return
        yield np.where(valid, data, 0), 0
        yield np.ascontiguousarray(np.broadcast_to(~valid, rows), np.int64), 0

    def unpack(self, entries: npt.NDArray[np.int64], first: int = 0) -> list[pa.Array]:
        """Return the key columns of `entries`, which are contiguous rows of words with the keys from `first` on."""
        slices = [
            (
                first + code.word,
                code.shift,
                -1 if code.bits == 64 else (1 << code.bits) - 1,
                self._added_number(key, of_key),
            )
            for key, of_key in zip(self.keys, self.slices, strict=True)
            for code in of_key
        ]
        codes = codes_of(entries, slices)
        columns = []
        first_code = 0
        for key, version, of_key in zip(self.keys, self.versions, self.slices, strict=True):
            key_codes = codes[first_code : first_code + len(of_key)]
            first_code += len(of_key)
            if key.expression.type is Type.ADDRESS:
                columns.append(
                    to_arrow(version, key_codes[0].view(np.uint64), key_codes[-1].view(np.uint64))
                    if of_key
                    else pa.nulls(len(entries), pa.binary())
                )
            else:
                columns.append(self._column(key, key_codes))
        return columns

    @staticmethod
    def _added_number(key: Key, slices: Sequence[Slice]) -> int:
        """Return the number that was added to the values of a key: 1 if code 0 of the key means NULL, otherwise 0."""
        return int(len(slices) == 1 and key.expression.nullable and key.expression.type is not Type.ADDRESS)

    def _column(self, key: Key, codes: npt.NDArray[np.int64]) -> pa.Array:
        """Return the column of a key that is not an address."""
        type_ = key.expression.type
        data = codes[0]
        nulls = None
        if key.expression.nullable:
            nulls = data == -1 if len(codes) == 1 else codes[1] != 0
            nulls = nulls if nulls.any() else None
        if type_ is Type.TEXT:
            distinct, indexes = np.unique(data, return_inverse=True)  # -1 is NULL
            names = self.names[key.name]
            texts = [None if text_id < 0 else names[text_id] for text_id in distinct.tolist()]
            return pc.take(pa.array(texts, pa.string()), array_of(indexes))
        if type_ is Type.MAC:
            return macs_to_arrow(data, None if nulls is None else ~nulls)
        if type_ is Type.FLOAT:
            data = data.view(np.float64)
        return pc.cast(array_of(data, nulls), ARROW_TYPES[type_])
