"""An opened capture file: its bytes as a read-only memory map, and its record format."""

from __future__ import annotations

import contextlib
import mmap
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from capture.files.formats import FileFormat
from capture.files.stream import StreamedCapture
from capture.lazy_dataclasses import dataclass

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


AnyCapture = Capture | StreamedCapture
"""A capture that is read in blocks. `format` and `data` describe the current block. They may change with each block."""
