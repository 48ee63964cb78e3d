"""The dictionary of texts that the kernels fill, seen from Python."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from capture.flows.kernels.texts import ARENA, MAX_TEXTS, TEXT_SLOTS


class Texts:
    """Strings by number. Numbers and names stay what they are; when it is full a new one takes its place.

    Memory is fixed: about 10 MB for the strings of a decoder that has columns of text, next to nothing without.
    """

    def __init__(self, needed: bool = True) -> None:
        """Hold nothing but the empty string, which is number 0."""
        self.slots = np.zeros(TEXT_SLOTS if needed else 1, np.int64)
        self.ends = np.zeros(MAX_TEXTS + 1 if needed else 2, np.int64)
        self.arena = np.zeros(ARENA if needed else 1, np.uint8)
        self.used = np.ones(1, np.int64)
        self._texts: list[str] = []
        self._octets: list[str] = []

    def __len__(self) -> int:
        return int(self.used[0])

    def texts(self) -> list[str]:
        """Return all strings as text: UTF-8, and each byte that is none by its number."""
        self._extend(self._texts, lambda data: data.decode(errors="backslashreplace"))
        return self._texts

    def octets(self) -> list[str]:
        """Return all strings as hexadecimal digits."""
        self._extend(self._octets, bytes.hex)
        return self._octets

    def _extend(self, names: list[str], render: Callable[[bytes], str]) -> None:
        ends = self.ends[len(names) : len(self) + 1].tolist()
        start = ends[0] if ends else 0
        data = self.arena[start : ends[-1]].tobytes() if ends else b""
        names += [render(data[one - start : other - start]) for one, other in pairwise(ends)]
