"""Which window of a query is shown: the one with the greatest end, however its rows arrive."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from dashboards.query_series import QuerySeries, Shown
from highlevel.plan import LATE
from lowlevel.punctuation import BEGINNING, END


@dataclass(frozen=True)
class ClosedWindow:
    """One closed window `[start, end)`, in ns, and the rows of it that have arrived; immutable."""

    start: int
    end: int
    tables: tuple[pa.Table, ...]
    series: QuerySeries

    @cached_property
    def shown(self) -> Shown:
        """The window as it is exposed; computed by the first scrape, so that windows nobody looks at cost nothing."""
        return self.series.shown(pa.concat_tables([self.series.plan.schema.empty_table(), *self.tables]))


class LastWindow:
    """Keeps the window of one query that is shown. Not thread safe; what `current` returns is immutable.

    Rows of an older window never replace those of a newer one. Rows of the same window, one call per partition of the
    operators, add up; a call must not be repeated. Holds the rows of one window.
    """

    def __init__(self, series: QuerySeries) -> None:
        self._series = series
        self.current: ClosedWindow | None = None

    def rows(self, table: pa.Table) -> None:
        """Take rows of one or more closed windows; raises ValueError where a column of the plan is missing."""
        plan = self._series.plan
        if missing := [name for name in plan.schema.names if name not in table.schema.names]:
            raise ValueError(
                f"results of query {plan.name!r} lack {', '.join(missing)}; "
                f"got {', '.join(table.schema.names) or 'no column'}, expected {', '.join(plan.schema.names)}"
            )
        if not table.num_rows:
            return
        table = table.select(plan.schema.names).cast(plan.schema)
        if plan.emit_late:  # rows that are to be added to others of their group: files and tables have them
            table = table.filter(pc.invert(table[LATE]))
            if not table.num_rows:
                return
        start, end = BEGINNING, END
        if plan.windowed:
            end = pc.max(table["window_end"]).as_py()
            table = table.filter(pc.equal(table["window_end"], end))
            start = table["window_start"][0].as_py()
        self._show(start, end, (table,))

    def progress(self, low: int) -> None:
        """Take a low watermark in ns: where the last window that ends by it has had no rows, nothing is shown any more.

        After the end of the input no window follows, so the last one with rows stays.
        """
        plan = self._series.plan
        last = plan.window.last_final(low) if low < END and plan.windowed else None
        if last is not None:
            self._show(*last, ())

    def _show(self, start: int, end: int, tables: tuple[pa.Table, ...]) -> None:
        before = self.current
        if before is None or before.end < end:
            self.current = ClosedWindow(start, end, tables, self._series)
        elif before.end == end and tables:
            self.current = ClosedWindow(start, end, before.tables + tables, self._series)
