"""Sources of streams with a schema: CSV, JSON, Parquet and Arrow files, and tables, in chunks.

A reader can begin at any chunk. The number of a chunk is:

    CSV      the offset of its first byte, after decompression; a chunk ends at the end of a line
    JSON     the same, for files with an object in each line
    Parquet  the number of its row group
    Arrow    the number of its record batch
    table    0, because a table is one chunk, and so are messages
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from capture.errors import InputError
from capture.lazy_dataclasses import dataclass
from highlevel.inline.debezium_envelopes import (
    check_rows,
    envelope_schema,
    has_envelopes,
    is_tombstone,
    row_names,
    rows_of_events,
    skip_empty_envelopes,
)
from highlevel.inline.json_lines import BOM, read_objects, split_lines
from highlevel.inline.last_rows import LastRows
from highlevel.inline.table_suffixes import ARROW, CSV, JSON, PARQUET, has_suffix
from highlevel.inline.tables import BATCH_ROWS


@dataclass(frozen=True)
class Messages:
    """JSON objects in memory, one object per message. `name`: the name of their source in error messages."""

    name: str
    texts: tuple[bytes, ...]

    def lines(self, _: int) -> Iterator[tuple[int, bytes]]:
        """Yield all objects as lines. Newlines are replaced by spaces, because strings in JSON contain no newlines."""
        yield 0, b"\n".join(text.replace(b"\n", b" ").replace(b"\r", b" ") for text in self.texts)

    def position(self) -> int:
        """Return the bytes of all objects."""
        return sum(map(len, self.texts))


Source: TypeAlias = Path | pa.Table | Messages

TEXT_BYTES = 1 << 20
"""Bytes of a chunk of a CSV or JSON file. The rest of its last line is added."""

MAX_ROW_BYTES = 1 << 26
"""Maximum size of a row of a CSV or JSON file. Without a limit, a value without its closing quote would extend to the
end of the file."""

CSV_VALUE = rb'(?:"[^"]*+(?:""[^"]*+)*+"[^,\r\n]*+|(?!")[^,\r\n]*+)'
"""A CSV value as Arrow reads it: an opening quote has a meaning only at the beginning of a value, up to its closing
quote."""

CSV_ROWS = re.compile(rb"(?:\xef\xbb\xbf)?+(?:%b(?:[,\r]%b)*+\n)*+" % (CSV_VALUE, CSV_VALUE))
"""Complete rows of CSV. One match of 1 MiB takes about 3 ms, a search for each value 50 ms."""


@dataclass(frozen=True)
class OpenSource:
    """An open source.

    * `names`: the names of its columns.
    * `batches`: yields batches from the beginning of a chunk on, each with the number of its chunk. A chunk may have
      several batches.
    * `position`: returns the bytes read so far.
    * `has_events`: True if the rows come from events of Debezium.
    """

    names: list[str]
    batches: Callable[[int], Iterator[tuple[int, pa.RecordBatch]]]
    position: Callable[[], int]
    has_events: bool = False


@contextlib.contextmanager
def open_source(source: Source, schema: pa.Schema, last_rows: LastRows | None = None) -> Iterator[OpenSource]:
    """Open a source. Raises InputError for a file that is missing or has another format.

    `schema`: the columns to read from JSON, with the types of their values. `last_rows`: the rows of all earlier
    events, if rows have a key. If it is given, a source with Debezium envelopes must be read from its first chunk.
    """
    if isinstance(source, pa.Table):
        yield _unwrap_envelopes(_open_table(source), source.schema, schema, last_rows)
        return
    if isinstance(source, Messages):
        yield _open_json(source, schema, last_rows)
        return
    with contextlib.ExitStack() as stack:
        try:
            opened = _open_file(source, schema, last_rows, stack)
        except FileNotFoundError:
            raise InputError(f"{source}: no such file") from None
        except (OSError, ValueError) as error:
            raise InputError(f"{source}: cannot be read as {_format(source)}: {error}") from error
        yield opened


def read_batches(source: Source, opened: OpenSource, chunk: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield batches of at most BATCH_ROWS rows, each with its chunk. Raises InputError for a damaged file."""
    batches = opened.batches(chunk)
    while True:
        try:
            number, batch = next(batches, (0, None))
        except (OSError, ValueError) as error:
            raise InputError(f"{source_name(source)}: cannot be read further: {error}") from error
        if batch is None:
            return
        for start in range(0, batch.num_rows, BATCH_ROWS):
            yield number, batch.slice(start, BATCH_ROWS)


