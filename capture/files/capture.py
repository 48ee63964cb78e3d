"""An opened capture file: its bytes as a read-only memory map, and its record format."""

from __future__ import annotations

import contextlib
import mmap
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from capture.files.blocks import Block
from capture.files.formats import FileFormat
from capture.files.stream import StreamedCapture
from capture.lazy_dataclasses import dataclass

MAPPED_BYTES = 64 << 20
"""Bytes of a capture that are mapped at a time."""

MADV_POPULATE_READ = 22
"""Value of this constant in Linux. Python's mmap module does not define it."""


@dataclass(frozen=True)
class Capture:
    """An opened capture. The pages of `data` belong to the system's cache, not to this process's own memory."""

    path: Path
    format: FileFormat
    data: npt.NDArray[np.uint8]
    mapped: mmap.mmap

    def prefault_pages(self, start: int, length: int) -> None:
        """Map the pages of bytes `[start, start + length)`, which will be read next, with one system call.

        Otherwise every sixteenth page costs a page fault, which is slower. A system without this call (Linux before
        5.14, macOS) maps the pages when they are first read.
        """
        start = start // mmap.PAGESIZE * mmap.PAGESIZE
        length = min(length, len(self.mapped) - start)
        if length > 0 and sys.platform == "linux":
            with contextlib.suppress(OSError):
                self.mapped.madvise(MADV_POPULATE_READ, start, length)

    def prefault_blocks(self, blocks: Iterable[Block], end: int) -> Iterator[Block]:
        """Yield blocks that are in the order of the file. Map their pages before they are decoded, up to byte `end`."""
        mapped_end = 0
        for block in blocks:
            if block.end > mapped_end:
                start, mapped_end = block.start, block.end + MAPPED_BYTES
                self.prefault_pages(start, min(mapped_end, end) - start)
            yield block


AnyCapture = Capture | StreamedCapture
"""A capture that is read in blocks. `format` and `data` describe the current block. They may change with each block."""
