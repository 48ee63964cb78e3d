"""The dictionary of texts that kernels fill, for use in Python."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from capture.flows.kernels.texts import ARENA, MAX_TEXTS, TEXT_SLOTS

Numbers = npt.NDArray[np.int64]


class Names:
    """Strings of a dictionary as text or in hexadecimal. `name_indices`: index in `names` by string number.

    The `names` are distinct. Two strings can have the same name, for example if bytes that are not UTF-8 are written as
    text.
    """

    def __init__(self, render: Callable[[bytes], str]) -> None:
        """Represent strings by `render`."""
        self.names: list[str] = []
        self.name_indices: Numbers = np.empty(0, np.int64)
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
    """Strings by number. Numbers and names never change. A full dictionary is replaced by a new one.

    Memory is fixed: about 10 MB for the strings and their names if the decoder has text columns, almost none otherwise.
    """

    def __init__(self, needed: bool = True) -> None:
        """Create a dictionary with only the empty string, which is number 0."""
        self.slots = np.zeros(TEXT_SLOTS if needed else 1, np.int64)
        self.ends = np.zeros(MAX_TEXTS + 1 if needed else 2, np.int64)
        self.arena = np.zeros(ARENA if needed else 1, np.uint8)
        self.used = np.ones(1, np.int64)
        self._texts = Names(lambda data: data.decode(errors="backslashreplace"))
        self._octets = Names(bytes.hex)

    def __len__(self) -> int:
        return int(self.used[0])

    def texts(self) -> Names:
        """Return all strings as text: UTF-8, with escaped numbers for invalid bytes."""
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
