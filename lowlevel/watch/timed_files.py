"""Files of watchlists whose rows are true for a time: leases of addresses, routes, entries of a list.

A file is CSV, NDJSON (a JSON object per line), Parquet, or the lease file of ISC's DHCP server. Its content shows the
format. Its columns are `prefix`, `label`, `from` and `to`. A row without `from` has always been true. A row without
`to`, or with a `to` in the year 2262 or later, is still true: later times do not fit into 64 bits of nanoseconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from lowlevel.punctuation import BEGINNING, END
from lowlevel.watch.errors import WatchlistError
from lowlevel.watch.ranges import Numbers

PREFIX, LABEL, FROM, TO = "prefix", "label", "from", "to"
"""The columns of a file. Other columns are ignored."""

COLUMNS = "a CSV, NDJSON or Parquet file with the columns prefix, label, from and to"

LEASE = re.compile(r"^\s*lease\s+(\S+)\s*\{(.*?)^\s*\}", re.MULTILINE | re.DOTALL)
"""A lease in the file of ISC's DHCP server: its address and its statements (dhcpd.leases(5))."""

LEASE_FILE = re.compile(
    rb"^(?:lease\s|authoring-byte-order\s|server-duid\s|# The format of this file is documented in the dhcpd\.leases)",
    re.MULTILINE,
)
"""A line that only a lease file has, also one without leases."""

LEASE_OF_DHCPV6 = re.compile(r"^ia-(?:na|ta|pd)\b", re.MULTILINE)
STATE_OF_LEASE = re.compile(r"^\s*binding\s+state\s+([\w-]+)\s*;", re.MULTILINE)

ENDED_STATES = ("free", "expired", "released", "backup")
"""States of an address whose last lease had a host until `ends`. Without `ends` the address had no lease."""

TIME_OF_LEASE = re.compile(r"\w+\s+(?:\d\s+(\d{4})/(\d\d)/(\d\d)\s+(\d\d:\d\d:\d\d)|epoch\s+(\d{1,11})|never)\s*;")
TIME_TYPE_OF_LEASE = pa.timestamp("s", "UTC")
NAME_OF_LEASE = re.compile(
    r'^\s*client-hostname\s+"([^"]*)"\s*;|^\s*hardware\s+\S+\s+([0-9A-Fa-f:]+)\s*;', re.MULTILINE
)

FIRST_YEAR, FAR_YEAR = "1678", "2262"
"""The first complete year that fits into 64 bits of nanoseconds, and the first year that does not."""

FAR_TEXT, LEAP_YEAR = r"^(?:226[2-9]|22[7-9]\d|2[3-9]\d\d|[3-9]\d{3})-", "2260-"
"""The beginning of a text with a far year, and of a text with the newest leap year before."""

PARQUET_START, JSON_START = b"PAR1", b"{"
"""The first bytes of a Parquet file, and of an NDJSON file."""


def read_rows(data: bytes, *, has_labels: bool) -> tuple[list[str], list[str], Numbers, Numbers, int]:
    """Return prefixes, labels, starts and ends (ns) of a file, and the line number of its first row.

    Without `has_labels`, all labels are empty. Raises WatchlistError for a file without the columns.
    """
    table, first = _read_table(data)
    if not table.num_columns:
        return [], [], np.zeros(0, np.int64), np.zeros(0, np.int64), first
    names = [name.lower() for name in table.column_names]
    expected = (PREFIX, *([LABEL] if has_labels else []), FROM, TO)
    if missing := [name for name in expected if name not in names]:
        raise WatchlistError(f"got the columns {', '.join(table.column_names)}, expected {', '.join(missing)} too")
    if repeated := [name for name in expected if names.count(name) > 1]:
        raise WatchlistError(f"got the columns {', '.join(table.column_names)}, expected {', '.join(repeated)} once")
    columns = {name: table.column(names.index(name)).combine_chunks() for name in expected}
    prefixes = _texts(columns[PREFIX], PREFIX, first)
    labels = _texts(columns[LABEL], LABEL, first) if has_labels else [""] * table.num_rows
    starts, ends = _times(columns[FROM], FROM, first), _times(columns[TO], TO, first)
    wrong = np.flatnonzero(ends < starts)
    if len(wrong):
        raise WatchlistError(f"line {first + wrong[0]}: got an end before the start, expected from <= to")
    return prefixes, labels, starts, ends, first


