"""Keys of a filter join as words, the same for equal keys whichever columns they are made of.

An integer is one word. An address is two, and the versions of all addresses of a key are one more: 10.0.0.1 is not
::a00:1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lowlevel.evaluate import evaluate
from lowlevel.expressions import Expression
from lowlevel.types import Type
from lowlevel.vectors import AddressVector, Columns, Mask, Vector

VERSION_BITS = 3
"""Of an address in the word of versions."""

Words = npt.NDArray[np.int64]


def words_of(key: Sequence[Expression]) -> int:
    """Return how many words a key takes."""
    addresses = sum(part.type is Type.ADDRESS for part in key)
    return len(key) + addresses + (addresses > 0)


def key_words(key: Sequence[Expression], columns: Columns, rows: int) -> tuple[Words, Mask]:
    """Return the words of each row's key, a row of the result for each word, and where no part of it is NULL."""
    words = np.zeros((words_of(key), rows), np.int64)
    valid = np.ones(rows, np.bool_)
    at, addresses = 0, 0
    for part in key:
        vector = evaluate(part, columns)
        if isinstance(vector, AddressVector):
            words[at] = vector.low.view(np.int64)
            words[at + 1] = vector.high.view(np.int64)
            words[-1] |= np.asarray(vector.version, np.int64) << (VERSION_BITS * addresses)
            at, addresses = at + 2, addresses + 1
        else:
            assert isinstance(vector, Vector)
            words[at] = vector.data
            at += 1
        if vector.valid is not None:
            valid &= vector.valid
    return words, valid
