"""sFlow version 5 (sflow.org, *sFlow Version 5*, 2004): one kernel lists the sampled packets of datagrams.

    datagram   version, agent address type (1 IPv4, 2 IPv6, 0 none), address, sub-agent, sequence number, uptime in ms,
               number of samples
    sample     data format (enterprise << 12 | format), length, then for a flow sample (1; 3 expanded):
               sequence number, data source, sampling rate, sample pool, drops, input, output, number of records
    record     data format, length, then for a sampled header (1):
               header protocol, frame length, stripped, header length, header

All numbers are XDR: 32 bits in network order, variable lengths padded to 4 bytes. Every sample and record contains its
length, so unknown formats are skipped. A compact sample packs the class of the data source into 8 bits above 24 bits of
index, and the format of an interface into 2 bits above 30 bits of value. An expanded sample uses separate words.

Flow samples with a packet header are listed for the packet decoder, and also samples with only a sampled_ipv4 (3) or
sampled_ipv6 (4) record. The VLANs of an extended_switch record (1001) are read too. Counter samples are counted and
skipped. **Versions 2 and 4 are not supported.**
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
    CAPTURED_LENGTH,
    COUNTER,
    COUNTER_NAMES,
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
    WIRE_LENGTH,
)

# Sequence numbers of sFlow agents, checked inside the kernel that reads their datagrams.
#
# A sub-agent numbers its datagrams, and a data source its flow samples; both count up by one, modulo 2**32. A table of
# fixed size stores the last number of each sequence, and which of the last MAX_REORDER numbers are missing. A number
# larger than the expected number leaves a gap. A number that is less than MAX_REORDER smaller than the newest number is
# reordered if it was missing: it has arrived late. Otherwise it is repeated: a duplicate, or a number from before the
# first datagram. A still smaller number means a restart of the agent. Any number also means a restart if the agent's
# uptime has fallen by more than MAX_UPTIME_FALL_MS. The number of lost units is missing minus reordered.


MAX_SEQUENCES = 1 << 13
"""Maximum number of sequences in the table; a power of two."""

MAX_PROBES = 32
"""Maximum number of slots that are searched for a sequence. If all are used by others, the sequence is untracked."""

MAX_REORDER = 1024
"""Maximum distance of a late number from the newest number; a power of two."""

BITS_PER_WORD = 32
SEEN_OFFSET = 7
SLOT_WORDS = SEEN_OFFSET + MAX_REORDER // BITS_PER_WORD
"""Number of words of a slot: four words of the key, 1 if the slot is used, the last number, the uptime at that number.
From SEEN_OFFSET on, there is a bit for each of the last MAX_REORDER numbers, BITS_PER_WORD bits per word. A bit is 0 if
its number is missing."""

MAX_UPTIME_FALL_MS = 60_000
"""Maximum fall of the uptime in milliseconds that a late datagram can cause."""


@outlined
def mark_seen(table, offset, number, missing):  # type: ignore[no-untyped-def]
    """Mark a number as seen and the `missing` numbers before it as missing. Return whether `number` was missing."""
    for missing_number in range(number - min(missing, MAX_REORDER - 1), number):
        table[offset + SEEN_OFFSET + ((missing_number & (MAX_REORDER - 1)) // BITS_PER_WORD)] &= ~(
            np.int64(1) << (missing_number & (BITS_PER_WORD - 1))
        )
    word = offset + SEEN_OFFSET + (number & (MAX_REORDER - 1)) // BITS_PER_WORD
    bit = np.int64(1) << (number & (BITS_PER_WORD - 1))
    unseen = (table[word] & bit) == 0
    table[word] |= bit
    return unseen


@outlined
def clear_missing(table, offset):  # type: ignore[no-untyped-def]
    """Clear the history of a sequence: no earlier number is missing."""
    for word in range(offset + SEEN_OFFSET, offset + SLOT_WORDS):
        table[word] = (1 << BITS_PER_WORD) - 1


@helper
def follow_sequence(table, address_high, address_low, sequence_owner, source, sequence_number, uptime, counts):  # type: ignore[no-untyped-def]
    """Compare one sequence number with the last number of its sequence, and count the event in `counts`.

    `sequence_owner`: sub-agent << 4 | address version << 1, with bit 0 set for the numbers of a source.
    """
    mixed = np.uint64(address_high) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(address_low)
    mixed = (mixed ^ mixed >> np.uint64(32)) * np.uint64(0xFF51AFD7ED558CCD) ^ np.uint64(sequence_owner)
    mixed = (mixed ^ mixed >> np.uint64(32)) * np.uint64(0xFF51AFD7ED558CCD) ^ np.uint64(source)
    mixed = (mixed ^ mixed >> np.uint64(32)) * np.uint64(0xFF51AFD7ED558CCD)
    slot = np.int64((mixed >> np.uint64(40)) & np.uint64(MAX_SEQUENCES - 1))
    offset = slot * SLOT_WORDS
    probes = 0
    while table[offset + 4] and (
        table[offset] != address_high
        or table[offset + 1] != address_low
        or table[offset + 2] != sequence_owner
        or table[offset + 3] != source
    ):
        probes += 1
        if probes == MAX_PROBES:
            counts[UNTRACKED] += 1
            return
        slot = (slot + 1) & (MAX_SEQUENCES - 1)
        offset = slot * SLOT_WORDS
    if not table[offset + 4]:
        table[offset] = address_high
        table[offset + 1] = address_low
        table[offset + 2] = sequence_owner
        table[offset + 3] = source
        table[offset + 4] = 1
        clear_missing(table, offset)
    else:
        ahead = (sequence_number - table[offset + 5] - 1) & 0xFFFFFFFF  # numbers between the last one and this one
        behind = 0xFFFFFFFF - ahead
        fallen = (table[offset + 6] - uptime) & 0xFFFFFFFF  # the wrap of an uptime, after 49 days, is no fall
        if MAX_UPTIME_FALL_MS < fallen <= 0x80000000 or (behind >= MAX_REORDER and ahead >= 0x7FFFFFFF):
            counts[RESTARTS] += 1
            clear_missing(table, offset)
        elif behind < MAX_REORDER:
            if mark_seen(table, offset, sequence_number, np.int64(0)):
                counts[SAMPLES_REORDERED if sequence_owner & 1 else DATAGRAMS_REORDERED] += 1
            else:
                counts[SAMPLES_REPEATED if sequence_owner & 1 else DATAGRAMS_REPEATED] += 1
            return
        else:
            counts[SAMPLES_MISSING if sequence_owner & 1 else DATAGRAMS_MISSING] += ahead
            mark_seen(table, offset, sequence_number, ahead)
    table[offset + 5] = sequence_number
    table[offset + 6] = uptime


SFLOW_PORT = 6343
"""UDP port of sFlow collectors."""

MAX_DATAGRAM_BYTES = 65_535
"""Maximum number of bytes read of a datagram; UDP cannot carry more."""

MAX_SAMPLES = MAX_DATAGRAM_BYTES // 64 + 1
"""Upper bound of the samples in one datagram: the shortest flow sample has 8 + 32 bytes, its record 8 + 16."""

FLOW_SAMPLE, COUNTER_SAMPLE, EXPANDED_FLOW_SAMPLE, EXPANDED_COUNTER_SAMPLE = 1, 2, 3, 4
"""Formats of samples."""

SAMPLED_HEADER, SAMPLED_IPV4_RECORD, SAMPLED_IPV6_RECORD, EXTENDED_SWITCH = 1, 3, 4, 1001
"""Formats of the records in a flow sample."""


@helper
def header_link_type(protocol):  # type: ignore[no-untyped-def]
    """Return the LINKTYPE_ number of a sampled header's protocol, or UNKNOWN_HEADER.

    A subframe of an 802.11 aggregate (17) begins like an 802.3 frame.
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
        return 100  # AAL5 with LLC
    if protocol == 10:
        return 101  # AAL5 with IP only
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
def interface_index(interface_format, value):  # type: ignore[no-untyped-def]
    """Return the ifIndex of an interface; NULL if it is unknown (0), or the packet was discarded or sent to several."""
    return value if interface_format == 0 and value != 0 else np.int64(NULL)


