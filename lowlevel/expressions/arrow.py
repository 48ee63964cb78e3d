"""Conversion of vectors to Arrow columns, of addresses to text, and of columns to narrower types."""

from __future__ import annotations

import socket

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lowlevel.expressions.columns import AddressVector, AnyVector, BytesVector, Mask, TextVector, Vector
from lowlevel.expressions.types import Type
from lowlevel.plan import ARROW_TYPES

# Addresses have three forms: integers in kernels, bytes in Arrow, text for users. In Arrow an IPv4 address has 4 bytes,
# an IPv6 address 16, a MAC 6: the length tells the kind.


_longest: dict[int, pa.Buffer] = {}
"""Cache: for each value size, the longest offsets buffer so far. All columns of the process share it."""


def _offsets(count: int, size: int) -> pa.Buffer:
    """Return the offsets of `count` values of `size` bytes, and the end of the last value."""
    longest = _longest.get(size)
    if longest is None or longest.size < 4 * (count + 1):
        longest = _longest[size] = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(size))
    return longest.slice(0, 4 * (count + 1))  # the size of a column, and its transfer, include only this slice


def to_arrow(version: int, high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]) -> pa.BinaryArray:
    """Return an Arrow column of addresses of one version: their bytes in network order."""
    if version == 4:
        data, size = low.astype(">u4"), 4
    else:
        data, size = np.empty((len(low), 2), ">u8"), 16
        data[:, 0], data[:, 1] = high, low
    return pa.BinaryArray.from_buffers(pa.binary(), len(low), [None, _offsets(len(low), size), pa.py_buffer(data)])


def macs_to_arrow(numbers: npt.NDArray[np.int64], valid: Mask | None) -> pa.BinaryArray:
    """Return an Arrow column of MACs: 6 bytes each, NULL if not `valid`."""
    data = np.ascontiguousarray(numbers.astype(">i8").view(np.uint8).reshape(-1, 8)[:, 2:])
    absent = None if valid is None else pa.array(valid).buffers()[1]
    count = len(numbers)
    return pa.BinaryArray.from_buffers(pa.binary(), count, [absent, _offsets(count, 6), pa.py_buffer(data)])


def macs_from_arrow(column: pa.BinaryArray) -> Vector:
    """Convert an Arrow column of MACs to integers."""
    numbers = from_arrow(column)
    return Vector(numbers.low.view(np.int64), numbers.valid)


def from_arrow(column: pa.BinaryArray) -> AddressVector:
    """Convert an Arrow column of addresses of any version, with NULLs. A MAC is in `low`, with version 0."""
    starts, lengths, data = _spans(column)
    high = np.zeros(len(column), np.uint64)
    low = np.zeros(len(column), np.uint64)
    version = np.zeros(len(column), np.int64)
    for size, number in ((4, 4), (16, 6), (6, 0)):
        of_size = lengths == size
        version[of_size] = number
        if size == 16:
            high[of_size] = _big_endian(data, starts[of_size], 8)
            low[of_size] = _big_endian(data, starts[of_size] + 8, 8)
        else:
            low[of_size] = _big_endian(data, starts[of_size], size)
    valid = None if column.null_count == 0 else np.asarray(column.is_valid())
    return AddressVector(version, high, low, valid)


def _spans(column: pa.BinaryArray) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Return the offset of each value, its length (0 for a NULL), and the bytes."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    lengths = np.diff(offsets)
    if column.null_count:
        lengths = np.where(np.asarray(column.is_valid()), lengths, 0)
    return offsets[:-1], lengths, np.frombuffer(column.buffers()[2] or b"", np.uint8)


def _big_endian(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int32], size: int) -> npt.NDArray[np.uint64]:
    numbers = np.zeros(len(starts), np.uint64)
    for place in range(size):
        numbers = numbers << np.uint64(8) | data[starts + place].astype(np.uint64)
    return numbers


def to_text(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return addresses as text: dotted, by RFC 5952, or `aa:bb:cc:dd:ee:ff`. NULL stays NULL."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    lengths = pc.binary_length(column)
    if pc.all(pc.equal(lengths, 4)).as_py() and column.null_count == 0:
        return _dotted(column)
    encoded = column.dictionary_encode()  # each distinct address is converted once
    texts = [_spelled(address) for address in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(encoded.indices)


def _spelled(address: bytes) -> str:
    if len(address) == 6:
        return address.hex(":")
    return socket.inet_ntop(socket.AF_INET if len(address) == 4 else socket.AF_INET6, address)


def _dotted(column: pa.BinaryArray) -> pa.Array:
    """Return IPv4 addresses as text, without a Python object for each."""
    if len(column) == 0:
        return column.cast(pa.string())
    first, last = (
        int(each) for each in np.frombuffer(column.buffers()[1], np.int32)[[column.offset, column.offset + len(column)]]
    )
    octets = np.frombuffer(column.buffers()[2], np.uint8)[first:last].reshape(-1, 4)
    numbers = pa.array([str(number) for number in range(256)])
    parts = [numbers.take(pa.array(np.ascontiguousarray(octets[:, place]))) for place in range(4)]
    return pc.binary_join_element_wise(*parts, ".")


TYPES = b"wiretide.types"
"""Metadata of narrowed columns: the original schema, serialized."""

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
    """Return one column with the addresses of all versions, in their order."""
    version, high, low = (np.broadcast_to(each, rows) for each in (vector.version, vector.high, vector.low))
    if vector.valid is not None:
        version = np.where(vector.valid, version, 0)
    order = np.argsort(version, kind="stable")  # convert one version after the other, then restore the order
    absent, narrow = np.searchsorted(version[order], [1, 5])
    parts = [pa.nulls(int(absent), pa.binary())]
    for number, part in ((4, order[absent:narrow]), (6, order[narrow:])):
        parts.append(to_arrow(number, high[part], low[part]))
    return pa.concat_arrays(parts).take(pa.array(np.argsort(order, kind="stable")))


def _bytes(vector: BytesVector, valid: Mask | None) -> pa.Array:
    """Return a column with copies of the byte strings."""
    offsets = np.append(0, np.cumsum(vector.length))
    first = np.repeat(vector.start - offsets[:-1], vector.length)
    data = vector.data[first + np.arange(offsets[-1])]
    absent = None if valid is None else pa.array(valid).buffers()[1]
    buffers = [absent, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(data)]
    return pa.Array.from_buffers(ARROW_TYPES[Type.BYTES], len(vector.length), buffers)
