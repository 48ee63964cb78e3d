"""Conversion of vectors to Arrow columns, of addresses to text, and of Arrow columns to narrower types."""

from __future__ import annotations

import socket

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from lowlevel.expressions.columns import AddressVector, AnyVector, BytesVector, Mask, TextVector, Vector
from lowlevel.expressions.types import Type
from lowlevel.plan import ARROW_TYPES

# Addresses have three forms: integers in kernels, bytes in Arrow, text for users. In Arrow an IPv4 address has 4 bytes,
# an IPv6 address has 16 bytes, and a MAC address has 6 bytes. So the length determines the type of the address.


_offset_buffers: dict[int, pa.Buffer] = {}
"""The longest buffer of offsets so far, by the size of a value in bytes.

All columns of the process share the buffers.
"""


def _offsets(count: int, size: int) -> pa.Buffer:
    """Return the offsets of `count` values of `size` bytes, followed by the end of the last value."""
    buffer = _offset_buffers.get(size)
    if buffer is None or buffer.size < 4 * (count + 1):
        buffer = _offset_buffers[size] = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(size))
    return buffer.slice(0, 4 * (count + 1))  # Arrow counts and transfers only this slice


def to_arrow(version: int, high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]) -> pa.BinaryArray:
    """Return an Arrow column of addresses of one version, as bytes in network order."""
    if version == 4:
        data, size = low.astype(">u4"), 4
    else:
        data, size = np.empty((len(low), 2), ">u8"), 16
        data[:, 0], data[:, 1] = high, low
    return pa.BinaryArray.from_buffers(pa.binary(), len(low), [None, _offsets(len(low), size), pa.py_buffer(data)])


def macs_to_arrow(numbers: npt.NDArray[np.int64], valid: Mask | None) -> pa.BinaryArray:
    """Return an Arrow column of MACs with 6 bytes; NULL for rows that are not `valid`."""
    data = np.ascontiguousarray(numbers.astype(">i8").view(np.uint8).reshape(-1, 8)[:, 2:])
    valid_bits = None if valid is None else pa.array(valid).buffers()[1]
    count = len(numbers)
    return pa.BinaryArray.from_buffers(pa.binary(), count, [valid_bits, _offsets(count, 6), pa.py_buffer(data)])


def macs_from_arrow(column: pa.BinaryArray) -> Vector:
    """Convert an Arrow column of MACs to integers."""
    macs = from_arrow(column)
    return Vector(macs.low.view(np.int64), macs.valid)


VERSION_OF_SIZE = {4: 4, 16: 6, 6: 0}
"""The IP version of an address of each size in bytes; 0 for a MAC."""


def from_arrow(column: pa.BinaryArray) -> AddressVector:
    """Convert an Arrow column of addresses. MACs have version 0, and their 48 bits in `low`."""
    starts, lengths, data = _spans(column)
    if len(column) and lengths[0] in VERSION_OF_SIZE and (lengths == lengths[0]).all() and column.null_count == 0:
        return _from_equal_sizes(data[starts[0] :], len(column), int(lengths[0]))
    high = np.zeros(len(column), np.uint64)
    low = np.zeros(len(column), np.uint64)
    version = np.zeros(len(column), np.int64)
    for size, ip_version in VERSION_OF_SIZE.items():
        mask = lengths == size
        version[mask] = ip_version
        if size == 16:
            high[mask] = _big_endian(data, starts[mask], 8)
            low[mask] = _big_endian(data, starts[mask] + 8, 8)
        else:
            low[mask] = _big_endian(data, starts[mask], size)
    valid = None if column.null_count == 0 else np.asarray(pc.is_valid(column))
    return AddressVector(version, high, low, valid)


def _from_equal_sizes(data: npt.NDArray[np.uint8], count: int, size: int) -> AddressVector:
    """Convert `count` addresses of `size` bytes that follow one another from the beginning of `data`."""
    values = data[: count * size].reshape(count, size)
    high = np.zeros(count, np.uint64)
    if size == 4:
        low = values.view(">u4")[:, 0].astype(np.uint64)
    elif size == 16:
        high, low = (values.view(">u8")[:, half].astype(np.uint64) for half in (0, 1))
    else:
        padded = np.zeros((count, 8), np.uint8)
        padded[:, 2:] = values
        low = padded.view(">u8")[:, 0].astype(np.uint64)
    return AddressVector(np.full(count, VERSION_OF_SIZE[size], np.int64), high, low, None)


def _spans(column: pa.BinaryArray) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Return the offset of each value, its length (0 for a NULL), and the bytes."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    lengths = np.diff(offsets)
    if column.null_count:
        lengths = np.where(np.asarray(pc.is_valid(column)), lengths, 0)
    return offsets[:-1], lengths, np.frombuffer(column.buffers()[2] or b"", np.uint8)


def _big_endian(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int32], size: int) -> npt.NDArray[np.uint64]:
    """Return the big-endian integers of `size` bytes at the offsets `starts`."""
    numbers = np.zeros(len(starts), np.uint64)
    for index in range(size):
        numbers = numbers << np.uint64(8) | data[starts + index].astype(np.uint64)
    return numbers


