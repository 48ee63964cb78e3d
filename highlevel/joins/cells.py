"""Encoding of the columns of stored rows in as few machine words as possible, and back.

The encoding is the same as in `highlevel.groups.key_words`, except for NULL: NULL numbers are bits of one word that all
columns share. Rows have this word only if a NULL has arrived.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from highlevel.groups.key_words import WIDTHS, Form, Words, form_of, is_string, pack, to_number_words, unpack
from highlevel.groups.long_strings import LongStrings

BITS = 63
"""Number of NULL bits in a word, without the sign."""


class Cells:
    """Encoding of some columns in words.

    The forms of one object do not change. `extended_to` returns an object with greater forms.
    """

    def __init__(self, kinds: Sequence[pa.DataType]) -> None:
        """Encode columns of these Arrow types, in their smallest forms."""
        self.kinds = list(kinds)
        self.forms = [Form.SHORT if is_string(kind) else Form.NUMBER for kind in kinds]
        self.has_nulls = False
        self.strings: dict[int, LongStrings] = {}  # of LONG columns, by their index

    @property
    def width(self) -> int:
        """Words of a row."""
        return sum(WIDTHS[form] for form in self.forms) + self._null_words

    @property
    def _null_words(self) -> int:
        return -(-self.forms.count(Form.NUMBER) // BITS) if self.has_nulls else 0

    @property
    def bytes(self) -> int:
        """Bytes of long strings."""
        return sum(strings.bytes for strings in self.strings.values())

    def extended_to(self, columns: Sequence[pa.Array]) -> Cells | None:
        """Return an encoding for these columns and all earlier values, or None if this encoding suffices."""
        needed_forms = [form_of(column) for column in columns]
        nulls = self.has_nulls or Form.NULLABLE in needed_forms
        plain = [Form.NUMBER if form is Form.NULLABLE else form for form in needed_forms]
        forms = [max(before, form) for before, form in zip(self.forms, plain, strict=True)]
        if forms == self.forms and nulls == self.has_nulls:
            return None
        cells = Cells(self.kinds)
        cells.forms, cells.has_nulls, cells.strings = forms, nulls, dict(self.strings)
        cells._begin_strings()
        return cells

    def with_new_strings(self) -> Cells:
        """Return the same encoding without stored strings."""
        cells = Cells(self.kinds)
        cells.forms, cells.has_nulls = self.forms, self.has_nulls
        cells._begin_strings()
        return cells

    def _begin_strings(self) -> None:
        for position, form in enumerate(self.forms):
            if form is Form.LONG and position not in self.strings:
                self.strings[position] = LongStrings(self.kinds[position])

    def pack(self, columns: Sequence[pa.Array], out: Words) -> None:
        """Write columns that fit into the forms to `out`, width x rows and contiguous."""
        at = self._null_words
        out[:at] = 0
        number = 0
        for position, (form, column) in enumerate(zip(self.forms, columns, strict=True)):
            column_words = out[at : at + WIDTHS[form]]
            at += WIDTHS[form]
            if form is Form.LONG:
                column_words[0] = self.strings[position].numbers(column, True)
            elif form is Form.NUMBER:
                if column.null_count:
                    out[number // BITS] |= np.asarray(pc.is_null(column)).astype(np.int64) << number % BITS
                    zero = pa.scalar(False if pa.types.is_boolean(column.type) else 0, column.type)
                    column = pc.fill_null(column, zero)
                column_words[0] = _exact_words(column)
                number += 1
            else:
                pack(column, form, column_words)

    def words_of(self, column_indexes: Sequence[int]) -> list[int]:
        """Return the indexes of the words that `unpack` reads for the columns with the indexes `column_indexes`."""
        firsts = np.cumsum([self._null_words, *(WIDTHS[form] for form in self.forms)]).tolist()
        own = [word for place in column_indexes for word in range(firsts[place], firsts[place + 1])]
        return [*range(self._null_words), *own]

    def unpack(self, words: Words, column_indexes: Sequence[int]) -> list[pa.Array]:
        """Return the columns with the indexes `column_indexes`, decoded from words, width x rows."""
        firsts = np.cumsum([self._null_words, *(WIDTHS[form] for form in self.forms)]).tolist()
        columns = []
        for position in column_indexes:
            form, own = self.forms[position], words[firsts[position] : firsts[position + 1]]
            if form is Form.LONG:
                columns.append(self.strings[position].take(own[0]))
            elif form is Form.NUMBER and self.has_nulls:
                number = self.forms[:position].count(Form.NUMBER)
                null = words[number // BITS] >> number % BITS & 1
                columns.append(unpack(np.stack([own[0], null]), Form.NULLABLE, self.kinds[position]))
            else:
                columns.append(unpack(own, form, self.kinds[position]))
        return columns


def _exact_words(column: pa.Array) -> Words:
    """Return the values of a column of numbers without NULLs as words, bit by bit."""
    if column.type == pa.float64():
        return np.ascontiguousarray(column.to_numpy(zero_copy_only=False)).view(np.int64)
    return to_number_words(column)