def source_name(source: Source) -> str:
    """Return the name of a source in messages."""
    if isinstance(source, Messages):
        return source.name
    return "the table" if isinstance(source, pa.Table) else str(source)


def is_json(source: Source) -> bool:
    """Return True if a source is JSON, in which times and addresses are texts."""
    return isinstance(source, Messages) or (isinstance(source, Path) and has_suffix(source, JSON))


def source_size(source: Source) -> int:
    """Return the bytes of a source."""
    if isinstance(source, Messages):
        return source.position()
    return source.nbytes if isinstance(source, pa.Table) else source.stat().st_size


def _unwrap_envelopes(
    opened: OpenSource, columns: pa.Schema, schema: pa.Schema, last_rows: LastRows | None
) -> OpenSource:
    """Return a source with the rows in its envelopes, if it has envelopes."""
    if not has_envelopes(columns.names, schema.names):
        return opened
    batches = rows_of_events(skip_empty_envelopes(opened.batches), last_rows)
    return OpenSource(row_names(columns), batches, opened.position, has_events=True)


def _format(path: Path) -> str:
    formats = {"CSV": CSV, "JSON lines": JSON, "Parquet": PARQUET, "Arrow": ARROW}
    return next((name for name, suffixes in formats.items() if has_suffix(path, suffixes)), "a table")


def _open_table(table: pa.Table) -> OpenSource:
    bytes_read = [0]

    def batches(_: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        for batch in table.to_batches(BATCH_ROWS):
            yield 0, batch
            bytes_read[0] += batch.nbytes

    return OpenSource(table.schema.names, batches, lambda: bytes_read[0])


def _open_file(path: Path, schema: pa.Schema, last_rows: LastRows | None, stack: contextlib.ExitStack) -> OpenSource:
    if has_suffix(path, CSV):
        return _open_csv(_TextFile(path, stack, _csv_end))
    if has_suffix(path, JSON):
        return _open_json(_TextFile(path, stack, _line_end), schema, last_rows)
    file = stack.enter_context(pa.OSFile(str(path)))
    opened, columns = _open_parquet(file) if has_suffix(path, PARQUET) else _open_arrow(file, stack)
    return _unwrap_envelopes(opened, columns, schema, last_rows)


class _TextFile:
    """A text file, which may be compressed. `find_end` returns the end of the last complete row of a text."""

    def __init__(self, path: Path, stack: contextlib.ExitStack, find_end: Callable[[bytes], int]) -> None:
        self._path, self._stack, self._find_end = path, stack, find_end
        self._compression = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}.get(path.suffix.lower())
        self._file: Any = None

    def lines(self, offset: int) -> Iterator[tuple[int, bytes]]:
        """Open the file again, and yield complete rows from `offset` on.

        Raises ValueError for a row that is too long.
        """
        self._file = self._stack.enter_context(pa.OSFile(str(self._path)))
        stream = self._file
        if self._compression is not None:
            stream = self._stack.enter_context(pa.CompressedInputStream(self._file, self._compression))
        return _lines(stream, offset, self._find_end)

    def position(self) -> int:
        """Return the bytes read so far."""
        position: int = self._file.tell()
        return position


