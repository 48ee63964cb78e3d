"""Sessions: rows of a group, each less than GAP after the one before it.

    two rows are in one session where a chain of rows of their group joins them, none GAP or more after the one before

A session is `[first ts, last ts + GAP)`, and its id is its first ts. It is final when no later row can be older than
its end. Panes of GAP serve: rows of one pane and group are nearer than GAP, so they are never of two sessions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from highlevel.windows.kind import Chosen, Values


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
