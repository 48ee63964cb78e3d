"""The blocks of a packet socket's ring (TPACKET_V3, linux/if_packet.h), and the walk over the frames of a block.

    block       version, offset of private data, status, packets, offset of first frame, bytes used, number, times
    frame       next, sec, nsec, snaplen, len, status, mac, net, rxhash, vlan_tci, vlan_tpid, padding; sockaddr_ll
                ... gap ...  the frame's bytes, at offset `mac`

`next` is 0 at the last frame of a block. All numbers are in machine order; only little-endian machines are supported.

Linux removes a frame's VLAN tag and stores it in the frame header. The walk **restores** the frame in place. It moves
the MAC addresses into the gap before the frame, inserts the tag after them, and corrects the frame header. So decoders
see the frame as on the wire. If an interface has no link header, a Linux cooked header is written into the gap. The
first padding byte marks a restored frame; Linux clears this byte when it writes a new frame.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from capture.bytes import put16le, put32le, u16le, u32le
from capture.files.blocks import BAD_LENGTH, CONTINUE, END_OF_DATA, TRUNCATED_HEADER, WalkState, put_block_row
from capture.live.hardware import COOKED, ETHERNET
from capture.native import helper, kernel

BLOCK_HEADER = 48
BLOCK_STATUS, BLOCK_PACKETS, BLOCK_FIRST, BLOCK_USED = 8, 12, 16, 20
"""Offsets in the header of a block."""

NEXT, SEC, NSEC, SNAPLEN, LEN, STATUS, MAC, VLAN_TCI, VLAN_TPID, RESTORED = 0, 4, 8, 12, 16, 20, 24, 32, 36, 40
ADDRESS = 48
PROTOCOL, HARDWARE_TYPE, PACKET_TYPE, ADDRESS_LENGTH, HARDWARE_ADDRESS = 50, 56, 58, 59, 60
"""Offsets in the frame header. A sockaddr_ll begins at ADDRESS. RESTORED is the first byte of padding."""

FRAME_HEADER = 68
"""Bytes of the frame header, which precedes the gap and the frame (TPACKET3_HDRLEN)."""

VLAN_VALID, VLAN_TPID_VALID = 0x10, 0x40
"""Bits of a frame's status: a VLAN tag was removed, and the stored type of the tag (TPID) is valid."""

TAG_BYTES, COOKED_HEADER_BYTES, MAC_BYTES = 4, 16, 12
"""Lengths of a VLAN tag, of a Linux cooked header, and of the two MAC addresses of a frame."""

GAP_BYTES = 16
"""Bytes requested for the gap before each frame: enough for a tag or a cooked header."""

TRUNCATED, COUNTER_COUNT = 0, 1
"""Index of the counter of truncated frames, and number of counters of the walk."""


@helper
def insert_vlan_tag(buf, offset, mac):  # type: ignore[no-untyped-def]
    """Insert the VLAN tag of a frame after its addresses. `offset`: its frame header. Return the new value of `mac`."""
    frame = offset + mac
    for index in range(MAC_BYTES):
        buf[frame - TAG_BYTES + index] = buf[frame + index]
    tpid = u16le(buf, offset + VLAN_TPID) if u32le(buf, offset + STATUS) & VLAN_TPID_VALID else np.int64(0x8100)
    tci = u16le(buf, offset + VLAN_TCI)
    put16le(buf, frame + MAC_BYTES - TAG_BYTES, tpid >> 8 | (tpid & 0xFF) << 8)
    put16le(buf, frame + MAC_BYTES - TAG_BYTES + 2, tci >> 8 | (tci & 0xFF) << 8)
    return mac - TAG_BYTES


@helper
def insert_cooked_header(buf, offset, mac):  # type: ignore[no-untyped-def]
    """Insert a cooked header before a packet. `offset`: its frame header. Return the new value of `mac`."""
    header = offset + mac - COOKED_HEADER_BYTES
    buf[header] = 0
    buf[header + 1] = buf[offset + PACKET_TYPE]
    buf[header + 2] = buf[offset + HARDWARE_TYPE + 1]
    buf[header + 3] = buf[offset + HARDWARE_TYPE]
    buf[header + 4] = 0
    buf[header + 5] = buf[offset + ADDRESS_LENGTH]
    for index in range(8):
        buf[header + 6 + index] = buf[offset + HARDWARE_ADDRESS + index]
    buf[header + 14] = buf[offset + PROTOCOL]  # in network order, as Linux stores it
    buf[header + 15] = buf[offset + PROTOCOL + 1]
    return mac - COOKED_HEADER_BYTES


