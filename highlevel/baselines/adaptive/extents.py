"""Progress of sources, and durations of open windows: input of the memory model of AdaptWID (Li 2008, §6.3.4)."""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lowlevel.integer_ranges import Ranges, unite
from lowlevel.punctuation import BEGINNING


class Extents:
    """The newest time of each source, and the extent distance.

    The extent distance of a window is the growth of the newest time between its first tuple and its close. `distance`
    is that of the last closed window, and RANGE before the first close. Open windows are stored as ranges of IDs. A
    range contains the windows that have the same first tuple.
    """

    def __init__(self, sources: int, range_length: int) -> None:
        """Begin with the distance `range_length`. Times, ranges and distances have the same unit."""
        self.newest_times = [BEGINNING] * sources
        self.distance = range_length
        self.opened: list[
            tuple[int, int, int]
        ] = []  # ranges of windows: first ID, end, and the newest time when their first tuple arrived
        self.covered: Ranges = []

    @property
    def max_newest_time(self) -> int:
        """The newest time of all sources."""
        return max(self.newest_times)

    def offsets(self) -> list[int | None]:
        """Distance of each source from the most advanced source; None for a source without tuples."""
        return [None if high == BEGINNING else self.max_newest_time - high for high in self.newest_times]

    def record(
        self,
        source: int,
        times: npt.NDArray[np.int64],
        firsts: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
    ) -> None:
        """Record tuples in arrival order, and their windows `[first, end)`."""
        highs = np.maximum.accumulate(np.maximum(times, self.max_newest_time))
        self.newest_times[source] = max(self.newest_times[source], int(times.max()))
        known = self.covered[-1] if self.covered else (0, 0)
        other = (firsts[1:] != firsts[:-1]) | (ends[1:] != ends[:-1])  # windows other than those of the previous tuple
        new = np.flatnonzero(np.append(True, other) & ((firsts < known[0]) | (ends > known[1])))
        seen: set[tuple[int, int]] = set()
        for first, end, high in zip(firsts[new].tolist(), ends[new].tolist(), highs[new].tolist(), strict=True):
            if (first, end) not in seen:
                self._open(first, end, high)
                seen.add((first, end))

    def _open(self, first: int, end: int, high: int) -> None:
        at = first
        for start, stop in [*self.covered, (end, end)]:
            if at < min(start, end):
                insort(self.opened, (at, min(start, end), high))
            at = max(at, stop)
        self.covered = unite([*self.covered, (first, end)])

    def close(self, low: int) -> None:
        """Measure the windows below `low`, and remove them."""
        position = bisect_left(self.opened, (low,))
        if position == 0:
            return
        _, end, high = self.opened[position - 1]
        self.distance = self.max_newest_time - high
        self.opened[:position] = [(low, end, high)] if end > low else []
        self.covered = [(max(start, low), end) for start, end in self.covered if end > low]

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the newest times, the distance and the open windows."""
        first, end, high = zip(*self.opened, strict=True) if self.opened else ((), (), ())
        columns = [pa.array(each, pa.int64()) for each in (first, end, high)]
        return {
            "sources": pa.table({"high": [*self.newest_times, self.distance]}),
            "opened": pa.table(columns, ["first", "end", "high"]),
        }

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        *high, self.distance = tables["sources"]["high"].to_pylist()
        self.newest_times[: len(high)] = high
        self.opened = [tuple(row.values()) for row in tables["opened"].to_pylist()]
        self.covered = unite((first, end) for first, end, _ in self.opened)
