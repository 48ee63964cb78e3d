"""The dictionary of texts that the kernels fill, seen from Python."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from capture.flows.kernels.texts import ARENA, MAX_TEXTS, TEXT_SLOTS

Numbers = npt.NDArray[np.int64]


class Names:
    """What the strings of a dictionary are called in one form: distinct `names`, and the place in them by number.

    Two strings may have one name: bytes that are no UTF-8 are written as text.
    """

    def __init__(self, render: Callable[[bytes], str]) -> None:
        """Call strings by `render`."""
        self.names: list[str] = []
        self.places: Numbers = np.empty(0, np.int64)
        self._render = render
        self._known: dict[str, int] = {}

    def extend(self, ends: list[int], data: bytes) -> None:
        """Name further strings; string n of them is `data[ends[n] - ends[0] : ends[n + 1] - ends[0]]`."""
        places = []
        for start, end in pairwise(ends):
            name = self._render(data[start - ends[0] : end - ends[0]])
            place = self._known.setdefault(name, len(self.names))
            if place == len(self.names):
                self.names.append(name)
            places.append(place)
        self.places = np.append(self.places, np.array(places, np.int64))


class Texts:
    """Strings by number. Numbers and names stay what they are; when it is full a new one takes its place.

    Memory is fixed: about 10 MB for the strings of a decoder that has columns of text, and their names; next to
    nothing without.
    """

    def __init__(self, needed: bool = True) -> None:
        """Hold nothing but the empty string, which is number 0."""
        self.slots = np.zeros(TEXT_SLOTS if needed else 1, np.int64)
        self.ends = np.zeros(MAX_TEXTS + 1 if needed else 2, np.int64)
        self.arena = np.zeros(ARENA if needed else 1, np.uint8)
        self.used = np.ones(1, np.int64)
        self._texts = Names(lambda data: data.decode(errors="backslashreplace"))
        self._octets = Names(bytes.hex)

    def __len__(self) -> int:
        return int(self.used[0])

    def texts(self) -> Names:
        """Name all strings as text: UTF-8, and each byte that is none by its number."""
        return self._extended(self._texts)

    def octets(self) -> Names:
        """Name all strings by their hexadecimal digits."""
        return self._extended(self._octets)

    def _extended(self, names: Names) -> Names:
        known = len(names.places)
        if known < len(self):
            ends = self.ends[known : len(self) + 1].tolist()
            names.extend(ends, self.arena[ends[0] : ends[-1]].tobytes())
        return names
