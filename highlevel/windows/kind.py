"""What every kind of window says of itself; one file beside this one for each kind."""

from __future__ import annotations

from typing import Protocol


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

    def last_final(self, low: int) -> tuple[int, int] | None:
        """Return the last window that ends by `low` (ns), as (start, end), where windows are known without rows."""
        ...