def _read_table(data: bytes) -> tuple[pa.Table, int]:
    """Return the columns of a file as text or timestamps, and the number of the line of its first row."""
    read: Callable[[], Any]
    if not data.strip():
        return pa.table({}), 1
    source = pa.BufferReader(data)
    if data.startswith(PARQUET_START):
        from pyarrow import parquet

        read, first = (lambda: parquet.read_table(source)), 1
    elif data.lstrip().startswith(JSON_START):
        from pyarrow import json

        read, first = (lambda: json.read_json(source)), 1
    elif LEASE_FILE.search(data):
        return _read_leases(data.decode(errors="replace")), 1
    else:
        from pyarrow import csv

        header, _, rows = data.partition(b"\n")
        try:
            names = [name.strip().strip('"') for name in header.decode().split(",")]
        except UnicodeDecodeError:
            raise WatchlistError("line 1: got bytes that are no text in UTF-8") from None
        if not rows.strip():
            return pa.table({name: pa.nulls(0, pa.string()) for name in names}), 2
        options = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
        read, first = (lambda: csv.read_csv(source, convert_options=options)), 2
    try:
        table = read()
        table.validate(full=True)  # Parquet may contain texts that are not UTF-8
        return table, first
    except (pa.ArrowException, OSError) as error:
        raise WatchlistError(f"{error}; expected {COLUMNS}") from None


def _read_leases(text: str) -> pa.Table:
    """Return the leases of a lease file: the name of the host or its MAC address, and the times, which are UTC.

    A record of an address that has no lease is true at no time, but ends the lease before it. An end before the start
    is the start: the clock of the server was set back. Raises WatchlistError for a wrong time.
    """
    if association := LEASE_OF_DHCPV6.search(text):
        line = text.count("\n", 0, association.start()) + 1
        raise WatchlistError(f"line {line}: got '{association.group()}' of DHCPv6, expected leases of DHCPv4")
    rows: list[tuple[str, str, int | None, int | None]] = []
    line, counted = 1, 0
    for match in LEASE.finditer(text):
        address, statements = match.groups()
        line, counted = line + text.count("\n", counted, match.start(1)), match.start(1)
        names = [name or mac for name, mac in NAME_OF_LEASE.findall(statements)]
        label = next((name for name in names if ":" not in name), next(iter(names), "unknown"))
        start, end = (_time_of_lease(statements, name, line) for name in ("starts", "ends"))
        state = STATE_OF_LEASE.search(statements)
        if state is not None and state[1] != "active" and (end is None or state[1] not in ENDED_STATES):
            if start is None:
                continue
            end = start
        if start is not None and end is not None:
            end = max(start, end)
        rows.append((address, label, start, end))
    types = (pa.string(), pa.string(), TIME_TYPE_OF_LEASE, TIME_TYPE_OF_LEASE)
    columns = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(types)]
    return pa.table(columns, [PREFIX, LABEL, FROM, TO])


def _time_of_lease(statements: str, name: str, line: int) -> int | None:
    """Return the time (s) of a statement such as `ends 4 2024/05/02 12:00:00;`; None without one, and for never."""
    statement = re.search(rf"^\s*({name}\b.*)", statements, re.MULTILINE)
    if statement is None:
        return None
    match = TIME_OF_LEASE.match(statement[1])
    try:
        if match is not None:
            year, month, day, time, epoch = match.groups()
            if epoch is not None:
                return int(epoch)
            text = None if year is None else f"{year}-{month}-{day}T{time}"
            return None if text is None else int(np.datetime64(text, "s").astype(np.int64))
    except ValueError:
        pass  # such as month 13
    expected = f"'{name} 4 2024/05/02 12:00:00;', '{name} epoch 1714651200;' or '{name} never;'"
    raise WatchlistError(f"lease in line {line}: got '{statement[1].strip()}', expected {expected}")


def _texts(column: pa.Array, name: str, first: int) -> list[str]:
    if pa.types.is_temporal(column.type):
        raise WatchlistError(f"got {name} of type {column.type}, expected texts")
    texts = [text.strip() if isinstance(text, str) else text for text in column.to_pylist()]
    for row, text in enumerate(texts):
        if not isinstance(text, str) or not text:
            raise WatchlistError(f"line {first + row}: got {text!r} as {name}, expected a text")
    return texts


def _times(column: pa.Array, name: str, first: int) -> Numbers:
    """Return times in ns since the epoch, UTC if they have no zone. A missing time is BEGINNING or END.

    A `to` in a far year is END.
    """
    default = END if name == TO else BEGINNING
    if pa.types.is_null(column.type):
        return np.full(len(column), default)
    if pa.types.is_string(column.type):
        column = _parse(pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column), name, first)
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
        raise WatchlistError(f"line {first + outside[0]}: got {time} as {name}, expected {expected}")
    nanoseconds = numbers.cast(pa.timestamp(unit)).cast(pa.timestamp("ns")).cast(pa.int64())
    words: Numbers = pc.fill_null(nanoseconds, default).to_numpy(zero_copy_only=False)
    return words


def _parse(texts: pa.Array, name: str, first: int) -> pa.Array:
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
                f"line {first + row}: got {texts[row].as_py()!r} as {name}, expected {expected}"
            ) from None
    raise WatchlistError(f"got {name} with a zone in some rows, expected a zone in all rows or in none")
