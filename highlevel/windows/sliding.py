"""Window ids: which windows a time belongs to (Li 2008, §5.1, with the floors that its errata call for).

Windows are numbered by their **end**: window w is `[o + (w+1)*s - r, o + (w+1)*s)` for origin o, range r, slide s,
and ids start at 0, so that the first `ceil(r/s) - 1` windows are partial: they begin before the origin. All in
integer nanoseconds.

    extent(w) = { t : o + (w+1)*s - r <= t < o + (w+1)*s }
    wids(t)   = { w : (t-o)//s <= w < (t-o+r)//s, w >= 0 }        dual to extent; empty for some t where r < s
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import ClassVar

import numpy as np

from highlevel.windows.kind import Chosen, Values


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """A sliding time window: `RANGE range, SLIDE slide` from `origin`, all in ns. Tumbling where range equals slide."""

    range: int
    slide: int
    origin: int = 0

    def __post_init__(self) -> None:
        """Refuse sizes for which no window, or endlessly many, would hold a time."""
        if self.range <= 0 or self.slide <= 0:
            raise ValueError(f"RANGE and SLIDE must be positive, got RANGE {self.range} ns, SLIDE {self.slide} ns")

    reduced: ClassVar[bool] = True
    in_arrival_order: ClassVar[bool] = False
    by_group: ClassVar[bool] = True
    timed: ClassVar[bool] = True

    @property
    def pane(self) -> int:
        """Length in ns of the largest sub-window that all windows are made of."""
        return gcd(self.range, self.slide)

    def windows(self, values: Values) -> Values:
        """Return the ids of the windows that hold any of the times, in rising order."""
        first, end = self.wids(np.unique(values))
        if len(first) == 0:
            return first
        # The ranges rise together: of each only what lies above those before it is new.
        first = np.maximum(first, np.append(first[:1], np.maximum.accumulate(end)[:-1]))
        counts = np.maximum(end - first, 0)
        before = np.cumsum(counts) - counts
        return np.arange(int(counts.sum())) + np.repeat(first - before, counts)

    def extent(self, wid: int, values: Values) -> Chosen:
        """Return which of the times window `wid` holds."""
        start, end = self.bounds(wid)
        return (start <= values) & (values < end)

    def wids(self, values: Values) -> tuple[Values, Values]:
        """Return for each time the ids of the windows that hold it, half-open `[first, end)`; empty between windows."""
        since = np.asarray(values) - self.origin
        first = np.maximum(since // self.slide, 0)
        return first, np.maximum((since + self.range) // self.slide, first)

    def bounds(self, wid: int) -> tuple[int, int]:
        """Return start and end of window `wid`, in ns, half-open."""
        return self.start(wid), self.end(wid)

    def start(self, wid: int) -> int:
        """First instant of window `wid`, in ns."""
        return self.end(wid) - self.range

    def end(self, wid: int) -> int:
        """First instant after window `wid`, in ns."""
        return self.origin + (wid + 1) * self.slide

    def closed_before(self, low: int) -> int:
        """Map a low watermark in ns to window ids: every window with an id below the result is final."""
        return max(0, (low - self.origin) // self.slide)

    def last_final(self, low: int) -> tuple[int, int] | None:
        """Return the last window that ends by `low`, as (start, end) in ns; None where none does."""
        closed = self.closed_before(low)
        return self.bounds(closed - 1) if closed else None


WHOLE_INPUT = SlidingWindow(range=2**62, slide=2**62)
"""The window of a query without one: all of a finite input, closed by its end. (2**62 ns is the year 2116.)"""
