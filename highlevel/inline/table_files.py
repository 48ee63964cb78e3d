"""CSV, Parquet and Arrow files, and tables, as streams with a schema: they are read in batches, in bounded memory.

The watermark before a batch follows from the batches before it: the largest time minus the band of the column. So a
row that is older than its schema declares may be late: windows that are final do not contain it, and count it.
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
from highlevel.inline.tables import BATCH_ROWS, PACKED, Stream, converted
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
"""Receives the size that has been read and the whole size."""


EXAMPLES_OF: Mapping[Type, str] = {
    Type.TIME: ", for example 2024-05-01T08:30:00Z, and a zone in all values or in none",
    Type.ADDRESS: ", for example 10.0.0.1 or 2001:db8::1",
    Type.MAC: ", for example 00:11:22:aa:bb:cc",
}
"""Examples of values in messages."""


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column of a file: its name and type in queries, the word of its type, the range of integers.

    `band`: how much older than the newest row a time may be, in ns; None if there is no watermark.
    """

    name: str
    type: Type
    word: str
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
        columns = tuple(Column(each.name, each.type, nullable=each.name not in times) for each in declared)
        return cls(name, columns, times, tuple(sources), tuple(declared), progress)

    def check(self) -> None:
        """Raise InputError for a source that cannot be opened, or without a declared column."""
        for source in self.sources:
            with _opened(source) as opened:
                self._positions(source, opened.names)

    def batches(self, leaf: Leaf) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of a leaf of this stream: the watermark before each batch, and the batch."""
        time = leaf.streams[1]
        band = next((column.band for column in self.declared if column.name == time), None)
        low = BEGINNING
        for rows in self._rows():
            pane = rows[time] if time else pa.array(np.zeros(rows.num_rows, np.int64))
            arrays = [pa.nulls(rows.num_rows, pa.string()), pane, *rows.columns]
            yield low, pa.RecordBatch.from_arrays(arrays, schema=leaf.low.schema)
            if band is not None:
                low = max(low, pc.max(pane).as_py() - band)

    def _rows(self) -> Iterator[pa.RecordBatch]:
        """Yield batches with the columns and types of queries. Raises InputError for wrong values."""
        done, total = 0, sum(_size(source) for source in self.sources)
        for source in self.sources:
            with _opened(source) as opened:
                positions = self._positions(source, opened.names)
                for batch in _reading(source, opened.batches):
                    if batch.num_rows:
                        pairs = zip(self.declared, positions, strict=True)
                        arrays = [self._values(source, column, batch.column(at)) for column, at in pairs]
                        yield pa.RecordBatch.from_arrays(arrays, [column.name for column in self.declared])
                    for report in self.progress:
                        report(done + min(opened.position(), _size(source)), total)
            done += _size(source)

    def _positions(self, source: Path | pa.Table, names: Sequence[str]) -> list[int]:
        """Return the position of each declared column in a source. Raises InputError for a missing column."""
        at: dict[str, int] = {}
        for position, name in enumerate(names):
            at.setdefault(name.lower(), position)
        for column in self.declared:
            if column.name.lower() not in at:
                close = [names[at[key]] for key in get_close_matches(column.name.lower(), at)]
                listed = ", ".join([*close, *(name for name in names if name not in close)])
                raise InputError(f"{_shown(source)}: no column {column.name} of {self.name}; the columns are: {listed}")
        return [at[column.name.lower()] for column in self.declared]

    def _values(self, source: Path | pa.Table, column: FileColumn, values: pa.Array) -> pa.Array:
        """Return the values of a column with the type of queries. Raises InputError for values without one."""
        where = f"{_shown(source)}: column {column.name}"
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
        numeric = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
        dated = pa.types.is_timestamp(values.type) or pa.types.is_date(values.type)
        fits = {
            Type.INT: pa.types.is_integer(values.type),
            Type.FLOAT: numeric,
            Type.BOOL: pa.types.is_boolean(values.type),
            Type.TIME: dated,
        }
        from_csv = isinstance(source, Path) and _has_suffix(source, CSV)
        usable = (text and (column.type not in fits or from_csv)) or fits.get(column.type, False)
        if not usable and not pa.types.is_null(values.type):
            raise InputError(f"{where}: got values of type {values.type}, expected {column.word}")
        if from_csv and column.type is not Type.TEXT:
            values = pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values)

        def convert(part: pa.Array) -> pa.ChunkedArray:
            if column.type is Type.TIME and text:
                part = _times(part)
            if column.type in PACKED:
                _check_addresses(part, column.type)
            return converted(column.name, pa.chunked_array([part]), column.type)

        try:
            array = convert(values).combine_chunks()
        except (ValueError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            expected = column.word + EXAMPLES_OF.get(column.type, "")
            raise InputError(f"{where}: got {_first_wrong(values, convert)!r}, expected {expected}") from error
        if isinstance(array, pa.ChunkedArray):
            array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
        if array.null_count and column.name in self.times:
            raise InputError(f"{where}: got a row without a time, expected {column.word} in all rows")
        if column.minimum is not None or column.maximum is not None:
            _check_range(where, column, array)
        return array


@dataclass(frozen=True)
class _Opened:
    """An open source: the names of its columns, its batches, and the size that has been read."""

    names: list[str]
    batches: Iterator[pa.RecordBatch]
    position: Callable[[], int]


@contextlib.contextmanager
def _opened(source: Path | pa.Table) -> Iterator[_Opened]:
    """Open a source. Raises InputError for a file that is missing or has another format."""
    if isinstance(source, pa.Table):
        read = [0]

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in source.to_batches(BATCH_ROWS):
                yield batch
                read[0] += batch.nbytes

        yield _Opened(source.schema.names, batches(), lambda: read[0])
        return
    with contextlib.ExitStack() as stack:
        try:
            opened = _open_file(source, stack)
        except FileNotFoundError:
            raise InputError(f"{source}: no such file") from None
        except (OSError, ValueError) as error:
            raise InputError(f"{source}: cannot be read as {_format(source)}: {error}") from error
        yield opened


def _open_file(path: Path, stack: contextlib.ExitStack) -> _Opened:
    file = stack.enter_context(pa.OSFile(str(path)))
    if _has_suffix(path, CSV):
        from pyarrow import csv

        kind = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}.get(path.suffix.lower())
        text = file if kind is None else stack.enter_context(pa.CompressedInputStream(file, kind))
        # All columns are text at first: types that Arrow guesses from the first block may not fit later ones.
        reader: Any
        with contextlib.closing(pa.input_stream(str(path))) as head, contextlib.closing(csv.open_csv(head)) as reader:
            names = reader.schema.names
        options = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
        reader = stack.enter_context(csv.open_csv(text, convert_options=options))
        return _Opened(names, iter(reader), file.tell)
    if _has_suffix(path, PARQUET):
        from pyarrow import parquet

        reader = parquet.ParquetFile(file)
        return _Opened(reader.schema_arrow.names, reader.iter_batches(BATCH_ROWS), file.tell)
    stream: Any
    try:
        stream = stack.enter_context(pa.ipc.open_file(file))
        batches = (stream.get_batch(number) for number in range(stream.num_record_batches))
    except pa.ArrowInvalid:
        file.seek(0)
        stream = stack.enter_context(pa.ipc.open_stream(file))
        batches = iter(stream)
    return _Opened(stream.schema.names, batches, file.tell)


def _reading(source: Path | pa.Table, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches. Raises InputError for a damaged file."""
    while True:
        try:
            batch = next(batches, None)
        except (OSError, ValueError) as error:
            raise InputError(f"{_shown(source)}: cannot be read further: {error}") from error
        if batch is None:
            return
        for start in range(0, batch.num_rows, BATCH_ROWS):
            yield batch.slice(start, BATCH_ROWS)


