"""Classic pcap files made of bytes: every byte order, unit, version and record header that a reader may meet."""

from __future__ import annotations

import struct
from collections.abc import Iterable

Record = tuple[int, bytes]
"""Time in ns, and the frame."""

NS = 1_000_000_000


def pcap_bytes(
    records: Iterable[Record],
    link_type: int = 1,
    *,
    order: str = "<",
    nanoseconds: bool = True,
    modified: bool = False,
    version: tuple[int, int] = (2, 4),
    more_on_wire: int = 0,
) -> bytes:
    """A whole file; the order of the two lengths is the version's.

    `more_on_wire` is what each frame had on the wire beyond its captured bytes.
    """
    magic = 0xA1B2CD34 if modified else 0xA1B23C4D if nanoseconds else 0xA1B2C3D4
    unit = 1 if nanoseconds and not modified else 1000
    data = bytearray(struct.pack(order + "IHHiIII", magic, *version, 0, 0, 65535, link_type))
    for ts, frame in records:
        lengths = (len(frame), len(frame) + more_on_wire)
        if version[1] < 3:
            lengths = lengths[::-1]
        data += struct.pack(order + "IIII", ts // NS, ts % NS // unit, *lengths)
        data += (b"\1\0\0\0\x08\0\0\0" if modified else b"") + frame
    return bytes(data)
