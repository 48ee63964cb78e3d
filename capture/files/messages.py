"""Messages of NetFlow and IPFIX back to back in a file: where each ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from capture.bytes import u16be
from capture.files.blocks import BAD_LENGTH, CUT_HEADER, CUT_RECORD, MORE, WHOLE, WalkState, put_block_row
from capture.flows.kernels.datagrams import header_clock, header_length, record_length
from capture.native import helper, kernel

# Files of bare export datagrams: messages of NetFlow and IPFIX back to back, as a collector received them.
#
# An IPFIX file (RFC 5655) is one, and so is the payload of a datagram saved by itself. Such a file says neither who
# sent a message nor when it came: its time is that of its header, its sender NULL. NetFlow v5, v7 and IPFIX say how
# long a
# message is. One of v9 does not: it goes on, set by set, until a header follows, whose version is the number of no set,
# or zeros to fill it up. The last message of a file has what is left of it, however much it says it should.


VERSIONS = (5, 7, 9, 10)
"""What a message begins with, as two bytes."""

SHORTEST_HEADER = 16


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """A RecordFormat whose records are messages; nothing stands before the first."""

    @property
    def first_record(self) -> int:
        """Offset of the first message."""
        return 0

    @property
    def interface_names(self) -> list[str]:
        """One interface without a name."""
        return ["0"]

    def walk(
        self, data: npt.NDArray[np.uint8], end: int, records: int, rows: npt.NDArray[np.int64], state: WalkState
    ) -> int:
        """Walk whole messages, as RecordFormat says; `data` is the whole file."""
        return walk_messages(data, end, len(data), records, len(rows), rows.reshape(-1), state.words)


def is_export_file(head: bytes) -> bool:
    """Whether a file that begins with these bytes can be one of export datagrams."""
    return len(head) >= SHORTEST_HEADER and int.from_bytes(head[:2], "big") in VERSIONS


@helper
def message_end(buf, at, size, version):  # type: ignore[no-untyped-def]
    """Where the message ends whose header, of `version`, is at `at` and whole; -1 where it says an impossible length.

    `size` are the bytes of the file.
    """
    header = header_length(version)
    length = u16be(buf, at + 2)
    if version in (5, 7):
        return min(at + header + length * record_length(version), size)
    if version == 10:
        return min(at + length, size) if length >= header else np.int64(-1)
    at += header
    while at + 4 <= size:
        kind = u16be(buf, at)
        if header_length(kind):
            return at
        length = u16be(buf, at + 2)
        if kind == 0 and length == 0:
            while at < size and buf[at] == 0:
                at += 1
            return at - 1 if at < size else size  # a header begins with a zero of its own
        if length < 4 or at + length > size:
            return size
        at += length
    return size


@kernel("i64(u8*, i64, i64, i64, i64, i64*, i64*)")
def walk_messages(buf, end, size, block_records, max_blocks, rows, state):  # type: ignore[no-untyped-def]
    """Walk messages that end in `buf[state[0]:end]` of a file of `size` bytes, and describe up to `max_blocks` blocks.

    `rows` is max_blocks x ROW, `state` the words of a WalkState. Returns the number of blocks written.
    """
    at = state[0]
    status = np.int64(MORE)
    block = 0
    while block < max_blocks:
        begin = at
        records = 0
        first = np.int64(2**63 - 1)
        last = np.int64(-1)
        while records < block_records:
            version = u16be(buf, at) if at + 2 <= end else np.int64(0)
            header = header_length(version)
            if at + max(header, 2) > end:
                status = np.int64(WHOLE if at == end else CUT_HEADER)
                break
            following = message_end(buf, at, size, version) if header else np.int64(-1)
            if following < 0:
                status = np.int64(BAD_LENGTH)
                break
            if following > end:
                status = np.int64(CUT_RECORD)
                break
            time = header_clock(buf, at, version)[1]
            first = min(first, time)
            last = max(last, time)
            at = following
            records += 1
        block = put_block_row(rows, block, begin, at, records, first, last, 0)
        if status != MORE:
            break
    state[0] = at
    state[1] = status
    return block


@kernel("i64(u8*, i64, i64, i64, i64*, i64*, i64*)")
def list_messages(buf, at, end, size, starts, lengths, times):  # type: ignore[no-untyped-def]
    """Write offset, length and time of each message of a block that was walked; return how many there are."""
    count = 0
    while at < end:
        version = u16be(buf, at)
        following = message_end(buf, at, size, version)
        starts[count] = at
        lengths[count] = following - at
        times[count] = header_clock(buf, at, version)[1]
        at = following
        count += 1
    return count
