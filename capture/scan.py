"""One cheap pass over the record headers of a capture: its blocks, and the true low watermark after each.

`lwm(n) = min{ t.ts : t after position n }` (Li 2008, Eq. 4.1). A finite file can be asked for it: the pass notes the
smallest time of each block, and the minimum over all later blocks is exactly the promise a reader may make after this
one. Nothing in a file is then ever late, however its timestamps jump. The pass reads 16 bytes of each record and is
several times faster than decoding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from capture.bytes import u32
from capture.native import helper, kernel
from capture.pcap import FILE_HEADER, MAX_CAPTURED, PcapFile

BLOCK_RECORDS = 16_384
"""Records in a block: its decoded columns fit the second-level cache."""

END_OF_FILE = 2**63 - 1
"""The low watermark after the last block."""

WHOLE, MORE, CUT_HEADER, CUT_RECORD, BAD_LENGTH = 0, 1, 2, 3, 4
DAMAGE = {
    CUT_HEADER: "cut_in_record_header",
    CUT_RECORD: "cut_in_record",
    BAD_LENGTH: "impossible_record_length",
}
"""What can stand where a record should: the rest of the file is then not read."""


@dataclass(frozen=True, slots=True)
class Block:
    """A run of whole records: bytes `[start, end)`, how many records, their smallest and largest ts (ns), and `low`.

    `low` is the low watermark after the block: no later record of the file has a ts below it.
    """

    start: int
    end: int
    records: int
    first: int
    last: int
    low: int


@dataclass(frozen=True)
class Index:
    """The blocks of one capture and how it ends: `damage` is None, or one of the causes of DAMAGE."""

    blocks: list[Block]
    damage: str | None

    @property
    def records(self) -> int:
        """Whole records in the file."""
        return sum(block.records for block in self.blocks)

    @property
    def low(self) -> int:
        """The low watermark before the first block: the smallest ts of the file."""
        return min((block.first for block in self.blocks), default=END_OF_FILE)


@helper
def record_time(buf, at, big_endian, unit):  # type: ignore[no-untyped-def]
    """Time of the record whose header begins at `at`, in ns: seconds + fraction as it stands, carried over."""
    return u32(buf, at, big_endian) * 1_000_000_000 + u32(buf, at + 4, big_endian) * unit


@helper
def captured_length(buf, at, big_endian, length_order):  # type: ignore[no-untyped-def]
    """incl_len of the record whose header begins at `at`."""
    first = u32(buf, at + 8, big_endian)
    if length_order == 0:
        return first
    second = u32(buf, at + 12, big_endian)
    return second if length_order == 1 else min(first, second)


@helper
def wire_length(buf, at, big_endian, length_order):  # type: ignore[no-untyped-def]
    """orig_len of the record whose header begins at `at`: the other of the two lengths."""
    second = u32(buf, at + 12, big_endian)
    if length_order == 0:
        return second
    first = u32(buf, at + 8, big_endian)
    return first if length_order == 1 else max(first, second)


@kernel("i64(u8*, i64, i64, i64, i64, i64, i64, i64, i64, i64*, i64*)")
def scan_blocks(buf, end, big_endian, unit, header, length_order, max_captured, block_records, max_blocks, rows, state):  # type: ignore[no-untyped-def]
    """Walk whole records of `buf[state[0]:end]` and describe up to `max_blocks` blocks.

    `rows` is max_blocks x 5: start, end, records, smallest ts, largest ts. `state` is (offset, status): where the
    walk stands and why it stopped. Returns the number of blocks written; status MORE asks to be called again.
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
            if at + header > end:
                status = np.int64(WHOLE if at == end else CUT_HEADER)
                break
            captured = captured_length(buf, at, big_endian, length_order)
            if captured > max_captured:
                status = np.int64(BAD_LENGTH)
                break
            if at + header + captured > end:
                status = np.int64(CUT_RECORD)
                break
            time = record_time(buf, at, big_endian, unit)
            first = min(first, time)
            last = max(last, time)
            at += header + captured
            records += 1
        if records:
            rows[block * 5] = begin
            rows[block * 5 + 1] = at
            rows[block * 5 + 2] = records
            rows[block * 5 + 3] = first
            rows[block * 5 + 4] = last
            block += 1
        if status != MORE:
            break
    state[0] = at
    state[1] = status
    return block


def scan(file: PcapFile, block_records: int = BLOCK_RECORDS, progress: Callable[[int], None] | None = None) -> Index:
    """Index a capture. `progress` is called with the offset reached, several times a second."""
    state = np.array([FILE_HEADER, MORE], np.int64)
    chunk = np.empty((max(1, 4_194_304 // block_records), 5), np.int64)
    found: list[npt.NDArray[np.int64]] = []
    header = file.header
    unit = 1 if header.nanoseconds else 1000
    while state[1] == MORE:
        count = scan_blocks(
            file.data, len(file.data), header.big_endian, unit, header.record_header, header.length_order,
            MAX_CAPTURED, block_records, len(chunk), chunk.reshape(-1), state,
        )  # fmt: skip
        found.append(chunk[:count].copy())
        if progress:
            progress(int(state[0]))
    rows = np.concatenate(found)
    lows = np.append(np.minimum.accumulate(rows[::-1, 3])[::-1], END_OF_FILE)[1:]  # empty for no block
    blocks = [Block(*row) for row in np.column_stack([rows, lows]).tolist()]
    return Index(blocks, DAMAGE.get(int(state[1])))
