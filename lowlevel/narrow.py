"""Columns in the narrowest Arrow types that hold their values, for whoever has to write or send them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

TYPES = b"wiretide.types"
"""Metadata of what has been narrowed: the schema as it was, serialized."""

INTEGERS = (pa.int8(), pa.int16(), pa.int32())


def narrow(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Cast a column to a type that needs fewer bytes, if there is one; the values stay the same.

    Integers become shorter, and byte strings of one length, such as addresses of one version, lose their offsets.
    """
    if len(column) == column.null_count:
        return column
    if column.type == pa.int64():
        least, most = pc.min_max(column).as_py().values()
        for kind in INTEGERS:
            if -(2 ** (kind.bit_width - 1)) <= least and most < 2 ** (kind.bit_width - 1):
                return column.cast(kind)
    if column.type == pa.binary():
        least, most = pc.min_max(pc.binary_length(column)).as_py().values()
        if least == most and least > 0:
            return column.cast(pa.binary(least))
    return column
