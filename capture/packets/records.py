"""Records of a block to columns: a kernel for each record format, all of them around `decode_frame`."""

from __future__ import annotations

from capture.files.pcap import captured_length, record_time, wire_length
from capture.native import kernel
from capture.packets.decode import decode_frame


@kernel("i64(u8*, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64*, i64, i64*)")
def decode_pcap(  # type: ignore[no-untyped-def]
    buf, at, records, big_endian, unit, header, length_order, link, want, want_inner, every_frame, out, capacity, counts
):
    """Decode `records` records of a classic pcap from `buf[at:]`; return the rows written.

    The caller has scanned the records: their headers and bytes are inside `buf`. The rest is as in `decode_frame`.
    """
    row = 0
    for _ in range(records):
        frame = at + header
        end = frame + captured_length(buf, at, big_endian, length_order)
        wire = wire_length(buf, at, big_endian, length_order)
        time = record_time(buf, at, big_endian, unit)
        row = decode_frame(
            buf, frame, end, wire, time, link, 0, want, want_inner, every_frame, out, capacity, row, counts
        )
        at = end
    return row
