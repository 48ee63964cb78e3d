"""Write classic pcap files. A file is renamed to its final name only when it is complete."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from capture.private_files import SHARED_FILE_MODE, NamedFile, open_replacement

MAGIC_NUMBERS = {"us": 0xA1B2C3D4, "ns": 0xA1B23C4D}
TICK_NS = {"us": 1000, "ns": 1}
"""Magic number of the file, and ns per unit of ts_frac, by precision."""


@contextmanager
def complete_file(path: Path) -> Iterator[FileIO]:
    """Open a hidden file next to `path`. Rename it to `path` at the end, or remove it after an exception.

    Raises `ValueError` if `path` exists and is not a regular file.
    """
    if path.exists() and not path.is_file():
        raise ValueError(
            f"{path}: is not a regular file, expected the name of a capture to write: it would be replaced"
        )
    with open_replacement(path, SHARED_FILE_MODE) as (descriptor, _), NamedFile(descriptor, path) as file:
        yield file


def file_header(precision: str, order: str, snap_length: int, link_type: int) -> memoryview:
    """Return the file header, 24 bytes. `precision`: `us` or `ns`. `order`: byte order, `<` or `>`."""
    return memoryview(struct.pack(f"{order}IHHiIII", MAGIC_NUMBERS[precision], 2, 4, 0, 0, snap_length, link_type))


def write_all(file: FileIO, data: memoryview) -> None:
    """Write all of `data`. An unbuffered file may accept only a part at once."""
    while data:
        data = data[file.write(data) :]
