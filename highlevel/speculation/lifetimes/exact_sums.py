"""Exact sums of floats. Each float is converted to integers, which are added and subtracted.

A float64 is m * 2**e with an integer m below 2**53. In units of 2**-1074, the smallest float, each float is an integer
of at most 2,098 bits. It is divided into limbs of 32 bits:

    value      1.5         =  3 * 2**1073 units
    limb       33, shift 17          word of limb 33: 3 << 17

A word of a sum is the sum of one limb of all values, with their signs. A limb is at most 2**33, so the limbs of 2**30
values fit into a word. The words give the exact sum in any order of additions, and also after values are subtracted
again. The sum is rounded only when it is returned. NaN and infinities are counted in separate words.

The values of most columns have few different exponents. So a limb gets a word only when a value needs it: numbers from
10**-6 to 10**6 need 5 of the 66 words.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc

Words = npt.NDArray[np.int64]

LIMB_BITS = 32
MASK = np.int64(2**LIMB_BITS - 1)
MANTISSA_BITS = 53
UNIT_EXPONENT = 1_074
"""The unit is 2**-1074."""

MAX_LIMBS = 66
NAN, POSITIVE, NEGATIVE = range(MAX_LIMBS + 2, MAX_LIMBS + 5)
"""The numbers of the counters of NaN and of the infinities. They follow the numbers of the limbs and two more, because
a value that begins at the last limb has three limbs.
"""

NUMBERS = NEGATIVE + 1


class Limbs(NamedTuple):
    """Floats divided into limbs: `values[i]` are the integers of value i, `numbers[i]` their limbs.

    Both have 3 columns.
    """

    numbers: Words
    values: Words


def split(column: pa.Array) -> Limbs:
    """Divide floats into limbs. NULL becomes 0."""
    floats = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
    is_finite = np.isfinite(floats)
    fractions, exponents = np.frexp(np.where(is_finite, np.abs(floats), 0.0))
    mantissas = np.ldexp(fractions, MANTISSA_BITS).astype(np.int64)
    offsets = exponents.astype(np.int64) - MANTISSA_BITS + UNIT_EXPONENT
    mantissas >>= np.maximum(-offsets, 0)  # the last bits of a subnormal number are 0
    offsets = np.maximum(offsets, 0)
    firsts, shifts = offsets // LIMB_BITS, offsets % LIMB_BITS
    low = (mantissas & MASK).astype(np.uint64) << shifts.astype(np.uint64)
    high = (mantissas >> LIMB_BITS) << shifts
    signs = np.where(floats < 0, -1, 1)
    values = np.stack(
        [
            (low & np.uint64(MASK)).astype(np.int64),
            (low >> np.uint64(LIMB_BITS)).astype(np.int64) + (high & MASK),
            high >> LIMB_BITS,
        ],
        axis=1,
    )
    values *= signs[:, None]
    numbers = firsts[:, None] + np.arange(3)
    special = np.where(np.isnan(floats), NAN, np.where(floats > 0, POSITIVE, NEGATIVE))
    numbers[~is_finite, 0] = special[~is_finite]
    values[~is_finite, 0] = 1
    return Limbs(numbers, values)


class ExactSums:
    """The words of the sums of one column."""

    def __init__(self) -> None:
        """Use no words yet."""
        self._words = np.full(NUMBERS, -1, np.int64)  # the word of each limb, or -1

    def assign_words(self, limbs: Limbs, first: int) -> int:
        """Assign words from `first` on to the limbs that have no word. Return the index of the next free word."""
        needed = np.unique(limbs.numbers[limbs.values != 0])
        added = needed[self._words[needed] < 0]
        self._words[added] = first + np.arange(len(added))
        return first + len(added)

    def write(self, limbs: Limbs, words: Words) -> None:
        """Write the limbs of value i into row i of `words`."""
        rows, columns = np.nonzero(limbs.values)
        words[rows, self._words[limbs.numbers[rows, columns]]] = limbs.values[rows, columns]

    def quotients(self, words: Words, divisors: Words, is_missing: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
        """Divide the sum of each row of `words` by its divisor, rounded once.

        Where `is_missing` is true, the result is any number.
        """
        used = np.flatnonzero(self._words[: MAX_LIMBS + 2] >= 0)
        sums = np.zeros(len(words), object)
        for limb in used:
            sums += words[:, self._words[limb]].astype(object) << int(LIMB_BITS * (limb - used[0]))
        exponent = LIMB_BITS * int(used[0]) - UNIT_EXPONENT if len(used) else 0
        results = np.zeros(len(words))
        for row in np.flatnonzero(~is_missing):
            results[row] = _rounded(sums[row], exponent, int(divisors[row]))
        nan, positive, negative = (
            words[:, self._words[number]] > 0 if self._words[number] >= 0 else np.zeros(len(words), np.bool_)
            for number in (NAN, POSITIVE, NEGATIVE)
        )
        results[positive], results[negative] = np.inf, -np.inf
        results[nan | (positive & negative)] = np.nan
        return results

    def snapshot(self) -> pa.Table:
        """Return the limbs and their words."""
        used = np.flatnonzero(self._words >= 0)
        return pa.table({"limb": used, "word": self._words[used]})

    def restore(self, table: pa.Table) -> int:
        """Load the words of a snapshot. Return their number."""
        self._words[table["limb"].to_numpy()] = table["word"].to_numpy()
        return int(table.num_rows)


def _rounded(number: int, exponent: int, divisor: int) -> float:
    """Return `number * 2**exponent / divisor`, rounded to the nearest float."""
    try:
        if exponent >= 0:
            return (number << exponent) / divisor
        return number / (divisor << -exponent)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")
