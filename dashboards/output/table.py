"""Results as aligned text: numbers to the right, text to the left, times in ISO 8601."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import pyarrow as pa

from capture import arrow_compute as pc
from dashboards.wire_text import escape, escape_column
from lowlevel.times import time_texts


def align_table(header: list[str], rows: list[list[str]], text_columns: Collection[str] = ()) -> str:
    """Return a table with a line under the header.

    The first column and `text_columns` are left-aligned, other columns right.
    """
    left = {0, *(column for column, name in enumerate(header) if name in text_columns)}
    header, rows = list(map(escape, header)), [list(map(escape, row)) for row in rows]
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = []
    for row in [header, ["-" * width for width in widths], *rows]:
        cells = [
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


HEADER_EVERY = 40
"""Minimum number of rows between two headers of a live table."""

MEASURED_ROWS = 1000
"""The column widths of a finite table are computed from this number of first rows."""


class ResultTable:
    """Result batches as one table of text. Columns in `times` (integers in ns) are written as ISO times.

    A finite table has one header. A value that is wider than its column moves the rest of its row to the right. A
    `live` table repeats the header if a column becomes wider, and with the first batch after HEADER_EVERY rows.
    """

    def __init__(self, *, times: Collection[str] = (), live: bool = False) -> None:
        """Begin with a header."""
        self._times = times
        self._live = live
        self._widths: list[int] = []
        self._rows = 0  # number of rows below the last header

    def lines(self, batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
        """Yield the text of the table in parts, one per batch. The first part of a finite table has MEASURED_ROWS."""
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for batch in batches:
            if self._live or rows >= MEASURED_ROWS:
                yield self._lay_out(batch)
                continue
            waiting.append(batch)
            rows += batch.num_rows
            if rows >= MEASURED_ROWS:
                yield self._lay_out(pa.concat_batches(waiting))
        if 0 < rows < MEASURED_ROWS:
            yield self._lay_out(pa.concat_batches(waiting))

    def _lay_out(self, batch: pa.RecordBatch) -> str:
        """Return the lines of a batch, below a header if one is due."""
        columns = zip(batch.schema, batch.columns, strict=True)
        texts = [
            pc.fill_null(time_texts(column), "NULL") if field.name in self._times else _texts(column)
            for field, column in columns
        ]
        due = not self._widths
        if due or self._live:
            longest = [pc.max(pc.utf8_length(column)).as_py() or 0 for column in texts]
            previous = self._widths or [0] * len(texts)
            widths = [max(lengths) for lengths in zip(map(len, batch.schema.names), longest, previous, strict=True)]
            due = widths != self._widths or self._rows >= HEADER_EVERY
            blank_line = "\n" if due and self._widths else ""
            self._widths = widths
        else:
            blank_line = ""
        self._rows = batch.num_rows + (0 if due else self._rows)
        padded = []
        for field, column, width in zip(batch.schema, texts, self._widths, strict=True):
            number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
            right = number and field.name not in self._times
            pad = pc.utf8_lpad if right else pc.utf8_rpad
            head = [field.name.rjust(width) if right else field.name.ljust(width), "-" * width]
            padded.append(pa.concat_arrays([pa.array(head if due else [], pa.string()), pad(column, width)]))
        lines = pc.utf8_rtrim(pc.binary_join_element_wise(*padded, "  "), " ")
        return blank_line + "\n".join(lines.to_pylist()) + "\n"


def _texts(column: pa.Array) -> pa.Array:
    if pa.types.is_floating(column.type):
        return pa.array([_float_text(value) for value in column.to_pylist()], pa.string())
    return escape_column(pc.fill_null(pc.cast(column, pa.string()), "NULL"))


def _float_text(value: float | None) -> str:
    """Return a float with six digits, or with all digits before the point if there are up to 15 of them.

    >>> [_float_text(value) for value in (0.1 + 0.2, 4659441.0, 12345678.9, 2e15, 1e-7, None)]
    ['0.3', '4659441', '12345679', '2e+15', '1e-07', 'NULL']
    """
    if value is None:
        return "NULL"
    return f"{value:.0f}" if 999999.5 <= abs(value) < 999999999999999.5 else f"{value:.6g}"
