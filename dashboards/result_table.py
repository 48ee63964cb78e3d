"""Results as aligned text: numbers to the right, text to the left, times in ISO 8601."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from dashboards.wire_text import escaped_column
from highlevel.plan import BOUNDS

HEADER_EVERY = 40
"""Rows under one header of a live table, at least, before it is said again."""


def aligned(batch: pa.RecordBatch, *, times: Collection[str] = BOUNDS) -> str:
    """Lay one batch out by itself: a header, a rule, the rows, a blank line. `times` is as for `LiveTable`."""
    return LiveTable(times=times).lay_out(batch) + "\n"


class LiveTable:
    """Lays batches out one below the other, in columns that stay where they are.

    The header is said again when a column has to be wider, and with the first batch after HEADER_EVERY rows. Columns in
    `times`, integers in ns, are spelled as times.
    """

    def __init__(self, *, times: Collection[str] = BOUNDS) -> None:
        """Begin with a header."""
        self._times = times
        self._widths: list[int] = []
        self._rows = 0  # under the last header

    def lay_out(self, batch: pa.RecordBatch) -> str:
        """Return the lines of a batch, below a header where one is due."""
        texts = [
            iso_times(column) if name in self._times else _texts(column)
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        longest = [pc.max(pc.utf8_length(column)).as_py() or 0 for column in texts]
        before = self._widths or [0] * len(texts)
        widths = [max(each) for each in zip(map(len, batch.schema.names), longest, before, strict=True)]
        due = widths != self._widths or self._rows >= HEADER_EVERY
        between = "\n" if due and self._widths else ""
        self._rows = batch.num_rows + (0 if due else self._rows)
        self._widths = widths
        columns = []
        for field, column, width in zip(batch.schema, texts, widths, strict=True):
            number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
            right = number and field.name not in self._times
            pad = pc.utf8_lpad if right else pc.utf8_rpad
            head = [field.name.rjust(width) if right else field.name.ljust(width), "-" * width]
            columns.append(pa.concat_arrays([pa.array(head if due else [], pa.string()), pad(column, width)]))
        lines = pc.utf8_rtrim(pc.binary_join_element_wise(*columns, "  "), " ")
        return between + "\n".join(lines.to_pylist()) + "\n"


def iso_times(column: pa.Array) -> pa.Array:
    """Spell times in ns as ISO 8601, whole seconds without a fraction."""
    texts = column.cast(pa.timestamp("ns", tz="UTC")).cast(pa.timestamp("ns")).cast(pa.string())
    texts = pc.replace_substring_regex(pc.replace_substring(texts, " ", "T"), r"\.?0{9}$", "")
    return pc.fill_null(pc.binary_join_element_wise(texts, "Z", ""), "NULL")


def _texts(column: pa.Array) -> pa.Array:
    if pa.types.is_floating(column.type):
        return pa.array(["NULL" if value is None else f"{value:.6g}" for value in column.to_pylist()], pa.string())
    return escaped_column(column.cast(pa.string()).fill_null("NULL"))
