"""What an operator of windows is beside an operator: what the engines and the metrics need to know of it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from highlevel.operators.operator import Operator
from highlevel.sliding.wid_ranges import Ranges

WINDOW_START, WINDOW_END = "window_start", "window_end"
"""The first columns of what it emits: the window, half-open, in ns or in numbers of rows (`WindowKind.timed`)."""

WINDOW_INSTANCE = "window instance"
"""An optional further column of its rows; no column of a query has such a name.

Different windows of one group have equal bounds if the rows of a partition are counted anew (`IDLE`). This number then
differs between these windows of one batch. Stages that merge the rows of a window group by it as well.
"""


class WindowOperator(Operator, Protocol):
    """Takes partials, and promises about their time in ns; emits the merged partials of windows that are final.

    Rows of the result: `window_start, window_end`, the groups, the merged sub-aggregates, and `WINDOW_INSTANCE` if
    different windows of a group can have equal bounds. Its promises are of results: no later one has a `window_end` at
    or below it. All rows of a window that groups share leave in one batch, save what is late.
    """

    @property
    def received(self) -> int:
        """Partials that came."""
        ...

    @property
    def outside(self) -> int:
        """Partials that are in no window."""
        ...

    @property
    def late(self) -> int:
        """Times a partial was left out of a window because that was final."""
        ...

    @property
    def late_rows(self) -> int:
        """Rows behind such partials, each once, where a sub-aggregate counts rows."""
        ...

    @property
    def bytes(self) -> int:
        """Bytes of the state held."""
        ...

    def open_windows(self) -> Ranges | int:
        """Windows that hold rows and are not final.

        Their ids where several partitions of groups have the same windows, else how many there are.
        """
        ...

    def take_closed(self) -> Ranges | int:
        """Windows with rows that became final since this was last asked: ids, or how many, as above."""
        ...


@runtime_checkable
class CappedOperator(Protocol):
    """What an operator says as well that keeps a bounded number of groups."""

    @property
    def beyond_cap(self) -> int:
        """Partials of groups that are not kept."""
        ...

    @property
    def beyond_cap_rows(self) -> int:
        """Rows behind such partials, where a sub-aggregate counts rows."""
        ...


def beyond_cap(operator: WindowOperator) -> tuple[int, int]:
    """Return how many partials, and rows behind them, an operator left out since it keeps no more groups."""
    return (operator.beyond_cap, operator.beyond_cap_rows) if isinstance(operator, CappedOperator) else (0, 0)
