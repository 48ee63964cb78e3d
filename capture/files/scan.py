"""A fast pass over the record headers of a capture: its blocks, and the exact watermark after each block.

`lwm(n) = min{ t.ts : t after position n }` (Li 2008, Eq. 4.1). A finite file allows this to be computed: the pass
stores the smallest time of each block. The watermark after a block is the minimum over all later blocks. So no record
of a file is ever late, even if its timestamps jump. The pass reads 16 bytes per record and is several times faster
than decoding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from capture.files.blocks import BLOCK_RECORDS, BLOCK_WORDS, CONTINUE, DAMAGE, END_OF_FILE, Block, Index, WalkState
from capture.files.capture import Capture
from capture.files.pcap import PcapFormat
from capture.files.split import ByteRange, even_offsets, guess_record_boundary


def scan(file: Capture, block_records: int = BLOCK_RECORDS) -> Index:
    """Index the blocks of a capture."""
    state = WalkState(file.format.first_record)
    chunk = np.empty((max(1, 4_194_304 // block_records), BLOCK_WORDS), np.int64)
    chunks: list[npt.NDArray[np.int64]] = []
    while state.status == CONTINUE:
        count = file.format.walk(file.data, len(file.data), block_records, chunk, state)
        chunks.append(chunk[:count].copy())
    return index_of(np.concatenate(chunks), DAMAGE.get(state.status))


def index_of(rows: npt.NDArray[np.int64], damage: str | None) -> Index:
    """Make an index from the block rows of a file, in file order, and compute the watermark after each block."""
    lows = np.append(np.minimum.accumulate(rows[::-1, 3])[::-1], END_OF_FILE)[1:]  # no element if there are no blocks
    blocks = [Block(*row) for row in np.column_stack([rows[:, :5], lows, rows[:, 5]]).tolist()]
    return Index(blocks, damage)


# The scan of one capture in pieces that several threads walk in parallel; joined, they equal the scan of the whole.
#
# `capture.files.split` describes how the first record of a piece is guessed, and why the walks verify each other.
# Joining the pieces repeats walks that began at a wrong guess, so the index is always exact.


Progress = Callable[[int], None]
"""Called with the number of bytes walked since its last call, from the thread that walks."""

CHUNK_BLOCKS = 256
"""Blocks walked between two calls of Progress."""


@dataclass(frozen=True)
class Walk:
    """The walk from one boundary to the first boundary at or after a cut. `rows`: blocks x BLOCK_WORDS."""

    range: ByteRange
    rows: npt.NDArray[np.int64]


class PiecewiseScan:
    """The scan of one file. Call `walk` once per piece, in any order and from any threads; then call `index`.

    Only the boundaries of classic pcap can be guessed. Files of all other formats are one piece.
    """

    def __init__(self, file: Capture, pieces: int, block_records: int = BLOCK_RECORDS) -> None:
        """Split `file` into up to `pieces` pieces of about equal size."""
        self.file = file
        self.block_records = block_records
        count = pieces if isinstance(file.format, PcapFormat) else 1
        self.bounds = even_offsets(file.format.first_record, len(file.data), count)
        self._walks: dict[int, Walk] = {}  # by their start

    @property
    def pieces(self) -> int:
        """Number of pieces."""
        return len(self.bounds) - 1

    def walk(self, piece: int, progress: Progress | None = None) -> None:
        """Walk one piece, from the first boundary that can be guessed in it."""
        start = self.bounds[0] if piece == 0 else guess_record_boundary(self.file, self.bounds[piece])
        if start is not None:
            self._walks[start] = self._walk(start, self.bounds[piece + 1], progress)

    def _joined_walks(self) -> list[Walk]:
        """Join the walks; repeat those that began at a wrong guess. No walk contains bytes after damage."""
        walks: list[Walk] = []
        offset, size = self.bounds[0], len(self.file.data)
        while offset < size and (not walks or walks[-1].range.damage is None):
            walk = self._walks.get(offset)
            if walk is None or walk.range.end == offset:
                walk = self._walk(offset, next(bound for bound in self.bounds if bound > offset))
            walks.append(walk)
            offset = walk.range.end
        return walks

    def index(self, progress: Progress | None = None) -> Index:
        """Join all walks into the index of the file. All progress calls together add up to the bytes of the file."""
        reported = sum(walk.range.end - walk.range.start for walk in self._walks.values())
        walks = self._joined_walks()
        if progress:
            progress(len(self.file.data) - reported)
        rows = np.concatenate([np.empty((0, BLOCK_WORDS), np.int64), *(walk.rows for walk in walks)])
        return index_of(rows, walks[-1].range.damage if walks else None)

    def _walk(self, start: int, cut: int, progress: Progress | None = None) -> Walk:
        file, state = self.file, WalkState(start)
        chunk = np.empty((CHUNK_BLOCKS, BLOCK_WORDS), np.int64)
        rows = [chunk[:0]]
        damage = None
        while state.offset < cut:
            before = state.offset
            count = file.format.walk(file.data, cut, self.block_records, chunk, state)
            if not count:  # the record that straddles the cut, or the end of what can be walked
                count = file.format.walk(file.data, len(file.data), 1, chunk[:1], state)
            if not count:
                damage = DAMAGE.get(state.status)
                break
            rows.append(chunk[:count].copy())
            if progress:
                progress(state.offset - before)
        return Walk(ByteRange(start, state.offset, damage), np.concatenate(rows))
