"""Keys: conversion of group columns of Arrow batches to dense group IDs, and of IDs back to columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from highlevel.groups.ids import NO_GROUP, GroupIds
from highlevel.groups.key_words import WIDTHS, Form, Words, form_of, is_string, pack, unpack
from highlevel.groups.long_strings import LongStrings


class Keys:
    """All known groups.

    The keys of a column are stored in a form (`Form`). If a value does not fit this form, all keys of the column are
    converted to a wider form. The IDs do not change.
    """

    def __init__(self, kinds: Sequence[pa.DataType]) -> None:
        """Group by columns of these Arrow types."""
        self.kinds = list(kinds)
        self.forms = [Form.SHORT if is_string(kind) else Form.NUMBER for kind in kinds]
        self.ids = GroupIds(sum(WIDTHS[form] for form in self.forms))
        self._strings: dict[int, LongStrings] = {}  # by index of the column, if its form is LONG

    @property
    def count(self) -> int:
        """Number of known groups. All IDs are smaller."""
        return self.ids.count

    @property
    def capacity(self) -> int:
        """Number of groups for which memory is allocated."""
        return len(self.ids.keys)

    @property
    def bytes(self) -> int:
        """Bytes of the groups."""
        return self.ids.bytes + sum(strings.bytes for strings in self._strings.values())

    def find_or_insert(self, columns: Sequence[pa.Array], rows: int) -> Words:
        """Return the IDs of the groups of some rows. New groups get the next IDs."""
        forms = [max(before, form_of(column)) for before, column in zip(self.forms, columns, strict=True)]
        if forms != self.forms:
            self._convert_to(forms)
        return self.ids.find(self._words(columns, rows, add=True), inserts=True)

    def find(self, columns: Sequence[pa.Array], rows: int) -> Words:
        """Return the IDs of the groups of some rows, NO_GROUP for an unknown group."""
        if self.count == 0:
            return np.full(rows, NO_GROUP)
        forms = [max(before, form_of(column)) for before, column in zip(self.forms, columns, strict=True)]
        if forms != self.forms:
            self._convert_to(forms)
        return self.ids.find(self._words(columns, rows, add=False), inserts=False)

    def columns(self, ids: npt.NDArray[np.int64] | None = None) -> list[pa.Array]:
        """Return the columns of the groups `ids`, by default of all groups in the order of their IDs."""
        keys = self.ids.keys[: self.count] if ids is None else self.ids.keys[ids]
        columns = []
        word = 0
        for index, (form, kind) in enumerate(zip(self.forms, self.kinds, strict=True)):
            words = keys[:, word : word + WIDTHS[form]].T
            word += WIDTHS[form]
            if form is Form.LONG:
                columns.append(self._strings[index].take(words[0]))
            else:
                columns.append(unpack(words, form, kind))
        return columns

    def copy_of(self, ids: npt.NDArray[np.int64]) -> Keys:
        """Return a copy that contains only the groups `ids`. Their new IDs are 0, 1, 2, …."""
        copy = Keys(self.kinds)
        copy.find_or_insert(self.columns(ids), len(ids))
        return copy

    def _convert_to(self, forms: list[Form]) -> None:
        """Convert the known groups to the forms `forms`, which are wider."""
        columns, count = self.columns(), self.count
        self.forms = forms
        self.ids = GroupIds(sum(WIDTHS[form] for form in forms))
        self.ids.find(self._words(columns, count, add=True), inserts=True)

    def _words(self, columns: Sequence[pa.Array], rows: int, *, add: bool) -> Words:
        words = np.empty((self.ids.width, rows), np.int64)
        word = 0
        for index, (form, column) in enumerate(zip(self.forms, columns, strict=True)):
            column_words = words[word : word + WIDTHS[form]]
            word += WIDTHS[form]
            if form is Form.LONG:
                if index not in self._strings:
                    self._strings[index] = LongStrings(self.kinds[index])
                column_words[0] = self._strings[index].numbers(column, add)
            else:
                pack(column, form, column_words)
        return words
