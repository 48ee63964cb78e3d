"""Datagrams to records of a capture: an IP and a UDP header made of what is known of the datagram, and its payload.

A record is what `tcpdump` would have written on a raw IP interface (link type 101), so every reader of captures reads
exports that were collected. Known are both addresses, both ports, the length and the time. Not known, and therefore
always the same, are TTL (64), TOS (0) and the identification (0, with "don't fragment"). The UDP checksum is computed
for IPv6, which demands one; in IPv4 it is 0, which says that there is none (RFC 768).

The kernel also decides which datagrams are recorded, counts each sender, and says where a file must end.
"""

from __future__ import annotations

import numpy as np

from capture.bytes import u16be
from capture.collector.chunks import (
    DEST_HIGH,
    DEST_LOW,
    LENGTH,
    ROW,
    SRC_HIGH,
    SRC_LOW,
    SRC_PORT,
    STRIDE,
    TIME,
    VERSION,
)
from capture.native import helper, kernel

RECORD_HEADER, IPV4_HEADER, IPV6_HEADER, UDP_HEADER = 16, 20, 40, 8
UDP, HOPS = 17, 64

LONGEST_RECORD = RECORD_HEADER + IPV6_HEADER + 65_535
"""Bytes of the longest record there can be."""

DATAGRAMS, BYTES, NEWEST, COUNTS = range(4)
"""What is counted of each exporter: datagrams, bytes of payload, newest time (ns); COUNTS is the width."""

KEY = 4
"""Words of a slot of the table of exporters: version (0 where the slot is empty), address halves, number."""

PREFIX = 5
"""Words of an allowed prefix: version, address halves, mask halves."""

(AT, FILE_BYTES, LOW, HIGH, KNOWN, RECORDED, REFUSED, STATUS, STATES) = range(9)
"""The recorder's state: bytes in the chunk; bytes in the file so far; the times `[LOW, HIGH)` that the file takes;
exporters that have a number; datagrams recorded and refused; why the kernel stopped; STATES is the width."""

ALL, CHUNK_FULL, FILE_FULL = 0, 1, 2
"""Why it stopped: all datagrams are dealt with; the next needs another chunk; the next belongs into another file."""


@helper
def put_be(buf, at, length, value):  # type: ignore[no-untyped-def]
    """Write an integer of `length` bytes in network order."""
    for place in range(length):
        buf[at + place] = (value >> (8 * (length - 1 - place))) & 0xFF


@helper
def put_le(buf, at, length, value):  # type: ignore[no-untyped-def]
    """Write an integer of `length` bytes, little-endian."""
    for place in range(length):
        buf[at + place] = (value >> (8 * place)) & 0xFF


