"""Results as text and files: the formats of `wiretide query`.

* CSV: a header, then rows as in RFC 4180. NULL is an empty field.
* JSON: one object per line.
* Table: aligned text (`dashboards.output.table`).
* Parquet, Arrow: the same columns, with times as `timestamp[ns, UTC]`.

IP and MAC addresses are text in every format. `Times` is the format of times in the text formats.
"""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from capture import arrow_compute as pc
from capture.errors import InputError
from capture.private_files import SHARED_FILE_MODE, NamedFile, open_replacement
from dashboards.output.formats import DEFAULT_TIMES, ChangeForm, Format, Times
from dashboards.wire_text import escape_json, neutralise_column
from highlevel.plan.plan import Plan
from highlevel.results.user_types import readable, readable_schema
from lowlevel.times import time_texts

if TYPE_CHECKING:
    from dashboards.output.change_forms import ChangeWriter


@contextmanager
def open_output(path: Path | None, *, live: bool = False) -> Iterator[BinaryIO]:
    """Open standard output, or a new file that is renamed to `path` when it is complete.

    A pipe or a device at `path` is written in place. The file of a `live` run is also written in place, because users
    read it while it grows. Raises InputError if the file cannot be written, or standard output is closed. Errors of
    later writes contain the path.
    """
    if path is None:
        if sys.stdout is None:  # the shell closed it: >&-
            raise InputError("standard output is closed; expected a file or a pipe, or -o FILE")
        if isinstance(sys.stdout.buffer, io.RawIOBase):
            # PYTHONUNBUFFERED: a raw file may write only a part of the bytes, without an error.
            with open(sys.stdout.fileno(), "wb", closefd=False) as sink:
                yield sink
            return
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if path.is_dir():
        raise InputError(f"{path}: cannot be written: it is a folder")
    is_special = path.exists() and not path.is_file()
    in_place = live or is_special
    if not is_special:  # /dev/stdout leads to the name of a pipe, which cannot be opened
        path = path.resolve()  # the target of a symbolic link is replaced, not the link
    with ExitStack() as stack:
        try:
            if in_place:
                sink = stack.enter_context(io.BufferedWriter(NamedFile(path, path)))
            else:
                mode = path.stat().st_mode if path.exists() else None
                descriptor, _ = stack.enter_context(open_replacement(path, SHARED_FILE_MODE))
                if mode is not None:
                    os.fchmod(descriptor, stat.S_IMODE(mode))  # the mode of the replaced file
                sink = stack.enter_context(io.BufferedWriter(NamedFile(descriptor, path)))
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from error
        yield sink


def write_answer(
    plan: Plan,
    batches: Iterable[pa.RecordBatch],
    output_format: Format,
    sink: BinaryIO,
    *,
    live: bool = False,
    style: Times | None = None,
    raw_csv: bool = False,
    changes: ChangeWriter | None = None,
) -> None:
    """Write the answer of a query in a format.

    `changes`: converts changes to another format; None: changes are written as rows.

    The other arguments are those of `write_results`. Raises OpenMetricsError for OpenMetrics of an answer without
    windows of time.
    """
    if changes is not None:
        _write_changes(plan, batches, output_format, sink, changes, live=live, style=style, raw_csv=raw_csv)
        return
    if output_format is Format.OPENMETRICS:
        from dashboards.output.openmetrics import write_openmetrics

        write_openmetrics(plan, batches, sink)
        return
    write_results(batches, plan.schema, output_format, sink, live=live, times=plan.times, style=style, raw_csv=raw_csv)


def _write_changes(
    plan: Plan,
    batches: Iterable[pa.RecordBatch],
    output_format: Format,
    sink: BinaryIO,
    changes: ChangeWriter,
    *,
    live: bool,
    style: Times | None,
    raw_csv: bool,
) -> None:
    """Write converted changes. The rows in the envelopes of Debezium have the values of the format `output_format`."""
    from dashboards.output.change_forms import ADDED_COLUMNS

    prepare, times = _keep_rows, plan.times
    if changes.form is ChangeForm.DEBEZIUM:
        iso = plan.times if (style or DEFAULT_TIMES.get(output_format)) is Times.ISO else frozenset[str]()
        prepare, times = partial(_readable_rows, output_format, plan.times, iso), frozenset()
    schema = changes.schema(prepare(changes.columns.empty_table()).schema)
    converted = changes.convert(batches, prepare)
    own = ADDED_COLUMNS[changes.form]
    write_results(
        converted, schema, output_format, sink, live=live, times=times, style=style, raw_csv=raw_csv, own_columns=own
    )


def _keep_rows(rows: pa.Table) -> pa.Table:
    return rows


