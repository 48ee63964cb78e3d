"""Seeds of export datagrams, made of bytes: every version, and every thing that one says about the next."""

from __future__ import annotations

import struct

from tests.fuzz.chunks import joined

Fields = tuple[tuple[int, ...], ...]
"""Fields of a template, as (element, length) or (element, length, enterprise)."""

FIELDS: Fields = ((8, 4), (12, 4), (7, 2), (11, 2), (4, 1), (6, 1), (1, 4), (2, 4), (21, 4), (22, 4))
RECORD = struct.pack(">4s4sHHBBIIII", b"\n\0\0\1", b"\n\0\0\2", 80, 443, 6, 18, 1500, 3, 999_000, 998_000)

MIXED: Fields = ((27, 16), (28, 16), (152, 8), (153, 8), (85, 8), (86, 8), (82, 65535), (7, 2, 9), (291, 65535))
MIXED_RECORD = (
    bytes(range(32))
    + struct.pack(">QQQQ", 1_700_000_000_000, 1_700_000_001_000, 5 << 40, 9)
    + b"\4eth0\1\2\xff\0\5\xff\0\x08\0\1"
)
"""Addresses, times, wide counters, a name of variable length, an enterprise's port and a list."""

TIMES: Fields = ((150, 4), (151, 4), (154, 8), (157, 8), (158, 4), (161, 4), (160, 8), (312, 2))


def v5(*records: bytes, version: int = 5) -> bytes:
    """A datagram of NetFlow v5 or v7."""
    head = struct.pack(">HHIIIIBBH", version, len(records), 10**6, 1_700_000_000, 500, 7, 1, 2, 0x4064)
    return head + b"".join(records)


def v5_record() -> bytes:
    """A record of NetFlow v5."""
    ends = b"\n\0\0\1" + b"\n\0\0\2" + bytes(4)
    counted = struct.pack(">HHIIIIHH", 3, 4, 5, 600, 998_000, 999_000, 80, 443)
    return ends + counted + struct.pack(">xBBBHHBBxx", 18, 6, 0, 64512, 64513, 24, 16)


def v9(sequence: int, *sets: bytes) -> bytes:
    """A datagram of NetFlow v9, of source 3."""
    return struct.pack(">HHIIII", 9, len(sets), 10**6, 1_700_000_000, sequence, 3) + b"".join(sets)


def ipfix(sequence: int, *sets: bytes) -> bytes:
    """A message of IPFIX, of domain 4."""
    body = b"".join(sets)
    return struct.pack(">HHIII", 10, 16 + len(body), 1_700_000_000, sequence, 4) + body


def one_set(number: int, *parts: bytes) -> bytes:
    """A set, padded to 4 bytes."""
    body = b"".join(parts)
    body += bytes(-len(body) % 4)
    return struct.pack(">HH", number, 4 + len(body)) + body


def template(number: int, fields: Fields = ()) -> bytes:
    """A template record; without fields it withdraws one."""
    data = struct.pack(">HH", number, len(fields))
    for element, length, *enterprise in fields:
        data += struct.pack(">HH", element | 0x8000 * len(enterprise), length)
        data += b"".join(each.to_bytes(4, "big") for each in enterprise)
    return data


def seeds() -> dict[str, bytes]:
    """Rows of datagrams by name. Between two datagrams of one sender there is an empty datagram of the other sender."""
    fields, data = one_set(0, template(256, FIELDS)), one_set(256, RECORD)
    mixed, mixed_data = one_set(2, template(300, MIXED)), one_set(300, MIXED_RECORD)
    sampler = struct.pack(">HHHHHHHHH", 257, 4, 8, 1, 4, 34, 4, 35, 1)
    selector = struct.pack(">HHHHHHHHH", 259, 3, 1, 149, 4, 305, 4, 306, 4)
    plain = one_set(2, template(256, FIELDS))
    sampled = one_set(3, selector), one_set(259, struct.pack(">III", 4, 1, 99))
    ones = tuple((element, 1) for element in range(1, 120))
    rows = {
        "v5": [v5(v5_record(), v5_record()), v5(v5_record())],
        "v7": [v5(v5_record() + bytes(4), version=7)],
        "v9": [v9(1, fields, one_set(256, RECORD, RECORD)), b"", v9(2, data)],
        "v9-late": [v9(1, data), b"", v9(2, fields)],
        "v9-sampler": [v9(1, one_set(1, sampler), fields), b"", v9(2, one_set(257, bytes([0] * 7 + [100, 1])), data)],
        "ipfix": [ipfix(0, mixed, one_set(300, MIXED_RECORD, MIXED_RECORD))],
        "ipfix-late": [ipfix(0, mixed_data), b"", ipfix(1, mixed)],
        "ipfix-withdrawn": [ipfix(0, mixed), b"", ipfix(0, one_set(2, template(300))), b"", ipfix(0, mixed_data)],
        "ipfix-sampling": [ipfix(0, *sampled, plain, data)],
        "two-senders": [ipfix(0, plain, data), v9(0, fields, data), ipfix(1, data), v9(1, data)],
        "many-fields": [ipfix(0, one_set(2, template(256, ones)), one_set(256, bytes(119)))],
        "times": [ipfix(0, one_set(2, template(256, TIMES)), one_set(256, bytes(range(42))))],
    }
    return {name: joined(row) for name, row in rows.items()}
