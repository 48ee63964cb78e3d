"""The folder of a spool: names of its files, durable writes, errors, and the commits of the reader."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import time
import zlib
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from capture.descriptors import is_shortage
from capture.errors import WiretideError
from capture.lazy_dataclasses import dataclass
from capture.private_files import open_private

BLOCK_BYTES = 4096
"""Bytes of a disk block on common file systems."""

NO_SPACE_ERRORS = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a full disk and of an exhausted quota."""


def disk_bytes(size: int) -> int:
    """Return the disk space of a file of `size` bytes.

    >>> disk_bytes(1), disk_bytes(4096), disk_bytes(4097)
    (4096, 4096, 8192)
    """
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


def write_durably(part: Path, path: Path, content: Iterable[bytes | memoryview]) -> int:
    """Replace the file `path` and return its size. After a crash, `path` is either the complete old or the new file.

    The content is written to `part` and synced to the disk. Then `part` is renamed to `path`, and the folder is synced.
    An existing `part` is overwritten. If this fails, `part` is removed and OSError is raised.
    """
    size = 0
    try:
        with os.fdopen(open_private(part, os.O_WRONLY | os.O_TRUNC), "wb", buffering=0) as file:
            for piece in content:
                remaining = memoryview(piece)
                while remaining:
                    written = file.write(remaining) or 0
                    size += written
                    remaining = remaining[written:]
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
    return size


def sync_folder(folder: Path) -> None:
    """Sync a folder, with the names of its files, to the disk."""
    entry = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(entry)
    finally:
        os.close(entry)


class SpoolError(WiretideError):
    """The spool cannot be used. The user must name another folder, or repair this folder."""


class SpoolFullError(SpoolError):
    """The spool has no room for an item, and has stored no part of it.

    The caller must append it again later, or shed it.
    """


class SegmentFormatError(SpoolError):
    """A segment was written by another version of Wiretide.

    The user must read it with that version, or name another folder.
    """


class SegmentLostError(SpoolError):
    """A segment is missing or damaged. The caller may continue with the next segment, which counts the lost rows."""


SEGMENT_NAME = re.compile(r"(\d{12}|[1-9]\d{12,17})\.segment", re.ASCII)
PART_SUFFIX = ".part"
LOCK_NAME = ".writer.lock"


def segment_path(folder: Path, number: int) -> Path:
    """Return the path of a segment.

    >>> segment_path(Path("eth0"), 7).name
    '000000000007.segment'
    """
    return folder / f"{number:012d}.segment"


def part_path(path: Path) -> Path:
    """Return the path of a file that is not yet complete."""
    return path.with_name(path.name + PART_SUFFIX)


def segment_numbers(folder: Path) -> list[int]:
    """Return the numbers of all segment files, including damaged files, in ascending order."""
    with os.scandir(folder) as entries:
        return sorted(
            int(match[1]) for entry in entries if (match := SEGMENT_NAME.fullmatch(entry.name)) and entry.is_file()
        )


# Commits: a small file stores the number of the last segment that the reader no longer needs. A commit replaces the
# file, which needs a free disk block. On a full disk, only a commit makes blocks free. So the writer keeps a file of
# one block, which the reader may delete for its commit.


COMMITTED_NAME = "committed"
RESERVE_NAME = ".reserve"

COMMIT_ATTEMPTS, ATTEMPT_PAUSE = 20, 0.05
"""Attempts of a commit, and seconds between attempts. The pauses are needed because a writer that retries on the full
disk may take the block of the deleted reserve for a short time."""


@dataclass(frozen=True, slots=True)
class ReaderCommit:
    """The last commit of the reader. All bounds are inclusive.

    * `number`: segments up to this number may be deleted; -1 means none.
    * `rows`: number of rows in all segments up to `number`; None if unknown.
    * `planned`: results may already contain segments up to this number. So a new segment must have a larger number.
    """

    number: int = -1
    rows: int | None = 0
    planned: int = -1


def read_committed(folder: Path) -> ReaderCommit:
    """Read the last commit; ReaderCommit() if there is none. Raises SpoolError for a damaged file."""
    path = folder / COMMITTED_NAME
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return ReaderCommit()
    fields, _, checksum = text.rpartition(b"\n")
    if checksum != b"%08x" % zlib.crc32(fields):
        raise SpoolError(
            f"{path}: damaged: the progress of the reader is unknown; delete the file to read all segments again"
        )
    return ReaderCommit(**json.loads(fields))


def write_committed(folder: Path, committed: ReaderCommit) -> None:
    """Replace the file of commits, and sync it to the disk.

    Raises SpoolFullError if the disk is full even without the reserve, or if no file descriptor becomes free.
    """
    fields = json.dumps(asdict(committed)).encode()
    path = folder / COMMITTED_NAME
    failure: OSError | None = None
    for attempt in range(COMMIT_ATTEMPTS):
        try:
            write_durably(part_path(path), path, [fields, b"\n%08x" % zlib.crc32(fields)])
            return
        except OSError as error:
            failure = error
            if error.errno not in NO_SPACE_ERRORS and not is_shortage(error):
                raise SpoolError(f"{path}: cannot be written: {error.strerror}") from error
        if not is_shortage(failure):
            (folder / RESERVE_NAME).unlink(missing_ok=True)
        if attempt:
            time.sleep(ATTEMPT_PAUSE)
    if is_shortage(failure):
        advice = "raise the limit (ulimit -n)"
        raise SpoolFullError(f"{path}: no free file descriptor, so nothing can be committed; {advice}")
    raise SpoolFullError(f"{path}: the disk is full, so nothing can be committed; free some space")


def keep_reserve(folder: Path) -> None:
    """Reserve a disk block for the next commit if a block is free."""
    path = folder / RESERVE_NAME
    if not path.exists():
        try:
            with os.fdopen(open_private(path, os.O_WRONLY), "wb") as file:
                file.write(bytes(BLOCK_BYTES))
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
