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

from capture.files.blocks import BLOCK_RECORDS, DAMAGE, END_OF_FILE, MORE, ROW, Block, Index, WalkState
from capture.files.capture import Capture
from capture.files.pcap import PcapFormat
from capture.files.split import ByteRange, cuts, guess


def scan(file: Capture, block_records: int = BLOCK_RECORDS) -> Index:
    """Index a capture."""
    state = WalkState(file.format.first_record)
    chunk = np.empty((max(1, 4_194_304 // block_records), ROW), np.int64)
    found: list[npt.NDArray[np.int64]] = []
    while state.status == MORE:
        count = file.format.walk(file.data, len(file.data), block_records, chunk, state)
        found.append(chunk[:count].copy())
    return index_of(np.concatenate(found), DAMAGE.get(state.status))


def index_of(rows: npt.NDArray[np.int64], damage: str | None) -> Index:
    """Make an index of all blocks of a file, rows of ROW in their order, and find the low watermark after each."""
    lows = np.append(np.minimum.accumulate(rows[::-1, 3])[::-1], END_OF_FILE)[1:]  # empty for no block
    blocks = [Block(*row) for row in np.column_stack([rows[:, :5], lows, rows[:, 5]]).tolist()]
    return Index(blocks, damage)


# The scan of one capture in pieces that several threads walk at once; joined they are the scan of the whole.
#
# `capture.files.split` says how a piece finds its first record, and why the walks prove each other. What was walked
# from a wrong guess is walked again, when the pieces are joined; the index is exact in any case.


Progress = Callable[[int], None]
"""Called with the bytes walked since its last call, from whatever thread walks."""

CHUNK_BLOCKS = 256
"""Blocks walked between two calls of the progress."""


@dataclass(frozen=True)
class Walk:
    """What was walked from one boundary to the first at or after a cut: the range, and a row of ROW for each block."""

    range: ByteRange
    rows: npt.NDArray[np.int64]


class PiecewiseScan:
    """The scan of one file. `walk` takes the pieces, each once, in any order and from any threads; then `index`.

    Only classic pcap has boundaries that can be guessed; every other format is one piece.
    """

    def __init__(self, file: Capture, pieces: int, block_records: int = BLOCK_RECORDS) -> None:
        """Cut `file` into up to `pieces` of about the same number of bytes."""
        self.file = file
        self.block_records = block_records
        count = pieces if isinstance(file.format, PcapFormat) else 1
        self.bounds = cuts(file.format.first_record, len(file.data), count)
        self._walks: dict[int, Walk] = {}  # by where they began

    @property
    def pieces(self) -> int:
        """How many pieces there are."""
        return len(self.bounds) - 1

    def walk(self, piece: int, progress: Progress | None = None) -> None:
        """Walk one piece, from the first boundary in it that can be guessed."""
        start = self.bounds[0] if piece == 0 else guess(self.file, self.bounds[piece])
        if start is not None:
            self._walks[start] = self._walk(start, self.bounds[piece + 1], progress)

    def joined(self) -> list[Walk]:
        """Join the walks, where they are not one walk after walking again; nothing after damage is in any."""
        found: list[Walk] = []
        at, size = self.bounds[0], len(self.file.data)
        while at < size and (not found or found[-1].range.damage is None):
            walk = self._walks.get(at)
            if walk is None or walk.range.end == at:
                walk = self._walk(at, next(bound for bound in self.bounds if bound > at))
            found.append(walk)
            at = walk.range.end
        return found

    def index(self, progress: Progress | None = None) -> Index:
        """Join all walks into the index of the file. All calls of the progress together then add up to its bytes."""
        told = sum(walk.range.end - walk.range.start for walk in self._walks.values())
        walks = self.joined()
        if progress:
            progress(len(self.file.data) - told)
        rows = np.concatenate([np.empty((0, ROW), np.int64), *(walk.rows for walk in walks)])
        return index_of(rows, walks[-1].range.damage if walks else None)

    def _walk(self, start: int, cut: int, progress: Progress | None = None) -> Walk:
        file, state = self.file, WalkState(start)
        chunk = np.empty((CHUNK_BLOCKS, ROW), np.int64)
        found = [chunk[:0]]
        damage = None
        while state.at < cut:
            before = state.at
            count = file.format.walk(file.data, cut, self.block_records, chunk, state)
            if not count:  # the record that straddles the cut, or the end of what can be walked
                count = file.format.walk(file.data, len(file.data), 1, chunk[:1], state)
            if not count:
                damage = DAMAGE.get(state.status)
                break
            found.append(chunk[:count].copy())
            if progress:
                progress(state.at - before)
        return Walk(ByteRange(start, state.at, damage), np.concatenate(found))
