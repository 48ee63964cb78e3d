"""How far the reader has got: one small file that is replaced as a whole."""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path

from lowlevel.spool.durable import write_durably
from lowlevel.spool.errors import SpoolError
from lowlevel.spool.folder import part_of

NAME = "committed"


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
    """Replace it, through to the disk."""
    said = json.dumps(asdict(committed)).encode()
    path = folder / NAME
    write_durably(part_of(path), path, [said, b"\n%08x" % zlib.crc32(said)])
