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
from capture.native import helper, kernel, outlined
from capture.sflow.columns import (
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
    DATAGRAMS_MISSING,
    DATAGRAMS_REORDERED,
    DATAGRAMS_REPEATED,
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
    RESTARTS,
    SAMPLE_DROPS,
    SAMPLE_POOL,
    SAMPLED_IPV4,
    SAMPLED_IPV6,
    SAMPLES_MISSING,
    SAMPLES_REORDERED,
    SAMPLES_REPEATED,
    SAMPLING_RATE,
    SOURCE_CLASS,
    SOURCE_ID,
    SUB_AGENT,
    TIME,
    UNKNOWN_HEADER,
    UNTRACKED,
    WIRE,
)

# Sequence numbers of sFlow agents, followed inside the kernel that reads their datagrams.
#
# A sub-agent numbers its datagrams, and a data source its flow samples; both count up by one, modulo 2**32. A table of
# fixed size remembers the last number of each, and which of the REORDER numbers up to it are missing. A number ahead of
# the next one leaves a gap. One less than REORDER behind was counted as missing and came late (reordered), or it was
# not missing: it came twice, or is from before the first one that was seen (repeated). One further behind, or any
# after the
# agent's uptime fell by more than RESTART, is a new beginning. What never came is what is missing less what was
# reordered, which is never more.


SLOTS = 1 << 13
"""Agents and sources that are followed at once; a power of two."""

PROBES = 32
"""Slots that are looked at before a sequence is given up as untracked."""

REORDER = 1024
"""Numbers that a datagram or sample may be behind and still be one that came late; a power of two."""

WORD = 32
SEEN = 7
SLOT = SEEN + REORDER // WORD
"""Words of a slot: four of the key, whether it is taken, the last number, the uptime then; from SEEN on a bit for each
of the last REORDER numbers, 0 where it is missing. WORD bits are in a word."""

RESTART = 60_000
"""Milliseconds that an uptime may fall and still be that of a datagram that came late."""


@outlined
def see(table, at, number, missing):  # type: ignore[no-untyped-def]
    """Note a number, and that the `missing` ones before it are; return whether it was missing itself."""
    for each in range(number - min(missing, REORDER - 1), number):
        table[at + SEEN + ((each & (REORDER - 1)) // WORD)] &= ~(np.int64(1) << (each & (WORD - 1)))
    word = at + SEEN + (number & (REORDER - 1)) // WORD
    bit = np.int64(1) << (number & (WORD - 1))
    unseen = (table[word] & bit) == 0
    table[word] |= bit
    return unseen


@outlined
def miss_nothing(table, at):  # type: ignore[no-untyped-def]
    """Begin anew: nothing before is missing."""
    for word in range(at + SEEN, at + SLOT):
        table[word] = (1 << WORD) - 1


@helper
def follow(table, high, low, agent, source, number, uptime, counts):  # type: ignore[no-untyped-def]
    """Take in one sequence number; `counts` grows by what it tells.

    `agent` is the sub-agent shifted left by 4, with the address's version in the bits below, and bit 0 set for the
    numbers of a source.
    """
    mixed = np.uint64(high) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(low)
    mixed = (mixed ^ mixed >> np.uint64(32)) * np.uint64(0xFF51AFD7ED558CCD) ^ np.uint64(agent)
    mixed = (mixed ^ mixed >> np.uint64(32)) * np.uint64(0xFF51AFD7ED558CCD) ^ np.uint64(source)
    mixed = (mixed ^ mixed >> np.uint64(32)) * np.uint64(0xFF51AFD7ED558CCD)
    slot = np.int64((mixed >> np.uint64(40)) & np.uint64(SLOTS - 1))
    at = slot * SLOT
    probes = 0
    while table[at + 4] and (
        table[at] != high or table[at + 1] != low or table[at + 2] != agent or table[at + 3] != source
    ):
        probes += 1
        if probes == PROBES:
            counts[UNTRACKED] += 1
            return
        slot = (slot + 1) & (SLOTS - 1)
        at = slot * SLOT
    if not table[at + 4]:
        table[at] = high
        table[at + 1] = low
        table[at + 2] = agent
        table[at + 3] = source
        table[at + 4] = 1
        miss_nothing(table, at)
    else:
        ahead = (number - table[at + 5] - 1) & 0xFFFFFFFF  # numbers between the last one and this one
        behind = 0xFFFFFFFF - ahead
        fallen = (table[at + 6] - uptime) & 0xFFFFFFFF  # an uptime wraps after 49 days; that is no fall
        if RESTART < fallen <= 0x80000000 or (behind >= REORDER and ahead >= 0x7FFFFFFF):
            counts[RESTARTS] += 1
            miss_nothing(table, at)
        elif behind < REORDER:
            if see(table, at, number, np.int64(0)):
                counts[SAMPLES_REORDERED if agent & 1 else DATAGRAMS_REORDERED] += 1
            else:
                counts[SAMPLES_REPEATED if agent & 1 else DATAGRAMS_REPEATED] += 1
            return
        else:
            counts[SAMPLES_MISSING if agent & 1 else DATAGRAMS_MISSING] += ahead
            see(table, at, number, ahead)
    table[at + 5] = number
    table[at + 6] = uptime


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
    `capture.sflow.samples`, SLOTS x SLOT. `out` is len(SAMPLE_FIELDS) x capacity, capacity at least MAX_SAMPLES.
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
