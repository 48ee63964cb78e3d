"""Messages of NetFlow and IPFIX back to back in a file: where each ends."""

from __future__ import annotations

import numpy as np

from capture.bytes import u16be
from capture.files.block_row import put_block_row
from capture.files.blocks import BAD_LENGTH, CUT_HEADER, CUT_RECORD, MORE, WHOLE
from capture.flows.kernels.headers import header_clock, header_length, record_length
from capture.native import helper, kernel


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
