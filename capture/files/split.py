"""Cut a capture into byte ranges that several readers can take at once, exactly at record boundaries.

A pcap file has no marks to find a record by: the only proof of a boundary is the walk from the file's beginning. So
cuts are **guessed and then verified**. A guess is an offset from which a chain of headers looks plausible; payloads
can imitate that. Each reader walks its range from its guess to the first boundary at or after the next cut and says
where it ended. By induction all ranges are exact when the first began at the file header and each other began where
the one before it ended: then their walks joined are the walk from the beginning. A range that began elsewhere was
guessed wrong and is walked again from the true boundary. Right guesses cost nothing, wrong ones time, never a row.

    |header|  range 0   |·  range 1    |·   range 2        |
                    cut ^          cut ^  the · is the record that straddles the cut: it belongs to the range before

A pcapng file is not guessed at: what its records mean hangs on the sections and interfaces before them. It is walked
once from its beginning, and each range carries what the walk knew where it begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from capture.bytes import u32
from capture.files.blocks import BLOCK_RECORDS, DAMAGE, NO_SECTION, ROW, Block, WalkState
from capture.files.capture import Capture
from capture.files.pcap import MAX_CAPTURED, PcapFormat, captured_length
from capture.native import kernel

CHAIN = 24
"""Headers in a row that must look plausible before a guess is made."""

MAX_PAUSE = 86_400
"""Seconds between neighbouring records of a plausible chain; a real pause that is longer costs a guess, not a row."""


@kernel("i64(u8*, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64)")
def guess_boundary(buf, at, stop, end, big_endian, fraction, header, length_order, max_captured, chain, pause):  # type: ignore[no-untyped-def]
    """First offset of `[at, stop)` where `chain` plausible records begin (fewer if they end at `end`); -1 for none.

    Plausible: a fraction of a second below `fraction`, some bytes captured but no more than `max_captured` or than
    were on the wire, a believable length on the wire (it is what tells a header from one read 4 bytes late, among
    packets of one size), and not more than `pause` seconds from the record before.
    """
    for start in range(at, stop):
        here = np.int64(start)
        seen = 0
        before = np.int64(-1)
        while seen < chain and here + header <= end:
            first = u32(buf, here + 8, big_endian)
            second = u32(buf, here + 12, big_endian)
            captured = captured_length(buf, here, big_endian, length_order)
            seconds = u32(buf, here, big_endian)
            if captured == 0 or captured > max_captured or max(first, second) > MAX_CAPTURED:
                break
            if u32(buf, here + 4, big_endian) >= fraction or here + header + captured > end:
                break
            if before >= 0 and (seconds > before + pause or before > seconds + pause):
                break
            if length_order == 0 and second < first:
                break
            before = seconds
            here += header + captured
            seen += 1
        if seen == chain or (seen > 0 and here == end):
            return start
    return -1


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Whole records in bytes `[start, end)` of a file, and how the file ends there if badly (a cause of DAMAGE).

    `section` and `interfaces` are those of a WalkState that stands at `start`.
    """

    start: int
    end: int
    damage: str | None = None
    section: int = NO_SECTION
    interfaces: int = 0


def guess(file: Capture, cut: int) -> int | None:
    """Guess the first record boundary at or after byte `cut`, or say that nothing there looks like one.

    None for pcapng, but for the file's beginning.
    """
    form = file.format
    if cut <= form.first_record:
        return form.first_record
    if not isinstance(form, PcapFormat):
        return None
    largest = min(MAX_CAPTURED, form.snaplen or MAX_CAPTURED)
    found = guess_boundary(
        file.data, cut, min(len(file.data), cut + form.record_header + largest), len(file.data), form.big_endian,
        1_000_000_000 // form.unit, form.record_header, form.length_order, largest, CHAIN,
        MAX_PAUSE,
    )  # fmt: skip
    return None if found < 0 else found


