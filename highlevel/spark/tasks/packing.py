"""Pack a table of partials or results into one value of a Spark row: as Arrow IPC, in narrow types, compressed.

Sending rows between Python and the JVM takes time for each row, so one Spark row contains a whole batch. It also takes
time for each byte, because every byte is copied about six times. So each column has the narrowest type for its values,
and a column of addresses of one version is stored without offsets. A group by a pair of IPv4 addresses then needs 13
bytes instead of 40. For small tables this work would take longer than it saves, so they are stored as they are.
"""

from __future__ import annotations

import pyarrow as pa

from lowlevel.expressions.arrow import ORIGINAL_SCHEMA, narrow

MAX_PLAIN_BYTES = 2048
"""Maximum bytes of tables that are neither narrowed nor compressed."""

COMPRESSED, UNCOMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4"), pa.ipc.IpcWriteOptions()


def pack(table: pa.Table) -> bytes:
    """Serialize a table and its schema."""
    if table.nbytes <= MAX_PLAIN_BYTES:
        return _serialize(table, UNCOMPRESSED)
    columns = [narrow(column) for column in table.columns]
    fields = [field.with_type(column.type) for field, column in zip(table.schema, columns, strict=True)]
    schema = pa.schema(fields, {ORIGINAL_SCHEMA: table.schema.serialize().to_pybytes()})
    return _serialize(pa.table(columns, schema=schema), COMPRESSED)


def _serialize(table: pa.Table, options: pa.ipc.IpcWriteOptions) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def unpack(payload: bytes | pa.Buffer) -> pa.Table:
    """Return the table that `pack` packed."""
    with pa.ipc.open_stream(payload) as reader:
        table = reader.read_all()
    types = (table.schema.metadata or {}).get(ORIGINAL_SCHEMA)
    return table if types is None else table.cast(pa.ipc.read_schema(pa.py_buffer(types)))
