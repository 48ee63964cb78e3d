"""Additional interface of window operators for the engines and the metrics."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from highlevel.operators.operator import Operator
from lowlevel.integer_ranges import Ranges

WINDOW_START, WINDOW_END = "window_start", "window_end"
"""First columns of the results: the bounds of the half-open window, in ns or row numbers (`WindowKind.timed`)."""

WINDOW_INSTANCE = "window instance"
"""Optional further column of the results. No column of a query has this name.

With `IDLE` a partition may number its rows again from 0, so different windows of one group can have equal bounds. This
number then differs between these windows of one batch. Stages that merge the rows of a window group by it as well.
"""


class WindowOperator(Operator, Protocol):
    """Process partials and watermarks in ns; emit the merged partials of final windows.

    Rows of the result: `window_start, window_end`, the groups, the merged sub-aggregates, and `WINDOW_INSTANCE` if
    different windows of a group can have equal bounds. After an emitted watermark W no later row has a `window_end` at
    or below W. All rows of a window that groups share are in one batch, except late rows.
    """

    @property
    def received(self) -> int:
        """Number of partials received."""
        ...

    @property
    def outside(self) -> int:
        """Partials that are in no window."""
        ...

    @property
    def late(self) -> int:
        """Number of times that a partial missed a window because the window was final."""
        ...

    @property
    def late_rows(self) -> int:
        """Rows of these partials, if a sub-aggregate counts rows. Each row counts once."""
        ...

    @property
    def bytes(self) -> int:
        """Bytes of the state."""
        ...

    def open_windows(self) -> Ranges | int:
        """Return the windows that contain rows and are not final.

        The result is ranges of IDs if several partitions have the same windows, otherwise the number of windows.
        """
        ...

    def take_closed_windows(self) -> Ranges | int:
        """Return and forget the windows with rows that became final: their ids, or their number, as above."""
        ...


@runtime_checkable
class CappedOperator(Protocol):
    """Additional interface of an operator that keeps a limited number of groups."""

    @property
    def beyond_cap(self) -> int:
        """Partials of groups that are not kept."""
        ...

    @property
    def beyond_cap_rows(self) -> int:
        """Rows of these partials, if a sub-aggregate counts rows."""
        ...


def beyond_cap(operator: WindowOperator) -> tuple[int, int]:
    """Return the number of partials, and of their rows, that an operator left out because it keeps no more groups."""
    return (operator.beyond_cap, operator.beyond_cap_rows) if isinstance(operator, CappedOperator) else (0, 0)
