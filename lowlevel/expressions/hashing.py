"""Hashes of values, for hash-based selection of packets (RFC 5475, section 6.2).

A hash is a number of 63 bits that depends on the values only: it is equal on every link, thread, engine and machine. So
all observation points select the same packets, and a sample can be repeated.

Each value becomes one or several words of 64 bits. The words are mixed one after the other by the finaliser of
SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), whose output bits depend on all input bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from lowlevel.expressions.columns import AddressVector, AnyVector, Mask, TextVector, Vector

Words = npt.NDArray[np.uint64]

GAMMA = 0x9E3779B97F4A7C15
MIX = (0xBF58476D1CE4E5B9, 30), (0x94D049BB133111EB, 27)
"""The constants of SplitMix64: the increment, and multipliers with the shifts before them."""

LAST_SHIFT = 31
HASH_BITS = 63
"""Number of bits of a hash, so that it is not negative."""

FRACTION_BITS = 53
"""Number of bits of a uniform number: those of a float's significand."""


def hash_values(vectors: Sequence[AnyVector]) -> Vector:
    """Return the hash of the values in each row, from 0 to 2**63 - 1. NULL is a value of its own."""
    state: Words = np.zeros((), np.uint64)
    with np.errstate(over="ignore"):
        for vector in vectors:
            for words in _words(vector):
                state = _mixed((state ^ words) + np.uint64(GAMMA))
    return Vector(np.asarray(state >> np.uint64(64 - HASH_BITS)).astype(np.int64))


def uniform(hashes: Vector) -> Vector:
    """Return numbers in (0, 1] with FRACTION_BITS bits, made of hashes."""
    numbers = np.asarray(hashes.data) >> (HASH_BITS - FRACTION_BITS)
    return Vector(np.asarray((numbers + 1) / 2.0**FRACTION_BITS))


def _mixed(words: Words) -> Words:
    for multiplier, shift in MIX:
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(multiplier)
    return words ^ (words >> np.uint64(LAST_SHIFT))


def _words(vector: AnyVector) -> list[Words]:
    """Return the words of each value: first whether there is a value, then the value, or 0."""
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
    return [_known(vector.valid), *(_where(vector.valid, part.astype(np.uint64)) for part in parts)]


def _known(valid: Mask | None) -> Words:
    return np.ones((), np.uint64) if valid is None else valid.astype(np.uint64)


def _where(valid: Mask | None, words: Words) -> Words:
    return words if valid is None else np.where(valid, words, np.uint64(0))


def _text_hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
