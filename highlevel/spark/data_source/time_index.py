"""The time index of a capture: byte ranges with their smallest and largest times, stored in a cache.

    ~/.cache/wiretide/times/<digest of path, size, change time>/<start>.json      {"end": …, "pieces": [[…], …]}

A task that has read its byte range writes one file with the times of the pieces of this range. The start of the range
may be a wrong guess (`capture.files.split`). So the index is used only if its files form a chain: the first one begins
at the first record, each other one begins at the end of the one before, and the last one ends at the end of the
capture. Then every piece begins and ends at a record boundary, by induction.

The index only saves time: if it is incomplete, damaged, or in a folder that cannot be read, the whole capture is read.
Only classic pcap files have an index, because the records of a pcapng file depend on the blocks before them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from capture.files.blocks import Block
from capture.files.split import ByteRange
from capture.lazy_dataclasses import dataclass
from capture.private_files import UnsafeFolderError, check_private_folder
from highlevel.spark.errors import FolderError
from highlevel.spark.run_folder.checked_files import read_document, write_document

PIECE_BYTES = 8 << 20
"""Minimum bytes of a piece, except the last one of a range. The index has about 1/10,000 of the size of the capture."""


MIN_INDEXED_BYTES = 32 << 20
"""Minimum size of a capture with an index. Reading a smaller one takes less time than starting a task."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The records in the bytes `[start, end)`, with times from `min_ts` to `max_ts` in ns."""

    start: int
    end: int
    min_ts: int
    max_ts: int


def index_folder(path: Path) -> Path:
    """Return the folder of the index of a capture. After the capture has changed, it is a different folder.

    If `XDG_CACHE_HOME` is set, it replaces `~/.cache`. Raises OSError for a file that does not exist.
    """
    status = path.stat()
    identity = f"{path.absolute()}\0{status.st_size}\0{status.st_mtime_ns}"
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # no HOME and no such user, as in some containers: return a folder that cannot be created
        cache = Path(os.devnull)
    return cache / "wiretide" / "times" / hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()


class PieceCollector:
    """Collects the pieces of one task."""

    def __init__(self) -> None:
        """Create a collector without pieces."""
        self.pieces: list[Piece] = []

    def add(self, block: Block) -> None:
        """Add the next block that the task has read."""
        piece = Piece(block.start, block.end, block.min_ts, block.max_ts)
        if self.pieces and self.pieces[-1].end - self.pieces[-1].start < PIECE_BYTES:
            last = self.pieces.pop()
            piece = Piece(last.start, piece.end, min(last.min_ts, piece.min_ts), max(last.max_ts, piece.max_ts))
        self.pieces.append(piece)

    def write(self, folder: Path, byte_range: ByteRange) -> None:
        """Write the pieces of the range `byte_range`, which has no damage.

        Do nothing if there are none, or if writing fails.
        """
        if not self.pieces:
            return  # no record begins in this range: the next range begins at its guessed start, and writes the file
        numbers = [[piece.start, piece.end, piece.min_ts, piece.max_ts] for piece in self.pieces]
        with contextlib.suppress(OSError, UnsafeFolderError):
            write_document(folder / f"{byte_range.start}.json", {"end": byte_range.end, "pieces": numbers})


def read_index(folder: Path, first_record: int, size: int) -> list[Piece] | None:
    """Return the pieces of a whole capture of `size` bytes in their order; None if the index is not complete."""
    pieces: list[Piece] = []
    position = first_record
    try:
        check_private_folder(folder)
        while position < size:
            document = read_document(folder / f"{position}.json")
            if document["end"] <= position:
                return None
            position = document["end"]
            pieces += [Piece(*numbers) for numbers in document["pieces"]]
    except (OSError, UnsafeFolderError, FolderError):
        return None
    return pieces if position == size else None


def select_ranges(pieces: Sequence[Piece], min_ts: int, max_ts: int, count: int) -> list[tuple[int, int]]:
    """Return about `count` byte ranges that contain all records with times from `min_ts` to `max_ts`, ns.

    >>> pieces = [Piece(24, 100, 0, 9), Piece(100, 200, 10, 19), Piece(200, 300, 15, 29), Piece(300, 400, 30, 39)]
    >>> select_ranges(pieces, 12, 16, 1), select_ranges(pieces, 40, 50, 1)
    ([(100, 300)], [])
    """
    chosen = [piece for piece in pieces if piece.max_ts >= min_ts and piece.min_ts <= max_ts]
    target = sum(piece.end - piece.start for piece in chosen) / max(1, count)
    ranges: list[tuple[int, int]] = []
    for piece in chosen:
        if ranges and ranges[-1][1] == piece.start and ranges[-1][1] - ranges[-1][0] < target:
            ranges[-1] = ranges[-1][0], piece.end
        else:
            ranges.append((piece.start, piece.end))
    return ranges
