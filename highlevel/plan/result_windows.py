"""The windows of a node over changes: they state which results depend on which rows.

    rows ──► panes ──► windows ──► results        a row is in one pane, a pane in some windows, a result in one window

If the rows of a pane change, only the results of its windows must be computed again.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from capture.lazy_dataclasses import dataclass
from highlevel.plan.answer_nodes import Over, Sort
from highlevel.plan.nodes import Distinct, Node, TimeGroups, Windowed
from highlevel.windows.kind import SlidingWindow

Times = npt.NDArray[np.int64]


class ResultWindows(Protocol):
    """The windows of a body. A window has a number, and all its results have the same time."""

    def panes(self, times: Times) -> Times:
        """Return the numbers of the panes of rows. All rows of a pane are in the same windows."""
        ...

    def windows(self, pane: int) -> range:
        """Return the numbers of the windows that contain a pane."""
        ...

    def result_time(self, window: int) -> int:
        """Return the time of a window's results, in ns."""
        ...

    def windows_of_results(self, times: Times) -> Times:
        """Return the window numbers of results with these times."""
        ...


@dataclass(frozen=True, slots=True)
class SlidingResults:
    """The windows of a Windowed with sliding windows, by the time `window_end`."""

    window: SlidingWindow

    def panes(self, times: Times) -> Times:
        """Return the numbers of the panes of the window."""
        return (times - self.window.origin) // self.window.pane

    def windows(self, pane: int) -> range:
        """Return the numbers of the windows that contain the start of a pane."""
        since = pane * self.window.pane
        return range(max(since // self.window.slide, 0), (since + self.window.range) // self.window.slide)

    def result_time(self, window: int) -> int:
        """Return the end of a window."""
        return self.window.end(window)

    def windows_of_results(self, times: Times) -> Times:
        """Return the numbers of the windows with these ends."""
        return (times - self.window.origin) // self.window.slide - 1


@dataclass(frozen=True, slots=True)
class TimeResults:
    """The results for each time, rounded down to a multiple of `length`. The window number is time // `length`."""

    length: int = 1

    def panes(self, times: Times) -> Times:
        """Return the rounded times."""
        return times // self.length

    def windows(self, pane: int) -> range:
        """Return the number itself."""
        return range(pane, pane + 1)

    def result_time(self, window: int) -> int:
        """Return the number itself."""
        return window

    def windows_of_results(self, times: Times) -> Times:
        """Return the times, which are window numbers."""
        return times


def result_windows(body: Node) -> ResultWindows | None:
    """Return the windows of a body, or None if its results depend on rows of several windows.

    The caller has checked that the input and the body have one time column each.
    """
    (time,) = body.inputs[0].time_columns
    match body:
        case Windowed(aggregation=aggregation) if isinstance(aggregation.window, SlidingWindow):
            return SlidingResults(aggregation.window) if aggregation.windowed else None
        case TimeGroups(times=((_, length, _),)):
            return TimeResults(length)
        case Distinct() if time in body.keys:
            return TimeResults()
        case Sort() if time in body.window_columns:
            return TimeResults()
        case Over() if all(time in function.partition for function in body.functions):
            return TimeResults()
        case _:
            return None
