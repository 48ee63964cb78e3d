"""The charts of an answer: a chart for each value column, over the windows of the answer or over its groups.

    rows of the answer ──► windows ──► dashboards.page.charts: the largest groups, and the others ──► AnswerChart

An answer without windows, or with one window, has one value for each group, which is drawn as a bar. Other answers are
drawn as lines over time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from capture.errors import WiretideError
from capture.lazy_dataclasses import dataclass
from dashboards.page.charts import Chart, make_chart
from dashboards.page.stored_windows import Window
from dashboards.prometheus.query_series import SUM, QuerySeries
from dashboards.units import Unit, unit_of
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.plan.plan import Plan
from highlevel.windows.kind import SlidingWindow

MAX_ROWS = 2_000_000
"""Maximum number of rows of an answer that is drawn."""

MAX_COLUMNS = 4
"""Maximum number of value columns that are drawn: the first columns of the select list."""

MAX_GROUPS = 8
"""Maximum number of groups that are drawn. The values of all other groups are summed."""


class PlotError(WiretideError):
    """An answer cannot be drawn."""

    status = 2


@dataclass(frozen=True, slots=True)
class AnswerChart:
    """A value column of an answer.

    `chart`: the groups with their values, over the ends of windows. `step_ns`: the length in ns of tumbling windows,
    whose values are drawn as steps; 0 for other windows. `is_timed`: True if ends are times in ns, False if they are
    row numbers. `is_bars`: True if there is only one value for each group.
    """

    chart: Chart
    unit: Unit
    step_ns: int
    is_timed: bool
    is_bars: bool


class AnswerRows:
    """Collects the rows of an answer for its charts.

    Raises PlotError for a plan whose answers cannot be drawn.
    """

    def __init__(self, plan: Plan) -> None:
        """Collect the rows of `plan`."""
        if plan.aggregation is None:
            raise PlotError(
                "--plot: got a query of rows, expected values to draw; use an aggregate, for example "
                "SELECT srcIP, sum(len) AS bytes FROM p [RANGE 1 minute] GROUP BY srcIP"
            )
        if plan.has_changes:
            raise PlotError("--plot: got a query with EMIT CHANGES, expected final results: leave out EMIT CHANGES")
        try:
            self.series = QuerySeries(plan, MAX_GROUPS)
        except ValueError as error:
            raise PlotError(f"--plot: {error}") from error
        if not self.series.values:
            raise PlotError("--plot: got a select list without values, expected an aggregate, such as count(*) AS n")
        self.plan = plan
        self.aggregation = plan.aggregation
        self._batches: list[pa.RecordBatch] = []
        self.count = 0

    def collect(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches, and store them. Raises PlotError for an answer with more than MAX_ROWS rows."""
        for batch in batches:
            self.add(batch)
            yield batch

    def add(self, batch: pa.RecordBatch) -> None:
        """Store a batch. Raises PlotError for an answer with more than MAX_ROWS rows."""
        self.count += batch.num_rows
        if self.count > MAX_ROWS:
            raise PlotError(
                f"the answer has more than {MAX_ROWS:,} rows, too many to draw; use larger windows, fewer groups, or "
                "ORDER BY … LIMIT"
            )
        self._batches.append(batch)

    @property
    def rows(self) -> pa.Table:
        """All rows so far."""
        return pa.Table.from_batches(self._batches, self.plan.schema)

    def charts(self, columns: Sequence[str] | None = None) -> list[AnswerChart]:
        """Return a chart for each of these value columns, by default for the first MAX_COLUMNS of the select list.

        Raises PlotError for an answer without rows, and for an answer whose values are all NULL.
        """
        windows = self._windows()
        if not windows:
            raise PlotError("--plot: the answer has no rows, so there is nothing to draw")
        window = self.aggregation.window
        step = window.slide if isinstance(window, SlidingWindow) and window.slide == window.range else 0
        charts = []
        for value in self.series.values[:MAX_COLUMNS] if columns is None else self.series.values:
            if columns is not None and value.column not in columns:
                continue
            chart = make_chart(self.series, value.column, windows, MAX_GROUPS)
            if chart.lines:
                is_bars = not self.plan.windowed or len(windows) == 1
                charts.append(AnswerChart(chart, unit_of(value.column), step, window.timed, is_bars))
        if not charts:
            raise PlotError("--plot: all values of the answer are NULL, so there is nothing to draw")
        return charts

    def _windows(self) -> list[Window]:
        """Return the rows by window, the oldest window first. Rows without windows are one window that ends at 0."""
        rows = self.rows.combine_chunks()
        if rows.num_rows == 0:
            return []
        if not self.plan.windowed:
            bounds = array_of(np.zeros(rows.num_rows, np.int64))
            rows = rows.append_column(WINDOW_START, bounds).append_column(WINDOW_END, bounds)
        ends = rows[WINDOW_END].to_numpy()
        order = np.argsort(ends, kind="stable")
        rows, ends = pc.take(rows, array_of(order)), ends[order]
        firsts = np.flatnonzero(np.diff(ends, prepend=ends[0] - 1))
        lengths = np.diff(firsts, append=len(ends))
        return [
            self._window(rows.slice(first, length), int(ends[first]))
            for first, length in zip(firsts.tolist(), lengths.tolist(), strict=True)
        ]

    def _window(self, rows: pa.Table, end: int) -> Window:
        totals = {value.column: pc.sum(rows[value.column]).as_py() for value in self.series.values if value.fold == SUM}
        return Window(0, self.plan.name, rows[WINDOW_START][0].as_py(), end, rows.num_rows, totals, rows)
