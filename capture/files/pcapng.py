"""The pcapng file format: a sequence of typed blocks. The packet blocks are the records.

    section header block         byte order and version; interfaces are numbered from 0 again
    interface description block  link type, snapshot length, clock and name of the section's next interface
    enhanced packet block        interface, time, captured and wire length, the frame, options
    packet block (obsolete)      like an enhanced packet block, with a 16-bit interface and a drop count
    simple packet block          a frame of the section's first interface, and its wire length; **no time** (0)

Blocks of other types (statistics, names, secrets, custom and future blocks) are skipped. The length of a block is
checked as in libpcap: 12 to MAX_BLOCK_BYTES, a multiple of 4, and equal at both ends of the block. The section length
field is ignored: a section ends at the next section header or at the end of the file. libpcap rejects a file whose
sections differ in byte order or whose interfaces differ in link type. This reader accepts such files. A packet may be
longer than the snapshot length of its interface.

The kernel walks all blocks except interface descriptions (at most MAX_INTERFACES per file), which are parsed in Python
and appended to a table. So memory does not grow with the number of sections or packets.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from capture.bytes import u16be, u16le, u32, u32le
from capture.errors import InputError
from capture.files.blocks import (
    BAD_INTERFACE,
    BAD_LENGTH,
    BAD_SECTION,
    CONTINUE,
    END_OF_DATA,
    NO_SECTION,
    TOO_MANY_INTERFACES,
    TRUNCATED_HEADER,
    TRUNCATED_RECORD,
    UNKNOWN_INTERFACE,
    WalkState,
    put_block_row,
)
from capture.files.interfaces import (
    INTERFACE_WORDS,
    MAX_INTERFACES,
    SNAPLEN,
    BadInterfaceError,
    InterfaceTable,
    interface_time,
    parse_interface,
)
from capture.files.pcap import MAX_CAPTURED_BYTES
from capture.native import helper, kernel

MAGIC = bytes.fromhex("0a0d0d0a")
"""The type of a section header block. It is the same in both byte orders."""

SECTION_HEADER = 28
"""Length in bytes of the shortest section header block."""

MAX_BLOCK_BYTES = 16 << 20
"""Largest valid block length, as in libpcap and Wireshark."""

SECTION = 0x0A0D0D0A
"""The type of a section header block as a number."""

LITTLE_ENDIAN, BIG_ENDIAN = 0x1A2B3C4D, 0x4D3C2B1A
"""The byte-order magic of a section, read as a little-endian number."""

INTERFACE_DESCRIPTION, PACKET, SIMPLE_PACKET, ENHANCED_PACKET = 1, 2, 3, 6
"""Types of other blocks. PACKET is the obsolete packet block."""

INTERFACE_FOLLOWS = -1
"""Status of a kernel's walk: the next block is an interface description, which the caller must parse."""


@helper
def u16(buf, offset, big_endian):  # type: ignore[no-untyped-def]
    """Read two bytes in the byte order of the section."""
    return u16be(buf, offset) if big_endian else u16le(buf, offset)


@helper
def packet_interface(buf, offset, kind, big_endian):  # type: ignore[no-untyped-def]
    """Return the interface number, counted in its section, of the packet block at `offset`."""
    if kind == SIMPLE_PACKET:
        return np.int64(0)
    if kind == ENHANCED_PACKET:
        return u32(buf, offset + 8, big_endian)
    return u16(buf, offset + 8, big_endian)


@helper
def packet_timestamp(buf, offset, big_endian):  # type: ignore[no-untyped-def]
    """Return the 64-bit timestamp of the enhanced or obsolete packet block at `offset`, in units of its interface."""
    return u32(buf, offset + 12, big_endian) << 32 | u32(buf, offset + 16, big_endian)


@helper
def simple_captured_length(wire, snaplen):  # type: ignore[no-untyped-def]
    """Return the captured bytes of a simple packet block: its wire length, limited by the snapshot length."""
    return min(wire, snaplen) if 0 < snaplen <= MAX_CAPTURED_BYTES else min(wire, np.int64(MAX_CAPTURED_BYTES))


