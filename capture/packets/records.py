"""Decoding of a block's records into columns: one kernel per record format, all with `decode_frame`."""

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
from capture.files.tpacket import FRAME_HEADER, LEN, MAC, NEXT, NSEC, SEC
from capture.files.tpacket import SNAPLEN as CAPTURED
from capture.native import kernel
from capture.packets.decode import decode_frame


@kernel("i64(u8*, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64*, i64, i64*)")
def decode_pcap(  # type: ignore[no-untyped-def]
    buf, at, records, big_endian, unit, header, length_order, link, want, want_inner, every_frame, out, capacity, counts
):
    """Decode `records` records of a classic pcap from `buf[at:]`. Return the number of rows.

    The caller has scanned the records, so they are inside `buf`. Other parameters are as in `decode_frame`.
    """
    row = np.int64(0)
    for _ in range(records):
        frame = at + header
        end = frame + captured_length(buf, at, big_endian, length_order)
        wire = wire_length(buf, at, big_endian, length_order)
        time = record_time(buf, at, big_endian, unit)
        row = decode_frame(
            buf, frame, end, wire, time, link, np.int64(0), want, want_inner, every_frame, out, capacity, row, counts
        )
        at = end
    return row


@kernel("i64(u8*, i64, i64, i64, i64, i64, i64, i64, i64*, i64, i64*)")
def decode_ring(  # type: ignore[no-untyped-def]
    buf, at, stop, records, link, want, want_inner, every_frame, out, capacity, counts
):
    """Decode `records` frames of a ring block from `buf[at:stop]`. Return the number of rows.

    The caller has walked the frames, so they are inside the block. Other parameters are as in `decode_frame`.
    """
    row = np.int64(0)
    while records and at + FRAME_HEADER <= stop:
        frame = at + u16le(buf, at + MAC)
        end = frame + u32le(buf, at + CAPTURED)
        wire = u32le(buf, at + LEN)
        time = u32le(buf, at + SEC) * 1_000_000_000 + u32le(buf, at + NSEC)
        row = decode_frame(
            buf, frame, end, wire, time, link, np.int64(0), want, want_inner, every_frame, out, capacity, row, counts
        )
        following = u32le(buf, at + NEXT)
        at = at + following if following else stop
        records -= 1
    return row


@kernel("i64(u8*, i64, i64, i64, i64, i64*, i64, i64, i64, i64, i64*, i64, i64*, i64*)")
def decode_pcapng(  # type: ignore[no-untyped-def]
    buf, at, stop, records, section, interfaces, known, want, want_inner, every_frame, out, capacity, counts, retimed
):
    """Decode the packet blocks of `buf[at:stop]`, `records` of them and all of one section; return the rows written.

    The caller has scanned the blocks; in a file that was changed since, nothing beyond `stop` is read. `interfaces` is
    the table of the `known` interfaces of the file. `retimed` grows by cause as in REPLACED_TIME_CAUSES. The rest is as
    in
    `decode_frame`.
    """
    row = np.int64(0)
    big_endian = section & 1
    while records and at + 16 <= stop:
        kind = u32(buf, at, big_endian)
        after = at + u32(buf, at + 4, big_endian)
        if after < at + 12 or after > stop:
            break
        if kind in (ENHANCED_PACKET, SIMPLE_PACKET, PACKET):
            frame = at + 12 if kind == SIMPLE_PACKET else at + 28
            interface = (section >> 1) + packet_interface(buf, at, kind, big_endian)
            if interface >= known or after < frame + 4:
                break
            if kind == SIMPLE_PACKET:
                wire = u32(buf, at + 8, big_endian)
                captured = simple_captured_length(wire, interfaces[interface * INTERFACE_WORDS + SNAPLEN])
                time = np.int64(0)
                retimed[0] += 1
            else:
                captured = u32(buf, at + 20, big_endian)
                wire = u32(buf, at + 24, big_endian)
                time, moved = interface_time(interfaces, interface, packet_timestamp(buf, at, big_endian))
                retimed[1] += moved
            end = min(frame + captured, after - 4)
            link = interfaces[interface * INTERFACE_WORDS + LINK]
            row = decode_frame(
                buf, frame, end, wire, time, link, interface, want, want_inner, every_frame, out, capacity, row, counts
            )
            records -= 1
        at = after
    return row