def _open_json(file: _TextFile | Messages, schema: pa.Schema, last_rows: LastRows | None) -> OpenSource:
    """Open a file of JSON lines, or messages.

    Types are given explicitly. Arrow would guess them from the first lines, and convert texts that look like times.
    """
    # The first line is needed to recognise envelopes. Raises if the file cannot be read.
    lines = (line for _, text in file.lines(0) for line in split_lines(text))
    head = next((line for line in lines if not is_tombstone(line)), b"")
    envelopes = envelope_schema(head, schema)

    def row_batches(chunk: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        for offset, text in file.lines(chunk):
            check_rows(lines := split_lines(text), schema)
            yield from ((offset, batch) for batch in read_objects(lines, schema))

    if envelopes is None:
        return OpenSource(schema.names, row_batches, file.position)

    def event_batches(chunk: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        for offset, text in file.lines(chunk):
            events = [line for line in split_lines(text) if not is_tombstone(line)]
            yield from ((offset, batch) for batch in read_objects(events, envelopes))

    return OpenSource(row_names(envelopes), rows_of_events(event_batches, last_rows), file.position, has_events=True)


def _open_csv(file: _TextFile) -> OpenSource:
    """Open a CSV file. All columns are read as text, because types that Arrow guesses may not fit later values."""
    from pyarrow import csv

    head = b""
    for _, text in file.lines(0):
        lines = text.splitlines(keepends=True)
        first = next((number for number, line in enumerate(lines) if line.removeprefix(BOM).strip()), len(lines))
        head += b"".join(lines[: first + 1])
        if first < len(lines):
            break
    if head.endswith(b"\n") and _csv_end(head) != len(head):
        raise ValueError("the names contain a newline; expected the names in one line")
    names, first_row = csv.open_csv(pa.BufferReader(head)).schema.names, len(head)
    convert = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))

    def batches(chunk: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        for offset, text in file.lines(max(chunk, first_row)):
            # Read the chunk as one block, with threads. Without threads, Arrow's error messages contain row numbers,
            # which would count from the start of the chunk.
            options = csv.ReadOptions(column_names=names, block_size=len(text) + 1)
            for batch in csv.read_csv(pa.BufferReader(text), options, convert_options=convert).to_batches():
                yield offset, batch

    return OpenSource(names, batches, file.position)


def _line_end(text: bytes) -> int:
    """Return the end of the last complete line of a text, or 0."""
    return text.rfind(b"\n") + 1


def _csv_end(text: bytes) -> int:
    """Return the end of the last complete row of a text, or 0. A newline in quotes does not end a row."""
    rows = CSV_ROWS.match(text) if b'"' in text else None
    return _line_end(text) if rows is None else rows.end()


def _lines(stream: Any, offset: int, find_end: Callable[[bytes], int]) -> Iterator[tuple[int, bytes]]:
    """Yield complete rows from `offset` on, about TEXT_BYTES at a time, with the offset of the first byte."""
    skipped = 0
    while skipped < offset and (data := stream.read(min(TEXT_BYTES, offset - skipped))):
        skipped += len(data)
    rest = b""
    while data := stream.read(TEXT_BYTES):
        rest += data
        end = find_end(rest)
        if end:
            yield offset, rest[:end]
            offset, rest = offset + end, rest[end:]
        elif len(rest) > MAX_ROW_BYTES:
            raise ValueError(f"got a row of more than {MAX_ROW_BYTES:,} bytes at byte {offset:,}; is a quote missing?")
    if rest:
        yield offset, rest


def _open_parquet(file: Any) -> tuple[OpenSource, pa.Schema]:
    from pyarrow import parquet

    reader = parquet.ParquetFile(file)

    def batches(chunk: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        for group in range(chunk, reader.num_row_groups):
            for batch in reader.iter_batches(BATCH_ROWS, row_groups=[group]):
                yield group, batch

    return OpenSource(reader.schema_arrow.names, batches, file.tell), reader.schema_arrow


def _open_arrow(file: Any, stack: contextlib.ExitStack) -> tuple[OpenSource, pa.Schema]:
    reader: Any
    try:
        reader = stack.enter_context(pa.ipc.open_file(file))
    except pa.ArrowInvalid:
        file.seek(0)
        reader = stack.enter_context(pa.ipc.open_stream(file))
        names = reader.schema.names

        def stream_batches(chunk: int) -> Iterator[tuple[int, pa.RecordBatch]]:
            file.seek(0)
            for number, batch in enumerate(pa.ipc.open_stream(file)):
                if number >= chunk:
                    yield number, batch

        return OpenSource(names, stream_batches, file.tell), reader.schema

    def batches(chunk: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        return ((number, reader.get_batch(number)) for number in range(chunk, reader.num_record_batches))

    return OpenSource(reader.schema.names, batches, file.tell), reader.schema
