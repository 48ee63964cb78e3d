"""Landmark windows: everything since the origin, reported at the end of each slide (Li 2008, §5.1.5).

    extent(w) = { t : o <= t < o + (w+1)*s }        wids(t) = { w : w >= (t-o)//s }, an infinite set

Only a window whose last slide has rows is reported: others would repeat what the one before them said, through gaps of
years. It is reported with every group seen so far, so a group's windows depend on the rows of all. Groups are kept for
ever, so there is a bound on how many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from highlevel.windows.kind import Chosen, Values
from lowlevel.subaggregates import INT_MAX

MOST_GROUPS = 1_000_000
"""Groups that are kept unless told otherwise."""


@dataclass(frozen=True, slots=True)
class LandmarkWindow:
    """`RANGE ALL, SLIDE slide` (ns) from `origin`, of up to `cap` groups; rows before the origin are in no window."""

    slide: int
    origin: int = 0
    cap: int = MOST_GROUPS

    reduced: ClassVar[bool] = True
    in_arrival_order: ClassVar[bool] = False
    by_group: ClassVar[bool] = False
    timed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse what is no length and no bound."""
        if self.slide <= 0 or self.cap <= 0:
            raise ValueError(f"SLIDE and the cap must be positive, got SLIDE {self.slide} ns, {self.cap} groups")

    @property
    def pane(self) -> int:
        """A slide, ns."""
        return self.slide

    def windows(self, values: Values) -> Values:
        """Return the ids of the windows whose last slide holds any of the times, in rising order."""
        wids = np.unique((values - self.origin) // self.slide)
        return wids[wids >= 0]

    def extent(self, wid: int, values: Values) -> Chosen:
        """Return which of the times window `wid` holds."""
        start, end = self.bounds(wid)
        return (start <= values) & (values < end)

    def wids(self, values: Values) -> tuple[Values, Values]:
        """Return for each time the ids of the windows that hold it: from one on all; none before the origin."""
        first = (values - self.origin) // self.slide
        return first, np.where(first < 0, first, INT_MAX)

    def bounds(self, wid: int) -> tuple[int, int]:
        """Return start and end of window `wid`, in ns, half-open."""
        return self.origin, self.origin + (wid + 1) * self.slide

    def last_final(self, low: int) -> tuple[int, int] | None:
        """Return None: which windows there are depends on the rows."""
        return None
