"""Decode the records of a block into columns: one kernel for each record format. All kernels use `decode_frame`."""

from __future__ import annotations

import numpy as np

from capture.bytes import u16le, u32, u32le
from capture.files.interfaces import INTERFACE_WORDS, LINK, SNAPLEN, interface_time
from capture.files.pcap import captured_length, record_time, wire_length
from capture.files.pcapng import (
    ENHANCED_PACKET,
    PACKET,
    SIMPLE_PACKET,
    packet_interface,
    packet_timestamp,
    simple_captured_length,
)
from capture.files.ring_frames import FRAME_HEADER, LEN, MAC, NEXT, NSEC, SEC
from capture.files.ring_frames import SNAPLEN as CAPTURED
from capture.native import kernel
from capture.packets.decode import decode_frame
from capture.prefetch import prefetch_read

PREFETCHED_BYTES = 8192
"""Distance of the prefetched cache line from the record that is decoded: two pages, because the processor itself does
not prefetch across the end of a page. A block of small packets takes 0.78 times as long.
"""


@kernel("i64(u8*, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64*, i64, i64*)")
def decode_pcap(  # type: ignore[no-untyped-def]
    buf, offset, record_count, big_endian, unit, header, length_order, link, mask, inner_mask, every_frame, out,
    capacity, counts
):  # fmt: skip
    """Decode `record_count` records of a classic pcap from `buf[offset:]`. Return the number of rows.

    The caller has scanned the records, so they are inside `buf`. Other parameters are as in `decode_frame`.
    """
    row = np.int64(0)
    for _ in range(record_count):
        prefetch_read(buf, offset + PREFETCHED_BYTES)
        frame = offset + header
        end = frame + captured_length(buf, offset, big_endian, length_order)
        wire = wire_length(buf, offset, big_endian, length_order)
        time = record_time(buf, offset, big_endian, unit)
        row = decode_frame(
            buf, frame, end, wire, time, link, np.int64(0), mask, inner_mask, every_frame, out, capacity, row, counts
        )
        offset = end
    return row


@kernel("i64(u8*, i64, i64, i64, i64, i64, i64, i64, i64*, i64, i64*)")
def decode_ring(  # type: ignore[no-untyped-def]
    buf, offset, stop, record_count, link, mask, inner_mask, every_frame, out, capacity, counts
):
    """Decode `record_count` frames of a ring block from `buf[offset:stop]`. Return the number of rows.

    The caller has walked the frames, so they are inside the block. Other parameters are as in `decode_frame`.
    """
    row = np.int64(0)
    while record_count and offset + FRAME_HEADER <= stop:
        frame = offset + u16le(buf, offset + MAC)
        end = frame + u32le(buf, offset + CAPTURED)
        wire = u32le(buf, offset + LEN)
        time = u32le(buf, offset + SEC) * 1_000_000_000 + u32le(buf, offset + NSEC)
        row = decode_frame(
            buf, frame, end, wire, time, link, np.int64(0), mask, inner_mask, every_frame, out, capacity, row, counts
        )
        following = u32le(buf, offset + NEXT)
        offset = offset + following if following else stop
        record_count -= 1
    return row


@kernel("i64(u8*, i64, i64, i64, i64, i64*, i64, i64, i64, i64, i64*, i64, i64*, i64*)")
def decode_pcapng(  # type: ignore[no-untyped-def]
    buf, offset, stop, record_count, section, interfaces, interface_count, mask, inner_mask, every_frame, out,
    capacity, counts, replaced_time_counts
):  # fmt: skip
    """Decode the `record_count` packet blocks of `buf[offset:stop]`, all of one section. Return the number of rows.

    The caller has scanned the blocks. If the file has changed since then, no byte after `stop` is read. `interfaces`:
    table of the file's interfaces, with `interface_count` rows in use. `replaced_time_counts`: counters by cause as
    in REPLACED_TIME_CAUSES. Other parameters are as in `decode_frame`.
    """
    row = np.int64(0)
    big_endian = section & 1
    while record_count and offset + 16 <= stop:
        prefetch_read(buf, offset + PREFETCHED_BYTES)
        kind = u32(buf, offset, big_endian)
        after = offset + u32(buf, offset + 4, big_endian)
        if after < offset + 12 or after > stop:
            break
        if kind in (ENHANCED_PACKET, SIMPLE_PACKET, PACKET):
            frame = offset + 12 if kind == SIMPLE_PACKET else offset + 28
            interface = (section >> 1) + packet_interface(buf, offset, kind, big_endian)
            if interface >= interface_count or after < frame + 4:
                break
            if kind == SIMPLE_PACKET:
                wire = u32(buf, offset + 8, big_endian)
                captured = simple_captured_length(wire, interfaces[interface * INTERFACE_WORDS + SNAPLEN])
                time = np.int64(0)
                replaced_time_counts[0] += 1
            else:
                captured = u32(buf, offset + 20, big_endian)
                wire = u32(buf, offset + 24, big_endian)
                time, moved = interface_time(interfaces, interface, packet_timestamp(buf, offset, big_endian))
                replaced_time_counts[1] += moved
            end = min(frame + captured, after - 4)
            link = interfaces[interface * INTERFACE_WORDS + LINK]
            row = decode_frame(
                buf, frame, end, wire, time, link, interface, mask, inner_mask, every_frame, out, capacity, row, counts
            )
            record_count -= 1
        offset = after
    return row