class RangeScan:
    """The walk over one range: iterate for its blocks; afterwards `range` says what was walked. Not thread safe.

    The `low` of a block is a guess, its own smallest ts, right where the file is in order. It promises nothing: what
    other ranges hold is not known here.
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

        `section` and `interfaces` are what a walk from the beginning of the file knows at `start`.
        """
        self.file = file
        self.begin = ByteRange(start, start, None, section, interfaces)
        self.cut = min(cut, len(file.data))
        self.block_records = block_records
        self.damage: str | None = None
        self.state = WalkState(start, section, interfaces)
        self.row = np.empty((1, ROW), np.int64)

    def __iter__(self) -> RangeScan:
        """Iterate over the blocks that are left."""
        return self

    def __next__(self) -> Block:
        """Walk the next block; a record that straddles the cut is one by itself."""
        if self.state.at >= self.cut or self.damage is not None:
            raise StopIteration
        found = self._walk(self.cut, self.block_records)
        if not found and self.state.at < self.cut:
            found = self._walk(len(self.file.data), 1)
        if not found:
            self.damage = DAMAGE.get(self.state.status)  # None where only blocks without packets were left
            raise StopIteration
        start, end, records, first, last, section = self.row[0].tolist()
        return Block(start, end, records, first, last, low=first, section=section)

    def _walk(self, end: int, records: int) -> int:
        """Walk up to `records` records that end at or before byte `end`; return whether there was one."""
        return self.file.format.walk(self.file.data, end, records, self.row, self.state)

    @property
    def range(self) -> ByteRange:
        """What has been walked; whole after the last block."""
        return replace(self.begin, end=self.state.at, damage=self.damage)


def cuts(begin: int, size: int, count: int) -> list[int]:
    """Cut `[begin, size)` into `count` ranges of about the same number of bytes: the count + 1 bounds."""
    return [begin + (size - begin) * number // count for number in range(count + 1)]


def joined(ranges: Sequence[ByteRange], begin: int, size: int) -> bool:
    """Whether ranges are one walk over bytes `[begin, size)`: the proof that their guesses were right."""
    if not ranges or ranges[0].start != begin:
        return False
    if any(before.end != after.start or before.damage for before, after in pairwise(ranges)):
        return False
    return ranges[-1].damage is not None or ranges[-1].end == size


def split(file: Capture, count: int) -> list[ByteRange]:
    """Cut a file into up to `count` exact ranges, walking classic pcap in as many threads (kernels release the GIL).

    The last range carries the file's damage; nothing after damage is in any range. A file without records has none.
    """
    bounds = cuts(file.format.first_record, len(file.data), count)

    def walk(number: int) -> ByteRange | None:
        start = guess(file, bounds[number])
        return None if start is None else _walked(file, WalkState(start), bounds[number + 1]).range

    guessed: dict[int, ByteRange] = {}
    if isinstance(file.format, PcapFormat):
        with ThreadPoolExecutor(count) as threads:
            guessed = {found.start: found for found in threads.map(walk, range(count)) if found is not None}
    ranges: list[ByteRange] = []
    state = WalkState(file.format.first_record)
    while state.at < len(file.data) and (not ranges or ranges[-1].damage is None):
        found = guessed.get(state.at)
        if found is None or found.end == found.start:
            scan = _walked(file, state, next(bound for bound in bounds if bound > state.at))
            found, state = scan.range, scan.state
        ranges.append(found)
        state.at = found.end
    if len(ranges) > 1 and ranges[-1].start == ranges[-1].end:  # nothing but the damage is left: the one before tells
        last = ranges.pop()
        ranges[-1] = replace(ranges[-1], end=last.end, damage=last.damage)
    return ranges


def _walked(file: Capture, state: WalkState, cut: int) -> RangeScan:
    scan = RangeScan(file, state.at, cut, BLOCK_RECORDS, state.section, state.interfaces)
    for _ in scan:
        pass
    return scan
