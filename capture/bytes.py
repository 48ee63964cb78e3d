"""Reading and writing integers in byte arrays, for kernels. The caller checks the bounds."""

from __future__ import annotations

import numpy as np

from capture.native import helper


@helper
def u16be(buf, at):  # type: ignore[no-untyped-def]
    """Read two bytes in network order."""
    return np.int64(buf[at]) << 8 | np.int64(buf[at + 1])


@helper
def u16le(buf, at):  # type: ignore[no-untyped-def]
    """Read two bytes, little-endian."""
    return np.int64(buf[at + 1]) << 8 | np.int64(buf[at])


@helper
def u32be(buf, at):  # type: ignore[no-untyped-def]
    """Read four bytes in network order."""
    return np.int64(buf[at]) << 24 | np.int64(buf[at + 1]) << 16 | np.int64(buf[at + 2]) << 8 | np.int64(buf[at + 3])


@helper
def u32le(buf, at):  # type: ignore[no-untyped-def]
    """Read four bytes, little-endian."""
    return np.int64(buf[at + 3]) << 24 | np.int64(buf[at + 2]) << 16 | np.int64(buf[at + 1]) << 8 | np.int64(buf[at])


@helper
def u48be(buf, at):  # type: ignore[no-untyped-def]
    """Read six bytes in network order."""
    return u16be(buf, at) << 32 | u32be(buf, at + 2)


@helper
def u64be(buf, at):  # type: ignore[no-untyped-def]
    """Read eight bytes in network order, as an unsigned integer."""
    return np.uint64(u32be(buf, at)) << np.uint64(32) | np.uint64(u32be(buf, at + 4))


@helper
def u32(buf, at, big_endian):  # type: ignore[no-untyped-def]
    """Read four bytes in the given byte order."""
    return u32be(buf, at) if big_endian else u32le(buf, at)


@helper
def put16le(buf, at, value):  # type: ignore[no-untyped-def]
    """Write two bytes, little-endian."""
    buf[at] = value & 0xFF
    buf[at + 1] = value >> 8 & 0xFF


@helper
def put32le(buf, at, value):  # type: ignore[no-untyped-def]
    """Write four bytes, little-endian."""
    put16le(buf, at, value)
    put16le(buf, at + 2, value >> 16)