def _readable_rows(
    output_format: Format, times: Collection[str], iso_columns: Collection[str], rows: pa.Table
) -> pa.Table:
    """Return rows with the values that a format can contain."""
    if output_format is not Format.JSON:
        return readable(rows, times)
    (batch,) = rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]
    texts = _write_texts(batch, iso_columns)
    return pa.Table.from_arrays([_to_finite(column) for column in texts.columns], names=texts.schema.names)


def write_results(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    output_format: Format,
    sink: BinaryIO,
    *,
    live: bool = False,
    times: Collection[str] = (),
    style: Times | None = None,
    raw_csv: bool = False,
    own_columns: Collection[str] = (),
) -> None:
    """Write result batches as they arrive. In all formats except Parquet, users can read final rows immediately.

    * `schema`: the schema of the plan, for the header, which is written even if there are no rows.
    * `live`: batches may arrive for hours. Then a table repeats its header from time to time.
    * `times`: the columns that are times in ns. `style`: the format of times in text; None: the default of the format.
    * `raw_csv`: write exact texts into CSV. Otherwise they are neutralised (`dashboards.wire_text`), except in
      `own_columns`, whose texts do not come from packets.
    """
    style = style or DEFAULT_TIMES.get(output_format)
    match output_format:
        case Format.CSV:
            exact = schema.names if raw_csv else own_columns
            _write_csv(batches, schema, sink, times if style is Times.ISO else (), exact)
        case Format.JSON:
            _write_json(batches, sink, times if style is Times.ISO else ())
        case Format.TABLE:
            _write_table(batches, schema, sink, live=live, times=times if style is Times.ISO else ())
        case Format.PARQUET:
            _write_parquet((readable(batch, times) for batch in batches), readable_schema(schema, times), sink)
        case Format.ARROW:
            _write_arrow((readable(batch, times) for batch in batches), readable_schema(schema, times), sink)
        case Format.OPENMETRICS:
            raise ValueError("samples need the plan of the query, not only its schema: use write_answer")


def _write_texts(batch: pa.RecordBatch, iso_columns: Collection[str]) -> pa.RecordBatch:
    """Return a batch with IP and MAC addresses as text. The time columns `iso_columns` become ISO times."""
    rows = readable(batch, ())
    arrays = [
        time_texts(column) if name in iso_columns else column
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, rows.schema.names)


def _write_csv(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    sink: BinaryIO,
    iso_columns: Collection[str],
    exact: Collection[str],
) -> None:
    """Write a header and the rows. Texts are neutralised except in the columns `exact`."""
    import pyarrow.csv as pa_csv

    def write(rows: pa.RecordBatch, texts: Iterable[pa.Array]) -> None:
        # Arrow's "needed" quotes all texts, but most texts need no quotes.
        quoting = "needed" if any(_needs_quotes(column) for column in texts) else "none"
        pa_csv.write_csv(rows, sink, pa_csv.WriteOptions(include_header=False, quoting_style=quoting))
        sink.flush()

    names = pa.array(schema.names, pa.string())
    names = names if set(schema.names) <= set(exact) else neutralise_column(names)
    write(pa.RecordBatch.from_arrays([names[i : i + 1] for i in range(len(names))], names=schema.names), [names])
    for rows in batches:
        batch = _neutralise_texts(rows, exact)
        write(_write_texts(batch, iso_columns), batch.columns)  # addresses become text, which needs no quotes


def _neutralise_texts(batch: pa.RecordBatch, exact: Collection[str]) -> pa.RecordBatch:
    columns = [
        neutralise_column(column) if pa.types.is_string(column.type) and name not in exact else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _needs_quotes(column: pa.Array) -> bool:
    if not pa.types.is_string(column.type):
        return False
    return bool(pc.any(pc.match_substring_regex(column, r'[",\r\n]')).as_py())


def _write_json(batches: Iterable[pa.RecordBatch], sink: BinaryIO, iso_columns: Collection[str]) -> None:
    import json

    for batch in batches:
        texts = _write_texts(batch, iso_columns)
        rows = pa.RecordBatch.from_arrays([_to_finite(column) for column in texts.columns], names=texts.schema.names)
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows.to_pylist())
        sink.write(escape_json(lines).encode())
        sink.flush()


def _to_finite(column: pa.Array) -> pa.Array:
    """Replace infinity and NaN by NULL, because JSON has no such numbers."""
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
    empty = True
    from dashboards.output.table import ResultTable

    for lines in ResultTable(times=times, live=live).lines(readable(batch, ()) for batch in batches):
        sink.write(lines.encode())
        sink.flush()
        empty = False
    if empty:
        sink.write(f"no rows ({', '.join(schema.names)})\n".encode())
