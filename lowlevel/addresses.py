"""Addresses between their three forms: two uint64 columns in kernels, 4 or 16 bytes in Arrow, text at the edges."""

from __future__ import annotations

import socket

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lowlevel.evaluate import AddressVector


def to_arrow(version: int, high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]) -> pa.BinaryArray:
    """Make the Arrow column of addresses that are all of one version: their bytes in network order."""
    if version == 4:
        data, size = low.astype(">u4"), 4
    else:
        data, size = np.stack([high, low], axis=1).astype(">u8"), 16
    offsets = np.arange(len(low) + 1, dtype=np.int32) * np.int32(size)
    return pa.BinaryArray.from_buffers(pa.binary(), len(low), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def from_arrow(column: pa.BinaryArray) -> AddressVector:
    """Read an Arrow column of addresses, of either version and with NULLs."""
    lengths = np.diff(np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1])
    starts = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column)]
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8)
    high = np.zeros(len(column), np.uint64)
    low = np.zeros(len(column), np.uint64)
    short = lengths == 4
    low[short] = _big_endian(data, starts[short], 4)
    high[lengths == 16] = _big_endian(data, starts[lengths == 16], 8)
    low[lengths == 16] = _big_endian(data, starts[lengths == 16] + 8, 8)
    valid = None if column.null_count == 0 else np.asarray(column.is_valid())
    return AddressVector(np.where(short, 4, 6), high, low, valid)


def _big_endian(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int32], size: int) -> npt.NDArray[np.uint64]:
    numbers = np.zeros(len(starts), np.uint64)
    for place in range(size):
        numbers = numbers << np.uint64(8) | data[starts + place].astype(np.uint64)
    return numbers


def to_text(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Spell addresses: dotted, or as RFC 5952 has it. NULL stays NULL."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    lengths = pc.binary_length(column)
    if pc.all(pc.equal(lengths, 4)).as_py() and column.null_count == 0:
        return _dotted(column)
    encoded = column.dictionary_encode()  # each distinct one is spelled once
    texts = [
        socket.inet_ntop(socket.AF_INET if len(address) == 4 else socket.AF_INET6, address)
        for address in encoded.dictionary.to_pylist()
    ]
    return pa.array(texts, pa.string()).take(encoded.indices)


def _dotted(column: pa.BinaryArray) -> pa.Array:
    """Spell IPv4 addresses without a Python object for each."""
    if len(column) == 0:
        return column.cast(pa.string())
    first, last = (
        int(each) for each in np.frombuffer(column.buffers()[1], np.int32)[[column.offset, column.offset + len(column)]]
    )
    octets = np.frombuffer(column.buffers()[2], np.uint8)[first:last].reshape(-1, 4)
    numbers = pa.array([str(number) for number in range(256)])
    parts = [numbers.take(pa.array(np.ascontiguousarray(octets[:, place]))) for place in range(4)]
    return pc.binary_join_element_wise(*parts, ".")
