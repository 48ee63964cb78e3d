"""CSV, JSON, Parquet and Arrow files, and tables, as streams with a schema, read in batches and in bounded memory.

The watermark after a batch is the largest time so far, minus the slack of the time column (the allowed disorder). So a
row that is older than the slack allows may be late. A late row is counted, and is not added to final windows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, field, replace
from difflib import get_close_matches
from pathlib import Path

import pyarrow as pa

from capture import arrow_compute as pc
from capture.errors import InputError
from capture.lazy_dataclasses import dataclass
from highlevel.inline.last_rows import LastRows
from highlevel.inline.table_sources import (
    Source,
    is_json,
    open_source,
    read_batches,
    source_name,
    source_size,
)
from highlevel.inline.table_suffixes import CSV, has_suffix
from highlevel.inline.tables import BATCH_ROWS, PACKED_TYPES, Stream, convert_column, rows_of_leaf
from highlevel.plan.nodes import Leaf, Node
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.punctuation import BEGINNING

Progress = Callable[[int, int], None]
"""Called with the bytes read so far and the bytes in total."""


EXAMPLES_OF: Mapping[Type, str] = {
    Type.TIME: ", for example 2024-05-01T08:30:00Z, and a zone in all values or in none",
    Type.ADDRESS: ", for example 10.0.0.1 or 2001:db8::1",
    Type.MAC: ", for example 00:11:22:aa:bb:cc",
}
"""Examples of values in messages."""

JSON_TYPES: Mapping[Type, pa.DataType] = {Type.INT: pa.int64(), Type.FLOAT: pa.float64(), Type.BOOL: pa.bool_()}
"""Types of values in files of JSON lines; other values are texts."""


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column of a file: its name and type in queries, the name of its type in messages, its range of integers.

    `slack_ns`: how much older than the newest row a time may be, in ns; None if the column has no watermark. `is_key`:
    True for a column of the key, by which events of Debezium identify the row that they replace.
    """

    name: str
    type: Type
    type_name: str
    minimum: int | None
    maximum: int | None
    slack_ns: int | None
    is_key: bool = False


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a row in a stream: the number of its source, of its chunk, and of the row in the chunk."""

    source: int = 0
    chunk: int = 0
    row: int = 0


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """The position of the first row of a batch, its number of rows, and by time column the bounds in ns (inclusive)."""

    position: Position
    rows: int
    bounds: Mapping[str, tuple[int, int]]


FIRST_ROW = Position()
"""The beginning of a stream."""


@dataclass(frozen=True)
class FileStream(Stream):
    """Files, or one table, as one stream. Each leaf reads them from the beginning.

    All batches except the last have BATCH_ROWS rows, in every format. So the answer does not depend on the format.
    """

    sources: tuple[Source, ...]
    declared_columns: tuple[FileColumn, ...]
    progress: list[Progress] = field(compare=False)

    @classmethod
    def make(
        cls,
        name: str,
        sources: Sequence[Source],
        declared_columns: Sequence[FileColumn],
        times: tuple[str, ...],
        progress: list[Progress],
    ) -> FileStream:
        """Return a stream with the columns of a schema. Nothing is opened."""
        columns = tuple(
            Column(column.name, column.type, nullable=column.name not in times) for column in declared_columns
        )
        return cls(name, columns, times, tuple(sources), tuple(declared_columns), progress)

    def absolute(self) -> FileStream:
        """Return this stream with absolute paths."""
        sources = tuple(source.absolute() if isinstance(source, Path) else source for source in self.sources)
        return replace(self, sources=sources)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files."""
        return tuple(source for source in self.sources if isinstance(source, Path))

    @property
    def size(self) -> int:
        """Bytes of all sources."""
        return sum(map(source_size, self.sources))

    def slack_of(self, time: str) -> int | None:
        """Return the allowed disorder of a time column, in ns. None: no watermark."""
        return next((column.slack_ns for column in self.declared_columns if column.name == time), None)

    def node(self, time: str | None) -> Node:
        """Return the plan node that reads the rows, with the allowed disorder of its time column."""
        slack = self.slack_of(time or next(iter(self.times), ""))

        def add_slack(node: Node) -> Node:
            return replace(node, low=replace(node.low, slack=slack)) if isinstance(node, Leaf) else node

        return super().node(time).transform(add_slack)

    @property
    def keys(self) -> list[str]:
        """The columns of the key."""
        return [column.name for column in self.declared_columns if column.is_key]

    @property
    def _json_schema(self) -> pa.Schema:
        """The declared columns, with the types that their values have in JSON."""
        return pa.schema([(column.name, JSON_TYPES.get(column.type, pa.string())) for column in self.declared_columns])

    def check(self) -> None:
        """Raise InputError for a source that cannot be opened, or without a declared column."""
        for source in self.sources:
            with open_source(source, self._json_schema) as opened:
                self._column_indexes(source, opened.names)

    def find_indexes(self, names: Sequence[str]) -> list[int]:
        """Return the index in `names` of each declared column. Raises InputError for a missing column."""
        return self._column_indexes(pa.table({}), names)

    def check_types(self, schema: pa.Schema) -> None:
        """Raise InputError for a column with another type. `schema` has the declared columns, in their order."""
        table = schema.empty_table()
        for column, values in zip(self.declared_columns, table.columns, strict=True):
            self._convert_values(table, column, pa.array([], values.type))

    def batches(self, leaf: Leaf) -> Iterator[tuple[int, pa.RecordBatch, int]]:
        """Yield the rows of a leaf in batches: the watermark before the batch, the batch, the watermark after it."""
        band = self.slack_of(leaf.streams[1])
        watermark = BEGINNING
        for _, rows, bytes_read in self.rows():
            batch = rows_of_leaf(leaf, rows)
            after = watermark if band is None else max(watermark, pc.max(batch["pane"]).as_py() - band)
            yield watermark, batch, after
            watermark = after
            for report in self.progress:
                report(bytes_read, self.size)

    def summaries(self) -> Iterator[BatchSummary]:
        """Read only the time columns and the key, and yield a summary of each batch."""
        needed = [column for column in self.declared_columns if column.name in self.times or column.is_key]
        columns = needed or self.declared_columns[:1]
        for position, rows, _ in replace(self, declared_columns=tuple(columns)).rows():
            bounds = {time: tuple(pc.min_max(rows[time]).as_py().values()) for time in self.times}
            yield BatchSummary(position, rows.num_rows, bounds)

    def rows(self, start: Position = FIRST_ROW) -> Iterator[tuple[Position, pa.RecordBatch, int]]:
        """Yield batches with the declared columns: the position of the first row, the batch, the bytes read so far.

        `start`: the position of the first row of a batch. Rows with a key are read from the beginning, because an event
        may replace any earlier row. Raises InputError for wrong values.
        """
        if start != FIRST_ROW and self.keys:
            yield from (each for each in self.rows() if astuple(each[0]) >= astuple(start))
            return
        waiting: deque[tuple[Position, pa.RecordBatch]] = deque()
        row_count = bytes_read = 0
        for position, part, bytes_read in self._source_batches(start):
            waiting.append((position, part))
            row_count += part.num_rows
            while row_count >= BATCH_ROWS:
                yield (*_take_rows(waiting, BATCH_ROWS), bytes_read)
                row_count -= BATCH_ROWS
        if row_count:
            yield (*_take_rows(waiting, row_count), bytes_read)

    def _source_batches(self, start: Position) -> Iterator[tuple[Position, pa.RecordBatch, int]]:
        """Yield batches of any size. Raises InputError for wrong values."""
        finished_bytes = sum(map(source_size, self.sources[: start.source]))
        column_of = {column.name: column for column in self.declared_columns}

        def convert_key(name: str, values: pa.Array) -> pa.Array:
            return self._convert_values(source, column_of[name], values)  # `source` is the source that is being read

        last_rows = LastRows(self.keys, convert_key) if self.keys else None
        for number, source in enumerate(self.sources[start.source :], start.source):
            first = start if number == start.source else Position(number)
            with open_source(source, self._json_schema, last_rows) as opened:
                positions = self._column_indexes(source, opened.names)
                chunk, row = first.chunk, 0
                for batch_chunk, batch in read_batches(source, opened, first.chunk):
                    chunk, row = batch_chunk, row if batch_chunk == chunk else 0
                    skipped = min(batch.num_rows, max(0, first.row - row)) if chunk == first.chunk else 0
                    part = batch.slice(skipped)
                    if part.num_rows:
                        if self.keys and not opened.has_events:
                            raise InputError(
                                f"{source_name(source)}: got rows, expected events of Debezium, because the schema of "
                                f"{self.name} has the key {', '.join(self.keys)}"
                            )
                        pairs = zip(self.declared_columns, positions, strict=True)
                        arrays = [
                            self._convert_values(source, column, part.column(position)) for column, position in pairs
                        ]
                        converted = pa.RecordBatch.from_arrays(
                            arrays, [column.name for column in self.declared_columns]
                        )
                        bytes_read = finished_bytes + min(opened.position(), source_size(source))
                        yield Position(number, chunk, row + skipped), converted, bytes_read
                    row += batch.num_rows
            finished_bytes += source_size(source)

    def _column_indexes(self, source: Source, names: Sequence[str]) -> list[int]:
        """Return the index of each declared column in a source. Raises InputError for a missing column."""
        position_of: dict[str, int] = {}
        for position, name in enumerate(names):
            position_of.setdefault(name.lower(), position)
        for column in self.declared_columns:
            if column.name.lower() not in position_of:
                close = [names[position_of[key]] for key in get_close_matches(column.name.lower(), position_of)]
                listed = ", ".join([*close, *(name for name in names if name not in close)])
                raise InputError(
                    f"{source_name(source)}: no column {column.name} of {self.name}; the columns are: {listed}"
                )
        return [position_of[column.name.lower()] for column in self.declared_columns]

    def _convert_values(self, source: Source, column: FileColumn, values: pa.Array) -> pa.Array:
        """Convert the values of a column to its type in queries. Raises InputError for values that do not fit."""
        location = f"{source_name(source)}: column {column.name}"
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
        is_csv = isinstance(source, Path) and has_suffix(source, CSV)
        has_texts = is_csv or is_json(source)
        is_usable = (is_text and (column.type not in fits or has_texts)) or fits.get(column.type, False)
        if not is_usable and not pa.types.is_null(values.type):
            raise InputError(f"{location}: got values of type {values.type}, expected {column.type_name}")
        if is_csv and column.type is not Type.TEXT:
            values = pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values)

        if is_text:
            _check_encoding(location, values)
        zone = _time_zone_of(values) if column.type is Type.TIME and is_text else None

        def convert(part: pa.Array) -> pa.ChunkedArray:
            if column.type is Type.TIME and is_text:
                part = part.cast(pa.timestamp("ns", zone))
            if column.type in PACKED_TYPES:
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