def _first_wrong(values: pa.Array, convert: Callable[[pa.Array], object]) -> object:
    """Return the first value of a column that `convert` refuses, by halving. One of the values is refused."""
    while len(values) > 1:
        first = values.slice(0, len(values) // 2)
        try:
            convert(first)
            values = values.slice(len(first))
        except (ValueError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
            values = first
    return values[0].as_py()


def _times(values: pa.Array) -> pa.Array:
    """Return texts of times, all with a zone or all without one, as timestamps."""
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


def _check_range(where: str, column: FileColumn, values: pa.Array) -> None:
    low = -(2**63) if column.minimum is None else column.minimum
    high = 2**63 - 1 if column.maximum is None else column.maximum
    for value in pc.min_max(values).as_py().values():
        if value is not None and not low <= value <= high:
            raise InputError(f"{where}: got {value}, expected {column.word}, {low} to {high}")


def _has_suffix(path: Path, suffixes: Sequence[str]) -> bool:
    return path.name.lower().endswith(tuple(suffixes))


def _format(path: Path) -> str:
    formats = {"CSV": CSV, "Parquet": PARQUET, "Arrow": ARROW}
    return next((name for name, suffixes in formats.items() if _has_suffix(path, suffixes)), "a table")


def _shown(source: Path | pa.Table) -> str:
    return "the table" if isinstance(source, pa.Table) else str(source)


def _size(source: Path | pa.Table) -> int:
    return source.nbytes if isinstance(source, pa.Table) else source.stat().st_size
