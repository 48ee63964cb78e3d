"""Flow diagrams: the sums of a value over a range by the columns of a group, such as source and destination.

    srcIP            destPort          destIP
    10.0.0.1  ═══════ 443 ════════════ 10.0.0.2      a flow: one path, with the sum of the value
              ═══════ 53  ════════════ 10.0.0.9

The largest flows are selected once for the range. All other flows are shown as one flow. Only a value column whose
values can be added has a diagram.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from capture import arrow_compute as pc
from capture.lazy_dataclasses import dataclass
from dashboards.page.charts import group_names, value_of
from dashboards.page.stored_windows import Window
from dashboards.prometheus.query_series import SUM, QuerySeries

MAX_STAGES = 3
"""Maximum number of columns of a diagram."""


@dataclass(frozen=True, slots=True)
class Flows:
    """The largest flows of a range. A path has the text of the group for each of `stages`, the columns.

    `paths` and `values` have the largest sum first. `other` is the sum of all other groups.
    """

    column: str
    stages: tuple[str, ...]
    paths: tuple[tuple[str, ...], ...]
    values: tuple[float, ...]
    other: float


def stages_of(series: QuerySeries) -> tuple[str, ...]:
    """Return the columns of a query's diagram, from left to right. The tuple is empty if the query has no diagram."""
    columns = series.key_columns[:MAX_STAGES]
    return columns if len(columns) > 1 and any(value.fold == SUM for value in series.values) else ()


def make_flows(series: QuerySeries, column: str, windows: Sequence[Window], max_flows: int) -> Flows:
    """Return the `max_flows` largest flows of `windows`. Raises ValueError for a column without a diagram."""
    value, stages = value_of(series, column), stages_of(series)
    if value.fold != SUM or not stages:
        raise ValueError(f"the column {column} of {series.plan.name} has no diagram: its values cannot be added")
    if not windows:
        return Flows(column, stages, (), (), 0.0)
    rows = pa.concat_tables([window.rows for window in windows]).combine_chunks()
    table = rows.select(list(stages)).append_column("value", rows[column].cast(pa.float64(), safe=False))
    sums = table.group_by(list(stages), use_threads=False).aggregate([("value", "sum")])
    sums = sums.filter(pc.greater(sums["value_sum"], 0))
    order = [("value_sum", "descending"), *((stage, "ascending") for stage in stages)]
    largest = sums.sort_by(order).slice(0, max_flows)
    texts = [group_names(series, largest, (stage,)).to_pylist() for stage in stages]
    values = tuple(largest["value_sum"].to_pylist())
    total = sum(window.totals.get(column) or 0.0 for window in windows)
    return Flows(column, stages, tuple(zip(*texts, strict=True)), values, max(0.0, total - sum(values)))
