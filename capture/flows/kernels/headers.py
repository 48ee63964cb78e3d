"""The header of an export datagram: the versions that are read, how long they are, what they say."""

from __future__ import annotations

import numpy as np

from capture.bytes import u16be, u32be
from capture.native import helper


@helper
def header_length(version):  # type: ignore[no-untyped-def]
    """Bytes of a version's header, or 0 for a version that is not read."""
    if version in (5, 7):
        return 24
    if version == 9:
        return 20
    return 16 if version == 10 else 0


@helper
def record_length(version):  # type: ignore[no-untyped-def]
    """Bytes of a record of NetFlow v5 or v7."""
    return 48 if version == 5 else 52


@helper
def header_clock(buf, at, version):  # type: ignore[no-untyped-def]
    """Read uptime (ms), time of the export (ns), sequence number and domain of the header at `at`."""
    if version == 10:
        return np.int64(0), u32be(buf, at + 4) * 1_000_000_000, u32be(buf, at + 8), u32be(buf, at + 12)
    uptime = u32be(buf, at + 4)
    export = u32be(buf, at + 8) * 1_000_000_000
    if version == 9:
        return uptime, export, u32be(buf, at + 12), u32be(buf, at + 16)
    domain = u16be(buf, at + 20) if version == 5 else np.int64(0)
    return uptime, export + u32be(buf, at + 12), u32be(buf, at + 16), domain
