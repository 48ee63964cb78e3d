"""Windows that slide by rows and reach back a length of time (Li 2008, §5.1.6).

    windows      = the times of the rows; or of each n-th row, as they arrive, or in the order of their times
    extent(w)    = { t : w - r < t <= w }        the other convention than that of sliding windows
    wids(t)      = { w in windows : t <= w < t + r }

Rows of one time share a window. Where every n-th row in the order of times is meant, it is the same however ties are
broken. Bounds are given half-open like those of other windows: `[w - r + 1, w + 1)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from highlevel.windows.kind import Chosen, Values


@dataclass(frozen=True, slots=True)
class SlideByTuple:
    """`RANGE range` (ns) on ts, `SLIDE every rows`: by arrival, or, `by_rank`, in the order of ts.

    The functions take times in the order of arrival.
    """

    range: int
    every: int = 1
    by_rank: bool = False

    pane: ClassVar[int] = 1
    origin: ClassVar[int] = 0
    slide: ClassVar[int] = 0
    reduced: ClassVar[bool] = False
    by_group: ClassVar[bool] = False
    timed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse what is no length."""
        if self.range <= 0 or self.every <= 0:
            raise ValueError(f"RANGE and SLIDE must be positive, got RANGE {self.range} ns, SLIDE {self.every} rows")

    @property
    def in_arrival_order(self) -> bool:
        """Whether it is each n-th row that arrives which has a window."""
        return self.every > 1 and not self.by_rank

    def windows(self, values: Values) -> Values:
        """Return the times that have a window, in rising order."""
        ordered = np.sort(values) if self.by_rank else values
        return np.unique(ordered[self.every - 1 :: self.every])

    def extent(self, wid: int, values: Values) -> Chosen:
        """Return which of the times the window at `wid` holds."""
        return (wid - self.range < values) & (values <= wid)

    def wids(self, values: Values) -> tuple[Values, Values]:
        """Return for each time where the windows that hold it may be, half-open."""
        return values, values + self.range

    def bounds(self, wid: int) -> tuple[int, int]:
        """Return start and end of the window at `wid`, in ns, half-open."""
        return wid - self.range + 1, wid + 1

    def last_final(self, low: int) -> tuple[int, int] | None:
        """Return None: which windows there are depends on the rows."""
        return None
