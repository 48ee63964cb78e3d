"""Envelopes of Debezium in tables: one event contains the row `before` and the row `after` a change.

    op   before   after    rows, as `CHANGES BY op` reads them
    c            (1, a)    c 1 a
    r            (1, a)    r 1 a                r: a row of a snapshot
    u   (1, a)   (1, b)    d 1 a,  c 1 b        both at once, so no reader sees half of an update
    d   (1, b)             d 1 b

A table contains envelopes if it has the columns `op`, `before` and `after`, and no column of the schema of the query
except those of events. With the schemas of Kafka Connect an event is in the field `payload` of the line. A line `null`
after a deletion (a tombstone) has no row. A source contains only events, or only rows. If the schema declares a key,
the row before a change is the last row of the key (`LastRows`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.inline.json_lines import parse_line
from highlevel.inline.last_rows import LastRows, RowChanges

OPERATION, BEFORE, AFTER = "op", "before", "after"
EVENT_TIME = "ts_ms"
PAYLOAD, SCHEMA = "payload", "schema"

EMPTY_PAYLOAD = re.compile(rb'"payload"\s*:\s*null')
"""Matches a part of each event without a payload."""

EVENT_FIELDS = {OPERATION: pa.string(), EVENT_TIME: pa.int64()}
"""The fields of an event that a query can read in addition to the row, and their types in JSON."""

OPERATIONS = ("c", "r", "u", "d")

Batches = Callable[[int], Iterator[tuple[int, pa.RecordBatch]]]


def has_envelopes(names: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return True if `names` are the columns of envelopes. `wanted`: the columns of the schema."""
    return {OPERATION, BEFORE, AFTER} <= {*names} and not {BEFORE, AFTER} & {*wanted}


def envelope_schema(line: bytes, schema: pa.Schema) -> pa.Schema | None:
    """Return the schema of the envelopes of a file, given its first line; None for a file of rows.

    `schema`: the columns to read, with the types of their values in JSON.
    """
    try:
        event = parse_line(line)
    except ValueError:
        return None
    inner = event.get(PAYLOAD) if isinstance(event, dict) else None
    is_inner = isinstance(inner, dict) and has_envelopes([*inner], schema.names)
    if not is_inner and not (isinstance(event, dict) and has_envelopes([*event], schema.names)):
        return None
    row = pa.struct([field for field in schema if field.name not in EVENT_FIELDS])
    fields = pa.schema([*EVENT_FIELDS.items(), (BEFORE, row), (AFTER, row)])
    return pa.schema([(PAYLOAD, pa.struct(list(fields)))]) if is_inner else fields


def is_tombstone(line: bytes) -> bool:
    """Return True if a line of JSON is `null`, or an event of Kafka Connect whose payload is `null`."""
    if not EMPTY_PAYLOAD.search(line):
        return line.strip() == b"null"
    try:
        event = parse_line(line)
    except ValueError:
        return False
    is_event = isinstance(event, dict) and {*event} <= {PAYLOAD, SCHEMA}
    return is_event and event.get(PAYLOAD, event) is None


def check_rows(lines: Sequence[bytes], schema: pa.Schema) -> None:
    """Raise ValueError for a line with an event among lines with rows. `schema`: as in `envelope_schema`."""
    for line in lines:
        if b'"after"' in line and envelope_schema(line, schema) is not None:
            raise ValueError("got an event of Debezium, expected a row as in the first line")


def row_names(schema: pa.Schema) -> list[str]:
    """Return the names of the columns of the rows in envelopes with this schema."""
    if schema.names == [PAYLOAD]:
        schema = pa.schema(list(schema.field(PAYLOAD).type))
    row = next((schema.field(name).type for name in (AFTER, BEFORE) if pa.types.is_struct(schema.field(name).type)), ())
    names = [field.name for field in row]
    return [name for name in EVENT_FIELDS if name in schema.names] + names


