"""Charts of a query over a range of windows: the groups with the largest sums over the whole range, and the others.

The groups are selected once for the range, not for each window. So no group appears and disappears because its rank
changes between two windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa

from capture import arrow_compute as pc
from capture.lazy_dataclasses import dataclass
from dashboards.page.history import Window
from dashboards.prometheus.query_series import SUM, QuerySeries
from highlevel.results.user_types import readable
from highlevel.windows.kind import AnyWindow, SlidingWindow

Points = tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """One value of a query over the windows of a range, the oldest window first.

    `ends`: the ends of the windows in ns, and one more after each gap of windows without rows. `lines`: the name and
    the values of each shown group, the largest sum first; None if the group is not among the first rows of a window.
    `other`: the sum of all other groups, or None if values of the column cannot be added.
    """

    column: str
    ends: tuple[int, ...]
    lines: tuple[tuple[str, Points], ...]
    other: Points | None


def make_chart(series: QuerySeries, column: str, windows: Sequence[Window], groups: int) -> Chart:
    """Return the chart of a value column. Rows of a window with equal group columns are added.

    Raises ValueError for a column that has no values.
    """
    value = next((value for value in series.values if value.column == column), None)
    if value is None:
        names = ", ".join(value.column for value in series.values) or "none"
        raise ValueError(f"got the column {column!r} of {series.plan.name}, expected one of: {names}")
    windows = [window for window in windows if window.end is not None]
    ends = _with_gaps(sorted({window.end for window in windows if window.end is not None}), series.plan.window)
    values = _values_by_group(series, column, windows)
    order = sorted(values, key=lambda name: (-sum(abs(each) for each in values[name].values()), name))[:groups]
    lines = tuple((name, tuple(values[name].get(end) for end in ends)) for name in order)
    other: Points | None = None
    if value.fold == SUM and series.key_columns:
        totals: dict[int | None, float] = {}
        for window in windows:
            totals[window.end] = totals.get(window.end, 0.0) + (window.totals.get(column) or 0.0)
        shown = [sum(values[name].get(end, 0.0) for name in order) for end in ends]
        other = tuple(totals[end] - part if end in totals else None for end, part in zip(ends, shown, strict=True))
    return Chart(column, ends, lines, other)


def _with_gaps(ends: Sequence[int], window: AnyWindow) -> tuple[int, ...]:
    """Return the ends with one more after each gap of windows without rows, so that lines are not drawn across it."""
    if not isinstance(window, SlidingWindow):
        return tuple(ends)
    gaps = {end + window.slide for end, next_end in pairwise(ends) if next_end - end > window.slide}
    return tuple(sorted({*ends, *gaps}))


def _values_by_group(series: QuerySeries, column: str, windows: Sequence[Window]) -> dict[str, dict[int, float]]:
    """Return the values of each group by the end of the window."""
    if not windows:
        return {}
    rows = pa.concat_tables([window.rows for window in windows]).combine_chunks()
    numbers = pc.if_else(pc.is_nan(number := rows[column].cast(pa.float64(), safe=False)), None, number)
    table = pa.table({"name": group_names(series, rows), "end": rows["window_end"], "number": numbers})
    table = table.filter(pc.is_valid(table["number"])).group_by(["name", "end"]).aggregate([("number", "sum")])
    values: dict[str, dict[int, float]] = {}
    columns = (table[name].to_pylist() for name in ("name", "end", "number_sum"))
    for name, end, total in zip(*columns, strict=True):
        values.setdefault(name, {})[end] = total
    return values


def group_names(series: QuerySeries, rows: pa.Table) -> pa.Array:
    """Return the texts of the group columns of each row. A number has the name of its column before it.

    NULL is the text `NULL`.
    """
    keys = series.key_columns
    if not keys:
        return pa.repeat(series.plan.name, rows.num_rows)
    texts = readable(rows.select(list(keys)), series.aggregation.times)
    columns = []
    for name in keys:
        shown = pc.fill_null(texts[name].cast(pa.string()), "NULL")
        is_number = pa.types.is_integer(texts[name].type) or pa.types.is_floating(texts[name].type)
        columns.append(pc.binary_join_element_wise(name, shown, " ") if is_number else shown)
    return pc.binary_join_element_wise(*columns, ", ") if len(columns) > 1 else columns[0]
