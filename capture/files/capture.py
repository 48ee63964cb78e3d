"""A capture file, opened: its bytes as a read-only memory map, and the format of its records."""

from __future__ import annotations

import contextlib
import mmap
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from capture.files.formats import FileFormat
from capture.files.stream import StreamedCapture

MADV_POPULATE_READ = 22
"""Linux's number; Python's mmap does not name it."""


@dataclass(frozen=True)
class Capture:
    """An opened capture. The pages of `data` belong to the system's cache, not to this process's own memory."""

    path: Path
    format: FileFormat
    data: npt.NDArray[np.uint8]
    mapped: mmap.mmap

    def expect(self, start: int, length: int) -> None:
        """Map the pages of the bytes that are read next in one go: a fault for each sixteen of them costs more.

        A system that does not know how (Linux before 5.14, macOS) maps them one by one when they are touched.
        """
        start = start // mmap.PAGESIZE * mmap.PAGESIZE
        length = min(length, len(self.mapped) - start)
        if length > 0 and sys.platform == "linux":
            with contextlib.suppress(OSError):
                self.mapped.madvise(MADV_POPULATE_READ, start, length)


AnyCapture = Capture | StreamedCapture
"""What is read block by block: `format` and `data` are those of the block at hand; both may change with the next."""
