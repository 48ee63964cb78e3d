"""Select the rows that have a window: every n-th row in arrival order, or in the order of ts.

Both classes count all received rows, including late rows. So the windows that are still open match the definition over
all rows. The number by arrival is known at once. The number in the order of ts is known when the row is final, as a
running count of the final rows. The order of rows with equal times has no effect, because a window is identified by its
time.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from highlevel.slide_by_tuple.runs import TIME, Runs
from highlevel.windows.kind import Values


class Numbering(Protocol):
    """Counts rows and determines the windows. Times are in rising order unless stated otherwise."""

    row_count: int
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

    def count_arrivals(self, times: Values, last_expired: int) -> None:
        """Count rows in arrival order. Rows at or before `last_expired` (ns) are too late for any open window."""
        ...

    def count_late(self, watermark: int, late_times: Values, stored_times: Values) -> int | None:
        """Count rows below the watermark. Return the last window below `watermark` after this count.

        `late_times` are their times, possibly none. `stored_times` are the times of all stored final rows, including
        these. Return None if there is no window, or if no window contains a late row.
        """
        ...

    def final_windows(self, watermark: int, times: Values) -> Values:
        """Return the windows of rows with `times` that are below `watermark`, in rising order."""
        ...

    def count_open(self, watermark: int, times: Values) -> int:
        """Return the number of windows from `watermark` on if no more rows arrive.

        `times`: the times of waiting rows.
        """
        ...


class ByArrival:
    """Each `interval`-th row that arrives."""

    def __init__(self, interval: int) -> None:
        """Begin with row 1."""
        self.interval = interval
        self.row_count = 0
        self._window_times = Runs(1)  # unused if `interval` is 1, because each row has a window

    @property
    def bytes(self) -> int:
        """Bytes of the times of rows that have a window."""
        return self._window_times.bytes

    @property
    def waiting_windows(self) -> Values:
        """Times of rows that have a window and are not final, empty if all rows have a window."""
        return self._window_times.all()[TIME]

    def load_waiting_windows(self, times: Values) -> None:
        """Load the times of rows that have a window."""
        self._window_times.add(times.reshape(1, -1).copy())

    def count_arrivals(self, times: Values, last_expired: int) -> None:
        """Number rows, and store the times of the rows that have a window."""
        if self.interval > 1:
            wids = times[(-self.row_count - 1) % self.interval :: self.interval]
            self.load_waiting_windows(wids[wids > last_expired])
        self.row_count += len(times)

    def count_late(self, watermark: int, late_times: Values, stored_times: Values) -> int | None:
        """Return the time of the last late row that has a window."""
        times = self._window_times.take(watermark)[TIME] if self.interval > 1 else late_times
        return int(times[-1]) if len(times) else None

    def final_windows(self, watermark: int, times: Values) -> Values:
        """Return the times that have a window, each once."""
        return distinct(self._window_times.take(watermark)[TIME] if self.interval > 1 else times)

    def count_open(self, watermark: int, times: Values) -> int:
        """Return the number of times at `watermark` or later that have a window."""
        times = self.waiting_windows if self.interval > 1 else times
        return len(distinct(times[np.searchsorted(times, watermark) :]))


class ByRank:
    """Each `interval`-th row in the order of ts."""

    def __init__(self, interval: int) -> None:
        """Begin with row 1."""
        self.interval = interval
        self.row_count = 0

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

    def count_arrivals(self, times: Values, last_expired: int) -> None:
        """Count the rows that are before all stored rows.

        The ranks of other rows are known when these rows are final.
        """
        self.row_count += int(np.count_nonzero(times <= last_expired))

    def count_late(self, watermark: int, late_times: Values, stored_times: Values) -> int | None:
        """Count late rows among the final rows, and return the time of the last row that now has a window."""
        self.row_count += len(late_times)
        position = len(stored_times) - 1 - self.row_count % self.interval
        return int(stored_times[position]) if self.row_count >= self.interval and position >= 0 else None

    def final_windows(self, watermark: int, times: Values) -> Values:
        """Count rows, and return the distinct times of the rows that have a window."""
        wids = times[(-self.row_count - 1) % self.interval :: self.interval]
        self.row_count += len(times)
        return distinct(wids)

    def count_open(self, watermark: int, times: Values) -> int:
        """Return the number of times at `watermark` or later that have a window by their current ranks."""
        wids = times[(-self.row_count - 1) % self.interval :: self.interval]
        return len(distinct(wids[np.searchsorted(wids, watermark) :]))


def distinct(times: Values) -> Values:
    """Return the distinct times of an array in rising order."""
    return times[np.append(True, times[1:] != times[:-1])[: len(times)]]
