"""Addresses between their three forms: two uint64 columns in kernels, 4 or 16 bytes in Arrow, text at the edges."""

from __future__ import annotations

import socket

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
    """Spell addresses (RFC 5952); each distinct one is spelled once."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    encoded = column.dictionary_encode()
    texts = [
        socket.inet_ntop(socket.AF_INET if len(address) == 4 else socket.AF_INET6, address)
        for address in encoded.dictionary.to_pylist()
    ]
    return pa.array(texts, pa.string()).take(encoded.indices)
