"""Which packets of a capture carry NetFlow or IPFIX: those sent to its ports, and those that cannot be anything else.

To the ports in PORTS goes whatever a sender takes for an export; what it is not is counted by cause. At any other port
a UDP payload is taken for one when it is an export through and through: a version that we read, and lengths that lead
exactly to its end. The first two bytes of a DNS message are any number, and its next two, read as a number of records
or a length, contradict its size. A datagram that was cut, or sent in fragments, is not taken at such a port.
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
    header_length,
    record_length,
)
from capture.native import helper, kernel
from capture.packets.fields import UDP

PORTS = (2055, 2056, 4432, 4739, 9995, 9996)
"""UDP ports that collectors of NetFlow and IPFIX listen on."""

MOST_RECORDS = 30
"""Records of NetFlow v5 that exporters put into a datagram, and more than they put of v7."""


@helper
def sets_fill(buf, at, end, version):  # type: ignore[no-untyped-def]
    """Whether `buf[at:end]` is at least one set and then others, and zeros, to the end."""
    sets = 0
    while at + 4 <= end:
        kind = u16be(buf, at)
        size = u16be(buf, at + 2)
        if kind == 0 and size == 0:
            break
        template = kind in (2, 3) if version == 10 else kind in (0, 1)
        if size < 4 or size > end - at or (kind < 256 and not template):
            return False
        at += size
        sets += 1
    while at < end:
        if buf[at]:
            return False
        at += 1
    return sets > 0


@helper
def is_export(buf, at, end):  # type: ignore[no-untyped-def]
    """Whether `buf[at:end]` is a whole export datagram."""
    if at + 4 > end:
        return False
    version = u16be(buf, at)
    header = header_length(version)
    count = u16be(buf, at + 2)
    if header == 0 or at + header > end or count == 0:
        return False
    if version in (5, 7):
        if count > MOST_RECORDS:
            return False
        return end - at == header + count * record_length(version) and u32be(buf, at + 12) < 1_000_000_000
    if version == 10 and count != end - at:
        return False
    return sets_fill(buf, at + header, end, version)


@kernel("i64(u8*, i64*, i64*, i64*, i64*, i64*, i64*, i64*, i64*, i64*, i64, i64*, i64, i64*)")
def choose_exports(  # type: ignore[no-untyped-def]
    buf, protocols, ports, offsets, lengths, times, versions, highs, lows, senders, packets, jobs, stride, refused
):
    """Write the packets that carry exports into `jobs` (JOB_ROWS x `stride`, room for all); return how many there are.

    Packets are given by their columns protocol, destPort, payload offset and length, ts, source address and port, NULL
    as -1. `refused` (1 word) counts those that begin with a version, but are none.
    """
    count = 0
    for packet in range(packets):
        at = offsets[packet]
        if protocols[packet] != UDP or ports[packet] < 0 or at < 0:
            continue
        length = lengths[packet]
        if ports[packet] not in PORTS:
            if length < 2 or header_length(u16be(buf, at)) == 0:
                continue
            if not is_export(buf, at, at + length):
                refused[0] += 1
                continue
        jobs[JOB_START * stride + count] = at
        jobs[JOB_LENGTH * stride + count] = length
        jobs[JOB_ARRIVAL * stride + count] = times[packet]
        jobs[JOB_ADDRESS_VERSION * stride + count] = versions[packet]
        jobs[JOB_HIGH * stride + count] = highs[packet]
        jobs[JOB_LOW * stride + count] = lows[packet]
        jobs[JOB_PORT * stride + count] = max(senders[packet], np.int64(0))
        count += 1
    return count
