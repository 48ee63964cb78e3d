"""Windows of joins: pairs of times that match (Li 2008, §5.2.1, with the ranges of its algorithm).

A left row can be joined for RANGE0 (R0), and a right row for RANGE1 (R1). With d = right.ts - left.ts this is:

    CLOSED      -R1 <= d <= R0
    HALF_OPEN   -R1 <= d <  R0
    OPEN        -R1 <  d <  R0

Times are whole ns, so each of these bands is a closed interval `low <= d <= high`. Methods of a window:

    meets(side, t)                closed interval of the other side's times that a row at t may meet
    expiry_time(side, bound)      rows of `side` before this time meet no row of the other side from `bound` on: remove
    them unmatched_from(side, bound)   rows of `side` from this time on meet no row of the other side before `bound`

The results of all three methods never decrease if their argument increases. `origin` and `pane` divide time into panes.
An interval of `meets` overlaps at most two panes.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

import numpy as np
import numpy.typing as npt

from capture.lazy_dataclasses import dataclass
from lowlevel.punctuation import BEGINNING, END

Times = npt.NDArray[np.int64]

MAX_RANGE = 2**59
"""Maximum range, in ns: 18 years."""


class Port(IntEnum):
    """The sides of a join, as ports of its operator."""

    LEFT = 0
    RIGHT = 1


class Boundary(StrEnum):
    """The band of d = right.ts - left.ts, with or without its ends. R0 is `left_range`, and R1 is `right_range`."""

    CLOSED = "[-R1, R0]"
    HALF_OPEN = "[-R1, R0)"
    OPEN = "(-R1, R0)"


@dataclass(frozen=True, slots=True)
class Band:
    """A sliding window: a left row meets right rows up to `left_range` ns after and `right_range` ns before it.

    `least` and `greatest`: further limits of d = right.ts - left.ts in ns, both included; None for no limit. They may
    have any sign: for example, a row can match only rows that are at least 1 s older.
    """

    left_range: int
    right_range: int
    boundary: Boundary = Boundary.CLOSED
    least: int | None = None
    greatest: int | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for invalid ranges."""
        if not (0 <= self.left_range <= MAX_RANGE and 0 <= self.right_range <= MAX_RANGE):
            raise ValueError(
                f"RANGE of a join must be from 0 to {MAX_RANGE} ns, got {self.left_range} and {self.right_range}"
            )
        for limit in (self.least, self.greatest):
            if limit is not None and abs(limit) > MAX_RANGE:
                raise ValueError(f"got a limit of {limit} ns for the distance of a join, expected up to {MAX_RANGE}")

    @property
    def low(self) -> int:
        """Minimum of d, in ns."""
        low = -self.right_range + (self.boundary is Boundary.OPEN)
        return low if self.least is None else max(low, self.least)

    @property
    def high(self) -> int:
        """Maximum of d, in ns. It is less than `low` if no rows meet."""
        high = self.left_range - (self.boundary is not Boundary.CLOSED)
        return high if self.greatest is None else min(high, self.greatest)

    @property
    def origin(self) -> int:
        """Start of pane 0, ns."""
        return 0

    @property
    def pane(self) -> int:
        """Length of a pane, ns: four times the length of a band, so most rows meet rows of one pane."""
        return 4 * max(1, self.high - self.low + 1)

    def meets(self, side: Port, times: Times) -> tuple[Times, Times]:
        """Return for each row of `side` the closed interval of the other side's times that it may meet."""
        if side is Port.LEFT:
            return _add_distance(times, self.low), _add_distance(times, self.high)
        return _add_distance(times, -self.high), _add_distance(times, -self.low)

    def expiry_time(self, side: Port, bound: int) -> int:
        """Return the time (ns) before which rows of `side` meet no row at `bound` or later."""
        return _limited(bound, bound - self.high if side is Port.LEFT else bound + self.low)

    def unmatched_from(self, side: Port, bound: int) -> int:
        """Return the time (ns) from which on rows of `side` meet no row before `bound`."""
        return _limited(bound, bound - self.low if side is Port.LEFT else bound + self.high)


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows of one length, counted from `origin`. Rows of left window w meet rows of right window w + `shift`.

    For example shift = -1: each minute of the left side matches the previous minute of the right side.
    """

    length: int
    origin: int = 0
    shift: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError for invalid lengths."""
        if not (0 < self.length <= MAX_RANGE and abs(self.shift) * self.length <= MAX_RANGE):
            raise ValueError(
                f"tumbling windows of a join must be from 1 to {MAX_RANGE} ns long and at most that far apart, "
                f"got {self.length} ns with a shift of {self.shift}"
            )

    @property
    def pane(self) -> int:
        """Length of a pane in ns: the length of a window."""
        return self.length

    def meets(self, side: Port, times: Times) -> tuple[Times, Times]:
        """Return for each row of `side` the closed interval of the other side's times that it may meet."""
        window_shift = self.shift if side is Port.LEFT else -self.shift
        first = _add_distance(
            (times - self.origin) // self.length * self.length + self.origin, window_shift * self.length
        )
        return first, _add_distance(first, self.length - 1)

    def expiry_time(self, side: Port, bound: int) -> int:
        """Return the time (ns) before which rows of `side` meet no row at `bound` or later."""
        window_shift = -self.shift if side is Port.LEFT else self.shift
        return _limited(bound, ((bound - self.origin) // self.length + window_shift) * self.length + self.origin)

    def unmatched_from(self, side: Port, bound: int) -> int:
        """Return the time (ns) from which on rows of `side` meet no row before `bound`."""
        window_shift = -self.shift if side is Port.LEFT else self.shift
        return _limited(bound, (-(-(bound - self.origin) // self.length) + window_shift) * self.length + self.origin)


JoinWindow = Band | Tumbling


def _add_distance(times: Times, distance: int) -> Times:
    """Add a distance to times, limited to the range of int64."""
    if distance >= 0:
        return np.minimum(times, END - distance) + distance
    return np.maximum(times, BEGINNING - distance) + distance


def _limited(bound: int, derived: int) -> int:
    """Return `derived`, limited to BEGINNING and END, or `bound` itself if it is BEGINNING or END."""
    return bound if bound in (BEGINNING, END) else min(max(derived, BEGINNING), END)
