"""Files that are there whole or not at all, whenever the process or the machine stops."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from capture.private_files import open_private

BLOCK = 4096
"""Bytes that a file takes on the disk come in blocks of so many, on all usual file systems."""

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a disk that is full, or of which no more is granted."""


def disk_bytes(size: int) -> int:
    """Bytes that a file of a size takes on the disk.

    >>> disk_bytes(1), disk_bytes(4096), disk_bytes(4097)
    (4096, 4096, 8192)
    """
    return -(-size // BLOCK) * BLOCK


def write_durably(part: Path, path: Path, content: Iterable[bytes | memoryview]) -> int:
    """Write a file so that `path` names all of it or what it named before; return its size.

    The content goes to `part`, and through to the disk before it gets its name; then the name goes through as well. A
    `part` that was left behind is overwritten. Raises OSError, with `part` removed.
    """
    size = 0
    try:
        with os.fdopen(open_private(part, os.O_WRONLY | os.O_TRUNC), "wb", buffering=0) as file:
            for piece in content:
                left = memoryview(piece)
                while left:
                    written = file.write(left) or 0
                    size += written
                    left = left[written:]
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
    return size


def sync_folder(folder: Path) -> None:
    """Write the names in a folder through to the disk."""
    entry = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(entry)
    finally:
        os.close(entry)
