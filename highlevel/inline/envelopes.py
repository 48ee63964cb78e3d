"""Envelopes of Debezium in tables: one event contains the row `before` and the row `after` a change.

    op   before   after    rows, as `CHANGES BY op` reads them
    c            (1, a)    c 1 a
    r            (1, a)    r 1 a                r: a row of a snapshot
    u   (1, a)   (1, b)    d 1 a,  c 1 b        both at once, so no reader sees half of an update
    d   (1, b)             d 1 b

A table is of envelopes if it has the columns `op`, `before` and `after`, and the schema of the query has none of the
rows. With the schemas of Kafka Connect an event is in the field `payload` of the line. A line `null` after a deletion
(a tombstone) has no row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of

OPERATION, BEFORE, AFTER = "op", "before", "after"
EVENT_TIME = "ts_ms"
PAYLOAD = "payload"

OF_EVENT = {OPERATION: pa.string(), EVENT_TIME: pa.int64()}
"""The fields of an event that a query can read in addition to the row, and their types in JSON."""

OPERATIONS = ("c", "r", "u", "d")

Batches = Callable[[int], Iterator[tuple[int, pa.RecordBatch]]]


def has_envelopes(names: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether columns are those of envelopes. `wanted`: the columns of the schema."""
    return {OPERATION, BEFORE, AFTER} <= {*names} and not {BEFORE, AFTER} & {*wanted}


def envelope_schema(line: bytes, schema: pa.Schema) -> pa.Schema | None:
    """Return the schema of the envelopes of a file, given its first line; None for a file of rows.

    `schema`: the columns to read, with the types of their values in JSON.
    """
    try:
        event = json.loads(line)
    except ValueError:
        return None
    inner = event.get(PAYLOAD) if isinstance(event, dict) else None
    is_inner = isinstance(inner, dict) and has_envelopes([*inner], schema.names)
    if not is_inner and not (isinstance(event, dict) and has_envelopes([*event], schema.names)):
        return None
    row = pa.struct([field for field in schema if field.name not in OF_EVENT])
    fields = pa.schema([*OF_EVENT.items(), (BEFORE, row), (AFTER, row)])
    return pa.schema([(PAYLOAD, pa.struct(list(fields)))]) if is_inner else fields


def row_names(schema: pa.Schema) -> list[str]:
    """Return the names of the columns of the rows in envelopes with this schema."""
    if schema.names == [PAYLOAD]:
        schema = pa.schema(list(schema.field(PAYLOAD).type))
    row = schema.field(AFTER).type
    names = [field.name for field in row] if pa.types.is_struct(row) else []
    return [name for name in OF_EVENT if name in schema.names] + names


def rows_of_events(batches: Batches) -> Batches:
    """Return a reader of the rows of envelopes."""

    def read(chunk: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        for number, batch in batches(chunk):
            yield number, _rows(batch)

    return read


def _rows(events: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of events. Raises ValueError for an unknown operation, and for an event without a row."""
    if events.schema.names == [PAYLOAD]:
        (payload,) = events.columns
        events = pa.RecordBatch.from_arrays(payload.flatten(), names=[field.name for field in payload.type])
    events = events.filter(
        pc.or_(
            events.column(OPERATION).is_valid(), pc.or_(*(events.column(name).is_valid() for name in (BEFORE, AFTER)))
        )
    )
    operations = events.column(OPERATION)
    for operation in pc.unique(operations).to_pylist():
        if operation not in OPERATIONS:
            raise ValueError(f"got an event with the operation {operation!r}, expected one of {', '.join(OPERATIONS)}")
    withdraws, inserts, is_snapshot = (_is_one_of(operations, each) for each in (("u", "d"), ("c", "r", "u"), ("r",)))
    before, after = events.column(BEFORE), events.column(AFTER)
    for column, name, needed in ((before, BEFORE, withdraws), (after, AFTER, inserts)):
        missing = needed & column.is_null().to_numpy(zero_copy_only=False)
        if missing.any():
            operation = operations[int(missing.argmax())].as_py()
            raise ValueError(
                f"got an event {operation!r} without the row {name!r}, expected the whole row "
                "(in PostgreSQL: ALTER TABLE … REPLICA IDENTITY FULL)"
            )
    count = events.num_rows
    source = np.repeat(np.arange(count), withdraws.astype(np.int64) + inserts)
    is_first = np.append(True, source[1:] != source[:-1])[: len(source)]
    is_withdrawal = withdraws[source] & is_first
    where = np.where(is_withdrawal, source, source + count)
    rows = pc.take(pa.concat_arrays([before, after.cast(before.type)]), array_of(where))
    words = np.where(is_withdrawal, "d", np.where(is_snapshot[source], "r", "c"))
    columns = {OPERATION: pa.array(words, pa.string())}
    if EVENT_TIME in events.schema.names:
        columns[EVENT_TIME] = pc.take(events.column(EVENT_TIME), array_of(source))
    columns |= dict(zip((field.name for field in rows.type), rows.flatten(), strict=True))
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _is_one_of(operations: pa.Array, wanted: Sequence[str]) -> npt.NDArray[np.bool_]:
    return pc.is_in(operations, value_set=pa.array(wanted)).to_numpy(zero_copy_only=False)
