"""Results as text and files: the formats of `wiretide query`.

CSV: a header, then RFC 4180 rows, nothing else; times are integer nanoseconds, IP and MAC addresses text, NULL an empty
field.
Table: aligned text, one block for the windows that became final together, times in ISO 8601. JSON: one object per
line. Parquet and Arrow: the same columns as CSV, in their own formats.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from capture.errors import InputError
from dashboards.formats import Format
from lowlevel.addresses import to_text

BOUNDS = ("window_start", "window_end")


@contextmanager
def open_output(path: Path | None) -> Iterator[BinaryIO]:
    """Open standard output, or a file that appears under its name only when all is written.

    What exists and is no regular file, such as a pipe or a device, is written to as it is. Raises InputError where
    the file cannot be written.
    """
    if path is None:
        if isinstance(sys.stdout.buffer, io.RawIOBase):
            # PYTHONUNBUFFERED: a raw file may take a part of what is written, and says so to nobody.
            with open(sys.stdout.fileno(), "wb", closefd=False) as sink:
                yield sink
            return
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if path.is_dir():
        raise InputError(f"{path}: cannot be written: it is a folder")
    path = path.resolve()  # a link stays one: what it names is written
    in_place = path.exists() and not path.is_file()
    part = path if in_place else path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        sink = part.open("wb")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        with sink:
            yield sink
        if not in_place:
            part.replace(path)
    finally:
        if not in_place:
            part.unlink(missing_ok=True)


def readable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Spell the columns of IP and MAC addresses of a batch."""
    arrays = [to_text(column) if pa.types.is_binary(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def readable_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of what `readable` makes."""
    fields = [pa.field(each.name, pa.string()) if pa.types.is_binary(each.type) else each for each in schema]
    return pa.schema(fields)


def write_results(batches: Iterable[pa.RecordBatch], schema: pa.Schema, kind: Format, sink: BinaryIO) -> None:
    """Write result batches as they come. `schema` is the plan's: it makes the header even where there are no rows."""
    if kind is Format.CSV:
        _write_csv(batches, schema, sink)
        return
    if kind is Format.JSON:
        _write_json(map(readable, batches), sink)
        return
    writers: dict[Format, Callable[[Iterable[pa.RecordBatch], pa.Schema, BinaryIO], None]] = {
        Format.TABLE: _write_table,
        Format.PARQUET: _write_parquet,
        Format.ARROW: _write_arrow,
    }
    writers[kind](map(readable, batches), readable_schema(schema), sink)


def _write_csv(batches: Iterable[pa.RecordBatch], schema: pa.Schema, sink: BinaryIO) -> None:
    import pyarrow.csv as pa_csv

    header = pa.RecordBatch.from_arrays([pa.array([name]) for name in schema.names], names=schema.names)
    for batch in itertools.chain([header], batches):
        # Arrow's "needed" quotes every text; an address or a name should stay plain. Addresses are still bytes here.
        quoting = "needed" if any(_needs_quotes(column) for column in batch.columns) else "none"
        pa_csv.write_csv(readable(batch), sink, pa_csv.WriteOptions(include_header=False, quoting_style=quoting))
        sink.flush()


def _needs_quotes(column: pa.Array) -> bool:
    if not pa.types.is_string(column.type):
        return False
    return bool(pc.any(pc.match_substring_regex(column, r'[",\r\n]')).as_py())


def _write_json(batches: Iterable[pa.RecordBatch], sink: BinaryIO) -> None:
    for batch in batches:
        rows = pa.RecordBatch.from_arrays([_finite(column) for column in batch.columns], names=batch.schema.names)
        sink.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows.to_pylist()).encode())
        sink.flush()


def _finite(column: pa.Array) -> pa.Array:
    """JSON has no infinity (what a float too large becomes): it is written as null."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))


def _write_parquet(batches: Iterable[pa.RecordBatch], schema: pa.Schema, sink: BinaryIO) -> None:
    import pyarrow.parquet as pa_parquet

    with pa_parquet.ParquetWriter(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _write_arrow(batches: Iterable[pa.RecordBatch], schema: pa.Schema, sink: BinaryIO) -> None:
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _write_table(batches: Iterable[pa.RecordBatch], schema: pa.Schema, sink: BinaryIO) -> None:
    """Write aligned columns: numbers to the right, text to the left; widths are those of each window."""
    empty = True
    for batch in batches:
        sink.write(aligned(batch).encode())
        sink.flush()
        empty = False
    if empty:
        sink.write(f"no rows ({', '.join(schema.names)})\n".encode())


def aligned(batch: pa.RecordBatch) -> str:
    """Lay a batch out as text: a header, a rule, the rows, a blank line."""
    lines: list[pa.Array] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        texts = _iso(column) if name in BOUNDS else _texts(column)
        longest = pc.max(pc.utf8_length(texts)).as_py() or 0
        width = max(longest, len(name))
        pad = pc.utf8_lpad if numeric and name not in BOUNDS else pc.utf8_rpad
        head = name.rjust(width) if pad is pc.utf8_lpad else name.ljust(width)
        lines.append(pa.concat_arrays([pa.array([head, "-" * width]), pad(texts, width)]))
    rows = pc.binary_join_element_wise(*lines, "  ")
    return "\n".join(pc.utf8_rtrim(rows, " ").to_pylist()) + "\n\n"


def _iso(column: pa.Array) -> pa.Array:
    """Spell times in ns as ISO 8601, whole seconds without a fraction."""
    texts = column.cast(pa.timestamp("ns", tz="UTC")).cast(pa.timestamp("ns")).cast(pa.string())
    texts = pc.replace_substring_regex(pc.replace_substring(texts, " ", "T"), r"\.?0{9}$", "")
    return pc.binary_join_element_wise(texts, "Z", "")


def _texts(column: pa.Array) -> pa.Array:
    if pa.types.is_floating(column.type):
        return pa.array(["NULL" if value is None else f"{value:.6g}" for value in column.to_pylist()], pa.string())
    return printable(column.cast(pa.string()).fill_null("NULL"))


def printable(texts: pa.Array) -> pa.Array:
    """Put a mark in place of characters that would move a terminal's cursor: names come from captures and exporters."""
    return pc.replace_substring_regex(texts, r"[\p{Cc}\p{Cf}]", "\ufffd")
