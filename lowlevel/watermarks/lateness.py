"""Count late rows by their lateness: the difference to the newest time before them on their link.

A row is *late* if an earlier row of the same link has a larger time. If WAIT of a query is longer than the lateness of
a row, the row causes no correction. If REMEMBER is longer, the row is not lost.

Lateness is counted in steps, a histogram. Their bounds are the preferred numbers of ISO 3 (R20): 20 for each power of
ten, including 1, 2 and 5. A bound is at most 15 % larger than the one before. A histogram needs 1.8 KB for a link.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from capture.metrics import Metric, Samples
from capture.native import helper, kernel
from capture.units import SECOND

Times = npt.NDArray[np.int64]

PREFERRED = (100, 112, 125, 140, 160, 180, 200, 224, 250, 280, 315, 355, 400, 450, 500, 560, 630, 710, 800, 900)

BOUNDS: Times = np.array([10 * number * 10**power for power in range(11) for number in PREFERRED], np.int64)
"""Bounds of the steps in ns, from 1 µs to 25 hours. Step i contains lateness above bound i - 1, up to bound i."""

LARGEST_INDEX = len(BOUNDS) + 1
"""Index of the largest lateness in ns, in the words after the steps. The last step has no upper bound."""

BUCKETS = (*(digit * 10**power for power in range(6, 12) for digit in (1, 2, 5)), 1000 * SECOND)
"""Bounds in ns of the buckets of the metric, from 1 ms to 1000 s. Each is also a bound of a step."""


CELL_BITS = 5
"""Number of mantissa bits in the index of a cell. A cell is a range of lateness that contains at most one bound."""

_CELLS = np.arange(64 << CELL_BITS)
_SMALLEST = np.floor(2.0 ** (_CELLS >> CELL_BITS) * (1 + (_CELLS % (1 << CELL_BITS)) / (1 << CELL_BITS)))

STEP_OF_CELL: Times = np.searchsorted(BOUNDS, _SMALLEST)
"""For each cell, the step of the smallest lateness in the cell."""

LIMITS: Times = np.append(BOUNDS, np.iinfo(np.int64).max)
"""The largest lateness of each step."""


@helper
def count_lateness(amount, limits, steps, words):  # type: ignore[no-untyped-def]
    """Count one late row. There is no branch, because the processor could not predict it. A helper of kernels."""
    bits = np.float64(amount).view(np.int64)
    step = steps[(bits >> (52 - CELL_BITS)) - (1023 << CELL_BITS)]
    step += limits[step] < amount
    words[step] += 1
    words[LARGEST_INDEX] = max(words[LARGEST_INDEX], amount)


@kernel("i64(i64*, i64, i64, i64*, i64*, i64*)")
def count_late_rows(times, row_count, newest, limits, steps, words):  # type: ignore[no-untyped-def]
    """Count the late rows among `row_count` rows. `newest` is the newest time before them. Return the new newest time.

    A row in order takes 0.5 ns, a late row 1.2 ns.
    """
    for row in range(row_count):
        time = times[row]
        if time >= newest:
            newest = time
        else:
            count_lateness(newest - time, limits, steps, words)
    return newest


class Lateness:
    """The late rows of one kind on one link, by steps. Not thread safe, but another thread may read it."""

    def __init__(self) -> None:
        """Create a histogram without rows."""
        self.words: Times = np.zeros(len(BOUNDS) + 2, np.int64)
        """The number of rows of each step, and the largest lateness."""

    def add_rows(self, times: Times, newest: int) -> None:
        """Add rows in the order of arrival. `newest`: the newest time before them, ns."""
        count_late_rows(times, len(times), newest, LIMITS, STEP_OF_CELL, self.words)

    def add(self, amounts: Times) -> None:
        """Add late rows by their lateness in ns."""
        self.words[:LARGEST_INDEX] += np.bincount(np.searchsorted(BOUNDS, amounts), minlength=LARGEST_INDEX)
        self.words[LARGEST_INDEX] = max(self.largest, int(amounts.max(initial=0)))

    def merge(self, other: Lateness) -> None:
        """Add the late rows of another part of the link."""
        self.words[:LARGEST_INDEX] += other.words[:LARGEST_INDEX]
        self.words[LARGEST_INDEX] = max(self.largest, other.largest)

    @property
    def late_rows(self) -> int:
        """Number of late rows."""
        return int(self.words[:LARGEST_INDEX].sum())

    @property
    def largest(self) -> int:
        """The largest lateness in ns; 0 without late rows."""
        return int(self.words[LARGEST_INDEX])

    @property
    def round_bound(self) -> int:
        """The smallest round duration in ns that is longer than every lateness; 0 without late rows.

        A slack or REMEMBER of this length loses no row. It is 1, 2 or 5 times a power of ten of a unit, or days.

        >>> lateness = Lateness(); lateness.add(np.array([3_100_000])); lateness.round_bound
        5000000
        """
        if not self.late_rows:
            return 0
        for unit in (10**3, 10**6, SECOND, 60 * SECOND, 3600 * SECOND):
            for factor in (1, 2, 5, 10, 20, 50, 100, 200, 500):
                if self.largest < factor * unit:
                    return factor * unit
        return (self.largest // (24 * 3600 * SECOND) + 1) * 24 * 3600 * SECOND

    def quantile(self, share: float) -> int:
        """Return a lateness in ns that `share` of the late rows do not exceed, at most 15 % or 1 µs too large.

        Raises ValueError if no row is late.

        >>> lateness = Lateness(); lateness.add(np.array([1000, 100_000, 200_000, 999_999]))
        >>> [lateness.quantile(share) for share in (0.3, 0.6, 0.75, 1)]
        [100000, 200000, 200000, 999999]
        """
        return min(self.round_quantile(share), self.largest)

    def round_quantile(self, share: float) -> int:
        """Return the smallest bound of a step in ns, or whole days, that this share of the late rows does not exceed.

        Raises ValueError if no row is late.
        """
        totals = np.cumsum(self.words[:LARGEST_INDEX])
        if not totals[-1]:
            raise ValueError("got links without late records")
        step = int(np.searchsorted(totals, share * totals[-1]))
        return self.round_bound if step == len(BOUNDS) else int(BOUNDS[step])

    def add_samples(self, samples: Samples, metric: Metric, *labels: str) -> None:
        """Add the buckets of a histogram: the number of late rows with at most the lateness of each bound."""
        totals = np.cumsum(self.words[:LARGEST_INDEX])
        for bucket, step in zip(BUCKETS, np.searchsorted(BOUNDS, BUCKETS), strict=True):
            samples.add(metric, int(totals[step]), *labels, f"{bucket / SECOND:g}")
        samples.add(metric, int(totals[-1]), *labels, "+Inf")
