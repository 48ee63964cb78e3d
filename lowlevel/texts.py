"""Text columns: each distinct text is kept and looked at once, rows are compared by their ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from lowlevel.vectors import Mask, TextVector


class Names:
    """A list of distinct texts that grows at its end: what the ids of a `TextVector` stand for, over many batches."""

    def __init__(self) -> None:
        """Begin with none."""
        self.texts: list[str] = []
        self._places: dict[str, int] = {}

    def add(self, text: str) -> int:
        """Return the id of a text, a new one for a new text."""
        place = self._places.setdefault(text, len(self.texts))
        if place == len(self.texts):
            self.texts.append(text)
        return place


def equal(left: TextVector, right: TextVector) -> Mask:
    """Return where two columns, or a column and a constant, are the same text. What is NULL is arbitrary."""
    if right.ids.ndim == 0:
        wanted = right.names[int(right.ids)]
        return holds(left, lambda name: name == wanted)
    if left.ids.ndim == 0:
        return equal(right, left)
    if left.names is right.names:
        return np.asarray(left.ids == right.ids)
    places = {name: place for place, name in enumerate(right.names)}
    translated = np.array([places.get(name, -1) for name in left.names], np.int64)
    return np.asarray(translated[left.ids] == right.ids)


def holds(vector: TextVector, test: Callable[[str], bool]) -> Mask:
    """Return where a text passes a test."""
    return np.asarray(_of_names(vector, test, np.bool_))


def lengths(vector: TextVector) -> npt.NDArray[np.int64]:
    """Return how many characters each text has."""
    return _of_names(vector, len, np.int64)


def _of_names(vector: TextVector, function: Callable[[str], object], kind: type) -> npt.NDArray[Any]:
    """Apply a function to the names that can occur: a long list of names is not walked for a few rows."""
    if not vector.names:  # all are NULL
        return np.zeros(vector.ids.shape, kind)
    if len(vector.names) <= vector.ids.size:
        return np.array([function(name) for name in vector.names], kind)[vector.ids]
    distinct, places = np.unique(vector.ids, return_inverse=True)
    return np.array([function(vector.names[each]) for each in distinct.tolist()], kind)[
        places.reshape(vector.ids.shape)
    ]
