"""A task of the batch engine over a whole compressed capture: it has no middle to begin in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from capture.errors import InputError
from capture.files.blocks import BLOCK_RECORDS, Block
from capture.files.split import ByteRange
from capture.files.stream import StreamedCapture
from capture.open import open_finite


class StreamScan:
    """Iterator over the blocks of a capture. Afterwards `range` contains the read bytes and the damage at the end."""

    def __init__(self, file: StreamedCapture) -> None:
        """Read `file`, which is not live."""
        self.file = file

    def __iter__(self) -> Iterator[Block]:
        """Iterate from its beginning."""
        return (block for block in self.file.blocks(BLOCK_RECORDS) if block is not None)

    @property
    def range(self) -> ByteRange:
        """The whole file."""
        return ByteRange(0, self.file.size, self.file.damage)


@dataclass(frozen=True)
class StreamTask:
    """Task for the whole input `number`, which cannot be mapped. The interface is that of RangeTask."""

    number: int
    start: int = 0

    def open(self, path: Path, size: int) -> StreamedCapture:
        """Open the input as the driver saw it. Raise InputError if the file has changed."""
        file = open_finite(path, "the batch engine")
        if isinstance(file, StreamedCapture) and file.size == size:
            return file
        raise InputError(f"{path}: changed while it was read; expected a compressed capture of {size} bytes")

    def scan(self, file: StreamedCapture) -> StreamScan:
        """Walk the file."""
        return StreamScan(file)
