"""Find files that may have changed since an earlier call, without a visit to each file of a large folder.

The files of results are only created, replaced by renaming, and deleted. Each of these operations sets the modification
time of the folder. So if a folder still has the time of an earlier listing, its files are those of that listing.

The clock of a file system advances in steps of milliseconds. Two changes in one step have the same time, and a listing
may be between them. So a folder that has changed less than SETTLED_NS before its listing is listed again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from capture.lazy_dataclasses import dataclass
from capture.units import SECOND

SETTLED_NS = 2 * SECOND
"""Time since the last change of a folder (ns) from which on its listing can be used again."""


@dataclass(frozen=True)
class Listing:
    """The subfolders of a folder. `stamp`: its modification time (ns) and inode; None if it must be listed again."""

    stamp: tuple[int, int] | None
    folders: tuple[str, ...]


def find_changed_files(root: Path, folder: str, known: Mapping[str, Listing]) -> tuple[list[Path], dict[str, Listing]]:
    """Return the files in changed folders, and the listing of each folder, by its path in `root`.

    `known`: the listings of an earlier call. A folder that has not changed keeps its listing. Temporary files and the
    checksums of Hadoop, whose names begin with a dot, are left out. Without the folder both results are empty.
    """
    files: list[Path] = []
    listings: dict[str, Listing] = {}
    waiting = [folder]
    while waiting:
        name = waiting.pop()
        try:
            now, status = time.time_ns(), (root / name).stat()
            listing, stamp = known.get(name), (status.st_mtime_ns, status.st_ino)
            if listing is None or listing.stamp != stamp:
                with os.scandir(root / name) as found:
                    entries = sorted(found, key=lambda entry: entry.name)
                folders = tuple(f"{name}/{entry.name}" for entry in entries if entry.is_dir())
                listing = Listing(stamp if now - status.st_mtime_ns > SETTLED_NS else None, folders)
                files += [root / name / entry.name for entry in entries if entry.is_file() and entry.name[0] != "."]
        except FileNotFoundError:  # deleted in the meantime
            continue
        listings[name] = listing
        waiting += listing.folders
    return files, listings
