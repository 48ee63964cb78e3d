"""sFlow version 5 (sflow.org, *sFlow Version 5*, 2004): datagrams to sampled packets, in one kernel.

    datagram   version, agent address type (1 IPv4, 2 IPv6, 0 none), address, sub-agent, sequence number, uptime in ms,
               number of samples
    sample     data format (enterprise << 12 | format), length, then for a flow sample (1; 3 expanded):
               sequence number, data source, sampling rate, sample pool, drops, input, output, number of records
    record     data format, length, then for a sampled header (1):
               header protocol, frame length, stripped, header length, header

All numbers are XDR: 32 bits in network order, variable lengths padded to 4 bytes. Every sample and record says its
length, so that what is not known is stepped over. A compact sample has 8 bits of the data source's class above 24 of
its index, and 2 bits of an interface's format above 30 of its value; the expanded one has a word for each.

Flow samples with a packet header are listed, for the decoder of packets to read; those with a sampled_ipv4 (3) or
sampled_ipv6 (4) record alone as well. Of an extended_switch record (1001) the VLANs are kept. Counter samples are
counted and stepped over. **Versions 2 and 4 are not read.**
"""

from __future__ import annotations

import numpy as np

from capture.bytes import u32be, u64be
from capture.native import helper, kernel
from capture.sflow.fields import (
    ADDRESS_TYPE,
    AGENT_HIGH,
    AGENT_LOW,
    AGENT_VERSION,
    CAPTURED,
    COUNTER,
    COUNTS,
    CUT,
    DATAGRAM,
    DATAGRAMS,
    FLOW,
    HEADER,
    HEADER_CUT,
    INPUT_IF,
    INPUT_VLAN,
    LINK_TYPE,
    MALFORMED,
    NO_HEADER,
    NULL,
    OTHER,
    OTHER_VERSION,
    OUTPUT_IF,
    OUTPUT_VLAN,
    SAMPLE_DROPS,
    SAMPLE_POOL,
    SAMPLED_IPV4,
    SAMPLED_IPV6,
    SAMPLING_RATE,
    SOURCE_CLASS,
    SOURCE_ID,
    SUB_AGENT,
    TIME,
    UNKNOWN_HEADER,
    WIRE,
)
from capture.sflow.sequences import follow

PORT = 6343
"""The UDP port that collectors listen on."""

LONGEST = 65_535
"""Bytes of a datagram that are read; UDP has no room for more."""

MAX_SAMPLES = LONGEST // 64 + 1
"""A bound of the samples in one datagram: the shortest that becomes a row has 8 + 32 bytes and a record of 8 + 16."""

FLOW_SAMPLE, COUNTER_SAMPLE, EXPANDED_FLOW_SAMPLE, EXPANDED_COUNTER_SAMPLE = 1, 2, 3, 4
SAMPLED_HEADER, SAMPLED_IPV4_RECORD, SAMPLED_IPV6_RECORD, EXTENDED_SWITCH = 1, 3, 4, 1001


@helper
def header_link_type(protocol):  # type: ignore[no-untyped-def]
    """LINKTYPE_ number of a sampled header's protocol; UNKNOWN_HEADER where there is none.

    A subframe of an 802.11 aggregate (17) begins like a frame of 802.3.
    """
    if protocol in (1, 17):
        return 1
    if protocol == 3:
        return 6  # token ring
    if protocol == 4:
        return 10  # FDDI
    if protocol == 5:
        return 107  # Frame Relay
    if protocol == 7:
        return 9  # PPP
    if protocol == 9:
        return 100  # AAL5: LLC first
    if protocol == 10:
        return 101  # AAL5 with IP alone
    if protocol == 11:
        return 228
    if protocol == 12:
        return 229
    if protocol == 13:
        return 219  # MPLS
    if protocol == 14:
        return 50  # packets over SONET: PPP in HDLC framing
    if protocol == 15:
        return 105  # 802.11
    return UNKNOWN_HEADER


@helper
def interface_index(form, value):  # type: ignore[no-untyped-def]
    """Return an interface's ifIndex; NULL where it is unknown (0), or the packet was discarded or sent to several."""
    return value if form == 0 and value != 0 else np.int64(NULL)


@helper
def padded(length):  # type: ignore[no-untyped-def]
    """Length of opaque data in XDR."""
    return (length + 3) & ~3


@helper
def sampled_packet(buf, at, end, records, out, capacity, row):  # type: ignore[no-untyped-def]
    """Read the records of a flow sample in `[at, end)` into column `row` of `out`; return FLOW or why it is no row."""
    found = 0  # 1: an IP record, 2: a packet header, which says more
    out[INPUT_VLAN * capacity + row] = NULL
    out[OUTPUT_VLAN * capacity + row] = NULL
    while records > 0:
        if at + 8 > end:
            return MALFORMED
        form = u32be(buf, at)
        length = u32be(buf, at + 4)
        at += 8
        if length > end - at:
            return MALFORMED
        if form == SAMPLED_HEADER and found < 2:
            if length < 16 or u32be(buf, at + 12) > length - 16:
                return MALFORMED
            out[LINK_TYPE * capacity + row] = header_link_type(u32be(buf, at))
            out[WIRE * capacity + row] = u32be(buf, at + 4)
            out[HEADER * capacity + row] = at + 16
            out[CAPTURED * capacity + row] = u32be(buf, at + 12)
            found = 2
        elif form in (SAMPLED_IPV4_RECORD, SAMPLED_IPV6_RECORD) and found < 1:
            if length < (32 if form == SAMPLED_IPV4_RECORD else 56):
                return MALFORMED
            out[LINK_TYPE * capacity + row] = SAMPLED_IPV4 if form == SAMPLED_IPV4_RECORD else SAMPLED_IPV6
            out[WIRE * capacity + row] = u32be(buf, at)
            out[HEADER * capacity + row] = at
            out[CAPTURED * capacity + row] = 0
            found = 1
        elif form == EXTENDED_SWITCH:
            if length < 16:
                return MALFORMED
            out[INPUT_VLAN * capacity + row] = u32be(buf, at)
            out[OUTPUT_VLAN * capacity + row] = u32be(buf, at + 8)
        at += padded(length)
        records -= 1
    return FLOW if found else NO_HEADER


