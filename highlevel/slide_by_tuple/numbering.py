"""Select the rows that have a window: every n-th in arrival order, or in the order of ts.

Both count all received rows, including late rows. So the windows that are still open match the definition over all
rows. The number by arrival is known at once. The number in the order of ts is known when the row is final, as a running
count of the final rows. The order of equal times does not matter, because a window is a time.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from highlevel.slide_by_tuple.runs import TIME, Runs
from highlevel.windows.kind import Values


class Numbering(Protocol):
    """Counts rows and determines the windows. Times are in rising order unless stated otherwise."""

    number: int
    """Number of counted rows."""

    @property
    def bytes(self) -> int:
        """Bytes of the state."""
        ...

    @property
    def waiting_windows(self) -> Values:
        """Times of rows that have a window and are not final, if they are stored separately from the rows."""
        ...

    def load_waiting_windows(self, times: Values) -> None:
        """Load the `waiting_windows` of a snapshot."""
        ...

    def count_arrivals(self, times: Values, reached: int) -> None:
        """Count rows in arrival order. Rows up to the time `reached` are too late for any open window."""
        ...

    def count_late(self, watermark: int, late: Values, held: Values) -> int | None:
        """Count rows below the watermark. Return the last window below `watermark` after this count.

        `late` are their times, possibly none. `held` are the times of all stored final rows, including these. Return
        None if there is no window, or if no window contains a late row.
        """
        ...

    def final_windows(self, watermark: int, times: Values) -> Values:
        """Return the windows below `watermark`, in rising order, that rows with `times` have."""
        ...

    def count_open(self, watermark: int, times: Values) -> int:
        """Return the number of windows from `watermark` on, given the times of waiting rows, if no row arrives."""
        ...


class ByArrival:
    """Each `every`-th row that arrives."""

    def __init__(self, every: int) -> None:
        """Begin with row 1."""
        self.every = every
        self.number = 0
        self._marks = Runs(1)  # unused if `every` is 1, because each row has a window

    @property
    def bytes(self) -> int:
        """Bytes of the times of rows that have a window."""
        return self._marks.bytes

    @property
    def waiting_windows(self) -> Values:
        """Times of rows that have a window and are not final, empty if all rows have a window."""
        return self._marks.all()[TIME]

    def load_waiting_windows(self, times: Values) -> None:
        """Load the times of rows that have a window."""
        self._marks.add(times.reshape(1, -1).copy())

    def count_arrivals(self, times: Values, reached: int) -> None:
        """Number rows, and store the times of the rows that have a window."""
        if self.every > 1:
            wids = times[(-self.number - 1) % self.every :: self.every]
            self.load_waiting_windows(wids[wids > reached])
        self.number += len(times)

    def count_late(self, watermark: int, late: Values, held: Values) -> int | None:
        """Return the time of the last late row that has a window."""
        times = self._marks.take(watermark)[TIME] if self.every > 1 else late
        return int(times[-1]) if len(times) else None

    def final_windows(self, watermark: int, times: Values) -> Values:
        """Return the times that have a window, each once."""
        return distinct(self._marks.take(watermark)[TIME] if self.every > 1 else times)

    def count_open(self, watermark: int, times: Values) -> int:
        """Return the number of times from `watermark` on that have a window."""
        times = self.waiting_windows if self.every > 1 else times
        return len(distinct(times[np.searchsorted(times, watermark) :]))


class ByRank:
    """Each `every`-th row in the order of ts."""

    def __init__(self, every: int) -> None:
        """Begin with row 1."""
        self.every = every
        self.number = 0

    @property
    def bytes(self) -> int:
        """Return 0, because no times are stored."""
        return 0

    @property
    def waiting_windows(self) -> Values:
        """Return no times, because the windows follow from the rows."""
        return np.empty(0, np.int64)

    def load_waiting_windows(self, times: Values) -> None:
        """Do nothing, because no times are stored."""

    def count_arrivals(self, times: Values, reached: int) -> None:
        """Count the rows that are before all stored rows.

        The ranks of other rows are known when these rows are final.
        """
        self.number += int(np.count_nonzero(times <= reached))

    def count_late(self, watermark: int, late: Values, held: Values) -> int | None:
        """Count late rows among the final rows, and return the time of the last row that now has a window."""
        self.number += len(late)
        position = len(held) - 1 - self.number % self.every
        return int(held[position]) if self.number >= self.every and position >= 0 else None

    def final_windows(self, watermark: int, times: Values) -> Values:
        """Count rows, and return the distinct times of the rows that have a window."""
        wids = times[(-self.number - 1) % self.every :: self.every]
        self.number += len(times)
        return distinct(wids)

    def count_open(self, watermark: int, times: Values) -> int:
        """Return the number of times from `watermark` on that have a window by their current ranks."""
        wids = times[(-self.number - 1) % self.every :: self.every]
        return len(distinct(wids[np.searchsorted(wids, watermark) :]))


def distinct(times: Values) -> Values:
    """Return the distinct times of an array in rising order."""
    return times[np.append(True, times[1:] != times[:-1])[: len(times)]]
