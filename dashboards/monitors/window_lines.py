"""Closed windows as lines of text."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import pyarrow as pa

from capture import arrow_compute as pc
from capture.units import SECOND
from dashboards.wire_text import escape
from highlevel.aggregation import Aggregation
from highlevel.plan.plan import Plan
from highlevel.results.row_limit import REST_ROWS
from highlevel.results.user_types import readable
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.punctuation import END
from lowlevel.times import time_texts

MAX_WINDOWS = 3
"""Maximum number of windows of a query that are printed together. Of earlier windows, only the number is printed."""


def window_lines(
    plan: Plan, table: pa.Table, max_windows: int = MAX_WINDOWS, other_sums: pa.Table | None = None
) -> Iterator[str]:
    """Yield a line for each of the newest windows: its end, its number of rows, and the row with the largest value.

    For rows without windows, yield one line with their number and the last row. `other_sums`: counts of rows that are
    not in `table`, by window (`highlevel.results.row_limit`).
    """
    if plan.aggregation is None:
        if table.num_rows:
            last_row = table.slice(table.num_rows - 1).combine_chunks()
            count = table.num_rows + (0 if other_sums is None else pc.sum(other_sums[REST_ROWS]).as_py())
            rows_text = "1 row, " if count == 1 else f"{count:,} rows, the last "
            yield f"{'':20}  {plan.name}: {rows_text}{_row_text(last_row, plan.times, ())}"
        return
    yield from _result_window_lines(plan, plan.aggregation, table, max_windows, other_sums)


def change_lines(
    plan: Plan, windows: Mapping[tuple[int, int], pa.Table], watermark: int, max_windows: int = MAX_WINDOWS
) -> Iterator[str]:
    """Yield a line for each of the newest windows whose rows have changed.

    `windows`: all rows of each window by its bounds in ns. Windows that end by `watermark` are final.
    """
    assert plan.aggregation is not None, "changes have windows"
    ends = sorted(windows, key=lambda bounds: bounds[1])
    if len(ends) > max_windows:
        others = len(ends) - max_windows
        yield f"{'':20}  {plan.name}: {'1 earlier window' if others == 1 else f'{others} earlier windows'}"
    for bounds in ends[-max_windows:]:
        rows, end = windows[bounds], bounds[1]
        mark = "" if end <= watermark or watermark == END else " (provisional)"
        text = "no row any more"
        if rows.num_rows:
            shown = rows.drop_columns(["window_start", "window_end"])
            text = f"{_count_rows(shown.num_rows)}{_largest_row_text(plan.aggregation, shown)}"
        yield f"{_format_time(end)}  {plan.name}{mark}: {text}"


def row_change_lines(plan: Plan, returned: int, withdrawn: int, closed: pa.Table) -> Iterator[str]:
    """Yield a line about the changes of rows without windows: their numbers, and the last row that became final."""
    if not returned + withdrawn + closed.num_rows:
        return
    last = ""
    if closed.num_rows:
        last = f", the last {_row_text(closed.slice(closed.num_rows - 1).combine_chunks(), plan.times, ())}"
    texts = [f"{count:,} {name}" for name, count in (("returned", returned), ("withdrawn", withdrawn)) if count]
    texts += [f"{closed.num_rows:,} final{last}"] if closed.num_rows else []
    yield f"{'':20}  {plan.name}: rows: {', '.join(texts)}"


def _result_window_lines(
    plan: Plan, aggregation: Aggregation, table: pa.Table, max_windows: int, other_sums: pa.Table | None
) -> Iterator[str]:
    ends = sorted(pc.unique(table["window_end"]).to_pylist())
    if len(ends) > max_windows:
        earlier_text = (
            "1 earlier window" if len(ends) == max_windows + 1 else f"{len(ends) - max_windows} earlier windows"
        )
        yield f"{'':20}  {plan.name}: {earlier_text}"
    for end in ends[-max_windows:]:
        rows = table.filter(pc.equal(table["window_end"], end)).drop_columns(["window_start", "window_end"])
        end_text = _format_time(end) if aggregation.window.timed else _format_row_number(end)
        others = 0
        if other_sums is not None:
            own = other_sums.filter(pc.equal(other_sums["window_end"], end))
            others = pc.sum(own[REST_ROWS], min_count=0).as_py()
        yield f"{end_text}  {plan.name}: {_count_rows(rows.num_rows + others)}{_largest_row_text(aggregation, rows)}"


def _format_time(time: int) -> str:
    seconds = pa.scalar(time // SECOND, pa.timestamp("s"))
    return pc.strftime(seconds, "%Y-%m-%dT%H:%M:%SZ").as_py()


def _format_row_number(number: int) -> str:
    return f"row {number:,}".rjust(20)


def _count_rows(count: int) -> str:
    return "1 row, " if count == 1 else f"{count:,} rows, the largest "


def _largest_row_text(aggregation: Aggregation, rows: pa.Table) -> str:
    """Return the text of the row with the largest value in the first value column, or else of the first row."""
    value_columns = [
        output.name
        for output in aggregation.select
        if not (isinstance(output.expression, Column) and output.expression.name in aggregation.group_by)
        and output.expression.type in (Type.INT, Type.FLOAT)
    ]
    if value_columns:
        order = pc.sort_indices(rows, sort_keys=[(value_columns[0], "descending")])
        rows = rows.take(order[:1])
    return _row_text(rows, aggregation.times, value_columns)


def _row_text(rows: pa.Table, times: Collection[str], value_columns: Collection[str]) -> str:
    """Return the first row as text. Only value columns have separators of thousands, not ports and protocols."""
    first_row = readable(rows.slice(0, 1).combine_chunks(), ())
    for index, name in enumerate(first_row.column_names):
        if name in times:
            first_row = first_row.set_column(index, name, time_texts(first_row[name].combine_chunks()))
    row = first_row.to_pylist()[0]
    texts = [
        f"{name} {value:,}" if name in value_columns and isinstance(value, int) else f"{name} {value}"
        for name, value in row.items()
    ]
    return ", ".join(map(escape, texts))