@helper
def padded_length(length):  # type: ignore[no-untyped-def]
    """Return the padded length of opaque data in XDR."""
    return (length + 3) & ~3


@helper
def read_sample_records(buf, offset, end, record_count, out, capacity, row):  # type: ignore[no-untyped-def]
    """Read the records of a flow sample in `[offset, end)` into the fields of row `row`. Return FLOW or a cause.

    `out`: fields x `capacity` rows.
    """
    rank = 0  # 1: an IP record, 2: a packet header, which is preferred
    out[INPUT_VLAN * capacity + row] = NULL
    out[OUTPUT_VLAN * capacity + row] = NULL
    while record_count > 0:
        if offset + 8 > end:
            return MALFORMED
        record_format = u32be(buf, offset)
        length = u32be(buf, offset + 4)
        offset += 8
        if length > end - offset:
            return MALFORMED
        if record_format == SAMPLED_HEADER and rank < 2:
            if length < 16 or u32be(buf, offset + 12) > length - 16:
                return MALFORMED
            out[LINK_TYPE * capacity + row] = header_link_type(u32be(buf, offset))
            out[WIRE_LENGTH * capacity + row] = u32be(buf, offset + 4)
            out[HEADER * capacity + row] = offset + 16
            out[CAPTURED_LENGTH * capacity + row] = u32be(buf, offset + 12)
            rank = 2
        elif record_format in (SAMPLED_IPV4_RECORD, SAMPLED_IPV6_RECORD) and rank < 1:
            if length < (32 if record_format == SAMPLED_IPV4_RECORD else 56):
                return MALFORMED
            out[LINK_TYPE * capacity + row] = SAMPLED_IPV4 if record_format == SAMPLED_IPV4_RECORD else SAMPLED_IPV6
            out[WIRE_LENGTH * capacity + row] = u32be(buf, offset)
            out[HEADER * capacity + row] = offset
            out[CAPTURED_LENGTH * capacity + row] = 0
            rank = 1
        elif record_format == EXTENDED_SWITCH:
            if length < 16:
                return MALFORMED
            out[INPUT_VLAN * capacity + row] = u32be(buf, offset)
            out[OUTPUT_VLAN * capacity + row] = u32be(buf, offset + 8)
        offset += padded_length(length)
        record_count -= 1
    return FLOW if rank else NO_HEADER


