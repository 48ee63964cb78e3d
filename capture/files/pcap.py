"""The classic pcap file format: the file header, and the walk over its records.

    file header, 24 bytes   magic, version_major, version_minor, thiszone, sigfigs, snaplen, linktype
    record header, 16 bytes ts_sec, ts_frac, incl_len (bytes that follow), orig_len (bytes on the wire)

The magic number defines the byte order and the unit of ts_frac (micro- or nanoseconds). Three variants are read as
libpcap reads them. Files before version 2.3 have the two lengths exchanged. Some files of version 2.3 have them
exchanged too, so the smaller length is incl_len. The "modified" format has 8 more bytes in each record header.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from capture.bytes import u32
from capture.errors import InputError
from capture.files.blocks import (
    BAD_LENGTH,
    CONTINUE,
    END_OF_DATA,
    TRUNCATED_HEADER,
    TRUNCATED_RECORD,
    WalkState,
    put_block_row,
)
from capture.lazy_dataclasses import dataclass
from capture.native import helper, kernel

FILE_HEADER_BYTES = 24
"""Length in bytes of the file header."""

MAX_CAPTURED_BYTES = 262_144
"""Largest valid incl_len, as in libpcap. A larger value shows that the bytes are not a record header."""

MAGICS: dict[bytes, tuple[bool, bool, int]] = {
    bytes.fromhex("d4c3b2a1"): (False, False, 16),
    bytes.fromhex("a1b2c3d4"): (True, False, 16),
    bytes.fromhex("4d3cb2a1"): (False, True, 16),
    bytes.fromhex("a1b23c4d"): (True, True, 16),
    bytes.fromhex("34cdb2a1"): (False, False, 24),
    bytes.fromhex("a1b2cd34"): (True, False, 24),
}
"""For the first four bytes of a file: whether it is big-endian, whether ts_frac is in nanoseconds, and the length of a
record header in bytes."""


@helper
def record_time(buf, offset, big_endian, unit):  # type: ignore[no-untyped-def]
    """Return the time in ns of the record at `offset`. A ts_frac of one second or more is added to the seconds."""
    return u32(buf, offset, big_endian) * 1_000_000_000 + u32(buf, offset + 4, big_endian) * unit


@helper
def captured_length(buf, offset, big_endian, length_order):  # type: ignore[no-untyped-def]
    """Return incl_len of the record at `offset`."""
    first = u32(buf, offset + 8, big_endian)
    if length_order == 0:
        return first
    second = u32(buf, offset + 12, big_endian)
    return second if length_order == 1 else min(first, second)


@helper
def wire_length(buf, offset, big_endian, length_order):  # type: ignore[no-untyped-def]
    """Return orig_len of the record at `offset`."""
    second = u32(buf, offset + 12, big_endian)
    if length_order == 0:
        return second
    first = u32(buf, offset + 8, big_endian)
    return first if length_order == 1 else max(first, second)


@kernel("i64(u8*, i64, i64, i64, i64, i64, i64, i64, i64, i64*, i64*)")
def scan_blocks(buf, end, big_endian, unit, header, length_order, max_captured, block_records, max_blocks, rows, state):  # type: ignore[no-untyped-def]
    """Walk whole records of `buf[state[0]:end]` and describe up to `max_blocks` blocks.

    `rows`: max_blocks x BLOCK_WORDS. `state`: the first two words of a WalkState. Returns the number of blocks written.
    """
    offset = state[0]
    status = np.int64(CONTINUE)
    block = 0
    while block < max_blocks:
        begin = offset
        records = 0
        min_ts = np.int64(2**63 - 1)
        max_ts = np.int64(-1)
        while records < block_records:
            if offset + header > end:
                status = np.int64(END_OF_DATA if offset == end else TRUNCATED_HEADER)
                break
            captured = captured_length(buf, offset, big_endian, length_order)
            if captured > max_captured:
                status = np.int64(BAD_LENGTH)
                break
            if offset + header + captured > end:
                status = np.int64(TRUNCATED_RECORD)
                break
            ts = record_time(buf, offset, big_endian, unit)
            min_ts = min(min_ts, ts)
            max_ts = max(max_ts, ts)
            offset += header + captured
            records += 1
        block = put_block_row(rows, block, begin, offset, records, min_ts, max_ts, 0)
        if status != CONTINUE:
            break
    state[0] = offset
    state[1] = status
    return block


@dataclass(frozen=True, slots=True)
class PcapFormat:
    """The fields of the file header that the reader needs. Implements RecordFormat. `record_header`: length in bytes.

    `length_order`: 0 if incl_len is first, 1 if orig_len is first, 2 if the smaller of both is incl_len.
    """

    big_endian: bool
    nanoseconds: bool
    record_header: int
    length_order: int
    snaplen: int
    link_type: int

    @property
    def unit(self) -> int:
        """Nanoseconds per unit of ts_frac."""
        return 1 if self.nanoseconds else 1000

    @property
    def first_record(self) -> int:
        """Offset of the first record header."""
        return FILE_HEADER_BYTES

    @property
    def interface_names(self) -> list[str]:
        """One interface, named "0"."""
        return ["0"]

    def walk(
        self, data: npt.NDArray[np.uint8], end: int, block_records: int, rows: npt.NDArray[np.int64], state: WalkState
    ) -> int:
        """Walk whole records. Implements RecordFormat.walk."""
        return scan_blocks(
            data, end, self.big_endian, self.unit, self.record_header, self.length_order, MAX_CAPTURED_BYTES,
            block_records, len(rows), rows.reshape(-1), state.words,
        )  # fmt: skip


def parse_header(head: bytes, name: str) -> PcapFormat:
    """Parse the first bytes of a file that begins with one of MAGICS. Raises InputError for an invalid file header."""
    if len(head) < FILE_HEADER_BYTES:
        raise InputError(
            f"{name}: truncated in the pcap file header: got {len(head)} bytes, expected {FILE_HEADER_BYTES}"
        )
    big_endian, nanoseconds, record_header = MAGICS[head[:4]]
    major, minor, snaplen, link = struct.unpack((">" if big_endian else "<") + "4x2H8x2I", head[:FILE_HEADER_BYTES])
    if major != 2:
        raise InputError(f"{name}: pcap version {major}.{minor} is not supported, expected 2.x")
    length_order = 1 if minor < 3 else 2 if minor == 3 else 0
    link_type = link & 0xFFFF  # the upper bits contain the length of a frame check sequence
    return PcapFormat(big_endian, nanoseconds, record_header, length_order, snaplen, link_type)
