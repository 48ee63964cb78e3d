"""pcapng files made of bytes: a function for each kind of block, both byte orders, right lengths unless told."""

from __future__ import annotations

import struct

ENDLESS = 2**64 - 1
"""The section length of who does not know it."""


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    """A whole block of any kind: its body padded to 32 bits between its two lengths."""
    body += bytes(-len(body) % 4)
    length = struct.pack(order + "I", 12 + len(body))
    return struct.pack(order + "I", kind) + length + body + length


def options(*pairs: tuple[int, bytes], order: str = "<", end: bool = True) -> bytes:
    """Options as (code, value), padded, and the end of options where asked for and where there are any."""
    data = b"".join(
        struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4) for code, value in pairs
    )
    return data + (bytes(4) if end and pairs else b"")


def section(order: str = "<", *, version: tuple[int, int] = (1, 0), length: int = ENDLESS, more: bytes = b"") -> bytes:
    """A section header block; `more` are options."""
    return block(0x0A0D0D0A, struct.pack(order + "IHHQ", 0x1A2B3C4D, *version, length) + more, order)


def interface(
    link_type: int = 1,
    order: str = "<",
    *,
    snaplen: int = 0,
    resolution: int | None = None,
    offset: int | None = None,
    name: str | None = None,
) -> bytes:
    """An interface description block: `resolution` is the byte if_tsresol, `offset` if_tsoffset in seconds."""
    found = []
    if name is not None:
        found.append((2, name.encode()))
    if resolution is not None:
        found.append((9, bytes([resolution])))
    if offset is not None:
        found.append((14, struct.pack(order + "q", offset)))
    return block(1, struct.pack(order + "HHI", link_type, 0, snaplen) + options(*found, order=order), order)


def enhanced(
    count: int, frame: bytes, order: str = "<", *, number: int = 0, wire: int | None = None, more: bytes = b""
) -> bytes:
    """An enhanced packet block of interface `number`; `count` is its time in the interface's units."""
    head = struct.pack(
        order + "5I", number, count >> 32, count & 0xFFFFFFFF, len(frame), len(frame) if wire is None else wire
    )
    return block(6, head + frame + bytes(-len(frame) % 4) + more, order)


def obsolete(count: int, frame: bytes, order: str = "<", *, number: int = 0, wire: int | None = None) -> bytes:
    """An obsolete packet block, which has a drop count of 7."""
    head = struct.pack(
        order + "HH4I", number, 7, count >> 32, count & 0xFFFFFFFF, len(frame), len(frame) if wire is None else wire
    )
    return block(2, head + frame, order)


def simple(frame: bytes, order: str = "<", *, wire: int | None = None) -> bytes:
    """A simple packet block: no interface, no time, no captured length."""
    return block(3, struct.pack(order + "I", len(frame) if wire is None else wire) + frame, order)


def custom(order: str = "<", *, copied: bool = True, data: bytes = b"anything") -> bytes:
    """A custom block of an enterprise, to be copied or not."""
    return block(0xBAD if copied else 0x40000BAD, struct.pack(order + "I", 32473) + data, order)
