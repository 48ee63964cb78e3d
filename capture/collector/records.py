"""Conversion of datagrams into capture records: an IP header, a UDP header, and the payload of the datagram.

The records have the format of a raw IP interface (link type 101), which all capture readers support. A record has the
addresses, ports, length and time of the datagram. The other fields are unknown and constant: TTL 64, TOS 0,
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
    ROW_WORDS,
    SLOT_STRIDE,
    SRC_HIGH,
    SRC_LOW,
    SRC_PORT,
    TIME,
    VERSION,
)
from capture.native import helper, kernel

RECORD_HEADER, IPV4_HEADER, IPV6_HEADER, UDP_HEADER = 16, 20, 40, 8
"""Lengths of headers in bytes."""

UDP, HOPS = 17, 64
"""Protocol number of UDP, and the TTL or hop limit of all records."""

LONGEST_RECORD = RECORD_HEADER + IPV6_HEADER + 65_535
"""Bytes of the longest possible record."""

DATAGRAMS, BYTES, NEWEST, COUNT_WORDS = range(4)
"""Words of an exporter's counters: datagrams, payload bytes, newest time (ns). COUNT_WORDS: number of words."""

KEY_WORDS = 4
"""Number of words of a slot in the exporter table: IP version (0 for an empty slot), two address halves, index."""

PREFIX_WORDS = 5
"""Number of words of an allowed prefix: IP version, two address halves, two mask halves."""

(CHUNK_OFFSET, FILE_BYTES, FILE_START, FILE_END, EXPORTER_COUNT, RECORDED, REFUSED, STATUS, STATE_WORDS) = range(9)
"""Words of the recorder's state.

* CHUNK_OFFSET, FILE_BYTES: bytes in the current chunk, and in the current file.
* `[FILE_START, FILE_END)`: time interval of the current file, ns.
* EXPORTER_COUNT: exporters with an index. RECORDED, REFUSED: datagrams recorded, and datagrams refused.
* STATUS: the reason why the kernel stopped. STATE_WORDS: number of words.
"""

ALL_DONE, CHUNK_FULL, FILE_FULL = 0, 1, 2
"""Values of STATUS. CHUNK_FULL, FILE_FULL: the next datagram needs another chunk, or another file."""


@helper
def put_big_endian(buf, offset, length, value):  # type: ignore[no-untyped-def]
    """Write an integer of `length` bytes in network order."""
    for index in range(length):
        buf[offset + index] = (value >> (8 * (length - 1 - index))) & 0xFF


@helper
def put_little_endian(buf, offset, length, value):  # type: ignore[no-untyped-def]
    """Write an integer of `length` bytes, little-endian."""
    for index in range(length):
        buf[offset + index] = (value >> (8 * index)) & 0xFF


