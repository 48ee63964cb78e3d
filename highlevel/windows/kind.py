"""The kinds of windows and their common interface.

A kind is defined by three functions over *values* of rows (Li 2008, §5.1). Values are times in ns, or the row numbers
from 0 in arrival order.

    windows(values)      IDs of the windows that contain a row
    extent(wid, values)  rows that a window contains
    wids(values)         for each row, the half-open range of the IDs in windows(values) that contain it

`extent` and `wids` are dual: row i is in extent(w) if and only if w is in the range of row i. Tests compare operators
with these functions, and some operators call them.
"""

from __future__ import annotations

from math import gcd
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from capture.lazy_dataclasses import dataclass
from lowlevel.subaggregates import INT_MAX

Values = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class WindowKind(Protocol):
    """A kind of window with its parameters: immutable, picklable, compared by value."""

    @property
    def pane(self) -> int:
        """Length in ns of the intervals for which the low level computes partials."""
        ...

    @property
    def origin(self) -> int:
        """Start of pane 0, ns."""
        ...

    @property
    def slide(self) -> int:
        """Time in ns from the end of a window to the end of the next window.

        A result waits at most this time for the end of its window. 0 if the slide is not a time.
        """
        ...

    @property
    def reduced(self) -> bool:
        """True if all rows of a pane and group are in the same windows, so that they can be pre-aggregated."""
        ...

    @property
    def in_arrival_order(self) -> bool:
        """True if the windows depend on the arrival order of rows."""
        ...

    @property
    def by_group(self) -> bool:
        """True if the windows of a group depend only on the rows of the group."""
        ...

    @property
    def timed(self) -> bool:
        """True if `window_start, window_end` are times in ns, False for row numbers."""
        ...

    def windows(self, values: Values) -> Values:
        """Return the IDs of the windows that contain any of the rows, in rising order."""
        ...

    def extent(self, wid: int, values: Values) -> Mask:
        """Return a mask of the rows that window `wid` contains."""
        ...

    def wids(self, values: Values) -> tuple[Values, Values]:
        """Return for each row the half-open range `[first, end)` of the IDs of its windows.

        Only IDs that `windows` returns are windows. Other integers in the range have no meaning.
        """
        ...

    def bounds(self, wid: int) -> tuple[int, int]:
        """Return `window_start, window_end` of window `wid`, half-open."""
        ...

    def last_final(self, watermark: int) -> tuple[int, int] | None:
        """Return the bounds of the last window that ends by `watermark` (ns); None if the windows depend on rows."""
        ...


# Running windows (LANDMARK): all rows since the origin, reported at the end of each slide (Li 2008, §5.1.5).
#
#     extent(w) = { t : o <= t < o + (w+1)*s }        wids(t) = { w : w >= (t-o)//s }, an infinite set
#
# A window is reported only if its last slide has rows. Without this rule a gap of years would repeat the same result
# for each slide. A result contains all groups received so far, so the windows of a group depend on the rows of all
# groups. Groups are never removed, so their number is limited.


DEFAULT_CAP = 1_000_000
"""Default maximum number of groups."""


