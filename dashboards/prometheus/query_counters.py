"""Counters of a query: sums over all closed windows, so that windows between two scrapes are not lost.

A gauge shows only the last closed window; if several windows close between two scrapes, Prometheus misses some. A
counter contains every window once, so `rate(…[5m])` is the mean over all windows of five minutes. So only windows that
do not overlap have counters, and only columns whose values can be added.

Each value is added to exactly one series: the series of its group, or `other`. The groups with separate series change
rarely (`dashboards.prometheus.stable_groups`). If a group is no longer selected, its series does not grow any more. The
series is kept until `top` further groups are no longer selected, so that Prometheus can still scrape its last value. So
a column has at most `2 * top + 1` series.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from prometheus_client.core import CounterMetricFamily

from dashboards.prometheus.query_series import OTHER, SUM, QuerySeries, Value
from dashboards.prometheus.stable_groups import StableGroups
from highlevel.windows.kind import SessionWindow, SlidingWindow

Labels = tuple[str, ...]


def values_with_counters(series: QuerySeries) -> tuple[Value, ...]:
    """Return the value columns of a query that have counters."""
    plan = series.plan
    if not plan.windowed:
        return ()
    window = plan.window
    is_disjoint = isinstance(window, SessionWindow) or (
        isinstance(window, SlidingWindow) and window.range == window.slide
    )
    return tuple(value for value in series.values if value.fold == SUM) if is_disjoint else ()


def counter_name(value: Value) -> str:
    """Return the name of the counter of a value column."""
    return f"{value.name}_added_total"


class QueryCounters:
    """The counters of one query. Not thread safe."""

    def __init__(self, series: QuerySeries) -> None:
        """Begin with counters of 0. A query whose windows overlap has no counters."""
        self.series = series
        self.values = values_with_counters(series)
        self._stable = StableGroups(series.top)
        self._calls = 0
        self._sums: dict[Labels, list[float]] = {}

    def add(self, rows: pa.Table, rest: pa.Table | None = None) -> None:
        """Add rows of closed windows, with the schema of the plan.

        The rows may belong to several windows, in any order.

        `rest`: sums over further rows of these windows, which are added to `other`.
        """
        if not self.values or rows.num_rows == 0:
            return
        self._calls += 1
        shown = self.series.select_series(rows, self._stable, self._calls, rank=self.values[0].column, rest=rest)
        columns = {value.column: series for value, series in zip(self.series.values, shown.series, strict=True)}
        for index, value in enumerate(self.values):
            for labels, number in columns[value.column]:
                # Groups with new values are moved to the end, so the first groups are the ones not selected for the
                # longest time.
                sums = self._sums.pop(labels, None) or [0.0] * len(self.values)
                sums[index] += number
                self._sums[labels] = sums
        other = (OTHER,) * len(self.series.labels)
        most = 2 * self.series.top + (other in self._sums)
        for labels in list(self._sums)[: max(0, len(self._sums) - most)]:
            if labels != other:
                del self._sums[labels]

    def families(self) -> Iterator[CounterMetricFamily]:
        """Yield the counters with their samples."""
        sql = " ".join(self.series.plan.sql.split())
        for index, value in enumerate(self.values):
            other_help = f" Groups without separate series are part of {OTHER}." if self.series.labels else ""
            text = f"Column {value.column} of query {self.series.plan.name}, added over all closed windows.{other_help}"
            family = CounterMetricFamily(counter_name(value), f"{text} SQL: {sql}", labels=self.series.labels)
            for labels, sums in sorted(self._sums.items()):
                family.add_metric(labels, sums[index])
            yield family
