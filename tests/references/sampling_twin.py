"""Slow references of subset-sum and reservoir sampling: row by row, with random numbers in integers of Python.

A row is (window, supergroup, item, weight). Each function returns the rows of the result, and the state of the sample
is in plain dicts. The hash is SplitMix64 as `lowlevel.expressions.hashing` documents it.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from hashlib import blake2b

Row = tuple[int, int, int, int]

MASK = 2**64 - 1


def reference_hash(*words: int) -> int:
    """Return the hash of integers, 63 bits."""
    state = 0
    for word in (part for value in words for part in (1, value)):
        state = ((state ^ (word & MASK)) + 0x9E3779B97F4A7C15) & MASK
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & MASK
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB & MASK
        state ^= state >> 31
    return state >> 1


def fraction(number: int) -> float:
    """Return a number in (0, 1] made of a hash."""
    return ((number >> 10) + 1) / 2**53


def part_seed(seed: int, part: tuple[int, ...]) -> int:
    """Return the seed of a supergroup in a window."""
    return int.from_bytes(blake2b(repr((seed, part)).encode(), digest_size=8).digest(), "big") >> 1


def reservoir(rows: Sequence[Row], size: int, seed: int) -> set[Row]:
    """Return the `size` rows of each window and supergroup with the smallest tickets, without any cleaning."""
    tickets: dict[tuple[int, int], list[tuple[int, Row]]] = {}
    for row in rows:
        members = tickets.setdefault(row[:2], [])
        members.append((reference_hash(part_seed(seed, row[:2]), 0, len(members)), row))
    return {row for members in tickets.values() for _, row in sorted(members)[:size]}


class _SubsetSum:
    def __init__(self, size: int, seed: int, z: float) -> None:
        self.size, self.seed, self.z = size, seed, z
        self.seen = self.drawn = 0
        self.rows: list[Row] = []

    def add(self, row: Row) -> None:
        chance = fraction(reference_hash(self.seed, 0, self.seen))
        self.seen += 1
        if row[3] > 0 and chance * self.z <= row[3]:
            self.rows.append(row)
            if len(self.rows) > 2 * self.size:
                self.clean()

    def clean(self) -> None:
        if len(self.rows) <= self.size:
            return
        weights = [max(row[3], self.z) for row in self.rows]
        self.z = self._threshold(weights)
        odds = [min(1.0, weight / self.z) for weight in weights]
        kept = {at for at, odd in enumerate(odds) if odd == 1.0}
        free = [at for at, odd in enumerate(odds) if odd < 1.0]
        missing = self.size - len(kept)
        first = self.drawn
        self.drawn += len(weights)
        holder, p = free[0], odds[free[0]]
        for turn, at in enumerate(free[1:]):
            chance, q = fraction(reference_hash(self.seed, 1, first + turn)), odds[at]
            both = p + q
            if both < 1:
                holder, p = (at if chance * both <= q else holder), both
            elif chance * (2 - both) <= 1 - p:
                kept.add(at)
                missing, p = missing - 1, both - 1
            else:
                kept.add(holder)
                holder, missing, p = at, missing - 1, both - 1
        if missing:
            kept.add(holder)
        self.rows = [row for at, row in enumerate(self.rows) if at in kept]

    def _threshold(self, weights: list[float]) -> float:
        """Return z with sum(min(1, w/z)) = size, by exact fractions."""
        exact = sorted(map(Fraction, weights), reverse=True)
        for large in range(self.size):
            z = sum(exact[large:], Fraction()) / (self.size - large)
            if z >= exact[large]:
                return float(z)
        raise AssertionError(weights)


def subset_sum(rows: Sequence[Row], size: int, seed: int) -> dict[Row, float]:
    """Return the sampled rows with the last threshold of their window and supergroup."""
    states: dict[tuple[int, int], _SubsetSum] = {}
    for row in rows:
        part = row[:2]
        if part not in states:
            before = states.get((part[0] - 1, part[1]))
            states[part] = _SubsetSum(size, part_seed(seed, part), 0.0 if before is None else before.z / 10)
        states[part].add(row)
    result = {}
    for state in states.values():
        state.clean()
        result |= dict.fromkeys(state.rows, state.z)
    return result
