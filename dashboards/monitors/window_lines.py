"""Closed windows as lines of text."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from capture.units import SECOND
from dashboards.wire_text import escape
from highlevel.aggregation import Aggregation
from highlevel.plan.plan import Plan
from highlevel.results.user_types import readable
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.times import time_texts

SHOWN = 3
"""Largest number of windows of a query that are printed together. For earlier windows only their number is printed."""


def window_lines(plan: Plan, table: pa.Table, shown: int = SHOWN) -> Iterator[str]:
    """Yield a line for each of the newest windows: its end, its number of rows, and the row with the largest value.

    Rows without windows have one line: their number and the last row.
    """
    if plan.aggregation is None:
        if table.num_rows:
            last = table.slice(table.num_rows - 1).combine_chunks()
            rows = "1 row, " if table.num_rows == 1 else f"{table.num_rows:,} rows, the last "
            yield f"{'':20}  {plan.name}: {rows}{_row_text(last, plan.times)}"
        return
    yield from _of_windows(plan, plan.aggregation, table, shown)


def _of_windows(plan: Plan, aggregation: Aggregation, table: pa.Table, shown: int) -> Iterator[str]:
    ends = sorted(pc.unique(table["window_end"]).to_pylist())
    if len(ends) > shown:
        more = "1 earlier window" if len(ends) == shown + 1 else f"{len(ends) - shown} earlier windows"
        yield f"{'':20}  {plan.name}: {more}"
    for end in ends[-shown:]:
        rows = table.filter(pc.equal(table["window_end"], end)).drop_columns(["window_start", "window_end"])
        shown_end = _clock(end) if aggregation.window.timed else _row(end)
        yield f"{shown_end}  {plan.name}: {_groups(rows)}{_largest(aggregation, rows)}"


def _clock(time: int) -> str:
    seconds = pa.scalar(time // SECOND, pa.timestamp("s"))
    return pc.strftime(seconds, "%Y-%m-%dT%H:%M:%SZ").as_py()


def _row(number: int) -> str:
    return f"row {number:,}".rjust(20)


def _groups(rows: pa.Table) -> str:
    return "1 row, " if rows.num_rows == 1 else f"{rows.num_rows:,} rows, the largest "


def _largest(aggregation: Aggregation, rows: pa.Table) -> str:
    """Return the text of the row with the largest value in the first value column (the first row if there is none)."""
    values = [
        out.name
        for out in aggregation.select
        if not (isinstance(out.expression, Column) and out.expression.name in aggregation.group_by)
        and out.expression.type in (Type.INT, Type.FLOAT)
    ]
    if values:
        order = pc.sort_indices(rows, sort_keys=[(values[0], "descending")])
        rows = rows.take(order[:1])
    return _row_text(rows, aggregation.times)


def _row_text(rows: pa.Table, times: Collection[str]) -> str:
    """Return the first row as text."""
    first = readable(rows.slice(0, 1).combine_chunks(), ())
    for index, name in enumerate(first.column_names):
        if name in times:
            first = first.set_column(index, name, time_texts(first[name].combine_chunks()))
    row = first.to_pylist()[0]
    texts = [f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}" for name, value in row.items()]
    return ", ".join(map(escape, texts))