def skip_empty_envelopes(batches: Batches) -> Batches:
    """Return a reader that skips envelopes whose columns are all NULL. Deletions have such envelopes."""

    def read(chunk: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        for number, batch in batches(chunk):
            operation, before, after = (batch.column(name).is_valid() for name in (OPERATION, BEFORE, AFTER))
            yield number, batch.filter(pc.or_(operation, pc.or_(before, after)))

    return read


def rows_of_events(batches: Batches, last_rows: LastRows | None = None) -> Batches:
    """Return a reader of the rows of envelopes. `last_rows`: the rows of all earlier events, if rows have a key."""

    def read(chunk: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        for number, batch in batches(chunk):
            yield number, _rows(batch, last_rows)

    return read


def _rows(events: pa.RecordBatch, last_rows: LastRows | None) -> pa.RecordBatch:
    """Return the rows of events. Raises ValueError for an unknown operation, and for an event without a row."""
    if events.schema.names == [PAYLOAD]:
        (payload,) = events.columns
        events = pa.RecordBatch.from_arrays(payload.flatten(), names=[field.name for field in payload.type])
    operations = events.column(OPERATION)
    for operation in pc.unique(operations).to_pylist():
        if operation not in OPERATIONS:
            raise ValueError(f"got an event with the operation {operation!r}, expected one of {', '.join(OPERATIONS)}")
    withdraws, inserts, is_snapshot = (_is_one_of(operations, each) for each in (("u", "d"), ("c", "r", "u"), ("r",)))
    before, after = events.column(BEFORE), events.column(AFTER)
    before_needed = withdraws if last_rows is None else withdraws & ~inserts
    for column, name, needed in ((before, BEFORE, before_needed), (after, AFTER, inserts)):
        missing = needed & column.is_null().to_numpy(zero_copy_only=False)
        if missing.any():
            operation = operations[int(missing.argmax())].as_py()
            raise ValueError(
                f"got an event {operation!r} without the row {name!r}, expected the whole row (in PostgreSQL: "
                "ALTER TABLE … REPLICA IDENTITY FULL), or a key in the schema: UINT id (key);"
            )
    before, after = _null_unless(withdraws, before, after.type), _null_unless(inserts, after, before.type)
    changes = _changes_of_complete_events(before, after) if last_rows is None else last_rows.apply(before, after)
    words = np.where(changes.withdrawn, "d", np.where(is_snapshot[changes.events], "r", "c"))
    columns = {OPERATION: pa.array(words, pa.string())}
    if EVENT_TIME in events.schema.names:
        columns[EVENT_TIME] = pc.take(events.column(EVENT_TIME), array_of(changes.events))
    columns |= {name: changes.rows.column(name).combine_chunks() for name in changes.rows.schema.names}
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _changes_of_complete_events(before: pa.StructArray, after: pa.StructArray) -> RowChanges:
    """Return the changes of events that contain both complete rows. NULL means that there is no row."""
    has_before, has_after = (rows.is_valid().to_numpy(zero_copy_only=False) for rows in (before, after))
    count = len(before)
    events = np.repeat(np.arange(count), has_before.astype(np.int64) + has_after)
    is_first = np.append(True, events[1:] != events[:-1])[: len(events)]
    withdrawn = has_before[events] & is_first
    rows = pc.take(
        pa.concat_arrays([before, after.cast(before.type)]), array_of(np.where(withdrawn, events, events + count))
    )
    return RowChanges(
        pa.Table.from_arrays(rows.flatten(), names=[field.name for field in rows.type]), events, withdrawn
    )


def _is_one_of(operations: pa.Array, wanted: Sequence[str]) -> npt.NDArray[np.bool_]:
    return pc.is_in(operations, value_set=pa.array(wanted)).to_numpy(zero_copy_only=False)


def _null_unless(chosen: npt.NDArray[np.bool_], rows: pa.Array, other_type: pa.DataType) -> pa.Array:
    """Return `rows` with NULL in place of rows that are not chosen. `other_type`: the type if no event has a row."""
    if pa.types.is_null(rows.type):
        return pa.nulls(len(rows), other_type)
    return pc.take(rows, array_of(np.arange(len(rows)), ~chosen))
