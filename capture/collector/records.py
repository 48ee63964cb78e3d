"""Conversion of datagrams into capture records: an IP and a UDP header made from their metadata, and the payload.

A record equals what `tcpdump` would write on a raw IP interface (link type 101), so all capture readers can read it.
Addresses, ports, length and time are those of the datagram. The other fields are unknown and constant: TTL 64, TOS 0,
identification 0 with "don't fragment". The UDP checksum is computed for IPv6, which requires it; for IPv4 it is 0,
which means "no checksum" (RFC 768).

The kernel also selects the datagrams to record, counts each sender, and determines the end of a file.
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
"""Bytes of the longest possible record."""

DATAGRAMS, BYTES, NEWEST, COUNT_WORDS = range(4)
"""Words of an exporter's counters: datagrams, payload bytes, newest time (ns). COUNT_WORDS: number of words."""

KEY_WORDS = 4
"""Words of a slot in the exporter table: IP version (0 for an empty slot), address halves, number."""

PREFIX_WORDS = 5
"""Words of an allowed prefix: version, address halves, mask halves."""

(CHUNK_OFFSET, FILE_BYTES, LOW, HIGH, KNOWN, RECORDED, REFUSED, STATUS, STATE_WORDS) = range(9)
"""Words of the recorder's state: bytes in the chunk; bytes in the file; time interval `[LOW, HIGH)` of the file;
exporters with a number; datagrams recorded; datagrams rejected; reason to stop. STATE_WORDS: number of words."""

ALL_DONE, CHUNK_FULL, FILE_FULL = 0, 1, 2
"""Reasons to stop: all datagrams are processed; the next one needs another chunk; the next one needs another file."""


@helper
def put_be(buf, offset, length, value):  # type: ignore[no-untyped-def]
    """Write an integer of `length` bytes in network order."""
    for index in range(length):
        buf[offset + index] = (value >> (8 * (length - 1 - index))) & 0xFF


@helper
def put_le(buf, offset, length, value):  # type: ignore[no-untyped-def]
    """Write an integer of `length` bytes, little-endian."""
    for index in range(length):
        buf[offset + index] = (value >> (8 * index)) & 0xFF


