"""Results as text and files: the formats of `wiretide query`.

CSV: a header, then RFC 4180 rows, nothing else; times are integer nanoseconds, IP and MAC addresses text, NULL an empty
field. Table: aligned text (`dashboards.result_table`), one block for the windows that became final together; rows that
are of no window follow each other. JSON: one object per line. Parquet and Arrow: the same columns as CSV, in their own
formats.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import stat
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from capture.errors import InputError
from capture.private_files import SHARED_FILE_MODE, replacing
from dashboards.formats import Format
from dashboards.result_table import LiveTable, aligned
from dashboards.wire_text import json_escaped, neutralised_column
from highlevel.plan import BOUNDS
from lowlevel.addresses import to_text


@contextmanager
def open_output(path: Path | None, *, live: bool = False) -> Iterator[BinaryIO]:
    """Open standard output, or a file that appears under its name only when all is written.

    What exists and is no regular file, such as a pipe or a device, is written to as it is, and so is a file of a `live`
    run, which is to be read while it grows. Raises InputError where the file cannot be written.
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
    in_place = live or (path.exists() and not path.is_file())
    with ExitStack() as stack:
        try:
            if in_place:
                sink = stack.enter_context(path.open("wb"))
            else:
                mode = path.stat().st_mode if path.exists() else None
                descriptor, _ = stack.enter_context(replacing(path, SHARED_FILE_MODE))
                if mode is not None:
                    os.fchmod(descriptor, stat.S_IMODE(mode))  # as if it had been written in its place
                sink = stack.enter_context(open(descriptor, "wb", closefd=False))
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from error
        yield sink


def readable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Spell the columns of IP and MAC addresses of a batch."""
    arrays = [to_text(column) if pa.types.is_binary(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def readable_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of what `readable` makes."""
    fields = [pa.field(each.name, pa.string()) if pa.types.is_binary(each.type) else each for each in schema]
    return pa.schema(fields)


def write_results(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    kind: Format,
    sink: BinaryIO,
    *,
    live: bool = False,
    times: Collection[str] = BOUNDS,
    raw_csv: bool = False,
) -> None:
    """Write result batches as they come, so that what is final can be read at once in every format but Parquet.

    `schema` is the plan's: it makes the header even where there are no rows. `live` says that batches come over hours,
    a few rows each: a table then has one header for many of them. `times` are the columns that a table spells as times.
    With `raw_csv` texts in CSV are exact; otherwise they are neutralised (`dashboards.wire_text`).
    """
    if kind is Format.CSV:
        _write_csv(batches, schema, sink, raw=raw_csv)
        return
    if kind is Format.JSON:
        _write_json(map(readable, batches), sink)
        return
    writers: dict[Format, Callable[[Iterable[pa.RecordBatch], pa.Schema, BinaryIO], None]] = {
        Format.TABLE: partial(_write_table, live=live, times=times),
        Format.PARQUET: _write_parquet,
        Format.ARROW: _write_arrow,
    }
    writers[kind](map(readable, batches), readable_schema(schema), sink)


def _write_csv(batches: Iterable[pa.RecordBatch], schema: pa.Schema, sink: BinaryIO, *, raw: bool) -> None:
    import pyarrow.csv as pa_csv

    header = pa.RecordBatch.from_arrays([pa.array([name]) for name in schema.names], names=schema.names)
    for batch in itertools.chain([header], batches):
        if not raw:
            batch = _neutralised(batch)
        # Arrow's "needed" quotes every text; an address or a name should stay plain. Addresses are still bytes here.
        quoting = "needed" if any(_needs_quotes(column) for column in batch.columns) else "none"
        pa_csv.write_csv(readable(batch), sink, pa_csv.WriteOptions(include_header=False, quoting_style=quoting))
        sink.flush()


def _neutralised(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [neutralised_column(each) if pa.types.is_string(each.type) else each for each in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _needs_quotes(column: pa.Array) -> bool:
    if not pa.types.is_string(column.type):
        return False
    return bool(pc.any(pc.match_substring_regex(column, r'[",\r\n]')).as_py())


def _write_json(batches: Iterable[pa.RecordBatch], sink: BinaryIO) -> None:
    for batch in batches:
        rows = pa.RecordBatch.from_arrays([_finite(column) for column in batch.columns], names=batch.schema.names)
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows.to_pylist())
        sink.write(json_escaped(lines).encode())
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
            sink.flush()


def _write_table(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, sink: BinaryIO, *, live: bool, times: Collection[str]
) -> None:
    """Write aligned columns: a block for each batch, or, of a live run, all under each other."""
    table = LiveTable(times=times)
    empty = True
    for batch in batches:
        sink.write((table.lay_out(batch) if live else aligned(batch, times=times)).encode())
        sink.flush()
        empty = False
    if empty:
        sink.write(f"no rows ({', '.join(schema.names)})\n".encode())
