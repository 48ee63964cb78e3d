"""The names in a spool's folder."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import time
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from capture.descriptors import is_shortage
from capture.errors import WiretideError
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


class SpoolError(WiretideError):
    """The spool cannot be used as it is: name another folder, or mend this one."""


class SpoolFullError(SpoolError):
    """There is no room for an item, and nothing of it was taken: append it again later, or shed it."""


class SegmentFormatError(SpoolError):
    """A segment is whole and of another version of Wiretide: read it with that one, or name another folder."""


class SegmentLostError(SpoolError):
    """A segment is not there or not whole: go on with the next, whose head says how much was lost."""


NAME = re.compile(r"(\d{12}|[1-9]\d{12,17})\.segment", re.ASCII)
PART = ".part"
LOCK = ".writer.lock"


def segment_path(folder: Path, number: int) -> Path:
    """Path of the segment of a number.

    >>> segment_path(Path("eth0"), 7).name
    '000000000007.segment'
    """
    return folder / f"{number:012d}.segment"


def part_of(path: Path) -> Path:
    """Path under which a file is written before it has its name."""
    return path.with_name(path.name + PART)


def numbers(folder: Path) -> list[int]:
    """Numbers of all files that are named as segments, ascending; whether they are whole is another question."""
    with os.scandir(folder) as entries:
        return sorted(int(match[1]) for entry in entries if (match := NAME.fullmatch(entry.name)) and entry.is_file())


# How far the reader has got: one small file that is replaced as a whole.
#
# Replacing takes a block of the disk, and a full disk has none, though it waits for just this to get room. So the
# writer keeps a block in a file of its own, for the reader to let go.


COMMITTED_NAME = "committed"
RESERVE = ".reserve"

ATTEMPTS, PAUSE = 20, 0.05
"""A writer that finds the disk full tries now and then whether a segment fits, and takes for a moment what there is."""


@dataclass(frozen=True, slots=True)
class Committed:
    """Segments up to and with `number` may be deleted, -1 is none; `rows` are all rows ever through it, if known.

    Segments up to and with `planned` may be in results already; their numbers must not be used again.
    """

    number: int = -1
    rows: int | None = 0
    planned: int = -1


def read_committed(folder: Path) -> Committed:
    """Read how far the reader has got; the beginning where it never said. Raises SpoolError for a damaged file."""
    path = folder / COMMITTED_NAME
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return Committed()
    said, _, checksum = text.rpartition(b"\n")
    if checksum != b"%08x" % zlib.crc32(said):
        raise SpoolError(
            f"{path}: damaged: nobody can say what has been read; delete the file to read again all that is there"
        )
    return Committed(**json.loads(said))


def write_committed(folder: Path, committed: Committed) -> None:
    """Replace it, through to the disk.

    Raises SpoolFullError if the disk is full and the reserve is not enough, or no file descriptor becomes free.
    """
    said = json.dumps(asdict(committed)).encode()
    path = folder / COMMITTED_NAME
    failure: OSError | None = None
    for attempt in range(ATTEMPTS):
        try:
            write_durably(part_of(path), path, [said, b"\n%08x" % zlib.crc32(said)])
            return
        except OSError as error:
            failure = error
            if error.errno not in NO_SPACE and not is_shortage(error):
                raise SpoolError(f"{path}: cannot be written: {error.strerror}") from error
        if not is_shortage(failure):
            (folder / RESERVE).unlink(missing_ok=True)
        if attempt:
            time.sleep(PAUSE)
    if is_shortage(failure):
        advice = "raise the limit (ulimit -n)"
        raise SpoolFullError(f"{path}: no free file descriptor, so nothing can be committed; {advice}")
    raise SpoolFullError(f"{path}: the disk is full, so nothing can be committed; free some space")


def keep_reserve(folder: Path) -> None:
    """Put a block aside for the next commit, where there is one."""
    path = folder / RESERVE
    if not path.exists():
        try:
            with os.fdopen(open_private(path, os.O_WRONLY), "wb") as file:
                file.write(bytes(BLOCK))
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