def to_text(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return addresses as text: IPv4 dotted, IPv6 as in RFC 5952, MACs as `aa:bb:cc:dd:ee:ff`. NULL stays NULL."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    lengths = pc.binary_length(column)
    if pc.all(pc.equal(lengths, 4)).as_py() and column.null_count == 0:
        return _ipv4_texts(column)
    encoded = pc.dictionary_encode(column)  # each distinct address is converted once
    texts = [_address_text(address) for address in encoded.dictionary.to_pylist()]
    return pc.take(pa.array(texts, pa.string()), encoded.indices)


def _address_text(address: bytes) -> str:
    if len(address) == 6:
        return address.hex(":")
    return socket.inet_ntop(socket.AF_INET if len(address) == 4 else socket.AF_INET6, address)


def _ipv4_texts(column: pa.BinaryArray) -> pa.Array:
    """Return IPv4 addresses as text, without a Python object per address."""
    if len(column) == 0:
        return pc.cast(column, pa.string())
    offsets = np.frombuffer(column.buffers()[1], np.int32)
    start, end = int(offsets[column.offset]), int(offsets[column.offset + len(column)])
    octets = np.frombuffer(column.buffers()[2], np.uint8)[start:end].reshape(-1, 4)
    texts = pa.array([str(octet) for octet in range(256)])
    parts = [pc.take(texts, array_of(octets[:, index])) for index in range(4)]
    return pc.binary_join_element_wise(*parts, ".")


ORIGINAL_SCHEMA = b"wiretide.types"
"""Key in the metadata of a schema with narrowed columns. The value is the serialized original schema."""

SHORT_INTEGERS = (pa.int8(), pa.int16(), pa.int32())


def narrow(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Cast a column to a type that stores the same values in fewer bytes, if there is one.

    Integers get fewer bits. Byte strings of equal lengths, such as IPv4 addresses, become values without offsets.
    """
    if len(column) == column.null_count:
        return column
    if column.type == pa.int64():
        minimum, maximum = pc.min_max(column).as_py().values()
        for integer_type in SHORT_INTEGERS:
            if -(2 ** (integer_type.bit_width - 1)) <= minimum and maximum < 2 ** (integer_type.bit_width - 1):
                return column.cast(integer_type)
    if column.type == pa.binary():
        minimum, maximum = pc.min_max(pc.binary_length(column)).as_py().values()
        if minimum == maximum and minimum > 0:
            return column.cast(pa.binary(minimum))
    return column


def arrow_column(vector: AnyVector, rows: int, kind: Type) -> pa.Array:
    """Copy a vector of type `kind` with `rows` values into an Arrow column. A constant is repeated `rows` times."""
    valid = None if vector.valid is None else np.ascontiguousarray(np.broadcast_to(vector.valid, rows))
    if isinstance(vector, AddressVector):
        return _addresses(vector, rows)
    if isinstance(vector, TextVector):
        ids = np.broadcast_to(vector.ids, rows)
        distinct, indexes = np.unique(ids if valid is None else np.where(valid, ids, -1), return_inverse=True)
        texts = [None if text_id < 0 else vector.names[text_id] for text_id in distinct.tolist()]
        return pc.take(pa.array(texts, pa.string()), array_of(indexes))
    if isinstance(vector, BytesVector):
        return _bytes(vector, valid)
    data = np.broadcast_to(vector.data, rows)
    if kind is Type.MAC:
        return macs_to_arrow(data, valid)
    return pc.cast(array_of(data.copy(), None if valid is None else ~valid), ARROW_TYPES[kind])


def _addresses(vector: AddressVector, rows: int) -> pa.Array:
    """Return a column of IPv4 and IPv6 addresses, in the order of the rows."""
    version, high, low = (np.broadcast_to(array, rows) for array in (vector.version, vector.high, vector.low))
    if vector.valid is not None:
        version = np.where(vector.valid, version, 0)
    order = np.argsort(version, kind="stable")  # NULLs, IPv4, IPv6: each converted at once
    ipv4_start, ipv6_start = np.searchsorted(version[order], [1, 5])
    parts = [pa.nulls(int(ipv4_start), pa.binary())]
    for ip_version, part in ((4, order[ipv4_start:ipv6_start]), (6, order[ipv6_start:])):
        parts.append(to_arrow(ip_version, high[part], low[part]))
    return pc.take(pa.concat_arrays(parts), array_of(np.argsort(order, kind="stable")))


def _bytes(vector: BytesVector, valid: Mask | None) -> pa.Array:
    """Copy byte strings into a column."""
    offsets = np.append(0, np.cumsum(vector.length))
    distances = np.repeat(vector.start - offsets[:-1], vector.length)  # from a copied byte to its original
    data = vector.data[distances + np.arange(offsets[-1])]
    valid_bits = None if valid is None else pa.array(valid).buffers()[1]
    buffers = [valid_bits, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(data)]
    return pa.Array.from_buffers(ARROW_TYPES[Type.BYTES], len(vector.length), buffers)