@helper
def ones_sum(buf, offset, length):  # type: ignore[no-untyped-def]
    """Return the sum, not folded, of 16-bit words in network order (RFC 1071). An odd last byte is padded with 0."""
    total = np.int64(0)
    for index in range(length // 2):
        total += u16be(buf, offset + 2 * index)
    if length % 2:
        total += np.int64(buf[offset + length - 1]) << 8
    return total


@helper
def checksum_of(total):  # type: ignore[no-untyped-def]
    """Return the checksum of data with the sum `total`: the complement of the folded sum."""
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@helper
def exporter_slot(keys, mask, version, high, low):  # type: ignore[no-untyped-def]
    """Return the slot of an address, or the empty slot for it. `keys`: `mask` + 1 slots, never all full."""
    hashed = (np.uint64(high) * np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(low)
    hashed = (hashed ^ np.uint64(version)) * np.uint64(0xFF51AFD7ED558CCD)
    hashed ^= hashed >> np.uint64(32)
    slot = np.int64(hashed & np.uint64(mask))
    while keys[slot * KEY_WORDS] != 0 and not (
        keys[slot * KEY_WORDS] == version and keys[slot * KEY_WORDS + 1] == high and keys[slot * KEY_WORDS + 2] == low
    ):
        slot = (slot + 1) & mask
    return slot


@helper
def is_allowed(prefixes, count, version, high, low):  # type: ignore[no-untyped-def]
    """Return whether an address is in one of `count` prefixes. Without prefixes, all addresses are allowed."""
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
    """Write the record of one datagram to `out[offset:]`. Return the end of the record.

    `payload`: its offset in `slots`. `row`: offset of the datagram's row in `rows`. `port`: the local port.
    """
    time = rows[row + TIME]
    segment = UDP_HEADER + length
    frame = offset + RECORD_HEADER
    if rows[row + VERSION] == 4:
        udp = frame + IPV4_HEADER
        put_big_endian(out, frame, 2, 0x4500)
        put_big_endian(out, frame + 2, 2, IPV4_HEADER + segment)
        put_big_endian(out, frame + 4, 4, 0x4000)
        put_big_endian(out, frame + 8, 4, HOPS << 24 | UDP << 16)
        put_big_endian(out, frame + 12, 4, rows[row + SRC_LOW])
        put_big_endian(out, frame + 16, 4, rows[row + DEST_LOW])
        put_big_endian(out, frame + 10, 2, checksum_of(ones_sum(out, frame, IPV4_HEADER)))
    else:
        udp = frame + IPV6_HEADER
        put_big_endian(out, frame, 4, 0x60000000)
        put_big_endian(out, frame + 4, 4, segment << 16 | UDP << 8 | HOPS)
        put_big_endian(out, frame + 8, 8, rows[row + SRC_HIGH])
        put_big_endian(out, frame + 16, 8, rows[row + SRC_LOW])
        put_big_endian(out, frame + 24, 8, rows[row + DEST_HIGH])
        put_big_endian(out, frame + 32, 8, rows[row + DEST_LOW])
    put_big_endian(out, udp, 2, rows[row + SRC_PORT])
    put_big_endian(out, udp + 2, 2, port)
    put_big_endian(out, udp + 4, 4, segment << 16)
    for index in range(length):
        out[udp + UDP_HEADER + index] = slots[payload + index]
    if rows[row + VERSION] == 6:
        checksum = checksum_of(ones_sum(out, frame + 8, 32 + segment) + segment + UDP)
        put_big_endian(out, udp + 6, 2, checksum or 0xFFFF)
    captured = udp + segment - frame
    put_little_endian(out, offset, 4, time // 1_000_000_000)
    put_little_endian(out, offset + 4, 4, time % 1_000_000_000)
    put_little_endian(out, offset + 8, 4, captured)
    put_little_endian(out, offset + 12, 4, captured)
    return frame + captured


@kernel("i64(u8*, i64*, i64, i64, i64, i64*, i64, i64*, i64, i64*, i64, u8*, i64, i64, i64, i64*)")
def record_datagrams(  # type: ignore[no-untyped-def]
    slots, rows, first, count, port, keys, mask, counts, limit, prefixes, prefix_count, out, out_size, file_limit,
    interval, state,
):  # fmt: skip
    """Record datagrams `[first, count)` of a batch received at `port`. Return the index of the next datagram.

    * `slots`, `rows`: the batch (`capture.collector.chunks`).
    * `keys`: exporter table, (mask + 1) x KEY_WORDS. `limit`: maximum number of exporters with an index.
    * `counts`: COUNT_WORDS for each of these exporters, and a last row that all other exporters share.
    * `prefixes`: `prefix_count` allowed prefixes, PREFIX_WORDS words each.
    * `out`: the chunk. `out_size`: its bytes, at least LONGEST_RECORD.
    * `file_limit`: maximum bytes of a file.
    * `interval`: length of a file's time interval in ns, 0 for none. If the clock steps back by more than this
      time, the next datagram begins a file.
    * `state`: STATE_WORDS words.
    """
    state[STATUS] = ALL_DONE
    for index in range(first, count):
        row = index * ROW_WORDS
        version = rows[row + VERSION]
        high = rows[row + SRC_HIGH]
        low = rows[row + SRC_LOW]
        slot = exporter_slot(keys, mask, version, high, low)
        is_known = keys[slot * KEY_WORDS] != 0
        if not is_known and not is_allowed(prefixes, prefix_count, version, high, low):
            state[REFUSED] += 1
            continue
        length = rows[row + LENGTH]
        size = RECORD_HEADER + (IPV4_HEADER if version == 4 else IPV6_HEADER) + UDP_HEADER + length
        arrival = rows[row + TIME]
        is_outside = interval > 0 and (arrival >= state[FILE_END] or arrival < state[FILE_START] - interval)
        if is_outside or state[FILE_BYTES] + size > file_limit:
            state[STATUS] = FILE_FULL
            return index
        if state[CHUNK_OFFSET] + size > out_size:
            state[STATUS] = CHUNK_FULL
            return index
        exporter = np.int64(limit)
        if is_known:
            exporter = keys[slot * KEY_WORDS + 3]
        elif state[EXPORTER_COUNT] < limit:
            exporter = state[EXPORTER_COUNT]
            state[EXPORTER_COUNT] += 1
            keys[slot * KEY_WORDS] = version
            keys[slot * KEY_WORDS + 1] = high
            keys[slot * KEY_WORDS + 2] = low
            keys[slot * KEY_WORDS + 3] = exporter
        counts[exporter * COUNT_WORDS + DATAGRAMS] += 1
        counts[exporter * COUNT_WORDS + BYTES] += length
        counts[exporter * COUNT_WORDS + NEWEST] = max(counts[exporter * COUNT_WORDS + NEWEST], arrival)
        state[CHUNK_OFFSET] = write_record(
            slots, index * SLOT_STRIDE, length, rows, row, port, out, state[CHUNK_OFFSET]
        )
        state[FILE_BYTES] += size
        state[RECORDED] += 1
    return np.int64(count)