@helper
def ones_sum(buf, at, length):  # type: ignore[no-untyped-def]
    """Sum of 16-bit words in network order, an odd last byte padded with zero (RFC 1071); not folded."""
    total = np.int64(0)
    for place in range(length // 2):
        total += u16be(buf, at + 2 * place)
    if length % 2:
        total += np.int64(buf[at + length - 1]) << 8
    return total


@helper
def folded(total):  # type: ignore[no-untyped-def]
    """Complement of the folded sum: the checksum."""
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@helper
def exporter_slot(keys, mask, version, high, low):  # type: ignore[no-untyped-def]
    """Slot of an address in the table of `mask` + 1 slots, or the empty one where it belongs. One is always empty."""
    mixed = (np.uint64(high) * np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(low)
    mixed = (mixed ^ np.uint64(version)) * np.uint64(0xFF51AFD7ED558CCD)
    mixed ^= mixed >> np.uint64(32)
    slot = np.int64(mixed & np.uint64(mask))
    while keys[slot * KEY] != 0 and not (
        keys[slot * KEY] == version and keys[slot * KEY + 1] == high and keys[slot * KEY + 2] == low
    ):
        slot = (slot + 1) & mask
    return slot


@helper
def is_allowed(prefixes, count, version, high, low):  # type: ignore[no-untyped-def]
    """Whether an address is in one of the prefixes; without any prefix all are allowed."""
    for number in range(count):
        at = number * PREFIX
        if (
            prefixes[at] == version
            and (high ^ prefixes[at + 1]) & prefixes[at + 3] == 0
            and (low ^ prefixes[at + 2]) & prefixes[at + 4] == 0
        ):
            return True
    return count == 0


@helper
def write_record(slots, payload, length, rows, row, port, out, at):  # type: ignore[no-untyped-def]
    """Write one record to `out[at:]`; return where it ends."""
    time = rows[row + TIME]
    segment = UDP_HEADER + length
    frame = at + RECORD_HEADER
    if rows[row + VERSION] == 4:
        udp = frame + IPV4_HEADER
        put_be(out, frame, 2, 0x4500)
        put_be(out, frame + 2, 2, IPV4_HEADER + segment)
        put_be(out, frame + 4, 4, 0x4000)
        put_be(out, frame + 8, 4, HOPS << 24 | UDP << 16)
        put_be(out, frame + 12, 4, rows[row + SRC_LOW])
        put_be(out, frame + 16, 4, rows[row + DEST_LOW])
        put_be(out, frame + 10, 2, folded(ones_sum(out, frame, IPV4_HEADER)))
    else:
        udp = frame + IPV6_HEADER
        put_be(out, frame, 4, 0x60000000)
        put_be(out, frame + 4, 4, segment << 16 | UDP << 8 | HOPS)
        put_be(out, frame + 8, 8, rows[row + SRC_HIGH])
        put_be(out, frame + 16, 8, rows[row + SRC_LOW])
        put_be(out, frame + 24, 8, rows[row + DEST_HIGH])
        put_be(out, frame + 32, 8, rows[row + DEST_LOW])
    put_be(out, udp, 2, rows[row + SRC_PORT])
    put_be(out, udp + 2, 2, port)
    put_be(out, udp + 4, 4, segment << 16)
    for place in range(length):
        out[udp + UDP_HEADER + place] = slots[payload + place]
    if rows[row + VERSION] == 6:
        checksum = folded(ones_sum(out, frame + 8, 32 + segment) + segment + UDP)
        put_be(out, udp + 6, 2, checksum or 0xFFFF)
    captured = udp + segment - frame
    put_le(out, at, 4, time // 1_000_000_000)
    put_le(out, at + 4, 4, time % 1_000_000_000)
    put_le(out, at + 8, 4, captured)
    put_le(out, at + 12, 4, captured)
    return frame + captured


@kernel("i64(u8*, i64*, i64, i64, i64, i64*, i64, i64*, i64, i64*, i64, u8*, i64, i64, i64, i64*)")
def record_datagrams(  # type: ignore[no-untyped-def]
    slots, rows, first, count, port, keys, mask, counts, limit, prefixes, prefix_count, out, room, file_limit, span,
    state,
):  # fmt: skip
    """Record datagrams `[first, count)` of a batch that came to `port`; return the first that is left.

    `keys` is (mask + 1) x KEY, `counts` (limit + 1) x COUNTS: exporters beyond `limit` are counted together in the
    last. `out` has `room` bytes, at least LONGEST_RECORD when it is empty. A file holds up to `file_limit` bytes, or
    one record, and times of its interval; `span` (ns, 0 for no intervals) is how far a clock may step back within it.
    """
    state[STATUS] = ALL
    for place in range(first, count):
        row = place * ROW
        version = rows[row + VERSION]
        high = rows[row + SRC_HIGH]
        low = rows[row + SRC_LOW]
        slot = exporter_slot(keys, mask, version, high, low)
        known = keys[slot * KEY] != 0
        if not known and not is_allowed(prefixes, prefix_count, version, high, low):
            state[REFUSED] += 1
            continue
        length = rows[row + LENGTH]
        size = RECORD_HEADER + (IPV4_HEADER if version == 4 else IPV6_HEADER) + UDP_HEADER + length
        time = rows[row + TIME]
        outside = span > 0 and (time >= state[HIGH] or time < state[LOW] - span)
        if outside or state[FILE_BYTES] + size > file_limit:
            state[STATUS] = FILE_FULL
            return place
        if state[AT] + size > room:
            state[STATUS] = CHUNK_FULL
            return place
        number = np.int64(limit)
        if known:
            number = keys[slot * KEY + 3]
        elif state[KNOWN] < limit:
            number = state[KNOWN]
            state[KNOWN] += 1
            keys[slot * KEY] = version
            keys[slot * KEY + 1] = high
            keys[slot * KEY + 2] = low
            keys[slot * KEY + 3] = number
        counts[number * COUNTS + DATAGRAMS] += 1
        counts[number * COUNTS + BYTES] += length
        counts[number * COUNTS + NEWEST] = max(counts[number * COUNTS + NEWEST], time)
        state[AT] = write_record(slots, place * STRIDE, length, rows, row, port, out, state[AT])
        state[FILE_BYTES] += size
        state[RECORDED] += 1
    return np.int64(count)
