"""Windows of a number of rows, in the order of their arrival (Li 2008, §5.1.3 and §5.1.4).

Rows that WHERE keeps are numbered from 0: all of them, or, partitioned, those of each value of some columns. A window
is a sliding window over these numbers: w is `[(w+1)*s - r, (w+1)*s)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from highlevel.windows.kind import Chosen, Values
from highlevel.windows.sliding import SlidingWindow


@dataclass(frozen=True, slots=True)
class TupleWindow:
    """`RANGE range rows, SLIDE slide_rows rows`. The functions take numbers of rows.

    Where it is `partitioned` each partition has windows of its own (`QueryPlan.partition`), and one of which no row
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
