"""Captures of flow exports in memory: one exporter, random flows, datagrams of the largest size of a link."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from capture.files.capture import Capture
from capture.files.pcap import parse_header

Bytes = npt.NDArray[np.uint8]

PAYLOAD = 1464
"""Maximum bytes of a datagram: 30 records of NetFlow v5; they fit into an Ethernet frame with headers."""

RAW_IP = 101
EXPORT = 1_700_000_000
TEMPLATE_INTERVAL = 1000
"""Number of datagrams from one template to the next."""

V9_FIELDS = ((8, 4), (12, 4), (15, 4), (10, 4), (14, 4), (2, 4), (1, 4), (22, 4), (21, 4), (7, 2), (11, 2), (6, 1),
             (4, 1), (5, 1), (16, 4), (17, 4), (9, 1), (13, 1), (61, 1))  # fmt: skip
"""Element and length of the fields of a router's IPv4 template."""

IPFIX_FIELDS = ((8, 4), (12, 4), (7, 2), (11, 2), (4, 1), (6, 2), (2, 8), (1, 8), (152, 8), (153, 8), (10, 4), (14, 4))
IPFIX_TEXT_FIELDS = (*IPFIX_FIELDS, (371, 65535))
"""The same in IPFIX: with times in milliseconds and wide counters, and with a text of variable length."""


@dataclass(frozen=True)
class Export:
    """The format of an exporter: version, fields, and the maximum number of records in a datagram."""

    version: int
    fields: tuple[tuple[int, int], ...]
    records: int


def _full_export(version: int, header: int, fields: tuple[tuple[int, int], ...]) -> Export:
    size = sum(9 if length == 65535 else length for _, length in fields)
    return Export(version, fields, (PAYLOAD - header - 4) // size)


EXPORTS = {
    "NetFlow v5": Export(5, (), 30),
    "NetFlow v9": _full_export(9, 20, V9_FIELDS),
    "IPFIX": _full_export(10, 16, IPFIX_FIELDS),
    "IPFIX, a text of variable length": _full_export(10, 16, IPFIX_TEXT_FIELDS),
}


def make_capture(export: Export, records: int) -> Capture:
    """Return a capture of about `records` records, in memory. Equal arguments give equal bytes."""
    random = np.random.default_rng(7)
    datagrams = max(1, records // export.records)
    pieces = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, RAW_IP)]
    blocks = [_records(export, random) for _ in range(16)]  # so many that no table and no cache contains all of them
    for number in range(datagrams):
        payload = _datagram(export, number, blocks[number % len(blocks)])
        udp = struct.pack(">HHHH", 40_000, 2055, 8 + len(payload), 0)
        ip = struct.pack(">BBHIBBH4s4s", 0x45, 0, 28 + len(payload), 0, 64, 17, 0, b"\xc0\0\2\1", b"\xc0\0\2\x09")
        frame = len(payload) + 28
        pieces += [struct.pack("<IIII", EXPORT + number // 1000, number % 1000, frame, frame), ip, udp, payload]
    size = sum(map(len, pieces))
    memory = mmap.mmap(-1, size)
    for piece in pieces:
        memory.write(piece)
    return Capture(Path("memory.pcap"), parse_header(pieces[0], "memory"), np.frombuffer(memory, np.uint8), memory)


def _records(export: Export, random: np.random.Generator) -> bytes:
    """Return the records of one datagram."""
    if export.version == 5:
        return random.bytes(48 * export.records)
    found = bytearray()
    for _ in range(export.records):
        for _, length in export.fields:
            found += b"\x08user" + b"%04d" % random.integers(1000) if length == 65535 else random.bytes(length)
    return bytes(found)


def _datagram(export: Export, number: int, records: bytes) -> bytes:
    count, now = export.records, EXPORT + number // 1000
    if export.version == 5:
        return struct.pack(">HHIIIIHH", 5, count, 2**31, now, 0, number * count % 2**32, 0, 0) + records
    body = b""
    if number % TEMPLATE_INTERVAL == 0:
        fields = b"".join(struct.pack(">HH", *field) for field in export.fields)
        kind = 0 if export.version == 9 else 2
        body = struct.pack(">HHHH", kind, 8 + len(fields), 256, len(export.fields)) + fields
    body += struct.pack(">HH", 256, 4 + len(records)) + records
    if export.version == 9:
        return struct.pack(">HHIIII", 9, count, 2**31, now, number, 0) + body
    return struct.pack(">HHIII", 10, 16 + len(body), now, number * count % 2**32, 0) + body