@helper
def ones_sum(buf, offset, length):  # type: ignore[no-untyped-def]
    """Return the sum of 16-bit words in network order, with an odd last byte padded by zero (RFC 1071); not folded."""
    total = np.int64(0)
    for index in range(length // 2):
        total += u16be(buf, offset + 2 * index)
    if length % 2:
        total += np.int64(buf[offset + length - 1]) << 8
    return total


@helper
def checksum_of(total):  # type: ignore[no-untyped-def]
    """Return the checksum: the complement of the folded sum."""
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@helper
def exporter_slot(keys, mask, version, high, low):  # type: ignore[no-untyped-def]
    """Return the slot of an address in a table of `mask` + 1 slots, or the empty slot for it. One is always empty."""
    mixed = (np.uint64(high) * np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(low)
    mixed = (mixed ^ np.uint64(version)) * np.uint64(0xFF51AFD7ED558CCD)
    mixed ^= mixed >> np.uint64(32)
    slot = np.int64(mixed & np.uint64(mask))
    while keys[slot * KEY_WORDS] != 0 and not (
        keys[slot * KEY_WORDS] == version and keys[slot * KEY_WORDS + 1] == high and keys[slot * KEY_WORDS + 2] == low
    ):
        slot = (slot + 1) & mask
    return slot


@helper
def is_allowed(prefixes, count, version, high, low):  # type: ignore[no-untyped-def]
    """Return whether an address is in one of the prefixes; without prefixes all addresses are allowed."""
    for index in range(count):
        offset = index * PREFIX_WORDS
        if (
            prefixes[offset] == version
            and (high ^ prefixes[offset + 1]) & prefixes[offset + 3] == 0
            and (low ^ prefixes[offset + 2]) & prefixes[offset + 4] == 0
        ):
            return True
    return count == 0


@helper
def write_record(slots, payload, length, rows, row, port, out, offset):  # type: ignore[no-untyped-def]
    """Write one record to `out[offset:]`. Return its end."""
    time = rows[row + TIME]
    segment = UDP_HEADER + length
    frame = offset + RECORD_HEADER
    if rows[row + VERSION] == 4:
        udp = frame + IPV4_HEADER
        put_be(out, frame, 2, 0x4500)
        put_be(out, frame + 2, 2, IPV4_HEADER + segment)
        put_be(out, frame + 4, 4, 0x4000)
        put_be(out, frame + 8, 4, HOPS << 24 | UDP << 16)
        put_be(out, frame + 12, 4, rows[row + SRC_LOW])
        put_be(out, frame + 16, 4, rows[row + DEST_LOW])
        put_be(out, frame + 10, 2, checksum_of(ones_sum(out, frame, IPV4_HEADER)))
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
    for index in range(length):
        out[udp + UDP_HEADER + index] = slots[payload + index]
    if rows[row + VERSION] == 6:
        checksum = checksum_of(ones_sum(out, frame + 8, 32 + segment) + segment + UDP)
        put_be(out, udp + 6, 2, checksum or 0xFFFF)
    captured = udp + segment - frame
    put_le(out, offset, 4, time // 1_000_000_000)
    put_le(out, offset + 4, 4, time % 1_000_000_000)
    put_le(out, offset + 8, 4, captured)
    put_le(out, offset + 12, 4, captured)
    return frame + captured


@kernel("i64(u8*, i64*, i64, i64, i64, i64*, i64, i64*, i64, i64*, i64, u8*, i64, i64, i64, i64*)")
def record_datagrams(  # type: ignore[no-untyped-def]
    slots, rows, first, count, port, keys, mask, counts, limit, prefixes, prefix_count, out, room, file_limit, span,
    state,
):  # fmt: skip
    """Record datagrams `[first, count)` of a batch received at `port`. Return the first datagram not processed.

    * `keys`: exporter table, (mask + 1) x KEY_WORDS. `counts`: (limit + 1) x COUNT_WORDS; exporters beyond `limit`
      share the last row.
    * `prefixes`: `prefix_count` allowed prefixes, PREFIX_WORDS words each.
    * `out`: the chunk, `room` bytes; at least LONGEST_RECORD bytes are free if it is empty.
    * `file_limit`: maximum bytes of a file; one record is always allowed.
    * `span`: length of a file's time interval in ns, 0 for none. The clock may step back by at most this time.
    * `state`: STATE_WORDS words.
    """
    state[STATUS] = ALL_DONE
    for index in range(first, count):
        row = index * ROW
        version = rows[row + VERSION]
        high = rows[row + SRC_HIGH]
        low = rows[row + SRC_LOW]
        slot = exporter_slot(keys, mask, version, high, low)
        known = keys[slot * KEY_WORDS] != 0
        if not known and not is_allowed(prefixes, prefix_count, version, high, low):
            state[REFUSED] += 1
            continue
        length = rows[row + LENGTH]
        size = RECORD_HEADER + (IPV4_HEADER if version == 4 else IPV6_HEADER) + UDP_HEADER + length
        time = rows[row + TIME]
        outside = span > 0 and (time >= state[HIGH] or time < state[LOW] - span)
        if outside or state[FILE_BYTES] + size > file_limit:
            state[STATUS] = FILE_FULL
            return index
        if state[CHUNK_OFFSET] + size > room:
            state[STATUS] = CHUNK_FULL
            return index
        number = np.int64(limit)
        if known:
            number = keys[slot * KEY_WORDS + 3]
        elif state[KNOWN] < limit:
            number = state[KNOWN]
            state[KNOWN] += 1
            keys[slot * KEY_WORDS] = version
            keys[slot * KEY_WORDS + 1] = high
            keys[slot * KEY_WORDS + 2] = low
            keys[slot * KEY_WORDS + 3] = number
        counts[number * COUNT_WORDS + DATAGRAMS] += 1
        counts[number * COUNT_WORDS + BYTES] += length
        counts[number * COUNT_WORDS + NEWEST] = max(counts[number * COUNT_WORDS + NEWEST], time)
        state[CHUNK_OFFSET] = write_record(slots, index * STRIDE, length, rows, row, port, out, state[CHUNK_OFFSET])
        state[FILE_BYTES] += size
        state[RECORDED] += 1
    return np.int64(count)
