"""Split a capture into byte ranges at exact record boundaries, so that several readers can read it in parallel.

A pcap file has no markers between records: only a walk from the beginning of the file proves a boundary. So boundaries
are **guessed and then verified**. A guess is an offset at which a chain of plausible headers begins, but a payload can
contain such a chain. Each reader walks its range from its guess to the first boundary at or after the next cut, and
reports this boundary as its end. Assume that the first range begins at the first record, and each other range at the
end of the previous range. Then, by induction, the walks together are the walk from the beginning, so all ranges are
exact. A range that does not begin at the end of the previous range was guessed wrong. It is walked again from that end.
A wrong guess costs time, never a row.

    |header|  range 0   |·  range 1    |·   range 2        |
                    cut ^          cut ^  · is a record that straddles a cut; it belongs to the range before it

Boundaries of a pcapng file are not guessed, because the meaning of its records depends on the sections and interfaces
before them. It is walked once from its beginning, and each range stores the state of the walk at its start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from capture.bytes import u32
from capture.files.blocks import BLOCK_RECORDS, BLOCK_WORDS, DAMAGE, NO_SECTION, Block, WalkState
from capture.files.capture import Capture
from capture.files.pcap import MAX_CAPTURED_BYTES, PcapFormat, captured_length
from capture.lazy_dataclasses import dataclass
from capture.native import kernel

CHAIN_LENGTH = 24
"""Number of consecutive record headers that must be plausible for a guess."""

MAX_PAUSE_SECONDS = 86_400
"""Maximum seconds between neighbouring records of a plausible chain. If a file has a longer pause, a guess may fail,
but no row is lost."""


@kernel("i64(u8*, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64)")
def find_plausible_chain(buf, begin, stop, end, big_endian, units, header, length_order, max_captured, chain, pause):  # type: ignore[no-untyped-def]
    """Return the first offset in `[begin, stop)` at which `chain` plausible records begin; -1 for none.

    `length_order`: see `PcapFormat`. A chain that ends at `end` may be shorter. A record header is plausible if:

    * its ts_frac is less than `units`, the units of ts_frac per second;
    * its captured length is at least 1 byte, and at most `max_captured` and the wire length;
    * its wire length is possible (only this check detects a header read 4 bytes too late if all packets have one size);
    * its time differs from the time of the previous record by at most `pause` seconds.
    """
    for start in range(begin, stop):
        offset = np.int64(start)
        count = 0
        previous_seconds = np.int64(-1)
        while count < chain and offset + header <= end:
            first_length = u32(buf, offset + 8, big_endian)
            second_length = u32(buf, offset + 12, big_endian)
            captured = captured_length(buf, offset, big_endian, length_order)
            seconds = u32(buf, offset, big_endian)
            if captured == 0 or captured > max_captured or max(first_length, second_length) > MAX_CAPTURED_BYTES:
                break
            if u32(buf, offset + 4, big_endian) >= units or offset + header + captured > end:
                break
            if previous_seconds >= 0 and (seconds > previous_seconds + pause or previous_seconds > seconds + pause):
                break
            if length_order == 0 and second_length < first_length:
                break
            previous_seconds = seconds
            offset += header + captured
            count += 1
        if count == chain or (count > 0 and offset == end):
            return start
    return -1


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The bytes `[start, end)` of a file, which contain whole records. `damage`: a name from DAMAGE if damage follows.

    `section` and `interfaces`: as in a WalkState at `start`.
    """

    start: int
    end: int
    damage: str | None = None
    section: int = NO_SECTION
    interfaces: int = 0


def guess_record_boundary(file: Capture, cut: int) -> int | None:
    """Guess the first record boundary at or after byte `cut`. Return None if no offset is plausible.

    For pcapng, only the first record is a known boundary.
    """
    file_format = file.format
    if cut <= file_format.first_record:
        return file_format.first_record
    if not isinstance(file_format, PcapFormat):
        return None
    max_captured = min(MAX_CAPTURED_BYTES, file_format.snaplen or MAX_CAPTURED_BYTES)
    boundary = find_plausible_chain(
        file.data, cut, min(len(file.data), cut + file_format.record_header + max_captured), len(file.data),
        file_format.big_endian, 1_000_000_000 // file_format.unit, file_format.record_header, file_format.length_order,
        max_captured, CHAIN_LENGTH, MAX_PAUSE_SECONDS,
    )  # fmt: skip
    return None if boundary < 0 else boundary


