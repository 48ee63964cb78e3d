"""Which rows have a window of their own: each n-th, counted by arrival, or in the order of ts.

Both count all rows that came, those that came late among them, so that windows that are still open are those of the
definition over all rows. Every row's number by arrival is known when it comes; in the order of ts it is when the row is
final: a running count of the rows that are. Of equal times it makes no difference which is counted first, as a window
is a time.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from highlevel.slide_by_tuple.runs import TIME, Runs
from highlevel.windows.kind import Values


class Numbering(Protocol):
    """Counts rows and knows the windows. Times are in rising order where it is not said otherwise."""

    number: int
    """How many rows are counted."""

    @property
    def bytes(self) -> int:
        """Bytes of the state held."""
        ...

    @property
    def marks(self) -> Values:
        """Times of rows that have a window and are not final, where they are kept apart from the rows."""
        ...

    def mark(self, times: Values) -> None:
        """Take over the `marks` of a snapshot."""
        ...

    def arrive(self, times: Values, reached: int) -> None:
        """Count rows that arrive, in this order; those up to the time `reached` are too late for any open window."""
        ...

    def missed(self, low: int, late: Values, held: Values) -> int | None:
        """Count rows that came below the promise `low`, and say the last window below it by the rows there are now.

        `late` are their times, or none; `held` are those of all final rows that are held, these among them. None where
        no window has come, or none that holds any of them.
        """
        ...

    def final(self, low: int, times: Values) -> Values:
        """Return the windows below `low`, in rising order: those of `times`, of which no other is below it."""
        ...

    def open(self, low: int, times: Values) -> int:
        """Return how many windows there are from `low` on, given the times of the rows that wait, if no other comes."""
        ...


class ByArrival:
    """Each `every`-th row that arrives."""

    def __init__(self, every: int) -> None:
        """Begin with row 1."""
        self.every = every
        self.number = 0
        self._marks = Runs(1)  # each row has a window where `every` is 1, and nothing is kept here

    @property
    def bytes(self) -> int:
        """Bytes of the times of rows that have a window."""
        return self._marks.bytes

    @property
    def marks(self) -> Values:
        """Times of rows that have a window and are not final; none where all have one."""
        return self._marks.all()[TIME]

    def mark(self, times: Values) -> None:
        """Take over the times of rows that have a window."""
        self._marks.add(times.reshape(1, -1).copy())

    def arrive(self, times: Values, reached: int) -> None:
        """Number rows, and note the times of those that have a window."""
        if self.every > 1:
            wids = times[(-self.number - 1) % self.every :: self.every]
            self.mark(wids[wids > reached])
        self.number += len(times)

    def missed(self, low: int, late: Values, held: Values) -> int | None:
        """Return the time of the last late row that has a window."""
        times = self._marks.take(low)[TIME] if self.every > 1 else late
        return int(times[-1]) if len(times) else None

    def final(self, low: int, times: Values) -> Values:
        """Return the times that have a window, each once."""
        return distinct(self._marks.take(low)[TIME] if self.every > 1 else times)

    def open(self, low: int, times: Values) -> int:
        """Return how many times from `low` on have a window."""
        times = self.marks if self.every > 1 else times
        return len(distinct(times[np.searchsorted(times, low) :]))


class ByRank:
    """Each `every`-th row in the order of ts."""

    def __init__(self, every: int) -> None:
        """Begin with row 1."""
        self.every = every
        self.number = 0

    @property
    def bytes(self) -> int:
        """No memory is kept."""
        return 0

    @property
    def marks(self) -> Values:
        """None: windows follow from the rows."""
        return np.empty(0, np.int64)

    def mark(self, times: Values) -> None:
        """Have nothing to take over."""

    def arrive(self, times: Values, reached: int) -> None:
        """Count the rows that are before all that are held; what rank the others have is known when they are final."""
        self.number += int(np.count_nonzero(times <= reached))

    def missed(self, low: int, late: Values, held: Values) -> int | None:
        """Count rows among those that are final, and return the last that has a window now."""
        self.number += len(late)
        place = len(held) - 1 - self.number % self.every
        return int(held[place]) if self.number >= self.every and place >= 0 else None

    def final(self, low: int, times: Values) -> Values:
        """Count rows, and return the times of those that have a window, each once."""
        wids = times[(-self.number - 1) % self.every :: self.every]
        self.number += len(times)
        return distinct(wids)

    def open(self, low: int, times: Values) -> int:
        """Return how many of the times from `low` on have a window, with the ranks that they have now."""
        wids = times[(-self.number - 1) % self.every :: self.every]
        return len(distinct(wids[np.searchsorted(wids, low) :]))


def distinct(times: Values) -> Values:
    """Return each of some times in rising order once."""
    return times[np.append(True, times[1:] != times[:-1])[: len(times)]]
