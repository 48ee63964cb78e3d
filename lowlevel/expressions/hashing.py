"""Hashes of values, for hash-based selection of packets (RFC 5475, section 6.2).

A hash is a number of 63 bits that depends only on the values. Equal values have equal hashes on every link, thread,
engine and machine. So all observation points select the same packets, and a sample can be repeated.

Each value becomes one or several words of 64 bits. The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)
mixes the words in order. Its output bits depend on all input bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from lowlevel.expressions.columns import AddressVector, AnyVector, Mask, TextVector, Vector

Words = npt.NDArray[np.uint64]

GAMMA = 0x9E3779B97F4A7C15
MIX_STEPS = (0xBF58476D1CE4E5B9, 30), (0x94D049BB133111EB, 27)
"""The constants of SplitMix64: the increment, and pairs of a multiplier and the shift before the multiplication."""

LAST_SHIFT = 31
"""The shift of the last step of SplitMix64."""
HASH_BITS = 63
"""Number of bits of a hash, so that it is not negative."""

FRACTION_BITS = 53
"""Number of bits of a uniform number: a float's significand has this number of bits."""


def hash_values(vectors: Sequence[AnyVector]) -> Vector:
    """Return the hash of the values in each row, from 0 to 2**63 - 1. NULL differs from every value."""
    state: Words = np.zeros((), np.uint64)
    with np.errstate(over="ignore"):
        for vector in vectors:
            for words in _words(vector):
                state = _mix((state ^ words) + np.uint64(GAMMA))
    return Vector(np.asarray(state >> np.uint64(64 - HASH_BITS)).astype(np.int64))


def uniform(hashes: Vector) -> Vector:
    """Convert hashes to floats in (0, 1] with FRACTION_BITS bits."""
    numbers = np.asarray(hashes.data) >> (HASH_BITS - FRACTION_BITS)
    return Vector(np.asarray((numbers + 1) / 2.0**FRACTION_BITS))


def _mix(words: Words) -> Words:
    for multiplier, shift in MIX_STEPS:
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(multiplier)
    return words ^ (words >> np.uint64(LAST_SHIFT))


def _words(vector: AnyVector) -> list[Words]:
    """Return the words of each value: 1 and the words of the value, or zeros for a NULL."""
    match vector:
        case AddressVector(version, high, low):
            parts = [version, high, low]
        case TextVector(ids, names):
            hashes = np.array([_text_hash(name) for name in names] or [0], np.uint64)
            known_ids = ids if vector.valid is None else np.where(vector.valid, ids, 0)
            parts = [np.asarray(hashes[known_ids])]
        case Vector(data):
            data = np.asarray(data)
            # -0.0 is equal to 0.0.
            parts = [(data + 0.0).view(np.uint64) if data.dtype == np.float64 else data]
        case _:
            raise TypeError(f"got {type(vector).__name__}, expected numbers, texts or addresses")
    return [_not_null_words(vector.valid), *(_zero_if_null(vector.valid, part.astype(np.uint64)) for part in parts)]


def _not_null_words(valid: Mask | None) -> Words:
    return np.ones((), np.uint64) if valid is None else valid.astype(np.uint64)


def _zero_if_null(valid: Mask | None, words: Words) -> Words:
    return words if valid is None else np.where(valid, words, np.uint64(0))


def _text_hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
