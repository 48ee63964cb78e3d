"""The time index of a capture: byte ranges with their smallest and largest time, in a cache.

    ~/.cache/wiretide/times/<digest of path, size and time of change>/<start>.json      {"end": …, "pieces": [[…], …]}

A task that has read its byte range writes the times of its pieces. The start of its range may be a guess
(`capture.files.split`). So an index is used only if its files form a chain: the first begins at the first record, each
other one at the end of the one before, and the last one ends at the end of the capture. Then every piece begins and
ends at a record boundary, by induction.

An index only saves time. If it is incomplete, damaged, or in a folder that cannot be used, the capture is read whole.
Only classic pcap files have an index: the records of a pcapng file depend on the blocks before them.
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
from highlevel.spark.checked_files import read_document, write_document
from highlevel.spark.errors import FolderError

PIECE_BYTES = 8 << 20
"""Minimum bytes of a piece, except the last one of a range: an index has about a ten-thousandth of the capture."""


MIN_INDEXED_BYTES = 32 << 20
"""Minimum size of a capture with an index. A smaller one is read in less time than a task takes to start."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole records in the bytes `[start, end)`, with times from `least` to `most`, ns."""

    start: int
    end: int
    least: int
    most: int


def index_folder(path: Path) -> Path:
    """Return the folder of the index of a capture. It is another one after the capture has changed.

    `XDG_CACHE_HOME` names another folder in place of `~/.cache`. Raises OSError for a file that does not exist.
    """
    status = path.stat()
    identity = f"{path.absolute()}\0{status.st_size}\0{status.st_mtime_ns}"
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # no HOME and no such user, as in some containers: a folder that cannot be made
        cache = Path(os.devnull)
    return cache / "wiretide" / "times" / hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()


class PieceCollector:
    """The pieces of one task."""

    def __init__(self) -> None:
        """Begin without a piece."""
        self.pieces: list[Piece] = []

    def add(self, block: Block) -> None:
        """Add the next block of a walk."""
        piece = Piece(block.start, block.end, block.min_ts, block.max_ts)
        if self.pieces and self.pieces[-1].end - self.pieces[-1].start < PIECE_BYTES:
            last = self.pieces.pop()
            piece = Piece(last.start, piece.end, min(last.least, piece.least), max(last.most, piece.most))
        self.pieces.append(piece)

    def write(self, folder: Path, walked: ByteRange) -> None:
        """Write the pieces of a walk without damage. Do nothing if there are none, or the folder cannot be written."""
        if not self.pieces:
            return  # the record of the guess belongs to the next range, which writes a file of this name
        numbers = [[piece.start, piece.end, piece.least, piece.most] for piece in self.pieces]
        with contextlib.suppress(OSError, UnsafeFolderError):
            write_document(folder / f"{walked.start}.json", {"end": walked.end, "pieces": numbers})


def read_index(folder: Path, first_record: int, size: int) -> list[Piece] | None:
    """Return the pieces of a whole capture of `size` bytes in their order, None if the index is not complete."""
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


def select_ranges(pieces: Sequence[Piece], least: int, most: int, count: int) -> list[tuple[int, int]]:
    """Return about `count` byte ranges that contain all records with times from `least` to `most`, ns.

    >>> pieces = [Piece(24, 100, 0, 9), Piece(100, 200, 10, 19), Piece(200, 300, 15, 29), Piece(300, 400, 30, 39)]
    >>> select_ranges(pieces, 12, 16, 1), select_ranges(pieces, 40, 50, 1)
    ([(100, 300)], [])
    """
    chosen = [piece for piece in pieces if piece.most >= least and piece.least <= most]
    target = sum(piece.end - piece.start for piece in chosen) / max(1, count)
    ranges: list[tuple[int, int]] = []
    for piece in chosen:
        if ranges and ranges[-1][1] == piece.start and ranges[-1][1] - ranges[-1][0] < target:
            ranges[-1] = ranges[-1][0], piece.end
        else:
            ranges.append((piece.start, piece.end))
    return ranges
