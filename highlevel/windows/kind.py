"""What every kind of window says of itself; one file beside this one for each kind.

A kind is defined by three functions over the *values* of its rows (Li 2008, §5.1): their times in ns, or, for windows
of a number of rows, their numbers from 0 on in the order of arrival.

    windows(values)      the ids of the windows that hold a row
    extent(wid, values)  which rows a window holds
    wids(values)         which windows hold a row: of the ids in windows(values), those in a half-open range

The last two are dual: row i is in extent(w) exactly where w is in the range of row i. They are what operators are
tested against; some operators compute with them as well.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.int64]
Chosen = npt.NDArray[np.bool_]


class WindowKind(Protocol):
    """A kind of window with its parameters: immutable, picklable, compared by value."""

    @property
    def pane(self) -> int:
        """Length, ns, of the intervals that the low level keeps partials for."""
        ...

    @property
    def origin(self) -> int:
        """Where panes are counted from, ns."""
        ...

    @property
    def slide(self) -> int:
        """How far, ns, results are behind a row at most for reasons of the window: the distance of two windows' ends.

        0 where that is no length of time.
        """
        ...

    @property
    def reduced(self) -> bool:
        """Whether rows of one pane and group are in the same windows: they may be reduced to partials."""
        ...

    @property
    def in_arrival_order(self) -> bool:
        """Whether windows depend on the order in which rows arrive."""
        ...

    @property
    def by_group(self) -> bool:
        """Whether the windows that a group is in depend on its own rows alone."""
        ...

    @property
    def timed(self) -> bool:
        """Whether `window_start, window_end` are times in ns; they are numbers of rows where not."""
        ...

    def windows(self, values: Values) -> Values:
        """Return the ids of the windows that hold any of the rows, in rising order."""
        ...

    def extent(self, wid: int, values: Values) -> Chosen:
        """Return which of the rows window `wid` holds."""
        ...

    def wids(self, values: Values) -> tuple[Values, Values]:
        """Return for each row the ids of its windows, half-open `[first, end)`, as far as they are in `windows`."""
        ...

    def bounds(self, wid: int) -> tuple[int, int]:
        """Return `window_start, window_end` of window `wid`, half-open."""
        ...

    def last_final(self, low: int) -> tuple[int, int] | None:
        """Return the bounds of the last window that ends by `low` (ns), where windows are known without rows."""
        ...
