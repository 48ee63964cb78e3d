"""Window joins written from their definition: extents that meet, as a set of pairs of rows (Li 2008, Eq. 5.19).

Both inputs have windows of one slide and one common origin. `widjoin` defines which window ids match. The sliding join
has a slide of one unit, a RANGE for each side and equal ids: that is the open band. Times are integers, so a closed end
is an open one a unit further.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from math import inf

from highlevel.joins.spec import Band, Boundary, JoinKind, Tumbling

FAR = 10**6
"""No time of a test is this far from 0."""


@dataclass(frozen=True)
class Windows:
    """`RANGE range, SLIDE slide` from an origin; window w ends before `origin + (w + 1) * slide`."""

    range: int
    slide: int
    origin: int

    def wids(self, time: int) -> range:
        return range((time - self.origin) // self.slide, (time - self.origin + self.range) // self.slide)

    def extent(self, wid: int, times: Sequence[int]) -> list[int]:
        """Places in `times` of what the window holds."""
        end = self.origin + (wid + 1) * self.slide
        return [place for place, time in enumerate(times) if end - self.range <= time < end]


def widjoin(
    left: Sequence[int], right: Sequence[int], of_left: Windows, of_right: Windows, shift: int = 0
) -> set[tuple[int, int]]:
    """Places of rows that meet: window w of the left meets w + shift of the right; each pair once."""
    wids = {wid for time in left for wid in of_left.wids(time)}
    return {
        (one, other)
        for wid in wids
        for one in of_left.extent(wid, left)
        for other in of_right.extent(wid + shift, right)
    }


def windows_of(window: Band | Tumbling) -> tuple[Windows, Windows, int]:
    """The windows of both sides, and how far apart the ids are that meet."""
    if isinstance(window, Tumbling):
        both = Windows(window.length, window.length, window.origin)
        return both, both, window.shift
    left = window.left_range + (window.boundary is Boundary.CLOSED)
    right = window.right_range + (window.boundary is not Boundary.OPEN)
    return Windows(left, 1, -FAR), Windows(right, 1, -FAR), 0


def near(window: Band | Tumbling, left: Sequence[int], right: Sequence[int]) -> set[tuple[int, int]]:
    """Places of rows that meet: by their extents, or, where a side has a window of no length, by the predicate."""
    of_left, of_right, shift = windows_of(window)
    if of_left.range and of_right.range:
        return widjoin(left, right, of_left, of_right, shift)
    return {(i, j) for i, one in enumerate(left) for j, other in enumerate(right) if meet(window, one, other)}


def meet(window: Band | Tumbling, left: int, right: int) -> bool:
    """Whether two times meet, as the predicate on both that users know."""
    if isinstance(window, Tumbling):
        origin, length = window.origin, window.length
        return (right - origin) // length - (left - origin) // length == window.shift
    apart = right - left
    return {
        Boundary.CLOSED: -window.right_range <= apart <= window.left_range,
        Boundary.HALF_OPEN: -window.right_range <= apart < window.left_range,
        Boundary.OPEN: -window.right_range < apart < window.left_range,
    }[window.boundary]


@cache
def last_met(window: Band | Tumbling, side: int, time: int) -> int:
    """Return the last time of the other side that a row can match. For a band it is found by search.

    For tumbling windows it is the last time of the extent whose window matches the window of the row.
    """
    if isinstance(window, Tumbling):
        windows, _, shift = windows_of(window)
        (wid,) = windows.wids(time)
        return windows.origin + (wid + (-shift if side else shift) + 1) * windows.slide - 1
    near = range(time + 16, time - 16, -1)
    last = next((each for each in near if meet(window, *((time, each) if side == 0 else (each, time)))), None)
    if last is not None:
        return last
    reach = window.left_range if side == 0 else window.right_range
    open_ended = window.boundary is Boundary.OPEN or (side == 0 and window.boundary is Boundary.HALF_OPEN)
    return time + reach - open_ended


@dataclass(frozen=True)
class Row:
    """A row of a test: a number of its own, its time, its keys and a value."""

    number: int
    ts: int
    keys: tuple[object, ...]
    value: object

    @cached_property
    def equals_something(self) -> bool:
        """Whether no key is NULL or NaN."""
        return all(key is not None and key == key for key in self.keys)


def pairs_of(
    left: Sequence[Row], right: Sequence[Row], window: Band | Tumbling, passes: Callable[[Row, Row], bool]
) -> set[tuple[int, int]]:
    """Numbers of the rows that are joined."""
    return {
        (left[one].number, right[other].number)
        for one, other in near(window, [row.ts for row in left], [row.ts for row in right])
        if left[one].equals_something and left[one].keys == right[other].keys and passes(left[one], right[other])
    }


@dataclass
class Joined:
    """Expected results and state of a join after some rows and some watermarks."""

    window: Band | Tumbling
    kind: JoinKind
    pairs: set[tuple[int, int]]
    arrived: tuple[list[Row], list[Row]] = field(default_factory=lambda: ([], []))
    bounds: list[float] = field(default_factory=lambda: [-inf, -inf])

    def over(self, side: int, row: Row) -> bool:
        """Return whether no later row can match `row`."""
        return not row.equals_something or self.bounds[1 - side] > last_met(self.window, side, row.ts)

    def results(self) -> list[tuple[int | None, int | None]]:
        """Numbers of the rows of each result."""
        numbers = [{row.number for row in rows} for rows in self.arrived]
        pairs = {(one, other) for one, other in self.pairs if one in numbers[0] and other in numbers[1]}
        partners = ({one for one, _ in pairs}, {other for _, other in pairs})
        lone = [
            [row.number for row in rows if row.number not in partners[side] and self.over(side, row)]
            for side, rows in enumerate(self.arrived)
        ]
        if self.kind is JoinKind.SEMI:
            return [(number, None) for number in partners[0]]
        if self.kind is JoinKind.ANTI:
            return [(number, None) for number in lone[0]]
        found: list[tuple[int | None, int | None]] = list(pairs)
        found += [(number, None) for number in lone[0] if self.kind in (JoinKind.LEFT, JoinKind.FULL)]
        found += [(None, number) for number in lone[1] if self.kind in (JoinKind.RIGHT, JoinKind.FULL)]
        return found

    def held(self) -> tuple[int, int]:
        """Return the number of rows of each side that later rows can match."""
        numbers = {row.number for row in self.arrived[1]}
        done = {one for one, other in self.pairs if other in numbers}
        if self.kind not in (JoinKind.SEMI, JoinKind.ANTI):
            done = set()
        left, right = (
            [row.number for row in rows if not self.over(side, row)] for side, rows in enumerate(self.arrived)
        )
        return len(set(left) - done), len(right)
