"""The dictionary of strings that kernels fill, and the texts of these strings for columns."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from capture.flows.kernels.texts import MAX_TEXT_BYTES, MAX_TEXTS, TEXT_SLOTS

Int64Array = npt.NDArray[np.int64]


class Names:
    """Names of a dictionary's strings, as text or in hexadecimal. `name_indices`: index in `names` by string number.

    The `names` are distinct. Two strings can have the same name: an invalid UTF-8 byte is written as an escape
    sequence, and another string may contain the text of this sequence.
    """

    def __init__(self, render: Callable[[bytes], str]) -> None:
        """Begin without strings. `render` returns the name of a string."""
        self.names: list[str] = []
        self.name_indices: Int64Array = np.empty(0, np.int64)
        self._render = render
        self._known: dict[str, int] = {}

    def extend(self, ends: list[int], data: bytes) -> None:
        """Add strings; string n is `data[ends[n] - ends[0] : ends[n + 1] - ends[0]]`."""
        indices = []
        for start, end in pairwise(ends):
            name = self._render(data[start - ends[0] : end - ends[0]])
            index = self._known.setdefault(name, len(self.names))
            if index == len(self.names):
                self.names.append(name)
            indices.append(index)
        self.name_indices = np.append(self.name_indices, np.array(indices, np.int64))


class Texts:
    """Strings by number. Numbers and names never change. A full dictionary is replaced by a new dictionary.

    Memory is fixed: about 10 MB for the strings and their names if the decoder has text columns, almost none otherwise.
    """

    def __init__(self, is_needed: bool = True) -> None:
        """Create a dictionary with only the empty string, which is number 0."""
        self.slots = np.zeros(TEXT_SLOTS if is_needed else 1, np.int64)
        self.ends = np.zeros(MAX_TEXTS + 1 if is_needed else 2, np.int64)
        self.arena = np.zeros(MAX_TEXT_BYTES if is_needed else 1, np.uint8)
        self.used = np.ones(1, np.int64)
        self._texts = Names(lambda data: data.decode(errors="backslashreplace"))
        self._octets = Names(bytes.hex)

    def __len__(self) -> int:
        return int(self.used[0])

    def texts(self) -> Names:
        """Return all strings as text: UTF-8, with escape sequences for invalid bytes."""
        return self._update(self._texts)

    def octets(self) -> Names:
        """Return all strings in hexadecimal."""
        return self._update(self._octets)

    def _update(self, names: Names) -> Names:
        known = len(names.name_indices)
        if known < len(self):
            ends = self.ends[known : len(self) + 1].tolist()
            names.extend(ends, self.arena[ends[0] : ends[-1]].tobytes())
        return names
