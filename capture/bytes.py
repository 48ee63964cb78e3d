"""Reading and writing integers in byte arrays, for functions compiled to machine code (kernels).

The caller checks the bounds.
"""

from __future__ import annotations

import numpy as np

from capture.native import helper


@helper
def u16be(buf, offset):  # type: ignore[no-untyped-def]
    """Read two bytes in network order."""
    return np.int64(buf[offset]) << 8 | np.int64(buf[offset + 1])


@helper
def u16le(buf, offset):  # type: ignore[no-untyped-def]
    """Read two bytes, little-endian."""
    return np.int64(buf[offset + 1]) << 8 | np.int64(buf[offset])


@helper
def u32be(buf, offset):  # type: ignore[no-untyped-def]
    """Read four bytes in network order."""
    return (
        np.int64(buf[offset]) << 24
        | np.int64(buf[offset + 1]) << 16
        | np.int64(buf[offset + 2]) << 8
        | np.int64(buf[offset + 3])
    )


@helper
def u32le(buf, offset):  # type: ignore[no-untyped-def]
    """Read four bytes, little-endian."""
    return (
        np.int64(buf[offset + 3]) << 24
        | np.int64(buf[offset + 2]) << 16
        | np.int64(buf[offset + 1]) << 8
        | np.int64(buf[offset])
    )


@helper
def u48be(buf, offset):  # type: ignore[no-untyped-def]
    """Read six bytes in network order."""
    return u16be(buf, offset) << 32 | u32be(buf, offset + 2)


@helper
def u64be(buf, offset):  # type: ignore[no-untyped-def]
    """Read eight bytes in network order, as an unsigned integer."""
    return np.uint64(u32be(buf, offset)) << np.uint64(32) | np.uint64(u32be(buf, offset + 4))


@helper
def u32(buf, offset, big_endian):  # type: ignore[no-untyped-def]
    """Read four bytes in the given byte order."""
    return u32be(buf, offset) if big_endian else u32le(buf, offset)


@helper
def put16le(buf, offset, value):  # type: ignore[no-untyped-def]
    """Write two bytes, little-endian."""
    buf[offset] = value & 0xFF
    buf[offset + 1] = value >> 8 & 0xFF


@helper
def put32le(buf, offset, value):  # type: ignore[no-untyped-def]
    """Write four bytes, little-endian."""
    put16le(buf, offset, value)
    put16le(buf, offset + 2, value >> 16)
