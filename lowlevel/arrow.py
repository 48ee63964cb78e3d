"""Vectors as Arrow columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lowlevel.addresses import macs_to_arrow, to_arrow
from lowlevel.plan import ARROW_TYPES
from lowlevel.types import Type
from lowlevel.vectors import AddressVector, AnyVector, BytesVector, Mask, TextVector


def arrow_column(vector: AnyVector, rows: int, kind: Type) -> pa.Array:
    """Copy `rows` values of a vector of type `kind`, a constant repeated, into a column of ARROW_TYPES."""
    valid = None if vector.valid is None else np.ascontiguousarray(np.broadcast_to(vector.valid, rows))
    if isinstance(vector, AddressVector):
        return _addresses(vector, rows)
    if isinstance(vector, TextVector):
        ids = np.broadcast_to(vector.ids, rows)
        distinct, places = np.unique(ids if valid is None else np.where(valid, ids, -1), return_inverse=True)
        texts = [None if each < 0 else vector.names[each] for each in distinct.tolist()]
        return pa.array(texts, pa.string()).take(pa.array(places))
    if isinstance(vector, BytesVector):
        return _bytes(vector, valid)
    data = np.broadcast_to(vector.data, rows)
    if kind is Type.MAC:
        return macs_to_arrow(data, valid)
    return pa.array(data.copy(), mask=None if valid is None else ~valid).cast(ARROW_TYPES[kind])


def _addresses(vector: AddressVector, rows: int) -> pa.Array:
    """Bring the addresses of all versions into one column, in their order."""
    version, high, low = (np.broadcast_to(each, rows) for each in (vector.version, vector.high, vector.low))
    if vector.valid is not None:
        version = np.where(vector.valid, version, 0)
    order = np.argsort(version, kind="stable")  # one version after the other, then back into place
    absent, narrow = np.searchsorted(version[order], [1, 5])
    parts = [pa.nulls(int(absent), pa.binary())]
    for number, part in ((4, order[absent:narrow]), (6, order[narrow:])):
        parts.append(to_arrow(number, high[part], low[part]))
    return pa.concat_arrays(parts).take(pa.array(np.argsort(order, kind="stable")))


def _bytes(vector: BytesVector, valid: Mask | None) -> pa.Array:
    """Copy the spans, one behind the other."""
    offsets = np.append(0, np.cumsum(vector.length))
    first = np.repeat(vector.start - offsets[:-1], vector.length)
    data = vector.data[first + np.arange(offsets[-1])]
    absent = None if valid is None else pa.array(valid).buffers()[1]
    buffers = [absent, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(data)]
    return pa.Array.from_buffers(ARROW_TYPES[Type.BYTES], len(vector.length), buffers)
