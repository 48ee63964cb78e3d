"""The headers of export datagrams of all versions.

NetFlow v5, v7   a header of 24 bytes with the number of records, records of 48 and 52 bytes
NetFlow v9       a header of 20 bytes, sets up to the end of the datagram (RFC 3954)
IPFIX            a header of 16 bytes with the length of the message, sets (RFC 7011)
"""

from __future__ import annotations

import numpy as np

from capture.bytes import u16be, u32be
from capture.native import helper


@helper
def header_length(version):  # type: ignore[no-untyped-def]
    """Return the length in bytes of the header of a version, or 0 for an unsupported version."""
    if version in (5, 7):
        return 24
    if version == 9:
        return 20
    return 16 if version == 10 else 0


@helper
def record_length(version):  # type: ignore[no-untyped-def]
    """Return the length in bytes of a record of NetFlow v5 or v7."""
    return 48 if version == 5 else 52


@helper
def header_clock(buf, offset, version):  # type: ignore[no-untyped-def]
    """Return uptime (ms), export time (ns), sequence number and domain of the header at `offset`."""
    if version == 10:
        return np.int64(0), u32be(buf, offset + 4) * 1_000_000_000, u32be(buf, offset + 8), u32be(buf, offset + 12)
    uptime = u32be(buf, offset + 4)
    export_time = u32be(buf, offset + 8) * 1_000_000_000
    if version == 9:
        return uptime, export_time, u32be(buf, offset + 12), u32be(buf, offset + 16)
    domain = u16be(buf, offset + 20) if version == 5 else np.int64(0)
    return uptime, export_time + u32be(buf, offset + 12), u32be(buf, offset + 16), domain
