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

from dataclasses import dataclass
from math import gcd
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from lowlevel.subaggregates import INT_MAX

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


# Landmark windows: everything since the origin, reported at the end of each slide (Li 2008, §5.1.5).
#
#     extent(w) = { t : o <= t < o + (w+1)*s }        wids(t) = { w : w >= (t-o)//s }, an infinite set
#
# Only a window whose last slide has rows is reported: others would repeat what the one before them said, through gaps
# of years. It is reported with every group seen so far, so a group's windows depend on the rows of all. Groups are kept
# for ever, so there is a bound on how many.


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


# Sessions: rows of a group, each less than GAP after the one before it.
#
#     two rows are in one session where a chain of rows of their group joins them, none GAP or more after the one before
#
# A session is `[first ts, last ts + GAP)`, and its id is its first ts. It is final when no later row can be older than
# its end. Panes of GAP serve: rows of one pane and group are nearer than GAP, so they are never of two sessions.


@dataclass(frozen=True, slots=True)
class SessionWindow:
    """Sessions that a silence of `gap` ns or more ends. The functions take the rows of one group."""

    gap: int

    origin: ClassVar[int] = 0
    reduced: ClassVar[bool] = True
    in_arrival_order: ClassVar[bool] = False
    by_group: ClassVar[bool] = True
    timed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse what is no length."""
        if self.gap <= 0:
            raise ValueError(f"the gap of a session must be positive, got {self.gap} ns")

    @property
    def pane(self) -> int:
        """The gap, ns."""
        return self.gap

    @property
    def slide(self) -> int:
        """The gap, ns: a session is known to be over that long after its last row."""
        return self.gap

    def windows(self, values: Values) -> Values:
        """Return the first time of each session, in rising order."""
        times = np.unique(values)
        return times[np.append(True, np.diff(times) >= self.gap)[: len(times)]]

    def extent(self, wid: int, values: Values) -> Chosen:
        """Return which of the times the session that begins at `wid` holds."""
        following = self.windows(values)
        following = following[following > wid]
        return (values >= wid) & (values < following[0] if len(following) else True)

    def wids(self, values: Values) -> tuple[Values, Values]:
        """Return for each time the id of its session as a range of one."""
        starts = self.windows(values)
        first = starts[np.searchsorted(starts, values, side="right") - 1]
        return first, first + 1

    def bounds(self, wid: int) -> tuple[int, int]:
        """Raise TypeError: where a session ends is not known from where it begins."""
        raise TypeError("a session has no bounds without its rows")

    def last_final(self, low: int) -> tuple[int, int] | None:
        """Return None: which sessions there are depends on the rows."""
        return None


# Windows that slide by rows and reach back a length of time (Li 2008, §5.1.6).
#
#     windows      = the times of the rows; or of each n-th row, as they arrive, or in the order of their times
#     extent(w)    = { t : w - r < t <= w }        the other convention than that of sliding windows
#     wids(t)      = { w in windows : t <= w < t + r }
#
# Rows of one time share a window. Where every n-th row in the order of times is meant, it is the same however ties are
# broken. Bounds are given half-open like those of other windows: `[w - r + 1, w + 1)`.


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


# Window ids: which windows a time belongs to (Li 2008, §5.1, with the floors that its errata call for).
#
# Windows are numbered by their **end**: window w is `[o + (w+1)*s - r, o + (w+1)*s)` for origin o, range r, slide s,
# and ids start at 0, so that the first `ceil(r/s) - 1` windows are partial: they begin before the origin. All in
# integer nanoseconds.
#
#     extent(w) = { t : o + (w+1)*s - r <= t < o + (w+1)*s }
#     wids(t)   = { w : (t-o)//s <= w < (t-o+r)//s, w >= 0 }        dual to extent; empty for some t where r < s


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


# Windows of a number of rows, in the order of their arrival (Li 2008, §5.1.3 and §5.1.4).
#
# Rows that WHERE keeps are numbered from 0: all of them, or, partitioned, those of each value of some columns. A window
# is a sliding window over these numbers: w is `[(w+1)*s - r, (w+1)*s)`.


@dataclass(frozen=True, slots=True)
class TupleWindow:
    """`RANGE range rows, SLIDE slide_rows rows`. The functions take numbers of rows.

    Where it is `partitioned` each partition has windows of its own (`Aggregation.partition`), and one of which no row
    came for `idle` ns of the stream's time is forgotten after its windows have been reported; never where None.
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
        """Refuse sizes for which no window, or endlessly many, would hold a row."""
        if self.range <= 0 or self.slide_rows <= 0:
            raise ValueError(f"RANGE and SLIDE must be positive, got {self.range} rows, {self.slide_rows} rows")
        if self.idle is not None and (self.idle <= 0 or not self.partitioned):
            raise ValueError(f"got {self.idle} ns, expected a length of time after which a partition is forgotten")

    @property
    def numbers(self) -> SlidingWindow:
        """The same windows over numbers of rows."""
        return SlidingWindow(self.range, self.slide_rows)

    def windows(self, values: Values) -> Values:
        """Return the ids of the windows that hold any of the numbers, in rising order."""
        return self.numbers.windows(values)

    def extent(self, wid: int, values: Values) -> Chosen:
        """Return which of the numbers window `wid` holds."""
        return self.numbers.extent(wid, values)

    def wids(self, values: Values) -> tuple[Values, Values]:
        """Return for each number the ids of the windows that hold it, half-open."""
        return self.numbers.wids(values)

    def bounds(self, wid: int) -> tuple[int, int]:
        """Return the numbers of the first row of window `wid` and of the first behind it."""
        return self.numbers.bounds(wid)

    def last_final(self, low: int) -> tuple[int, int] | None:
        """Return None: numbers of rows are no times."""
        return None


AnyWindow = SlidingWindow | LandmarkWindow | SessionWindow | SlideByTuple | TupleWindow