class RangeScan:
    """The walk over one range: iterate over its blocks, then read `range`. Not thread safe.

    The `watermark` of a block is only its own smallest ts, because later ranges are unknown. So the watermark is exact
    only if the file is in the order of time.
    """

    def __init__(
        self,
        file: Capture,
        start: int,
        cut: int,
        block_records: int = BLOCK_RECORDS,
        section: int = NO_SECTION,
        interfaces: int = 0,
    ) -> None:
        """Walk from the boundary `start` to the first boundary at or after `cut`, in blocks of `block_records`.

        `section` and `interfaces`: as in the WalkState at `start` of a walk from the beginning of the file.
        """
        self.file = file
        self._empty_range = ByteRange(start, start, None, section, interfaces)
        self.cut = min(cut, len(file.data))
        self.block_records = block_records
        self.damage: str | None = None
        self.state = WalkState(start, section, interfaces)
        self.row = np.empty((1, BLOCK_WORDS), np.int64)

    def __iter__(self) -> RangeScan:
        """Iterate over the remaining blocks."""
        return self

    def __next__(self) -> Block:
        """Walk the next block. A record that straddles the cut is a separate block."""
        if self.state.offset >= self.cut or self.damage is not None:
            raise StopIteration
        count = self._walk(self.cut, self.block_records)
        if not count and self.state.offset < self.cut:
            count = self._walk(len(self.file.data), 1)
        if not count:
            self.damage = DAMAGE.get(self.state.status)  # None if the rest has no records
            raise StopIteration
        start, end, records, min_ts, max_ts, section = self.row[0].tolist()
        return Block(start, end, records, min_ts, max_ts, watermark=min_ts, section=section)

    def _walk(self, end: int, records: int) -> int:
        """Walk up to `records` records that end at or before byte `end`. Return the number of blocks, 0 or 1."""
        return self.file.format.walk(self.file.data, end, records, self.row, self.state)

    @property
    def range(self) -> ByteRange:
        """The range walked so far."""
        return replace(self._empty_range, end=self.state.offset, damage=self.damage)


def even_offsets(begin: int, size: int, count: int) -> list[int]:
    """Return the `count` + 1 bounds of `count` ranges of about equal size that together cover bytes `[begin, size)`."""
    return [begin + (size - begin) * index // count for index in range(count + 1)]


def ranges_are_contiguous(ranges: Sequence[ByteRange], begin: int, size: int) -> bool:
    """Return whether the ranges cover bytes `[begin, size)` without a gap, which means that all guesses were right."""
    if not ranges or ranges[0].start != begin:
        return False
    if any(before.end != after.start or before.damage for before, after in pairwise(ranges)):
        return False
    return ranges[-1].damage is not None or ranges[-1].end == size


def split(file: Capture, count: int) -> list[ByteRange]:
    """Split a file into up to `count` exact ranges. `count` threads walk classic pcap, because kernels release the GIL.

    The last range contains the file's damage; bytes after damage are in no range. A file without records has no ranges.
    """
    bounds = even_offsets(file.format.first_record, len(file.data), count)

    def walk(index: int) -> ByteRange | None:
        start = guess_record_boundary(file, bounds[index])
        return None if start is None else _walk_range(file, WalkState(start), bounds[index + 1]).range

    guessed: dict[int, ByteRange] = {}
    if isinstance(file.format, PcapFormat):
        # Imported here, because the import is slow (it loads logging), and only large files need it.
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(count) as threads:
            guessed = {range_.start: range_ for range_ in threads.map(walk, range(count)) if range_ is not None}
    ranges: list[ByteRange] = []
    state = WalkState(file.format.first_record)
    while state.offset < len(file.data) and (not ranges or ranges[-1].damage is None):
        range_ = guessed.get(state.offset)
        if range_ is None or range_.end == range_.start:
            scan = _walk_range(file, state, next(bound for bound in bounds if bound > state.offset))
            range_, state = scan.range, scan.state
        ranges.append(range_)
        state.offset = range_.end
    if len(ranges) > 1 and ranges[-1].start == ranges[-1].end:  # the last range has no records, only the damage
        last = ranges.pop()
        ranges[-1] = replace(ranges[-1], end=last.end, damage=last.damage)
    return ranges


def _walk_range(file: Capture, state: WalkState, cut: int) -> RangeScan:
    """Walk from `state` to the first boundary at or after `cut`."""
    scan = RangeScan(file, state.offset, cut, BLOCK_RECORDS, state.section, state.interfaces)
    for _ in scan:
        pass
    return scan