@helper
def restore_frame(buf, offset, link):  # type: ignore[no-untyped-def]
    """Restore the frame whose header is at `offset`: insert its VLAN tag or cooked header. Call this once per frame."""
    mac = u16le(buf, offset + MAC)
    captured = u32le(buf, offset + SNAPLEN)
    begin = mac
    if link == COOKED:
        if mac >= FRAME_HEADER + COOKED_HEADER_BYTES:
            begin = insert_cooked_header(buf, offset, mac)
    elif (
        link == ETHERNET
        and u32le(buf, offset + STATUS) & VLAN_VALID
        and captured >= MAC_BYTES
        and mac >= FRAME_HEADER + TAG_BYTES
    ):
        begin = insert_vlan_tag(buf, offset, mac)
    put16le(buf, offset + MAC, begin)
    put32le(buf, offset + SNAPLEN, captured + (mac - begin))
    put32le(buf, offset + LEN, u32le(buf, offset + LEN) + (mac - begin))
    buf[offset + RESTORED] = 1


@kernel("i64(u8*, i64, i64, i64, i64, i64*, i64*, i64*)")
def scan_ring(buf, end, link, block_records, max_blocks, rows, state, counts):  # type: ignore[no-untyped-def]
    """Walk and restore the frames of one ring block, `buf[state[0]:end]`. Describe up to `max_blocks` blocks of frames.

    `rows`: max_blocks x BLOCK_WORDS. `state`: the first two words of a WalkState. `counts`: COUNTER_COUNT words.

    A frame whose offsets point outside the block, or into the next frame, ends the walk with BAD_LENGTH. Returns the
    number of blocks written.
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
            if offset + FRAME_HEADER > end:
                status = np.int64(END_OF_DATA if offset == end else TRUNCATED_HEADER)
                break
            next_distance = u32le(buf, offset + NEXT)
            next_offset = offset + next_distance if next_distance else end
            mac = u16le(buf, offset + MAC)
            if mac < FRAME_HEADER or next_offset > end or offset + mac + u32le(buf, offset + SNAPLEN) > next_offset:
                status = np.int64(BAD_LENGTH)
                break
            if buf[offset + RESTORED] == 0:
                restore_frame(buf, offset, link)
                counts[TRUNCATED] += u32le(buf, offset + SNAPLEN) < u32le(buf, offset + LEN)
            ts = u32le(buf, offset + SEC) * 1_000_000_000 + u32le(buf, offset + NSEC)
            min_ts = min(min_ts, ts)
            max_ts = max(max_ts, ts)
            offset = next_offset
            records += 1
        block = put_block_row(rows, block, begin, offset, records, min_ts, max_ts, 0)
        if status != CONTINUE:
            break
    state[0] = offset
    state[1] = status
    return block


class RingFormat:
    """The format of ring blocks. Implements RecordFormat; a walk covers one ring block. Not thread safe."""

    first_record = BLOCK_HEADER

    def __init__(self, name: str, link_type: int) -> None:
        """Read frames of one interface."""
        self.link_type = link_type
        self.interface_names = [name]
        self.counts = np.zeros(COUNTER_COUNT, np.int64)

    @property
    def truncated(self) -> int:
        """Number of walked frames that were longer than the snapshot length."""
        return int(self.counts[TRUNCATED])

    def walk(
        self, data: npt.NDArray[np.uint8], end: int, block_records: int, rows: npt.NDArray[np.int64], state: WalkState
    ) -> int:
        """Walk the frames of one ring block, which ends at `end`. Implements RecordFormat.walk."""
        return scan_ring(
            data, end, self.link_type, block_records, len(rows), rows.reshape(-1), state.words, self.counts
        )  # fmt: skip
