"""CSV, Parquet and Arrow files, and tables, as streams with a schema: they are read in batches, in bounded memory.

The watermark before a batch is the largest time of the batches before it, minus the band of the time column. So a row
that is older than its schema allows may be late. Windows that are final do not contain a late row, but count it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.errors import InputError
from capture.lazy_dataclasses import dataclass
from highlevel.inline.tables import BATCH_ROWS, PACKED, Stream, convert_column
from highlevel.plan.nodes import Leaf
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.punctuation import BEGINNING

CSV = (".csv", ".csv.gz", ".csv.zst", ".csv.bz2", ".csv.lz4")
PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".arrows", ".feather", ".ipc")
SUFFIXES = (*CSV, *PARQUET, *ARROW)
"""Suffixes of files, by format."""

Progress = Callable[[int, int], None]
"""Called with the bytes read so far and the bytes in total."""


EXAMPLES_OF: Mapping[Type, str] = {
    Type.TIME: ", for example 2024-05-01T08:30:00Z, and a zone in all values or in none",
    Type.ADDRESS: ", for example 10.0.0.1 or 2001:db8::1",
    Type.MAC: ", for example 00:11:22:aa:bb:cc",
}
"""Examples of values in messages."""


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column of a file: its name and type in queries, the name of its type in messages, the range of integers.

    `band`: how much older than the newest row a time may be, in ns; None if the column has no watermark.
    """

    name: str
    type: Type
    type_name: str
    minimum: int | None
    maximum: int | None
    band: int | None


@dataclass(frozen=True)
class FileStream(Stream):
    """Files, or one table, as one stream. Each leaf reads them from the beginning."""

    sources: Sequence[Path | pa.Table]
    declared: tuple[FileColumn, ...]
    progress: list[Progress]

    @classmethod
    def make(
        cls,
        name: str,
        sources: Sequence[Path | pa.Table],
        declared: Sequence[FileColumn],
        times: tuple[str, ...],
        progress: list[Progress],
    ) -> FileStream:
        """Return a stream with the columns of a schema. Nothing is opened."""
        columns = tuple(Column(column.name, column.type, nullable=column.name not in times) for column in declared)
        return cls(name, columns, times, tuple(sources), tuple(declared), progress)

    def check(self) -> None:
        """Raise InputError for a source that cannot be opened, or without a declared column."""
        for source in self.sources:
            with _open(source) as opened:
                self._positions(source, opened.names)

    def batches(self, leaf: Leaf) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of a leaf of this stream: the watermark before each batch, and the batch."""
        time = leaf.streams[1]
        band = next((column.band for column in self.declared if column.name == time), None)
        watermark = BEGINNING
        for rows in self._rows():
            pane = rows[time] if time else pa.array(np.zeros(rows.num_rows, np.int64))
            arrays = [pa.nulls(rows.num_rows, pa.string()), pane, *rows.columns]
            yield watermark, pa.RecordBatch.from_arrays(arrays, schema=leaf.low.schema)
            if band is not None:
                watermark = max(watermark, pc.max(pane).as_py() - band)

    def _rows(self) -> Iterator[pa.RecordBatch]:
        """Yield batches with the columns and types of queries. Raises InputError for wrong values."""
        finished_bytes, total = 0, sum(_size(source) for source in self.sources)
        for source in self.sources:
            with _open(source) as opened:
                positions = self._positions(source, opened.names)
                for batch in _read_batches(source, opened.batches):
                    if batch.num_rows:
                        pairs = zip(self.declared, positions, strict=True)
                        arrays = [self._values(source, column, batch.column(position)) for column, position in pairs]
                        yield pa.RecordBatch.from_arrays(arrays, [column.name for column in self.declared])
                    for report in self.progress:
                        report(finished_bytes + min(opened.position(), _size(source)), total)
            finished_bytes += _size(source)

    def _positions(self, source: Path | pa.Table, names: Sequence[str]) -> list[int]:
        """Return the position of each declared column in a source. Raises InputError for a missing column."""
        position_of: dict[str, int] = {}
        for position, name in enumerate(names):
            position_of.setdefault(name.lower(), position)
        for column in self.declared:
            if column.name.lower() not in position_of:
                close = [names[position_of[key]] for key in get_close_matches(column.name.lower(), position_of)]
                listed = ", ".join([*close, *(name for name in names if name not in close)])
                raise InputError(
                    f"{_source_name(source)}: no column {column.name} of {self.name}; the columns are: {listed}"
                )
        return [position_of[column.name.lower()] for column in self.declared]

    def _values(self, source: Path | pa.Table, column: FileColumn, values: pa.Array) -> pa.Array:
        """Convert the values of a column to its type in queries. Raises InputError for values that do not fit."""
        location = f"{_source_name(source)}: column {column.name}"
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
        is_number = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
        is_time = pa.types.is_timestamp(values.type) or pa.types.is_date(values.type)
        fits = {
            Type.INT: pa.types.is_integer(values.type),
            Type.FLOAT: is_number,
            Type.BOOL: pa.types.is_boolean(values.type),
            Type.TIME: is_time,
        }
        is_csv = isinstance(source, Path) and _has_suffix(source, CSV)
        is_usable = (is_text and (column.type not in fits or is_csv)) or fits.get(column.type, False)
        if not is_usable and not pa.types.is_null(values.type):
            raise InputError(f"{location}: got values of type {values.type}, expected {column.type_name}")
        if is_csv and column.type is not Type.TEXT:
            values = pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values)

        def convert(part: pa.Array) -> pa.ChunkedArray:
            if column.type is Type.TIME and is_text:
                part = _parse_times(part)
            if column.type in PACKED:
                _check_addresses(part, column.type)
            return convert_column(column.name, pa.chunked_array([part]), column.type)

        try:
            array = convert(values).combine_chunks()
        except (ValueError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            expected = column.type_name + EXAMPLES_OF.get(column.type, "")
            raise InputError(f"{location}: got {_first_invalid(values, convert)!r}, expected {expected}") from error
        if isinstance(array, pa.ChunkedArray):
            array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
        if array.null_count and column.name in self.times:
            raise InputError(f"{location}: got a row without a time, expected {column.type_name} in all rows")
        if column.minimum is not None or column.maximum is not None:
            _check_range(location, column, array)
        return array


@dataclass(frozen=True)
class _OpenSource:
    """An open source: the names of its columns, its batches, and a function that returns the bytes read so far."""

    names: list[str]
    batches: Iterator[pa.RecordBatch]
    position: Callable[[], int]


@contextlib.contextmanager
def _open(source: Path | pa.Table) -> Iterator[_OpenSource]:
    """Open a source. Raises InputError for a file that is missing or has another format."""
    if isinstance(source, pa.Table):
        bytes_read = [0]

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in source.to_batches(BATCH_ROWS):
                yield batch
                bytes_read[0] += batch.nbytes

        yield _OpenSource(source.schema.names, batches(), lambda: bytes_read[0])
        return
    with contextlib.ExitStack() as stack:
        try:
            opened = _open_file(source, stack)
        except FileNotFoundError:
            raise InputError(f"{source}: no such file") from None
        except (OSError, ValueError) as error:
            raise InputError(f"{source}: cannot be read as {_format(source)}: {error}") from error
        yield opened


def _open_file(path: Path, stack: contextlib.ExitStack) -> _OpenSource:
    file = stack.enter_context(pa.OSFile(str(path)))
    if _has_suffix(path, CSV):
        from pyarrow import csv

        compression = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}.get(path.suffix.lower())
        text = file if compression is None else stack.enter_context(pa.CompressedInputStream(file, compression))
        # All columns are text at first: types that Arrow guesses from the first block may not fit later ones.
        reader: Any
        with contextlib.closing(pa.input_stream(str(path))) as head, contextlib.closing(csv.open_csv(head)) as reader:
            names = reader.schema.names
        options = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
        reader = stack.enter_context(csv.open_csv(text, convert_options=options))
        return _OpenSource(names, iter(reader), file.tell)
    if _has_suffix(path, PARQUET):
        from pyarrow import parquet

        reader = parquet.ParquetFile(file)
        return _OpenSource(reader.schema_arrow.names, reader.iter_batches(BATCH_ROWS), file.tell)
    stream: Any
    try:
        stream = stack.enter_context(pa.ipc.open_file(file))
        batches = (stream.get_batch(number) for number in range(stream.num_record_batches))
    except pa.ArrowInvalid:
        file.seek(0)
        stream = stack.enter_context(pa.ipc.open_stream(file))
        batches = iter(stream)
    return _OpenSource(stream.schema.names, batches, file.tell)


def _read_batches(source: Path | pa.Table, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches. Raises InputError for a damaged file."""
    while True:
        try:
            batch = next(batches, None)
        except (OSError, ValueError) as error:
            raise InputError(f"{_source_name(source)}: cannot be read further: {error}") from error
        if batch is None:
            return
        for start in range(0, batch.num_rows, BATCH_ROWS):
            yield batch.slice(start, BATCH_ROWS)


