"""Charts of a query over a range of windows: the groups with the largest sums in the range, and the other groups.

The groups are selected once for the range, not for each window. So no group appears and disappears because its rank
changes between two windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.lazy_dataclasses import dataclass
from dashboards.page.stored_windows import Window
from dashboards.prometheus.query_series import SUM, QuerySeries, Value
from highlevel.results.user_types import readable
from highlevel.windows.kind import AnyWindow, SlidingWindow
from lowlevel.expressions.assigned_numbers import names_of
from lowlevel.expressions.types import Scalar

Points = tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """The values of a group, and their sum over the range."""

    name: str
    values: Points
    total: float


@dataclass(frozen=True, slots=True)
class Chart:
    """One value of a query over the windows of a range, the oldest window first.

    `ends`: the ends of the windows in ns. For each gap of windows without rows, it also contains the end of the first
    such window. `lines`: the shown groups, the largest sum first. A value is None if the stored rows of the window
    contain no finite value of the group (`stored_windows.KEPT_ROWS` rows of a window are stored). `other`: the sum of
    all other groups, or None if values of the column cannot be added.
    """

    column: str
    ends: tuple[int, ...]
    lines: tuple[Line, ...]
    other: Line | None


def value_of(series: QuerySeries, column: str) -> Value:
    """Return a value column of a query. Raises ValueError if `column` is not a value column."""
    value = next((value for value in series.values if value.column == column), None)
    if value is None:
        names = ", ".join(value.column for value in series.values) or "none"
        raise ValueError(f"got the column {column!r} of {series.plan.name}, expected one of: {names}")
    return value


def make_chart(series: QuerySeries, column: str, windows: Sequence[Window], max_groups: int) -> Chart:
    """Return the chart of a value column. The values of rows with equal groups in the same window are summed.

    Raises ValueError if `column` is not a value column.
    """
    value = value_of(series, column)
    windows = [window for window in windows if window.end is not None]
    ends = _with_gaps(sorted({window.end for window in windows if window.end is not None}), series.plan.window)
    names, matrix = _largest_groups(series, column, windows, ends, max_groups)
    lines = tuple(Line(name, _points(row), float(np.nansum(row))) for name, row in zip(names, matrix, strict=True))
    return Chart(column, ends, lines, _other_line(series, value, windows, ends, matrix))


def _other_line(
    series: QuerySeries, value: Value, windows: Sequence[Window], ends: Sequence[int], matrix: np.ndarray
) -> Line | None:
    """Return the total of each window minus the values of the groups in `matrix`. None if totals do not exist."""
    if value.fold != SUM or not series.key_columns:
        return None
    totals = dict.fromkeys((window.end for window in windows), 0.0)
    for window in windows:
        totals[window.end] += window.totals.get(value.column) or 0.0
    other_values = np.array([totals.get(end, np.nan) for end in ends]) - np.nansum(matrix, axis=0)
    return Line("all others", _points(other_values), float(np.nansum(other_values)))


def _with_gaps(ends: Sequence[int], window: AnyWindow) -> tuple[int, ...]:
    """Add to `ends` the first window of each gap of windows without rows, so that lines are not drawn across gaps."""
    if not isinstance(window, SlidingWindow):
        return tuple(ends)
    gaps = {end + window.slide for end, next_end in pairwise(ends) if next_end - end > window.slide}
    return tuple(sorted({*ends, *gaps}))


def _points(numbers: np.ndarray) -> Points:
    """Return the values with None for NaN."""
    return tuple(None if np.isnan(value) else value for value in numbers.tolist())


def _largest_groups(
    series: QuerySeries, column: str, windows: Sequence[Window], ends: Sequence[int], max_groups: int
) -> tuple[list[str], np.ndarray]:
    """Return the names of the groups with the largest sums, and a row for each with its value at each of `ends`.

    A value is NaN if the stored rows of the window contain no finite value of the group.
    """
    if not windows:
        return [], np.empty((0, len(ends)))
    rows = pa.concat_tables([window.rows for window in windows]).combine_chunks()
    number = rows[column].cast(pa.float64(), safe=False)
    names = pc.dictionary_encode(group_names(series, rows))
    names = names.combine_chunks() if isinstance(names, pa.ChunkedArray) else names
    table = pa.table({"name": names.indices, "end": rows["window_end"], "number": number})
    table = table.filter(pc.is_finite(number))  # NULL and NaN cannot be drawn
    table = table.group_by(["name", "end"], use_threads=False).aggregate([("number", "sum")])
    sizes = pa.table({"name": table["name"], "size": pc.abs(table["number_sum"])})
    sizes = sizes.group_by("name", use_threads=False).aggregate([("size", "sum")])
    sizes = sizes.append_column("text", names.dictionary.take(sizes["name"]))
    sizes = sizes.sort_by([("size_sum", "descending"), ("text", "ascending")]).slice(0, max_groups)
    shown = table.filter(pc.is_in(table["name"], value_set=sizes["name"].combine_chunks()))
    matrix = np.full((sizes.num_rows, len(ends)), np.nan)
    at_name = pc.index_in(shown["name"], value_set=sizes["name"].combine_chunks()).to_numpy()
    matrix[at_name, np.searchsorted(ends, shown["end"].to_numpy())] = shown["number_sum"].to_numpy()
    return sizes["text"].to_pylist(), matrix


PROTOCOL = "protocol"
"""The column whose numbers are shown as names of protocols."""


def group_names(series: QuerySeries, rows: pa.Table, columns: Sequence[str] | None = None) -> pa.Array:
    """Return one text per row, made of its group columns, or of `columns` if given.

    A number is written after the name of its column. A known protocol number is replaced by the name of the protocol.
    NULL is the text `NULL`.
    """
    keys = series.key_columns if columns is None else columns
    if not keys:
        return pa.repeat(series.plan.name, rows.num_rows)
    texts = readable(rows.select(list(keys)), series.aggregation.times)
    named = [_label_values(name, texts[name]) for name in keys]
    return pc.binary_join_element_wise(*named, ", ") if len(named) > 1 else named[0]


def _label_values(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    shown = pc.fill_null(column.cast(pa.string()), "NULL")
    is_integer = pa.types.is_integer(column.type)
    if is_integer or pa.types.is_floating(column.type):
        shown = pc.binary_join_element_wise(name, shown, " ")
    if is_integer and name.lower() == PROTOCOL:
        known = names_of(Scalar.PROTOCOL_NAME)
        numbers = pa.array(list(known), column.type)
        positions = pc.index_in(column, value_set=numbers)
        shown = pc.coalesce(pa.array(list(known.values()), pa.string()).take(positions.combine_chunks()), shown)
    return shown