@dataclass(frozen=True, slots=True)
class LandmarkWindow:
    """`RANGE ALL, SLIDE slide` (ns) from `origin`, for at most `cap` groups.

    Rows before the origin are in no window.
    """

    slide: int
    origin: int = 0
    cap: int = DEFAULT_CAP

    reduced: ClassVar[bool] = True
    in_arrival_order: ClassVar[bool] = False
    by_group: ClassVar[bool] = False
    timed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Raise ValueError for lengths and limits that are not positive."""
        if self.slide <= 0 or self.cap <= 0:
            raise ValueError(f"SLIDE and the cap must be positive, got SLIDE {self.slide} ns, {self.cap} groups")

    @property
    def pane(self) -> int:
        """The slide, ns."""
        return self.slide

    def windows(self, values: Values) -> Values:
        """Return the IDs of the windows whose last slide contains any of the times, in rising order."""
        wids = np.unique((values - self.origin) // self.slide)
        return wids[wids >= 0]

    def extent(self, wid: int, values: Values) -> Mask:
        """Return a mask of the times that window `wid` contains."""
        start, end = self.bounds(wid)
        return (start <= values) & (values < end)

    def wids(self, values: Values) -> tuple[Values, Values]:
        """Return for each time the range of IDs from its first window to the largest integer.

        The range of a time before the origin is empty.
        """
        first = (values - self.origin) // self.slide
        return first, np.where(first < 0, first, INT_MAX)

    def bounds(self, wid: int) -> tuple[int, int]:
        """Return start and end of window `wid`, in ns, half-open."""
        return self.origin, self.origin + (wid + 1) * self.slide

    def last_final(self, watermark: int) -> tuple[int, int] | None:
        """Return None, because the windows depend on the rows."""
        return None


# Sessions: rows of a group, with less than GAP between two consecutive rows.
#
#     two rows of a group are in one session if the rows between them have distances smaller than GAP
#
# A session is `[first ts, last ts + GAP)`, and its ID is its first ts. It is final when the watermark reaches its end.
# A pane has the length GAP: rows of one pane and group are closer than GAP, so they belong to one session.


@dataclass(frozen=True, slots=True)
class SessionWindow:
    """Sessions, which end after `gap` ns without rows. The functions take the rows of one group."""

    gap: int

    origin: ClassVar[int] = 0
    reduced: ClassVar[bool] = True
    in_arrival_order: ClassVar[bool] = False
    by_group: ClassVar[bool] = True
    timed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Raise ValueError for lengths that are not positive."""
        if self.gap <= 0:
            raise ValueError(f"the gap of a session must be positive, got {self.gap} ns")

    @property
    def pane(self) -> int:
        """The gap, ns."""
        return self.gap

    @property
    def slide(self) -> int:
        """The gap, ns: a session is final this long after its last row."""
        return self.gap

    def windows(self, values: Values) -> Values:
        """Return the first time of each session, in rising order."""
        times = np.unique(values)
        return times[np.append(True, np.diff(times) >= self.gap)[: len(times)]]

    def extent(self, wid: int, values: Values) -> Mask:
        """Return a mask of the times in the session that begins at `wid`."""
        following = self.windows(values)
        following = following[following > wid]
        return (values >= wid) & (values < following[0] if len(following) else True)

    def wids(self, values: Values) -> tuple[Values, Values]:
        """Return for each time the ID of its session as a range of one ID."""
        starts = self.windows(values)
        first = starts[np.searchsorted(starts, values, side="right") - 1]
        return first, first + 1

    def bounds(self, wid: int) -> tuple[int, int]:
        """Raise TypeError, because the start of a session does not determine its end."""
        raise TypeError("a session has no bounds without its rows")

    def last_final(self, watermark: int) -> tuple[int, int] | None:
        """Return None, because the sessions depend on the rows."""
        return None


# Windows with a range of time that slide by rows (Li 2008, §5.1.6).
#
#     windows      = the times of the rows, or of every n-th row in the order of arrival or of time
#     extent(w)    = { t : w - r < t <= w }        (sliding windows exclude their end instead)
#     wids(t)      = { w in windows : t <= w < t + r }
#
# Rows with the same time share a window. So if every n-th row in time order has a window, the order of rows with equal
# times has no effect. Bounds are half-open as in other windows: `[w - r + 1, w + 1)`.


