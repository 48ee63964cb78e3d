"""Keys: from group columns of Arrow batches to dense ids, and from ids back to columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from highlevel.groups.ids import NOBODY, GroupIds
from highlevel.groups.key_words import WIDTHS, Form, Words, form_of, is_string, pack, unpack


class Keys:
    """The groups seen so far. A column that needs a greater form than before is laid out anew; ids stay as they are."""

    def __init__(self, kinds: Sequence[pa.DataType]) -> None:
        """Group by columns of these Arrow types."""
        self.kinds = list(kinds)
        self.forms = [Form.SHORT if is_string(kind) else Form.NUMBER for kind in kinds]
        self.ids = GroupIds(sum(WIDTHS[form] for form in self.forms))
        self._texts = [pa.array([], kind) for kind in self.kinds]  # of LONG columns: what their numbers stand for

    @property
    def count(self) -> int:
        """Groups seen; their ids are smaller."""
        return self.ids.count

    @property
    def room(self) -> int:
        """Ids below which no memory is needed for more groups."""
        return len(self.ids.keys)

    @property
    def bytes(self) -> int:
        """Memory of the groups."""
        return self.ids.bytes + sum(int(texts.nbytes) for texts in self._texts)

    def of(self, columns: Sequence[pa.Array], rows: int) -> Words:
        """Return the ids of the groups of some rows; new ones get the next numbers."""
        forms = [max(before, form_of(column)) for before, column in zip(self.forms, columns, strict=True)]
        if forms != self.forms:
            self._lay_out(forms)
        return self.ids.of(self._words(columns, rows, True))

    def find(self, columns: Sequence[pa.Array], rows: int) -> Words:
        """Return the ids of the groups of some rows, NOBODY where a group has not been seen."""
        if self.count == 0:
            return np.full(rows, NOBODY)
        forms = [max(before, form_of(column)) for before, column in zip(self.forms, columns, strict=True)]
        if forms != self.forms:
            self._lay_out(forms)
        return self.ids.of(self._words(columns, rows, False), False)

    def columns(self, ids: npt.NDArray[np.int64] | None = None) -> list[pa.Array]:
        """Return the columns of all groups in the order of their ids, or those of some ids."""
        keys = self.ids.keys[: self.count] if ids is None else self.ids.keys[ids]
        found = []
        at = 0
        for form, kind, texts in zip(self.forms, self.kinds, self._texts, strict=True):
            words = keys[:, at : at + WIDTHS[form]].T
            at += WIDTHS[form]
            if form is Form.LONG:
                found.append(texts.take(pa.array(words[0], mask=words[0] == NOBODY)))
            else:
                found.append(unpack(words, form, kind))
        return found

    def only(self, ids: npt.NDArray[np.int64]) -> Keys:
        """Return some groups alone, with the ids 0, 1, 2, … in their order."""
        kept = Keys(self.kinds)
        kept.of(self.columns(ids), len(ids))
        return kept

    def _lay_out(self, forms: list[Form]) -> None:
        """Give the groups seen greater forms."""
        columns, count = self.columns(), self.count
        self.forms = forms
        self.ids = GroupIds(sum(WIDTHS[form] for form in forms))
        self.ids.of(self._words(columns, count, True))

    def _words(self, columns: Sequence[pa.Array], rows: int, add: bool) -> Words:
        words = np.empty((self.ids.width, rows), np.int64)
        at = 0
        for place, (form, column) in enumerate(zip(self.forms, columns, strict=True)):
            own = words[at : at + WIDTHS[form]]
            at += WIDTHS[form]
            if form is Form.LONG:
                own[0] = self._numbers_of(place, column, add)
            else:
                pack(column, form, own)
        return words

    def _numbers_of(self, place: int, column: pa.Array, add: bool) -> Words:
        """Return a number for each string, the same for equal ones. Arrow hashes them."""
        encoded = column.dictionary_encode()
        known = pc.index_in(encoded.dictionary, value_set=self._texts[place])
        numbers = known.fill_null(UNKNOWN).to_numpy(zero_copy_only=False).astype(np.int64)
        new = np.flatnonzero(numbers == UNKNOWN)
        if add and len(new):
            numbers[new] = np.arange(len(new)) + len(self._texts[place])
            self._texts[place] = pa.concat_arrays([self._texts[place], encoded.dictionary.take(pa.array(new))])
        places = encoded.indices.fill_null(len(numbers)).to_numpy(zero_copy_only=False)
        return np.append(numbers, NOBODY)[places]


UNKNOWN = -2
"""Stands for a string that no group has; NULL is NOBODY."""
