"""Select the packets that carry NetFlow or IPFIX, by port or by content.

A UDP packet to one of PORTS is always read as an export, and errors in it are counted by cause. At any other port a UDP
payload is read as an export only if its version is supported and its lengths add up to the length of the payload. A DNS
message can begin with the number of an export version. But its next two bytes, read as a record count or a length, do
not match its size. Truncated and fragmented datagrams fail this test, so they are recognised only at PORTS.
"""

from __future__ import annotations

import numpy as np

from capture.bytes import u16be, u32be
from capture.flows.kernels.datagrams import (
    JOB_ADDRESS_VERSION,
    JOB_ARRIVAL,
    JOB_HIGH,
    JOB_LENGTH,
    JOB_LOW,
    JOB_PORT,
    JOB_START,
)
from capture.flows.kernels.headers import header_length, record_length
from capture.native import helper, kernel
from capture.packets.fields import UDP

PORTS = (2055, 2056, 4432, 4739, 9995, 9996)
"""UDP ports of NetFlow and IPFIX collectors."""

MAX_RECORDS = 30
"""Maximum number of records in a NetFlow v5 datagram; v7 datagrams have fewer."""


@helper
def sets_fill(buf, offset, end, version):  # type: ignore[no-untyped-def]
    """Return whether `buf[offset:end]` consists of one or more sets, and zeros after them at most."""
    sets = 0
    while offset + 4 <= end:
        kind = u16be(buf, offset)
        size = u16be(buf, offset + 2)
        if kind == 0 and size == 0:
            break
        template = kind in (2, 3) if version == 10 else kind in (0, 1)
        if size < 4 or size > end - offset or (kind < 256 and not template):
            return False
        offset += size
        sets += 1
    while offset < end:
        if buf[offset]:
            return False
        offset += 1
    return sets > 0


@helper
def is_export(buf, offset, end):  # type: ignore[no-untyped-def]
    """Return whether `buf[offset:end]` is a complete export datagram."""
    if offset + 4 > end:
        return False
    version = u16be(buf, offset)
    header = header_length(version)
    count = u16be(buf, offset + 2)
    if header == 0 or offset + header > end or count == 0:
        return False
    if version in (5, 7):
        if count > MAX_RECORDS:
            return False
        return end - offset == header + count * record_length(version) and u32be(buf, offset + 12) < 1_000_000_000
    if version == 10 and count != end - offset:
        return False
    return sets_fill(buf, offset + header, end, version)


@kernel("i64(u8*, i64*, i64*, i64*, i64*, i64*, i64*, i64*, i64*, i64*, i64, i64*, i64, i64*)")
def choose_exports(  # type: ignore[no-untyped-def]
    buf, protocols, ports, offsets, lengths, times, versions, highs, lows, senders, packet_count, jobs, stride, refused
):
    """Write the datagrams that are exports to `jobs`. Return their number.

    * `protocols` to `senders`: columns of the packets (protocol, destPort, payload offset and length, ts, source
      address and port); NULL is -1.
    * `jobs`: JOB_ROWS x `stride`, one column per export.
    * `refused`: one word, the number of packets that begin with an export version but are not exports.
    """
    count = 0
    for packet in range(packet_count):
        offset = offsets[packet]
        if protocols[packet] != UDP or ports[packet] < 0 or offset < 0:
            continue
        length = lengths[packet]
        if ports[packet] not in PORTS:
            if length < 2 or header_length(u16be(buf, offset)) == 0:
                continue
            if not is_export(buf, offset, offset + length):
                refused[0] += 1
                continue
        jobs[JOB_START * stride + count] = offset
        jobs[JOB_LENGTH * stride + count] = length
        jobs[JOB_ARRIVAL * stride + count] = times[packet]
        jobs[JOB_ADDRESS_VERSION * stride + count] = versions[packet]
        jobs[JOB_HIGH * stride + count] = highs[packet]
        jobs[JOB_LOW * stride + count] = lows[packet]
        jobs[JOB_PORT * stride + count] = max(senders[packet], np.int64(0))
        count += 1
    return count
