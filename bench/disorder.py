"""Streams for the experiments of Li 2008, §6: with disorder in a band or in blocks, or with groups of three sizes.

Times are µs. A stream is arrays in the order of arrival; the same seed gives the same stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from highlevel.sliding.aggregate import END_WID, FIRST_WID
from highlevel.windows.kind import SlidingWindow

Numbers = npt.NDArray[np.int64]

SECOND = 1_000_000
"""µs."""

BAND = 3.2
"""Maximum seconds by which a tuple of a band is late."""

EXPORT = 10
"""Seconds in which a router exports the records of a block."""

SMALL_SHARES = {"DS1": 0.01, "DS2": 0.03, "DS3": 0.05, "DS4": 0.07, "DS5": 0.09}
"""Share of the records in groups of one record (Table 6-2)."""

MEDIUM, MEDIUM_SHARE = 15, 0.2
LARGE = 300
"""Records of a medium group, the share of records in medium groups, and records of a large group (the others)."""


@dataclass(frozen=True)
class Stream:
    """Tuples in the order of arrival: their times, arrival times, groups and values."""

    times: Numbers
    arrivals: Numbers
    groups: Numbers
    values: Numbers

    def __len__(self) -> int:
        """Count the tuples."""
        return len(self.times)

    def watermarks(self) -> Numbers:
        """Return the watermark after each tuple: the smallest time of the later tuples, or the last tuple's time."""
        later = np.append(self.times[1:], self.times[-1])
        return np.asarray(np.minimum.accumulate(later[::-1])[::-1])

    def batch(self, first: int, end: int, window: SlidingWindow | None = None) -> pa.RecordBatch:
        """Return the tuples `[first, end)` as `ts, group, packets, value`, and their range of window IDs."""
        part = slice(first, end)
        times = self.times[part]
        columns = {"ts": times, "group": self.groups[part], "packets": np.ones_like(times), "value": self.values[part]}
        if window is not None:
            since = times - window.origin
            columns[FIRST_WID] = np.maximum(since // window.slide, 0)
            columns[END_WID] = np.maximum((since + window.range) // window.slide, 0)
        return pa.RecordBatch.from_pydict({name: pa.array(column) for name, column in columns.items()})


def pieces(steps: Numbers) -> Iterator[tuple[int, int]]:
    """Divide a stream into ranges of tuples with equal `steps`. Return (first, end) of each range.

    >>> list(pieces(np.array([0, 0, 1, 1, 2])))
    [(0, 3), (3, 5)]
    """
    ends = (np.flatnonzero(np.diff(steps)) + 2).tolist()
    first = 0
    for end in [*ends, len(steps)]:
        if end > first:
            yield first, end
        first = end


def band(seconds: int, rate: int, seed: int) -> Stream:
    """Return flows by their start. A flow arrives at its 8th packet: up to BAND late, mostly less than half of it."""
    random = np.random.default_rng(seed)
    times = np.sort(random.integers(seconds * SECOND, size=seconds * rate))
    late = (random.beta(1.4, 2.0, len(times)) * BAND * SECOND).astype(np.int64)
    return _arriving(times, times + late, random)


def blocks(count: int, length: int, rate: int, seed: int) -> Stream:
    """Return records of a router that exports its cache every `length` seconds: blocks, with a random order inside.

    The records of a block arrive within EXPORT seconds after its end. The first block begins 100 ms before a full
    minute, so that blocks and windows begin at different times.
    """
    random = np.random.default_rng(seed)
    begin = 60 * SECOND - SECOND // 10
    each = length * rate
    times = np.concatenate(
        [begin + (number * length) * SECOND + random.integers(length * SECOND, size=each) for number in range(count)]
    )
    ends = begin + np.arange(1, count + 1) * length * SECOND
    arrivals = np.repeat(ends, each) + np.tile(np.arange(each) * EXPORT * SECOND // each, count)
    return _arriving(times, arrivals, random)


def _arriving(times: Numbers, arrivals: Numbers, random: np.random.Generator) -> Stream:
    order = np.argsort(arrivals, kind="stable")
    values = random.integers(40, 1500, len(times))
    return Stream(times[order], arrivals[order], np.zeros_like(times), values)


def skewed(name: str, records: int, seconds: int, seed: int) -> Stream:
    """Return records of groups of three sizes, as in data set `name`, evenly distributed and in the order of time."""
    random = np.random.default_rng(seed)
    small = round(records * SMALL_SHARES[name])
    medium = round(records * MEDIUM_SHARE / MEDIUM)
    large = round((records - small - medium * MEDIUM) / LARGE)
    sizes = np.repeat([1, MEDIUM, LARGE], [small, medium, large])
    groups = np.repeat(random.permutation(len(sizes)), sizes)
    random.shuffle(groups)
    times = np.arange(len(groups)) * seconds * SECOND // len(groups)
    return Stream(times, times, groups, random.integers(40, 1500, len(groups)))
