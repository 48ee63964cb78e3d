"""The pcapng file: blocks of many kinds, of which those with packets are its records.

    section header block         byte order and version; what it describes begins anew: interfaces count from 0
    interface description block  link type, snapshot length, clock and name of the section's next interface
    enhanced packet block        interface, time, captured and wire length, the frame, options
    packet block (obsolete)      the same with a 16-bit interface and a drop count
    simple packet block          wire length and frame of the section's first interface; it has **no time**, which is 0

Every other kind (statistics, names, secrets, custom blocks, kinds to come) is passed over by its length. Blocks are
checked as libpcap checks them: a length of at least 12, a multiple of 4, not above MAX_BLOCK, the same at both ends.
Section lengths are not believed: a section ends where the next begins or the file does. Beyond libpcap, sections may
differ in byte order and interfaces in link type, and a packet may be longer than its interface's snapshot length.

The kernel walks everything but interface descriptions, of which a file may have MAX_INTERFACES; those go into a table
that is only appended to. So nothing here grows with the number of sections or packets.
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
    CUT_HEADER,
    CUT_RECORD,
    MORE,
    NO_SECTION,
    TOO_MANY_INTERFACES,
    UNKNOWN_INTERFACE,
    WHOLE,
    WalkState,
    put_block_row,
)
from capture.files.interfaces import (
    MAX_INTERFACES,
    SNAPLEN,
    WIDTH,
    BadInterfaceError,
    InterfaceTable,
    interface_time,
    parse_interface,
)
from capture.files.pcap import MAX_CAPTURED
from capture.native import helper, kernel

MAGIC = bytes.fromhex("0a0d0d0a")
"""The type of a section header block, the same in both byte orders."""

SECTION_HEADER = 28
"""Bytes of the shortest section header block."""

MAX_BLOCK = 16 << 20
"""Largest block length believed, as in libpcap and Wireshark."""

SECTION = 0x0A0D0D0A
LITTLE_ENDIAN, BIG_ENDIAN = 0x1A2B3C4D, 0x4D3C2B1A
"""The byte-order magic, read in little-endian order."""

INTERFACE_DESCRIPTION, PACKET, SIMPLE_PACKET, ENHANCED_PACKET = 1, 2, 3, 6

DESCRIBED = -1
"""Status of the kernel: an interface description block stands here, to be read in Python."""


@helper
def u16(buf, at, big_endian):  # type: ignore[no-untyped-def]
    """Two bytes in the byte order of the section."""
    return u16be(buf, at) if big_endian else u16le(buf, at)


@helper
def packet_interface(buf, at, kind, big_endian):  # type: ignore[no-untyped-def]
    """Number in its section of the interface of the packet block at `at`."""
    if kind == SIMPLE_PACKET:
        return np.int64(0)
    if kind == ENHANCED_PACKET:
        return u32(buf, at + 8, big_endian)
    return u16(buf, at + 8, big_endian)


@helper
def packet_count(buf, at, big_endian):  # type: ignore[no-untyped-def]
    """Time of the enhanced or obsolete packet block at `at`, in units of its interface, as 64 bits."""
    return u32(buf, at + 12, big_endian) << 32 | u32(buf, at + 16, big_endian)


@helper
def simple_captured(wire, snaplen):  # type: ignore[no-untyped-def]
    """Bytes captured of a simple packet block's frame: all that the interface's snapshot length lets through."""
    return min(wire, snaplen) if 0 < snaplen <= MAX_CAPTURED else min(wire, np.int64(MAX_CAPTURED))


@kernel("i64(u8*, i64, i64, i64, i64*, i64*, i64*)")
def scan_pcapng(buf, end, block_records, max_blocks, interfaces, rows, state):  # type: ignore[no-untyped-def]
    """Walk whole blocks of `buf[state[0]:end]` up to an interface description, and describe runs of packets.

    `interfaces` is a table with a row for each of the state[3] interfaces met so far. `rows` is max_blocks x ROW,
    `state` the words of a WalkState. Returns the number of runs written.
    """
    at = state[0]
    status = np.int64(MORE)
    section = state[2]
    known = state[3]
    run = 0
    while run < max_blocks:
        begin = at
        stop = at
        records = 0
        first = np.int64(2**63 - 1)
        last = np.int64(-1)
        while records < block_records:
            if at + 8 > end:
                status = np.int64(WHOLE if at == end else CUT_HEADER)
                break
            kind = u32le(buf, at)
            big_endian = section & 1
            if kind == SECTION:
                if records:
                    break  # the run ends with its section
                if at + 12 > end:
                    status = np.int64(CUT_RECORD)
                    break
                magic = u32le(buf, at + 8)
                if magic not in (LITTLE_ENDIAN, BIG_ENDIAN):
                    status = np.int64(BAD_SECTION)
                    break
                big_endian = np.int64(magic == BIG_ENDIAN)
            elif section == NO_SECTION:
                status = np.int64(BAD_SECTION)
                break
            elif big_endian:
                kind = u32(buf, at, big_endian)
            length = u32(buf, at + 4, big_endian)
            if length < 12 or length & 3 or length > MAX_BLOCK:
                status = np.int64(BAD_LENGTH)
                break
            if at + length > end:
                status = np.int64(CUT_RECORD)
                break
            if u32(buf, at + length - 4, big_endian) != length:
                status = np.int64(BAD_LENGTH)
                break
            if kind in (ENHANCED_PACKET, SIMPLE_PACKET, PACKET):
                header = 12 if kind == SIMPLE_PACKET else 28
                if length < header + 4:
                    status = np.int64(BAD_LENGTH)
                    break
                interface = (section >> 1) + packet_interface(buf, at, kind, big_endian)
                if interface >= known:
                    status = np.int64(UNKNOWN_INTERFACE)
                    break
                if kind == SIMPLE_PACKET:
                    captured = simple_captured(u32(buf, at + 8, big_endian), interfaces[interface * WIDTH + SNAPLEN])
                    time = np.int64(0)
                else:
                    captured = u32(buf, at + 20, big_endian)
                    time, _ = interface_time(interfaces, interface, packet_count(buf, at, big_endian))
                if captured > MAX_CAPTURED or captured > length - header - 4:
                    status = np.int64(BAD_LENGTH)
                    break
                if records == 0:
                    begin = at
                stop = at + length
                first = min(first, time)
                last = max(last, time)
                records += 1
            elif kind == SECTION:
                if length < SECTION_HEADER or u16(buf, at + 12, big_endian) != 1:
                    status = np.int64(BAD_SECTION)
                    break
                section = known << 1 | big_endian
            elif kind == INTERFACE_DESCRIPTION:
                status = np.int64(DESCRIBED)
                break
            at += length
        run = put_block_row(rows, run, begin, stop, records, first, last, section)
        if status != MORE:
            break
    state[0] = at
    state[1] = status
    state[2] = section
    return run


class PcapngFormat:
    """What has been learned of a pcapng file: its interfaces. A RecordFormat; picklable. Not thread safe in `walk`.

    A walk that begins again at the file's beginning meets the same interfaces, which are known then and not added.
    """

    first_record = 0
    """The first section header is part of the walk."""

    def __init__(self) -> None:
        """Know nothing yet: all that a file says is in its blocks."""
        self.table = InterfaceTable()

    @property
    def interfaces(self) -> npt.NDArray[np.int64]:
        """The table that kernels read; it may have rows to spare."""
        return self.table.matrix.reshape(-1)

    @property
    def interface_names(self) -> list[str]:
        """Names of the interfaces met so far, by their number in the file; several may have one name."""
        return self.table.names

    def walk(
        self, data: npt.NDArray[np.uint8], end: int, records: int, rows: npt.NDArray[np.int64], state: WalkState
    ) -> int:
        """Walk whole records, as RecordFormat says."""
        found = 0
        while found < len(rows):
            free = rows[found:]
            found += scan_pcapng(data, end, records, len(free), self.interfaces, free.reshape(-1), state.words)
            if state.status == DESCRIBED:
                state.status = self._describe(data, state)
            if state.status != MORE:
                break
        return found

    def _describe(self, data: npt.NDArray[np.uint8], state: WalkState) -> int:
        """Read the interface description at the state's offset and go on after it; return the status."""
        if state.interfaces == MAX_INTERFACES:
            return TOO_MANY_INTERFACES
        big_endian = bool(state.section & 1)
        length = int.from_bytes(data[state.at + 4 : state.at + 8].tobytes(), "big" if big_endian else "little")
        if state.interfaces == len(self.table.names):
            try:
                self.table.add(parse_interface(data[state.at + 8 : state.at + length - 4].tobytes(), big_endian))
            except BadInterfaceError:
                return BAD_INTERFACE
        state.interfaces += 1
        state.at += length
        return MORE


def parse_section_header(head: bytes, name: str) -> PcapngFormat:
    """Parse the first bytes of a file that begins with MAGIC; InputError where they are no section header."""
    if len(head) < SECTION_HEADER:
        raise InputError(
            f"{name}: cut inside the pcapng section header: got {len(head)} bytes, expected {SECTION_HEADER}"
        )
    orders = {LITTLE_ENDIAN: "<", BIG_ENDIAN: ">"}
    (magic,) = struct.unpack_from("<I", head, 8)
    if magic not in orders:
        got = head[8:12].hex(" ")
        raise InputError(f"{name}: begins as a pcapng capture does, but its byte-order magic is {got}, not 1a 2b 3c 4d")
    major, minor = struct.unpack_from(orders[magic] + "HH", head, 12)
    if major != 1:
        raise InputError(f"{name}: pcapng version {major}.{minor} is not supported, expected 1.x")
    return PcapngFormat()