def _take_rows(waiting: deque[tuple[Position, pa.RecordBatch]], row_count: int) -> tuple[Position, pa.RecordBatch]:
    """Remove the first `row_count` rows. Return the position of the first row, and the rows as one batch."""
    first, pieces = waiting[0][0], []
    while row_count:
        position, batch = waiting.popleft()
        pieces.append(batch.slice(0, row_count))
        row_count -= pieces[-1].num_rows
        if pieces[-1].num_rows < batch.num_rows:
            taken = pieces[-1].num_rows
            waiting.appendleft((replace(position, row=position.row + taken), batch.slice(taken)))
    if len(pieces) == 1:
        return first, pieces[0]
    (rows,) = pa.Table.from_batches(pieces).combine_chunks().to_batches()
    return first, rows


def _first_invalid(values: pa.Array, convert: Callable[[pa.Array], object]) -> object:
    """Find by bisection the first value of a column for which `convert` raises an error. Such a value must exist."""
    while len(values) > 1:
        first = values.slice(0, len(values) // 2)
        try:
            convert(first)
            values = values.slice(len(first))
        except (ValueError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
            values = first
    return values[0].as_py()


def _check_encoding(location: str, values: pa.Array) -> None:
    """Raise InputError for a text that is not UTF-8. Arrow reads such texts from JSON and Parquet."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        wrong = _first_invalid(values.cast(pa.binary()), lambda part: part.cast(pa.string()))
        raise InputError(f"{location}: got {wrong!r}, expected text in UTF-8") from None


def _time_zone_of(values: pa.Array) -> str | None:
    """Return the zone for the conversion of texts to times: UTC if the first text has a zone.

    Then all texts must have one.

    Arrow refuses texts without a zone for a type with a zone, and the reverse.
    """
    try:
        values.drop_null().slice(0, 1).cast(pa.timestamp("ns"))
    except pa.ArrowInvalid:
        return "UTC"
    return None


def _check_addresses(values: pa.Array, column_type: Type) -> None:
    """Raise ValueError for a text that is not of the type, in particular short forms such as 10.1."""
    pattern = (
        r"^(\d+\.\d+\.\d+\.\d+|.*:.*)$" if column_type is Type.ADDRESS else r"^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$"
    )
    wrong = values.filter(pc.invert(pc.match_substring_regex(values, pattern)))
    if len(wrong.drop_null()):
        raise ValueError(f"{wrong.drop_null()[0].as_py()!r}")


def _check_range(location: str, column: FileColumn, values: pa.Array) -> None:
    minimum = -(2**63) if column.minimum is None else column.minimum
    maximum = 2**63 - 1 if column.maximum is None else column.maximum
    for value in pc.min_max(values).as_py().values():
        if value is not None and not minimum <= value <= maximum:
            raise InputError(f"{location}: got {value}, expected {column.type_name}, {minimum} to {maximum}")
