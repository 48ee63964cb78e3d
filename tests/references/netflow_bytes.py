"""NetFlow and IPFIX datagrams made of bytes, from the structures of RFC 3954, RFC 7011 and Cisco's v5 and v7."""

from __future__ import annotations

import struct
from collections.abc import Sequence

VARIABLE = 65535

Spec = tuple[int, int] | tuple[int, int, int]
"""A field of a template: the element's number, its length (or VARIABLE), and an enterprise."""


def v5(
    records: Sequence[bytes],
    *,
    uptime: int = 0,
    seconds: int = 0,
    nanoseconds: int = 0,
    sequence: int = 0,
    engine: int = 0,
    sampling: int = 0,
    count: int | None = None,
) -> bytes:
    """Return a datagram of NetFlow v5.

    `sampling`: the two bytes of mode and interval; `count`: the count of the header.
    """
    count = len(records) if count is None else count
    header = struct.pack(">HHIIIIHH", 5, count, uptime, seconds, nanoseconds, sequence, engine, sampling)
    return header + b"".join(records)


def v7(
    records: Sequence[bytes], *, uptime: int = 0, seconds: int = 0, nanoseconds: int = 0, sequence: int = 0
) -> bytes:
    """A datagram of NetFlow v7."""
    header = struct.pack(">HHIIIII", 7, len(records), uptime, seconds, nanoseconds, sequence, 0)
    return header + b"".join(records)


def v5_record(
    source: bytes = bytes(4),
    destination: bytes = bytes(4),
    *,
    packets: int = 0,
    octets: int = 0,
    first: int = 0,
    last: int = 0,
    ports: tuple[int, int] = (0, 0),
    protocol: int = 0,
    flags: int = 0,
) -> bytes:
    """Return a record of NetFlow v5. Fields that are not given are 0."""
    return (
        source
        + destination
        + bytes(4)
        + struct.pack(">HHIIIIHHBBBBHHBBH", 0, 0, packets, octets, first, last, *ports, 0, flags, protocol, *[0] * 6)
    )


def v9(
    sets: Sequence[bytes], *, uptime: int = 0, seconds: int = 0, sequence: int = 0, domain: int = 0, count: int = 1
) -> bytes:
    """A datagram of NetFlow v9."""
    return struct.pack(">HHIIII", 9, count, uptime, seconds, sequence, domain) + b"".join(sets)


def ipfix(
    sets: Sequence[bytes], *, seconds: int = 0, sequence: int = 0, domain: int = 0, length: int | None = None
) -> bytes:
    """Return a message of IPFIX. `length` replaces the length in the header."""
    body = b"".join(sets)
    return struct.pack(">HHIII", 10, 16 + len(body) if length is None else length, seconds, sequence, domain) + body


def a_set(number: int, body: bytes, padding: int = 0) -> bytes:
    """A set: number, length and body, with zeros behind it that belong to it."""
    return struct.pack(">HH", number, 4 + len(body) + padding) + body + bytes(padding)


def specifier(spec: Spec) -> bytes:
    """A field specifier, with the enterprise's bit where there is one."""
    number, length, *enterprise = spec
    if enterprise and enterprise[0]:
        return struct.pack(">HHI", number | 0x8000, length, enterprise[0])
    return struct.pack(">HH", number, length)


def template(number: int, fields: Sequence[Spec]) -> bytes:
    """A template record, of v9 and IPFIX alike."""
    return struct.pack(">HH", number, len(fields)) + b"".join(map(specifier, fields))


def v9_options(number: int, scope: Sequence[Spec], fields: Sequence[Spec]) -> bytes:
    """An options template record of NetFlow v9."""
    head = struct.pack(">HHH", number, 4 * len(scope), 4 * len(fields))
    return head + b"".join(map(specifier, [*scope, *fields]))


def ipfix_options(number: int, scope: Sequence[Spec], fields: Sequence[Spec]) -> bytes:
    """An options template record of IPFIX."""
    head = struct.pack(">HHH", number, len(scope) + len(fields), len(scope))
    return head + b"".join(map(specifier, [*scope, *fields]))


def variable(data: bytes, long: bool = False) -> bytes:
    """A value of variable length, with one byte of length or, `long` or not to be helped, three."""
    if long or len(data) >= 255:
        return b"\xff" + struct.pack(">H", len(data)) + data
    return bytes([len(data)]) + data
