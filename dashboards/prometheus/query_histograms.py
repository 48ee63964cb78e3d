"""Prometheus histograms from a query whose groups are classes, for example of sizes or latencies.

    SELECT bucket(len, 64, 512, 1518) AS size, count(*) AS packets FROM p [RANGE 10 seconds] GROUP BY size

The setting `histogram = "size"` names the column with the upper bounds of the classes. Each bucket is a total over all
windows and over all classes up to its bound, as `histogram_quantile` expects. The group NULL (values above the last
bound) belongs to the bucket `+Inf`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from math import inf, isnan

import pyarrow as pa
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.utils import floatToGoString

from dashboards.prometheus.query_counters import values_with_counters
from dashboards.prometheus.query_series import QuerySeries, Value
from lowlevel.expressions.types import NUMBERS

MAX_BOUNDS = 64
"""Maximum number of bounds. The counts of further bounds are added to the next larger bucket."""


def histogram_name(value: Value) -> str:
    """Return the name of the histogram of a value column with counts."""
    return f"{value.name}_histogram"


class QueryHistogram:
    """The histogram of one query. Not thread safe.

    `series.histogram` is the column with the upper bounds. Raises ValueError for a query that cannot have a histogram.
    """

    def __init__(self, series: QuerySeries) -> None:
        """Begin with an empty histogram."""
        column = series.histogram or ""
        query = f"query {series.plan.name!r}"
        if series.key_columns != (column,):
            columns = ", ".join(series.key_columns) or "none"
            raise ValueError(f"{query}: got the group columns {columns}, expected only {column}, the bounds")
        kind = next(plan_column.type for plan_column in series.plan.root.columns if plan_column.name == column)
        if kind not in NUMBERS:
            raise ValueError(
                f"{query}: got the type {kind} of {column}, expected a number, such as bucket(len, 64, 512)"
            )
        values = values_with_counters(series)
        if not values:
            raise ValueError(f"{query}: got no count in windows that do not overlap, expected for example count(*)")
        self._series, self._column, self._value = series, column, values[0]
        self.name = histogram_name(self._value)
        self._bounds: list[float] = []
        self._counts: dict[float, float] = {inf: 0.0}

    def add(self, rows: pa.Table) -> None:
        """Add rows of closed windows, with the schema of the plan."""
        bounds, counts = rows[self._column].to_pylist(), rows[self._value.column].to_pylist()
        for bound, count in zip(bounds, counts, strict=True):
            if count is None:
                continue
            known = inf if bound is None or isnan(bound) else self._exported_bound(float(bound))
            self._counts[known] += count

    def _exported_bound(self, bound: float) -> float:
        """Return `bound`. If there are MAX_BOUNDS other bounds, return the next larger one of them."""
        if bound in self._counts:
            return bound
        if len(self._bounds) < MAX_BOUNDS:
            insort(self._bounds, bound)
            self._counts[bound] = 0.0
            return bound
        index = bisect_left(self._bounds, bound)
        return self._bounds[index] if index < len(self._bounds) else inf

    def family(self) -> HistogramMetricFamily:
        """Return the metric family."""
        sql = " ".join(self._series.plan.sql.split())
        text = (
            f"Column {self._value.column} of query {self._series.plan.name} by {self._column}, over all closed windows."
        )
        family = HistogramMetricFamily(self.name, f"{text} SQL: {sql}")
        total = 0.0
        for bound in (*self._bounds, inf):
            total += self._counts[bound]
            family.add_sample(f"{self.name}_bucket", {"le": floatToGoString(bound)}, total)  # type: ignore[no-untyped-call]
        family.add_sample(f"{self.name}_count", {}, total)
        return family
