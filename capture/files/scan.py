"""A fast pass over the record headers of a capture: its blocks, and the exact watermark after each block.

The exact watermark is the smallest time of all later records, `lwm(n) = min{ t.ts : t after position n }` (Li 2008,
Eq. 4.1). The pass stores the smallest time of each block, and the watermark after a block is the minimum over all later
blocks. So no record of a file is ever late, even if its timestamps jump. The pass reads 16 bytes per record and is
several times faster than decoding.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from capture.files.blocks import BLOCK_RECORDS, BLOCK_WORDS, CONTINUE, DAMAGE, END_OF_FILE, Block, Index, WalkState
from capture.files.capture import Capture
from capture.files.pcap import PcapFormat
from capture.files.split import ByteRange, even_offsets, guess_record_boundary
from capture.lazy_dataclasses import dataclass

Progress = Callable[[int], None]
"""A function that receives the number of bytes walked since its last call. The walking thread calls it."""

SCAN_RECORDS = 1 << 18
"""Number of records that `scan` walks between two calls of Progress."""


def scan(file: Capture, block_records: int = BLOCK_RECORDS, progress: Progress | None = None) -> Index:
    """Index the blocks of a capture. An exception that `progress` raises ends the scan."""
    state = WalkState(file.format.first_record)
    chunk = np.empty((max(1, SCAN_RECORDS // block_records), BLOCK_WORDS), np.int64)
    chunks: list[npt.NDArray[np.int64]] = []
    while state.status == CONTINUE:
        offset_before = state.offset
        block_count = file.format.walk(file.data, len(file.data), block_records, chunk, state)
        chunks.append(chunk[:block_count].copy())
        if progress:
            progress(state.offset - offset_before)
    return index_of(np.concatenate(chunks), DAMAGE.get(state.status))


def index_of(rows: npt.NDArray[np.int64], damage: str | None) -> Index:
    """Make an index from the rows of a file's blocks, in file order. Compute the watermark after each block."""
    watermarks = np.append(np.minimum.accumulate(rows[::-1, 3])[::-1], END_OF_FILE)[1:]  # empty if there are no blocks
    blocks = [Block(*row) for row in np.column_stack([rows[:, :5], watermarks, rows[:, 5]]).tolist()]
    return Index(blocks, damage)


# Several threads can scan one capture in parallel: each thread scans one piece. The joined pieces equal `scan`.
#
# `capture.files.split` describes how the first record of a piece is guessed, and why the walks verify each other.
# A walk that began at a wrong guess is repeated when the pieces are joined, so the index is always exact.

CHUNK_BLOCKS = 256
"""Maximum number of blocks that PiecewiseScan walks between two calls of Progress."""


@dataclass(frozen=True)
class PieceWalk:
    """The blocks of a piece of a file. `rows`: blocks x BLOCK_WORDS. `range`: the bytes of these blocks."""

    range: ByteRange
    rows: npt.NDArray[np.int64]


class PiecewiseScan:
    """The scan of one file. Call `walk` once per piece, in any order and from any threads; then call `index`.

    Only the boundaries of classic pcap can be guessed. Files of all other formats are one piece.
    """

    def __init__(self, file: Capture, max_pieces: int, block_records: int = BLOCK_RECORDS) -> None:
        """Split `file` into up to `max_pieces` pieces of about equal size."""
        self.file = file
        self.block_records = block_records
        piece_count = max_pieces if isinstance(file.format, PcapFormat) else 1
        self.bounds = even_offsets(file.format.first_record, len(file.data), piece_count)
        self._walks: dict[int, PieceWalk] = {}  # by the offset at which they start

    @property
    def piece_count(self) -> int:
        """Number of pieces of the file."""
        return len(self.bounds) - 1

    def walk(self, piece: int, progress: Progress | None = None) -> None:
        """Walk one piece from the first record boundary guessed in it. Do nothing if no boundary can be guessed."""
        start = self.bounds[0] if piece == 0 else guess_record_boundary(self.file, self.bounds[piece])
        if start is not None:
            self._walks[start] = self._walk(start, self.bounds[piece + 1], progress)

    def _joined_walks(self) -> list[PieceWalk]:
        """Join the walks up to the first damage. Repeat walks that began at a wrong guess."""
        walks: list[PieceWalk] = []
        offset, size = self.bounds[0], len(self.file.data)
        while offset < size and (not walks or walks[-1].range.damage is None):
            walk = self._walks.get(offset)
            if walk is None or walk.range.end == offset:
                walk = self._walk(offset, next(bound for bound in self.bounds if bound > offset))
            walks.append(walk)
            offset = walk.range.end
        return walks

    def index(self, progress: Progress | None = None) -> Index:
        """Join all walks into the index of the file. The numbers reported to `progress` add up to the file size."""
        reported = sum(walk.range.end - walk.range.start for walk in self._walks.values())
        walks = self._joined_walks()
        if progress:
            progress(len(self.file.data) - reported)
        rows = np.concatenate([np.empty((0, BLOCK_WORDS), np.int64), *(walk.rows for walk in walks)])
        return index_of(rows, walks[-1].range.damage if walks else None)

    def _walk(self, start: int, bound: int, progress: Progress | None = None) -> PieceWalk:
        """Walk from `start` to the first record boundary at or after byte `bound`."""
        file, state = self.file, WalkState(start)
        chunk = np.empty((CHUNK_BLOCKS, BLOCK_WORDS), np.int64)
        rows = [chunk[:0]]
        damage = None
        while state.offset < bound:
            offset_before = state.offset
            block_count = file.format.walk(file.data, bound, self.block_records, chunk, state)
            if not block_count:  # one record crosses the bound, or no complete record follows
                block_count = file.format.walk(file.data, len(file.data), 1, chunk[:1], state)
            if not block_count:
                damage = DAMAGE.get(state.status)
                break
            rows.append(chunk[:block_count].copy())
            if progress:
                progress(state.offset - offset_before)
        return PieceWalk(ByteRange(start, state.offset, damage), np.concatenate(rows))
