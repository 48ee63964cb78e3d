"""Results as users receive them, in Python and in files: addresses and MACs as text, times as timestamps.

Internally an address has 4 or 16 bytes, a MAC has 6 bytes, and a time is an int64 in ns since the epoch. The Arrow type
of a time is that of any integer, so `plan.times` lists the columns that are times.
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from typing import TypeVar

import pyarrow as pa

from capture import arrow_compute as pc
from lowlevel.expressions.arrow import to_text

TIMESTAMP = pa.timestamp("ns", tz="UTC")
"""The Arrow type of every time in results."""

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


def readable_schema(schema: pa.Schema, times: Collection[str]) -> pa.Schema:
    """Return the schema of the rows that `readable` returns."""
    return pa.schema([pa.field(field.name, _readable_type(field, times)) for field in schema])


def readable(rows: Rows, times: Collection[str]) -> Rows:
    """Return rows with addresses and MACs as text, and the columns `times` as timestamps in UTC."""
    arrays = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if pa.types.is_binary(field.type):
            arrays.append(to_text(column))
        else:
            arrays.append(pc.cast(column, _readable_type(field, times)))
    return rows.from_arrays(arrays, schema=readable_schema(rows.schema, times))


def to_internal(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert rows of `readable` back to the schema of a plan.

    >>> made = readable(pa.table({"a": pa.array([b"abcd", None]), "ts": [1, 2]}), ["ts"])
    >>> made["a"].to_pylist(), to_internal(made, pa.schema({"a": pa.binary(), "ts": pa.int64()}))["a"].to_pylist()
    (['97.98.99.100', None], [b'abcd', None])
    """
    arrays = [
        pa.chunked_array([pack_addresses(table[field.name])]) if pa.types.is_binary(field.type) else table[field.name]
        for field in schema
    ]
    return pa.table(arrays, schema.names).cast(schema)


def _readable_type(field: pa.Field, times: Collection[str]) -> pa.DataType:
    if pa.types.is_binary(field.type):
        return pa.string()
    return TIMESTAMP if field.name in times else field.type


def pack_addresses(column: pa.ChunkedArray) -> pa.Array:
    """Return the bytes of addresses and MACs. Each distinct text is parsed once."""
    encoded = column.combine_chunks().dictionary_encode()
    return pa.array(map(_pack_address, encoded.dictionary.to_pylist()), pa.binary()).take(encoded.indices)


def _pack_address(text: str) -> bytes:
    if ":" not in text:
        return socket.inet_aton(text)
    if text.count(":") == 5 and "::" not in text:  # an IPv6 address without :: has seven colons
        return bytes.fromhex(text.replace(":", ""))
    return socket.inet_pton(socket.AF_INET6, text)