@kernel("i64(u8*, i64, i64, i64, i64*, i64*, i64*)")
def scan_pcapng(buf, end, block_records, max_blocks, interfaces, rows, state):  # type: ignore[no-untyped-def]
    """Walk whole blocks of `buf[state[0]:end]` up to an interface description. Describe ranges of packets in `rows`.

    `block_records`, `max_blocks`: the maximum number of packets of a range, and of ranges. `interfaces`: the interface
    table. `rows`: max_blocks x BLOCK_WORDS. `state`: the words of a WalkState. Returns the number of rows written.
    """
    offset = state[0]
    status = np.int64(CONTINUE)
    section = state[2]
    interface_count = state[3]
    block = 0
    while block < max_blocks:
        begin = offset
        packets_end = offset
        records = 0
        min_ts = np.int64(2**63 - 1)
        max_ts = np.int64(-1)
        while records < block_records:
            if offset + 8 > end:
                status = np.int64(END_OF_DATA if offset == end else TRUNCATED_HEADER)
                break
            kind = u32le(buf, offset)
            big_endian = section & 1
            if kind == SECTION:
                if records:
                    break  # a range of packets never crosses a section header
                if offset + 12 > end:
                    status = np.int64(TRUNCATED_RECORD)
                    break
                magic = u32le(buf, offset + 8)
                if magic not in (LITTLE_ENDIAN, BIG_ENDIAN):
                    status = np.int64(BAD_SECTION)
                    break
                big_endian = np.int64(magic == BIG_ENDIAN)
            elif section == NO_SECTION:
                status = np.int64(BAD_SECTION)
                break
            elif big_endian:
                kind = u32(buf, offset, big_endian)
            length = u32(buf, offset + 4, big_endian)
            if length < 12 or length & 3 or length > MAX_BLOCK_BYTES:
                status = np.int64(BAD_LENGTH)
                break
            if offset + length > end:
                status = np.int64(TRUNCATED_RECORD)
                break
            if u32(buf, offset + length - 4, big_endian) != length:
                status = np.int64(BAD_LENGTH)
                break
            if kind in (ENHANCED_PACKET, SIMPLE_PACKET, PACKET):
                header = 12 if kind == SIMPLE_PACKET else 28
                if length < header + 4:
                    status = np.int64(BAD_LENGTH)
                    break
                interface = (section >> 1) + packet_interface(buf, offset, kind, big_endian)
                if interface >= interface_count:
                    status = np.int64(UNKNOWN_INTERFACE)
                    break
                if kind == SIMPLE_PACKET:
                    captured = simple_captured_length(
                        u32(buf, offset + 8, big_endian), interfaces[interface * INTERFACE_WORDS + SNAPLEN]
                    )
                    ts = np.int64(0)
                else:
                    captured = u32(buf, offset + 20, big_endian)
                    ts, _ = interface_time(interfaces, interface, packet_timestamp(buf, offset, big_endian))
                if captured > MAX_CAPTURED_BYTES or captured > length - header - 4:
                    status = np.int64(BAD_LENGTH)
                    break
                if records == 0:
                    begin = offset
                packets_end = offset + length
                min_ts = min(min_ts, ts)
                max_ts = max(max_ts, ts)
                records += 1
            elif kind == SECTION:
                if length < SECTION_HEADER or u16(buf, offset + 12, big_endian) != 1:
                    status = np.int64(BAD_SECTION)
                    break
                section = interface_count << 1 | big_endian
            elif kind == INTERFACE_DESCRIPTION:
                status = np.int64(INTERFACE_FOLLOWS)
                break
            offset += length
        block = put_block_row(rows, block, begin, packets_end, records, min_ts, max_ts, section)
        if status != CONTINUE:
            break
    state[0] = offset
    state[1] = status
    state[2] = section
    return block


class PcapngFormat:
    """The pcapng format of a file, with its interfaces. Implements RecordFormat. Picklable; `walk` is not thread safe.

    A second walk from the beginning of the file does not add the interfaces again.
    """

    first_record = 0
    """The walk includes the first section header, so it begins at offset 0."""

    def __init__(self) -> None:
        """Begin with an empty table. `walk` adds the interfaces."""
        self.table = InterfaceTable()

    @property
    def interfaces(self) -> npt.NDArray[np.int64]:
        """The interface table for kernels, flat. It may have unused rows at its end."""
        return self.table.matrix.reshape(-1)

    @property
    def interface_names(self) -> list[str]:
        """Names of the known interfaces, by their number in the file. Several interfaces may have the same name."""
        return self.table.names

    def walk(
        self, data: npt.NDArray[np.uint8], end: int, block_records: int, rows: npt.NDArray[np.int64], state: WalkState
    ) -> int:
        """Walk whole records. Implements RecordFormat.walk."""
        count = 0
        while count < len(rows):
            free = rows[count:]
            count += scan_pcapng(data, end, block_records, len(free), self.interfaces, free.reshape(-1), state.words)
            if state.status == INTERFACE_FOLLOWS:
                state.status = self._add_interface(data, state)
            if state.status != CONTINUE:
                break
        return count

    def _add_interface(self, data: npt.NDArray[np.uint8], state: WalkState) -> int:
        """Parse the interface description at the offset of `state`. Move `state` after it. Return the walk's status."""
        if state.interfaces == MAX_INTERFACES:
            return TOO_MANY_INTERFACES
        big_endian = bool(state.section & 1)
        length = int.from_bytes(data[state.offset + 4 : state.offset + 8].tobytes(), "big" if big_endian else "little")
        if state.interfaces == len(self.table.names):
            try:
                self.table.add(
                    parse_interface(data[state.offset + 8 : state.offset + length - 4].tobytes(), big_endian)
                )
            except BadInterfaceError:
                return BAD_INTERFACE
        state.interfaces += 1
        state.offset += length
        return CONTINUE


def parse_section_header(head: bytes, name: str) -> PcapngFormat:
    """Parse the first bytes of a file that begins with MAGIC. Raises InputError for an invalid section header."""
    if len(head) < SECTION_HEADER:
        raise InputError(
            f"{name}: truncated in the pcapng section header: got {len(head)} bytes, expected {SECTION_HEADER}"
        )
    orders = {LITTLE_ENDIAN: "<", BIG_ENDIAN: ">"}
    (magic,) = struct.unpack_from("<I", head, 8)
    if magic not in orders:
        got = head[8:12].hex(" ")
        raise InputError(f"{name}: begins like a pcapng capture, but its byte-order magic is {got}, not 1a 2b 3c 4d")
    major, minor = struct.unpack_from(orders[magic] + "HH", head, 12)
    if major != 1:
        raise InputError(f"{name}: pcapng version {major}.{minor} is not supported, expected 1.x")
    return PcapngFormat()