@helper
def read_flow_sample(  # type: ignore[no-untyped-def]
    buf, offset, end, expanded, address_high, address_low, sequence_owner, uptime, sequences, out, capacity, row, counts
):
    """Read the flow sample in `[offset, end)` into the fields of row `row`. `out`: fields x `capacity` rows.

    Return FLOW, or the cause for which there is no row.
    """
    if end - offset < (44 if expanded else 32):
        return MALFORMED
    sequence_number = u32be(buf, offset)
    if expanded:
        source_class = u32be(buf, offset + 4)
        source = u32be(buf, offset + 8)
        offset += 12
    else:
        source_class = np.int64(buf[offset + 4])
        source = u32be(buf, offset + 4) & 0xFFFFFF
        offset += 8
    follow_sequence(
        sequences,
        address_high,
        address_low,
        sequence_owner | 1,
        source_class << 32 | source,
        sequence_number,
        uptime,
        counts,
    )
    out[SOURCE_CLASS * capacity + row] = source_class
    out[SOURCE_ID * capacity + row] = source
    out[SAMPLING_RATE * capacity + row] = u32be(buf, offset)
    out[SAMPLE_POOL * capacity + row] = u32be(buf, offset + 4)
    out[SAMPLE_DROPS * capacity + row] = u32be(buf, offset + 8)
    if expanded:
        out[INPUT_IF * capacity + row] = interface_index(u32be(buf, offset + 12), u32be(buf, offset + 16))
        out[OUTPUT_IF * capacity + row] = interface_index(u32be(buf, offset + 20), u32be(buf, offset + 24))
        offset += 28
    else:
        out[INPUT_IF * capacity + row] = interface_index(buf[offset + 12] >> 6, u32be(buf, offset + 12) & 0x3FFFFFFF)
        out[OUTPUT_IF * capacity + row] = interface_index(buf[offset + 16] >> 6, u32be(buf, offset + 16) & 0x3FFFFFFF)
        offset += 20
    return read_sample_records(buf, offset + 4, end, u32be(buf, offset), out, capacity, row)