def _first_invalid(values: pa.Array, convert: Callable[[pa.Array], object]) -> object:
    """Return the first value of a column for which `convert` raises an error, by bisection. It must exist."""
    while len(values) > 1:
        first = values.slice(0, len(values) // 2)
        try:
            convert(first)
            values = values.slice(len(first))
        except (ValueError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
            values = first
    return values[0].as_py()


def _parse_times(values: pa.Array) -> pa.Array:
    """Convert texts to timestamps. All texts must have a time zone, or none."""
    try:
        return values.cast(pa.timestamp("ns"))
    except pa.ArrowInvalid:
        return values.cast(pa.timestamp("ns", "UTC"))


def _check_addresses(values: pa.Array, kind: Type) -> None:
    """Raise ValueError for a text that is not of the type, in particular short forms such as 10.1."""
    pattern = r"^(\d+\.\d+\.\d+\.\d+|.*:.*)$" if kind is Type.ADDRESS else r"^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$"
    wrong = values.filter(pc.invert(pc.match_substring_regex(values, pattern)))
    if len(wrong.drop_null()):
        raise ValueError(f"{wrong.drop_null()[0].as_py()!r}")


def _check_range(location: str, column: FileColumn, values: pa.Array) -> None:
    minimum = -(2**63) if column.minimum is None else column.minimum
    maximum = 2**63 - 1 if column.maximum is None else column.maximum
    for value in pc.min_max(values).as_py().values():
        if value is not None and not minimum <= value <= maximum:
            raise InputError(f"{location}: got {value}, expected {column.type_name}, {minimum} to {maximum}")


def _has_suffix(path: Path, suffixes: Sequence[str]) -> bool:
    return path.name.lower().endswith(tuple(suffixes))


def _format(path: Path) -> str:
    formats = {"CSV": CSV, "Parquet": PARQUET, "Arrow": ARROW}
    return next((name for name, suffixes in formats.items() if _has_suffix(path, suffixes)), "a table")


def _source_name(source: Path | pa.Table) -> str:
    return "the table" if isinstance(source, pa.Table) else str(source)


def _size(source: Path | pa.Table) -> int:
    return source.nbytes if isinstance(source, pa.Table) else source.stat().st_size
