"""Partials as bytes: an Arrow IPC stream, in the narrowest types that hold the values.

Of a partial by a pair of IPv4 addresses the 24 bytes of offsets and texts say nothing: all addresses are of 4 bytes,
and all rows of one link. What is left is compressed with the segment, which holds many.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lowlevel.narrow import TYPES, narrow

LINK = b"wiretide.link"
"""Metadata: the text that every row has in the first column, which is left out."""


def pack(batches: Sequence[pa.RecordBatch]) -> pa.Buffer:
    """Serialize batches of one schema as one; none of the columns is a dictionary."""
    table = pa.Table.from_batches(batches)
    metadata = {TYPES: table.schema.serialize().to_pybytes()}
    link = _only_text(table)
    if link is not None:
        metadata[LINK] = link.encode()
        table = table.remove_column(0)
    columns = [narrow(column.combine_chunks()) for column in table.columns]
    fields = [field.with_type(column.type) for field, column in zip(table.schema, columns, strict=True)]
    schema = pa.schema(fields, metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    return sink.getvalue()


def unpack(payload: pa.Buffer) -> pa.RecordBatch:
    """Read back what `pack` made, as one batch."""
    with pa.ipc.open_stream(payload) as reader:
        batch = reader.read_next_batch()
    metadata = batch.schema.metadata
    schema = pa.ipc.read_schema(pa.py_buffer(metadata[TYPES]))
    columns = batch.columns
    if LINK in metadata:
        columns.insert(0, pa.repeat(pa.scalar(metadata[LINK].decode(), pa.string()), batch.num_rows))
    cast = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=schema)


def binary_columns(schema: pa.Schema) -> tuple[int, ...]:
    """Places of the columns of bytes."""
    return tuple(place for place, kind in enumerate(schema.types) if kind == pa.binary())


def widths(batch: pa.RecordBatch, binary: tuple[int, ...]) -> tuple[int, ...]:
    """Mean bytes of a row in each of these columns: batches that differ are better not packed together.

    That of a slice is taken for greater than it is. A guess is good enough: `pack` looks at every row.
    """
    buffers = [batch.column(place).buffers()[2] for place in binary]
    return tuple(0 if buffer is None else buffer.size // batch.num_rows for buffer in buffers)


def _only_text(table: pa.Table) -> str | None:
    """Return the text that the first column has in every row, if it is one."""
    if table.num_columns < 2 or table.num_rows == 0 or table.schema[0].type != pa.string():
        return None
    column = table.column(0)
    text = column[0]
    if not text.is_valid or column.null_count or not pc.all(pc.equal(column, text)).as_py():
        return None
    return text.as_py()
