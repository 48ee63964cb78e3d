"""Partials and results as single values of a Spark row: Arrow IPC, narrowed and compressed.

The path between Python and the JVM costs time per row, so a Spark row carries a whole batch. It also costs time per
byte, because every byte is copied about six times. So columns have the narrowest type for their values, and addresses
of one version have no offsets. A group by pairs of IPv4 addresses then needs 13 bytes, not 40. Small tables are not
narrowed, because the calls cost more than the bytes.
"""

from __future__ import annotations

import pyarrow as pa

from lowlevel.expressions.arrow import ORIGINAL_SCHEMA, narrow

MAX_PLAIN_BYTES = 2048
"""Maximum bytes of tables that are neither narrowed nor compressed."""

COMPRESSED, UNCOMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4"), pa.ipc.IpcWriteOptions()


def pack(table: pa.Table) -> bytes:
    """Serialize a table, its schema included."""
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
