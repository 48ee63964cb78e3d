"""Partials and results as single values of a Spark row: Arrow IPC, compressed.

Crossing between Python and the JVM costs by the row, so a Spark row carries a whole batch. Partials compress to a
third (counts are small, panes repeat), which is worth more than it costs: every byte is copied about six times.
"""

from __future__ import annotations

import pyarrow as pa

OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


def pack(table: pa.Table) -> bytes:
    """Serialize a table, schema included."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=OPTIONS) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def unpack(payload: bytes | pa.Buffer) -> pa.Table:
    """Read back what `pack` made."""
    with pa.ipc.open_stream(payload) as reader:
        return reader.read_all()
