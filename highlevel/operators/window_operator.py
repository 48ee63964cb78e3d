"""WindowOperator: the interface of window operators for engines and metrics, in addition to Operator."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from highlevel.operators.operator import Operator
from lowlevel.integer_ranges import Ranges

WINDOW_START, WINDOW_END = "window_start", "window_end"
"""First columns of the results: the bounds of the half-open window, in ns or row numbers (`WindowKind.timed`)."""

WINDOW_INSTANCE = "window instance"
"""An optional column of the results. No column of a query has this name.

With `IDLE` a partition may number its rows again from 0, so different windows of one group can have equal bounds. In
one batch, these windows have different numbers in this column. Stages that merge the rows of a window also group by it.
"""


class WindowOperator(Operator, Protocol):
    """Receives partials, and watermarks in ns; returns the merged partials of final windows.

    Rows of the result: `window_start, window_end`, the groups, the merged sub-aggregates, and `WINDOW_INSTANCE` if
    different windows of a group can have equal bounds. After an emitted watermark W no later row has a `window_end` at
    or below W. If all groups have the same windows, all rows of a window are in one batch, except late rows.
    """

    @property
    def received(self) -> int:
        """Number of partials received."""
        ...

    @property
    def outside(self) -> int:
        """Number of partials that are in no window."""
        ...

    @property
    def late(self) -> int:
        """Number of pairs of a late partial and a final window that does not contain it."""
        ...

    @property
    def late_rows(self) -> int:
        """Number of rows in late partials, if a sub-aggregate counts rows. Each row counts once."""
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
        """Return and remove the windows with rows that became final, in the form of `open_windows`."""
        ...


@runtime_checkable
class CappedOperator(Protocol):
    """Additional interface of an operator that keeps a limited number of groups."""

    @property
    def beyond_cap(self) -> int:
        """Number of partials of groups that are not kept."""
        ...

    @property
    def beyond_cap_rows(self) -> int:
        """Number of rows in these partials, if a sub-aggregate counts rows."""
        ...


def beyond_cap(operator: WindowOperator) -> tuple[int, int]:
    """Return the numbers of partials and rows that an operator dropped because their groups exceed the cap."""
    return (operator.beyond_cap, operator.beyond_cap_rows) if isinstance(operator, CappedOperator) else (0, 0)
