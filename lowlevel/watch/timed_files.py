"""Watchlist files whose rows have lifetimes: leases of addresses, routes, entries of a list.

A file is CSV, NDJSON (a JSON object per line), Parquet, or the lease file of ISC's DHCP server. Its content shows the
format. Its columns are `prefix`, `label`, `from` and `to`. A row without `from` has always been true. A row without
`to`, or with a `to` in the year 2262 or later, is still true: later times do not fit into 64 bits of nanoseconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from lowlevel.punctuation import BEGINNING, END
from lowlevel.watch.errors import WatchlistError
from lowlevel.watch.history import COLUMNS
from lowlevel.watch.leases import LEASE_FILE, read_leases
from lowlevel.watch.ranges import Numbers

PREFIX, LABEL, FROM, TO = "prefix", "label", "from", "to"
"""The columns of a file. Other columns are ignored."""

TIME_TYPE_OF_LEASE = pa.timestamp("s", "UTC")

FIRST_YEAR, FAR_YEAR = "1678", "2262"
"""The first complete year that fits into 64 bits of nanoseconds, and the first year that does not."""

FAR_TEXT, LEAP_YEAR = r"^(?:226[2-9]|22[7-9]\d|2[3-9]\d\d|[3-9]\d{3})-", "2260-"
"""FAR_TEXT matches the beginning of a text with a far year. LEAP_YEAR is the last leap year before these."""

PARQUET_START, JSON_START = b"PAR1", b"{"
"""The first bytes of a Parquet file, and of an NDJSON file."""

COLUMN_OF_JSON = re.compile(rb'"(prefix|label|from|to)"\s*:', re.IGNORECASE)
ROW_OF_JSON = re.compile(r"\brow (\d+)")
"""The number of a row, from 0 on, in a message about JSON."""


class RowLocations(NamedTuple):
    """The places of the rows in a file: line numbers, or row numbers if the format has no lines."""

    numbers: Numbers
    unit: str = "line"

    def text_of(self, row: int) -> str:
        """Return the place of a row, for messages."""
        return f"{self.unit} {self.numbers[row]}"


class TimedRows(NamedTuple):
    """The rows of a file. `starts` and `ends` are in ns."""

    prefixes: list[str]
    labels: list[str]
    starts: Numbers
    ends: Numbers
    locations: RowLocations


def read_rows(data: bytes, *, has_labels: bool) -> TimedRows:
    """Return the rows of a file.

    Without `has_labels`, all labels are empty. Raises WatchlistError for a file without the columns, and for a wrong
    value, with its line and column.
    """
    table, places = _read_table(data)
    if not table.num_columns:
        return TimedRows([], [], np.zeros(0, np.int64), np.zeros(0, np.int64), places)
    names = [name.lower() for name in table.column_names]
    expected = (PREFIX, *([LABEL] if has_labels else []), FROM, TO)
    if missing := [name for name in expected if name not in names]:
        raise WatchlistError(f"got the columns {', '.join(table.column_names)}, expected {', '.join(missing)} too")
    if repeated := [name for name in expected if names.count(name) > 1]:
        raise WatchlistError(f"got the columns {', '.join(table.column_names)}, expected {', '.join(repeated)} once")
    columns = {name: table.column(names.index(name)).combine_chunks() for name in expected}
    prefixes = _texts(columns[PREFIX], PREFIX, places)
    labels = _texts(columns[LABEL], LABEL, places) if has_labels else [""] * table.num_rows
    starts, ends = _times(columns[FROM], FROM, places), _times(columns[TO], TO, places)
    wrong = np.flatnonzero(ends < starts)
    if len(wrong):
        start, end = (np.datetime64(int(times[wrong[0]]), "ns") for times in (starts, ends))
        raise WatchlistError(f"{places.text_of(wrong[0])}: got {end} as to before {start} as from, expected from <= to")
    return TimedRows(prefixes, labels, starts, ends, places)


def _read_table(data: bytes) -> tuple[pa.Table, RowLocations]:
    """Return the columns of a file as text or timestamps, and the places of its rows."""
    if not data.strip():
        return pa.table({}), RowLocations(np.zeros(0, np.int64))
    if data.startswith(PARQUET_START):
        from pyarrow import parquet

        table = _checked(lambda: parquet.read_table(pa.BufferReader(data)))
        return table, RowLocations(np.arange(1, table.num_rows + 1), "row")
    lines = np.flatnonzero([bool(line.strip()) for line in data.split(b"\n")]) + 1
    if data.lstrip().startswith(JSON_START):
        return _json_table(data, lines), RowLocations(lines)
    if LEASE_FILE.search(data):
        return _lease_table(data)
    return _csv_table(data), RowLocations(lines[lines > 1])


def _json_table(data: bytes, lines: Numbers) -> pa.Table:
    """Return the rows of an NDJSON file. All values are texts: a label such as 2024-01-01 is not a time."""
    from pyarrow import json

    names = dict.fromkeys(name.decode() for name in COLUMN_OF_JSON.findall(data))
    options = json.ParseOptions(explicit_schema=pa.schema([(name, pa.string()) for name in names]))
    try:
        return _checked(lambda: json.read_json(pa.BufferReader(data), parse_options=options))
    except WatchlistError as error:
        row = ROW_OF_JSON.search(str(error))
        place = "" if row is None or int(row[1]) >= len(lines) else f"line {lines[int(row[1])]}: "
        raise WatchlistError(f"{place}{error}") from None


def _csv_table(data: bytes) -> pa.Table:
    from pyarrow import csv

    header, _, rows = data.partition(b"\n")
    try:
        names = [name.strip().strip('"') for name in header.decode().split(",")]
    except UnicodeDecodeError:
        raise WatchlistError("line 1: got bytes that are not UTF-8 text") from None
    if not rows.strip():
        return pa.table({name: pa.nulls(0, pa.string()) for name in names})
    options = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    reading = csv.ReadOptions(use_threads=False)  # so messages contain the row
    return _checked(lambda: csv.read_csv(pa.BufferReader(data), read_options=reading, convert_options=options))


def _checked(read: Callable[[], pa.Table]) -> pa.Table:
    """Return the table that `read` returns. Raises WatchlistError if it cannot be read."""
    try:
        table = read()
        table.validate(full=True)  # Parquet may contain texts that are not UTF-8
        return table
    except (pa.ArrowException, OSError) as error:
        raise WatchlistError(f"{error}; expected {COLUMNS}") from None


def _lease_table(data: bytes) -> tuple[pa.Table, RowLocations]:
    leases = read_leases(data.decode(errors="replace"))
    types = (pa.string(), pa.string(), TIME_TYPE_OF_LEASE, TIME_TYPE_OF_LEASE)
    columns = [pa.array([lease[place] for lease in leases], kind) for place, kind in enumerate(types, 1)]
    return pa.table(columns, [PREFIX, LABEL, FROM, TO]), RowLocations(
        np.array([lease.line for lease in leases], np.int64)
    )


def _texts(column: pa.Array, name: str, places: RowLocations) -> list[str]:
    if pa.types.is_temporal(column.type):
        raise WatchlistError(f"got {name} of type {column.type}, expected texts")
    texts = [text.strip() if isinstance(text, str) else text for text in column.to_pylist()]
    for row, text in enumerate(texts):
        if not isinstance(text, str) or not text:
            raise WatchlistError(f"{places.text_of(row)}: got {text!r} as {name}, expected a text")
    return texts


def _times(column: pa.Array, name: str, places: RowLocations) -> Numbers:
    """Return times in ns since the epoch, UTC if they have no zone. A missing time is BEGINNING or END.

    A `to` in a far year is END.
    """
    default = END if name == TO else BEGINNING
    if pa.types.is_null(column.type):
        return np.full(len(column), default)
    if pa.types.is_string(column.type):
        column = _parse(pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column), name, places)
    if not pa.types.is_timestamp(column.type):
        raise WatchlistError(f"got {name} of type {column.type}, expected times such as 2024-05-01T08:00:00Z")
    unit = column.type.unit
    begin, end = (int(np.datetime64(year, unit).astype(np.int64)) for year in (FIRST_YEAR, FAR_YEAR))
    numbers = column.cast(pa.int64())
    if name == TO:
        numbers = pc.if_else(pc.less(numbers, end), numbers, pa.scalar(None, pa.int64()))
    is_outside = pc.or_(pc.less(numbers, begin), pc.greater_equal(numbers, end))
    outside = np.flatnonzero(pc.fill_null(is_outside, False).to_numpy(zero_copy_only=False))
    if len(outside):
        time = np.datetime64(numbers[outside[0]].as_py(), unit)
        expected = f"a time from {FIRST_YEAR} on and before {FAR_YEAR}"
        raise WatchlistError(f"{places.text_of(outside[0])}: got {time} as {name}, expected {expected}")
    nanoseconds = numbers.cast(pa.timestamp(unit)).cast(pa.timestamp("ns")).cast(pa.int64())
    words: Numbers = pc.fill_null(nanoseconds, default).to_numpy(zero_copy_only=False)
    return words


def _parse(texts: pa.Array, name: str, places: RowLocations) -> pa.Array:
    """Return texts as times. A `to` in a far year is NULL."""
    near = pc.replace_substring_regex(texts, FAR_TEXT, LEAP_YEAR) if name == TO else texts
    for kind in (pa.timestamp("ns", "UTC"), pa.timestamp("ns")):
        try:
            return pc.if_else(pc.equal(near, texts), near.cast(kind), pa.scalar(None, kind))
        except pa.ArrowInvalid:
            continue
    for row, text in enumerate(near):
        try:
            text.cast(pa.timestamp("ns", "UTC"))
        except pa.ArrowInvalid:
            expected = (
                f"a time such as 2024-05-01T08:00:00Z, from {FIRST_YEAR} on and before {FAR_YEAR}, "
                "with a zone in all rows or in none"
            )
            raise WatchlistError(
                f"{places.text_of(row)}: got {texts[row].as_py()!r} as {name}, expected {expected}"
            ) from None
    raise WatchlistError(f"got {name} with a zone in some rows, expected a zone in all rows or in none")