@dataclass(frozen=True, slots=True)
class SlideByTuple:
    """`RANGE range` (ns) on ts, `SLIDE every rows`: in the order of arrival, or if `in_time_order` in the order of ts.

    The functions take times in the order of arrival.
    """

    range: int
    every: int = 1
    in_time_order: bool = False

    pane: ClassVar[int] = 1
    origin: ClassVar[int] = 0
    slide: ClassVar[int] = 0
    reduced: ClassVar[bool] = False
    by_group: ClassVar[bool] = False
    timed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Raise ValueError for lengths that are not positive."""
        if self.range <= 0 or self.every <= 0:
            raise ValueError(f"RANGE and SLIDE must be positive, got RANGE {self.range} ns, SLIDE {self.every} rows")

    @property
    def in_arrival_order(self) -> bool:
        """True if every n-th row in arrival order has a window."""
        return self.every > 1 and not self.in_time_order

    def windows(self, values: Values) -> Values:
        """Return the times that have a window, in rising order."""
        ordered = np.sort(values) if self.in_time_order else values
        return np.unique(ordered[self.every - 1 :: self.every])

    def extent(self, wid: int, values: Values) -> Mask:
        """Return a mask of the times in the window at `wid`."""
        return (wid - self.range < values) & (values <= wid)

    def wids(self, values: Values) -> tuple[Values, Values]:
        """Return for each time `t` the half-open range of the IDs whose windows contain `t`."""
        return values, values + self.range

    def bounds(self, wid: int) -> tuple[int, int]:
        """Return start and end of the window at `wid`, in ns, half-open."""
        return wid - self.range + 1, wid + 1

    def last_final(self, watermark: int) -> tuple[int, int] | None:
        """Return None, because the windows depend on the rows."""
        return None


# Sliding windows over time (Li 2008, §5.1, with the floors of its errata).
#
# Windows are numbered by their **end**: window w is `[o + (w+1)*s - r, o + (w+1)*s)` for origin o, range r, slide s.
# IDs start at 0, so the first `ceil(r/s) - 1` windows begin before the origin. All in integer nanoseconds.
#
#     extent(w) = { t : o + (w+1)*s - r <= t < o + (w+1)*s }
#     wids(t)   = { w : (t-o)//s <= w < (t-o+r)//s, w >= 0 }        dual to extent; may be empty if r < s


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """A sliding time window: `RANGE range, SLIDE slide` from `origin`, all in ns.

    The window is tumbling if range equals slide.
    """

    range: int
    slide: int
    origin: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError for lengths that are not positive."""
        if self.range <= 0 or self.slide <= 0:
            raise ValueError(f"RANGE and SLIDE must be positive, got RANGE {self.range} ns, SLIDE {self.slide} ns")

    reduced: ClassVar[bool] = True
    in_arrival_order: ClassVar[bool] = False
    by_group: ClassVar[bool] = True
    timed: ClassVar[bool] = True

    @property
    def pane(self) -> int:
        """Length in ns of the longest intervals of which all windows consist."""
        return gcd(self.range, self.slide)

    def windows(self, values: Values) -> Values:
        """Return the IDs of the windows that contain any of the times, in rising order."""
        first, end = self.wids(np.unique(values))
        if len(first) == 0:
            return first
        # The starts and the ends of the ranges are in ascending order. So a range adds only the IDs above earlier
        # ranges.
        first = np.maximum(first, np.append(first[:1], np.maximum.accumulate(end)[:-1]))
        counts = np.maximum(end - first, 0)
        before = np.cumsum(counts) - counts
        return np.arange(int(counts.sum())) + np.repeat(first - before, counts)

    def extent(self, wid: int, values: Values) -> Mask:
        """Return a mask of the times that window `wid` contains."""
        start, end = self.bounds(wid)
        return (start <= values) & (values < end)

    def wids(self, values: Values) -> tuple[Values, Values]:
        """Return for each time the half-open range of the IDs of its windows; the range is empty between windows."""
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

    def first_open_window(self, watermark: int) -> int:
        """Return the ID of the first window that is not final at `watermark`, in ns.

        All windows with smaller IDs are final.
        """
        return max(0, (watermark - self.origin) // self.slide)

    def last_final(self, watermark: int) -> tuple[int, int] | None:
        """Return (start, end) in ns of the last window that ends by `watermark`; None without such a window."""
        closed = self.first_open_window(watermark)
        return self.bounds(closed - 1) if closed else None


WHOLE_INPUT = SlidingWindow(range=2**62, slide=2**62)
"""The window of a query without a window: the whole input, closed at its end. (2**62 ns is the year 2116.)"""


# Windows of a number of rows, in the order of their arrival (Li 2008, §5.1.3 and §5.1.4).
#
# Rows that satisfy WHERE are numbered from 0. With PARTITION each value of the columns has a separate numbering. A
# window is a sliding window over these numbers: w is `[(w+1)*s - r, (w+1)*s)`.


@dataclass(frozen=True, slots=True)
class TupleWindow:
    """`RANGE range rows, SLIDE slide_rows rows`. The functions take row numbers.

    If `partitioned`, each partition has separate windows (`Aggregation.partition`). A partition without a row for
    `idle` ns of stream time ends: its windows are reported, and it is removed. If `idle` is None, partitions never end.
    """

    range: int
    slide_rows: int
    partitioned: bool = False
    idle: int | None = None

    pane: ClassVar[int] = 1
    origin: ClassVar[int] = 0
    slide: ClassVar[int] = 0
    reduced: ClassVar[bool] = False
    in_arrival_order: ClassVar[bool] = True
    by_group: ClassVar[bool] = False
    timed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Raise ValueError for lengths that are not positive."""
        if self.range <= 0 or self.slide_rows <= 0:
            raise ValueError(f"RANGE and SLIDE must be positive, got {self.range} rows, {self.slide_rows} rows")
        if self.idle is not None and self.idle <= 0:
            raise ValueError(f"got {self.idle} ns, expected a positive time of inactivity")
        if self.idle is not None and not self.partitioned:
            raise ValueError(f"got an idle time of {self.idle} ns, expected it only for windows of partitions")

    @property
    def over_row_numbers(self) -> SlidingWindow:
        """The same window as a sliding window over row numbers."""
        return SlidingWindow(self.range, self.slide_rows)

    def windows(self, values: Values) -> Values:
        """Return the IDs of the windows that contain any of the numbers, in rising order."""
        return self.over_row_numbers.windows(values)

    def extent(self, wid: int, values: Values) -> Mask:
        """Return a mask of the numbers that window `wid` contains."""
        return self.over_row_numbers.extent(wid, values)

    def wids(self, values: Values) -> tuple[Values, Values]:
        """Return for each number the half-open range of IDs of its windows."""
        return self.over_row_numbers.wids(values)

    def bounds(self, wid: int) -> tuple[int, int]:
        """Return the numbers of the first row in window `wid` and of the first row after it."""
        return self.over_row_numbers.bounds(wid)

    def last_final(self, watermark: int) -> tuple[int, int] | None:
        """Return None, because row numbers are not times."""
        return None


# Windows over lifetimes: a row is true from a start until an end, and the windows of a group are its snapshots.
#
#     rows        [2, 9) [5, 12)               of one group
#     snapshots   [2, 5) [5, 9) [9, 12)        the times between two neighbouring starts or ends
#
# The bounds depend on two times of each row, so the functions over one value do not exist.


@dataclass(frozen=True, slots=True)
class LifetimeWindow:
    """`LIFETIME start TO end`, or with a `length` (ns) `LIFETIME length` from the time of each row."""

    length: int | None = None

    pane: ClassVar[int] = 1
    origin: ClassVar[int] = 0
    slide: ClassVar[int] = 0
    reduced: ClassVar[bool] = False
    in_arrival_order: ClassVar[bool] = False
    by_group: ClassVar[bool] = True
    timed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Raise ValueError for a length that is not positive."""
        if self.length is not None and self.length <= 0:
            raise ValueError(f"LIFETIME must be positive, got {self.length} ns")

    def last_final(self, watermark: int) -> tuple[int, int] | None:
        """Return None, because the windows depend on the rows."""
        return None


AnyWindow = SlidingWindow | LandmarkWindow | SessionWindow | SlideByTuple | TupleWindow | LifetimeWindow