@kernel("i64(u8*, i64*, i64*, i64*, i64, i64, i64*, i64*, i64, i64*)")
def list_samples(buf, offsets, lengths, times, datagram_count, first, sequences, out, capacity, counts):  # type: ignore[no-untyped-def]
    """List the flow samples of the datagrams `[first, datagram_count)`, as many as fit into `out`.

    Return the rows written.

    * `offsets`, `lengths`, `times`: offset in `buf`, length and arrival time (ns) of each datagram.
    * `sequences`: table of sequence numbers, MAX_SEQUENCES x SLOT_WORDS.
    * `out`: len(SAMPLE_FIELDS) x `capacity`; `capacity` is at least MAX_SAMPLES.
    * `counts`: len(COUNTER_NAMES) words, and one word for the next datagram, which is `datagram_count` if all have been
      read.
    """
    row = 0
    number = first
    while number < datagram_count and row + MAX_SAMPLES <= capacity:
        offset = offsets[number]
        end = offset + min(lengths[number], MAX_DATAGRAM_BYTES)
        begin = row
        counts[DATAGRAMS] += 1
        number += 1
        if offset + 8 > end:
            counts[HEADER_CUT] += 1
            continue
        if u32be(buf, offset) != 5:
            counts[OTHER_VERSION] += 1
            continue
        kind = u32be(buf, offset + 4)
        if kind > 2:
            counts[ADDRESS_TYPE] += 1
            continue
        offset += 8
        size = 16 if kind == 2 else 4 * kind
        if offset + size + 16 > end:
            counts[HEADER_CUT] += 1
            continue
        address_high = np.int64(u64be(buf, offset)) if kind == 2 else np.int64(0)
        address_low = (
            np.int64(u64be(buf, offset + 8)) if kind == 2 else u32be(buf, offset) if kind == 1 else np.int64(0)
        )
        version = 2 * kind + 2 if kind else np.int64(0)
        offset += size
        sub_agent = u32be(buf, offset)
        sequence_owner = sub_agent << 4 | version << 1
        uptime = u32be(buf, offset + 8)
        follow_sequence(
            sequences, address_high, address_low, sequence_owner, np.int64(0), u32be(buf, offset + 4), uptime, counts
        )
        samples = u32be(buf, offset + 12)
        offset += 16
        while samples > 0:
            if offset + 8 > end:
                counts[CUT] += 1
                break
            sample_format = u32be(buf, offset)
            length = u32be(buf, offset + 4)
            offset += 8
            if length > end - offset:
                counts[CUT] += 1
                break
            if sample_format in (FLOW_SAMPLE, EXPANDED_FLOW_SAMPLE):
                status = read_flow_sample(
                    buf, offset, offset + length, sample_format == EXPANDED_FLOW_SAMPLE, address_high, address_low,
                    sequence_owner, uptime, sequences,
                    out, capacity, row, counts,
                )  # fmt: skip
                counts[status] += 1
                if status == FLOW:
                    row += 1
            elif sample_format in (COUNTER_SAMPLE, EXPANDED_COUNTER_SAMPLE):
                counts[COUNTER] += 1
            else:
                counts[OTHER] += 1
            offset += padded_length(length)
            samples -= 1
        for column in range(begin, row):
            out[TIME * capacity + column] = times[number - 1]
            out[DATAGRAM * capacity + column] = number - 1
            out[AGENT_VERSION * capacity + column] = version
            out[AGENT_HIGH * capacity + column] = address_high
            out[AGENT_LOW * capacity + column] = address_low
            out[SUB_AGENT * capacity + column] = sub_agent
    counts[len(COUNTER_NAMES)] = number
    return row
