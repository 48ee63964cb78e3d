"""Files of export datagrams: NetFlow or IPFIX messages one after the other, without a capture format around them.

IPFIX files (RFC 5655) and saved payloads of export datagrams have this format. Such a file contains no sender and no
arrival time. So the time of a message is the time in its header, and its sender is NULL.

NetFlow v5, v7 and IPFIX messages have a length or a record count in their header. A NetFlow v9 message has no length
field. It ends where the next header begins, at zero padding, or at the end of the file. A header is recognised by its
version number, which is never used as a set ID. The last message ends with the file, even if its length is larger.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from capture.bytes import u16be
from capture.files.blocks import (
    BAD_LENGTH,
    CONTINUE,
    END_OF_DATA,
    TRUNCATED_HEADER,
    TRUNCATED_RECORD,
    WalkState,
    put_block_row,
)
from capture.flows.kernels.headers import header_clock, header_length, record_length
from capture.lazy_dataclasses import dataclass
from capture.native import helper, kernel

EXPORT_VERSIONS = (5, 7, 9, 10)
"""Export versions. A message begins with its version, in two bytes."""

MIN_HEADER_BYTES = 16
"""Length in bytes of the shortest message header (IPFIX)."""


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """The format of export files. Its records are messages; the first begins at offset 0. Implements RecordFormat."""

    @property
    def first_record(self) -> int:
        """Offset of the first message."""
        return 0

    @property
    def interface_names(self) -> list[str]:
        """One interface, named "0"."""
        return ["0"]

    def walk(
        self, data: npt.NDArray[np.uint8], end: int, block_records: int, rows: npt.NDArray[np.int64], state: WalkState
    ) -> int:
        """Walk whole messages; `data` is the whole file. Implements RecordFormat.walk."""
        return walk_messages(data, end, len(data), block_records, len(rows), rows.reshape(-1), state.words)


def is_export_file(head: bytes) -> bool:
    """Return whether a file that begins with these bytes can be an export file."""
    return len(head) >= MIN_HEADER_BYTES and int.from_bytes(head[:2], "big") in EXPORT_VERSIONS


@helper
def message_end(buf, offset, size, version):  # type: ignore[no-untyped-def]
    """Return the offset after the message at `offset`, or -1 if its length field is invalid.

    The caller has checked that the message has a complete header of `version`. `size`: bytes of the file.
    """
    header = header_length(version)
    length = u16be(buf, offset + 2)
    if version in (5, 7):
        return min(offset + header + length * record_length(version), size)
    if version == 10:
        return min(offset + length, size) if length >= header else np.int64(-1)
    offset += header
    while offset + 4 <= size:
        set_id = u16be(buf, offset)
        if header_length(set_id):
            return offset
        length = u16be(buf, offset + 2)
        if set_id == 0 and length == 0:
            while offset < size and buf[offset] == 0:
                offset += 1
            # The first byte of a header is zero too, because versions are 16-bit numbers below 256.
            return offset - 1 if offset < size else size
        if length < 4 or offset + length > size:
            return size
        offset += length
    return size


@kernel("i64(u8*, i64, i64, i64, i64, i64*, i64*)")
def walk_messages(buf, end, size, block_records, max_blocks, rows, state):  # type: ignore[no-untyped-def]
    """Walk messages that end in `buf[state[0]:end]` of a file of `size` bytes, and describe up to `max_blocks` blocks.

    `rows`: max_blocks x BLOCK_WORDS. `state`: the words of a WalkState. Returns the number of blocks written.
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
            version = u16be(buf, offset) if offset + 2 <= end else np.int64(0)
            header = header_length(version)
            if offset + max(header, 2) > end:
                status = np.int64(END_OF_DATA if offset == end else TRUNCATED_HEADER)
                break
            next_offset = message_end(buf, offset, size, version) if header else np.int64(-1)
            if next_offset < 0:
                status = np.int64(BAD_LENGTH)
                break
            if next_offset > end:
                status = np.int64(TRUNCATED_RECORD)
                break
            ts = header_clock(buf, offset, version)[1]
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


@kernel("i64(u8*, i64, i64, i64, i64*, i64*, i64*)")
def list_messages(buf, offset, end, size, starts, lengths, times):  # type: ignore[no-untyped-def]
    """Write offset, length and time (ns) of all messages in bytes `[offset, end)`, a block. Returns their number."""
    count = 0
    while offset < end:
        version = u16be(buf, offset)
        next_offset = message_end(buf, offset, size, version)
        starts[count] = offset
        lengths[count] = next_offset - offset
        times[count] = header_clock(buf, offset, version)[1]
        offset = next_offset
        count += 1
    return count