@helper
def flow_sample(buf, at, end, expanded, high, low, agent, uptime, sequences, out, capacity, row, counts):  # type: ignore[no-untyped-def]
    """Read the flow sample in `[at, end)` into column `row` of `out`; return FLOW or why it is no row."""
    if end - at < (44 if expanded else 32):
        return MALFORMED
    number = u32be(buf, at)
    if expanded:
        source_class = u32be(buf, at + 4)
        source = u32be(buf, at + 8)
        at += 12
    else:
        source_class = np.int64(buf[at + 4])
        source = u32be(buf, at + 4) & 0xFFFFFF
        at += 8
    follow(sequences, high, low, agent | 1, source_class << 32 | source, number, uptime, counts)
    out[SOURCE_CLASS * capacity + row] = source_class
    out[SOURCE_ID * capacity + row] = source
    out[SAMPLING_RATE * capacity + row] = u32be(buf, at)
    out[SAMPLE_POOL * capacity + row] = u32be(buf, at + 4)
    out[SAMPLE_DROPS * capacity + row] = u32be(buf, at + 8)
    if expanded:
        out[INPUT_IF * capacity + row] = interface_index(u32be(buf, at + 12), u32be(buf, at + 16))
        out[OUTPUT_IF * capacity + row] = interface_index(u32be(buf, at + 20), u32be(buf, at + 24))
        at += 28
    else:
        out[INPUT_IF * capacity + row] = interface_index(buf[at + 12] >> 6, u32be(buf, at + 12) & 0x3FFFFFFF)
        out[OUTPUT_IF * capacity + row] = interface_index(buf[at + 16] >> 6, u32be(buf, at + 16) & 0x3FFFFFFF)
        at += 20
    return sampled_packet(buf, at + 4, end, u32be(buf, at), out, capacity, row)


@kernel("i64(u8*, i64*, i64*, i64*, i64, i64, i64*, i64*, i64, i64*)")
def list_samples(buf, offsets, lengths, times, datagrams, first, sequences, out, capacity, counts):  # type: ignore[no-untyped-def]
    """List the flow samples of datagrams `[first, datagrams)`, as far as `out` has room; return its rows.

    Datagram d is `lengths[d]` bytes of `buf` from `offsets[d]`, arrived at `times[d]` (ns). `sequences` is the table of
    `capture.sflow.sequences`, SLOTS x SLOT. `out` is len(SAMPLE_FIELDS) x capacity, capacity at least MAX_SAMPLES.
    `counts` has len(COUNTS) words and one more: the datagram to go on with, `datagrams` when all are read.
    """
    row = 0
    number = first
    while number < datagrams and row + MAX_SAMPLES <= capacity:
        at = offsets[number]
        end = at + min(lengths[number], LONGEST)
        begin = row
        counts[DATAGRAMS] += 1
        number += 1
        if at + 8 > end:
            counts[HEADER_CUT] += 1
            continue
        if u32be(buf, at) != 5:
            counts[OTHER_VERSION] += 1
            continue
        kind = u32be(buf, at + 4)
        if kind > 2:
            counts[ADDRESS_TYPE] += 1
            continue
        at += 8
        size = 16 if kind == 2 else 4 * kind
        if at + size + 16 > end:
            counts[HEADER_CUT] += 1
            continue
        high = np.int64(u64be(buf, at)) if kind == 2 else np.int64(0)
        low = np.int64(u64be(buf, at + 8)) if kind == 2 else u32be(buf, at) if kind == 1 else np.int64(0)
        version = 2 * kind + 2 if kind else np.int64(0)
        at += size
        sub_agent = u32be(buf, at)
        agent = sub_agent << 4 | version << 1
        uptime = u32be(buf, at + 8)
        follow(sequences, high, low, agent, np.int64(0), u32be(buf, at + 4), uptime, counts)
        samples = u32be(buf, at + 12)
        at += 16
        while samples > 0:
            if at + 8 > end:
                counts[CUT] += 1
                break
            form = u32be(buf, at)
            length = u32be(buf, at + 4)
            at += 8
            if length > end - at:
                counts[CUT] += 1
                break
            if form in (FLOW_SAMPLE, EXPANDED_FLOW_SAMPLE):
                status = flow_sample(
                    buf, at, at + length, form == EXPANDED_FLOW_SAMPLE, high, low, agent, uptime, sequences, out,
                    capacity, row, counts,
                )  # fmt: skip
                counts[status] += 1
                if status == FLOW:
                    row += 1
            elif form in (COUNTER_SAMPLE, EXPANDED_COUNTER_SAMPLE):
                counts[COUNTER] += 1
            else:
                counts[OTHER] += 1
            at += padded(length)
            samples -= 1
        for place in range(begin, row):
            out[TIME * capacity + place] = times[number - 1]
            out[DATAGRAM * capacity + place] = number - 1
            out[AGENT_VERSION * capacity + place] = version
            out[AGENT_HIGH * capacity + place] = high
            out[AGENT_LOW * capacity + place] = low
            out[SUB_AGENT * capacity + place] = sub_agent
    counts[len(COUNTS)] = number
    return row
