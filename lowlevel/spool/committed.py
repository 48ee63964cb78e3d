"""How far the reader has got: one small file that is replaced as a whole.

Replacing takes a block of the disk, and a full disk has none, though it waits for just this to get room. So the writer
keeps a block in a file of its own, for the reader to let go.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path

from capture.descriptors import is_shortage
from capture.private_files import open_private
from lowlevel.spool.durable import BLOCK, NO_SPACE, write_durably
from lowlevel.spool.errors import SpoolError, SpoolFullError
from lowlevel.spool.folder import part_of

NAME = "committed"
RESERVE = ".reserve"

ATTEMPTS, PAUSE = 20, 0.05
"""A writer that finds the disk full tries now and then whether a segment fits, and takes for a moment what there is."""


@dataclass(frozen=True, slots=True)
class Committed:
    """Segments up to and with `number` may be deleted, -1 is none; `rows` are all rows ever through it, if known."""

    number: int = -1
    rows: int | None = 0


def read_committed(folder: Path) -> Committed:
    """Read how far the reader has got; the beginning where it never said. Raises SpoolError for a damaged file."""
    path = folder / NAME
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
    path = folder / NAME
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
