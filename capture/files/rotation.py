"""Which file is read next, of a folder in which captures come and grow or of one path at which they replace each other.

Writers that rotate close a file before they begin the next, so the files are taken in the order of their last change,
those changed at the same time in the order of their names with numbers as numbers. A file is known by its device and
inode, not by its name: one that is renamed is not read again. What is known of a file that was read is how far:

    as it was                                nothing to do
    longer                                   it is read on behind the records that were read
    shorter, or with another beginning       its content was replaced: it is read as a new one

so that nothing is read twice and nothing missed, in whatever way a writer goes about it (`tcpdump -C`, `-G`, `-W`,
logrotate with `create` or `copytruncate`). What is deleted or overwritten before its turn comes is lost unseen.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from capture.files.beside import TEMPLATES
from capture.files.growing import KEPT, POLL, GrowingBytes

Identity = tuple[int, int]
"""Device and inode."""

LISTING_SHARE = 0.05
"""Part of the time that listing a folder may take, where its own time of change is the same: its files may change."""

PACKED = (".gz", ".zst", ".lz4", ".bz2", ".xz")
"""A file with such a suffix holds what the file without it held, which was compressed when it was complete (`-z`)."""

NAMES_KEPT = 65_536
"""Names of files read that are remembered, to know them again when they are compressed."""


@dataclass
class Known:
    """How far a file was read: `size` bytes, `records` records; nothing more is expected of one that is `closed`."""

    size: int
    changed: int
    head: bytes
    records: int
    closed: bool


Place = dict[str, str | int | bool]
"""How far one file was read, in plain values."""


@dataclass(frozen=True)
class Turn:
    """The file whose turn it is: to be read behind its first `skip` records. `anew`: it replaces what was read."""

    path: Path
    identity: Identity
    source: GrowingBytes
    skip: int
    anew: bool


class Rotation:
    """Says which file is read next. One at a time: `next`, then `left`, then `next` again."""

    def __init__(self, folder: Path, pattern: str) -> None:
        """Take the files of `folder` whose names match; hidden ones only where the pattern begins with a dot."""
        self.folder = folder
        self.pattern = pattern
        self._known: dict[Identity, Known] = {}
        self._names: dict[str, None] = {}
        self._current: Identity | None = None
        self._listed: list[tuple[Path, os.stat_result]] = []
        self._list_again = 0.0
        self._changed = -1

    def next(self) -> Turn | None:
        """Open the file whose turn it is; None where there is nothing to read. Raises OSError for one, once."""
        for path, status in self._waiting():
            identity = _identity(status)
            known = self._known.get(identity)
            replaced = known is not None and self._was_replaced(path, status, known)
            try:
                descriptor = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                continue
            except OSError:
                self._known[identity] = Known(status.st_size, status.st_mtime_ns, b"", 0, closed=True)
                raise
            if _identity(os.fstat(descriptor)) != identity:  # it was replaced since the listing
                os.close(descriptor)
                continue
            self._current = identity
            self._names[path.name] = None
            if len(self._names) > NAMES_KEPT:
                del self._names[next(iter(self._names))]
            source = GrowingBytes(descriptor, self._is_over)
            return Turn(path, identity, source, 0 if replaced or known is None else known.records, replaced)
        return None

    def left(self, turn: Turn, records: int, *, closed: bool) -> None:
        """Note how far a file was read; of one that is `closed` nothing is read any more, until it is replaced."""
        source = turn.source
        self._known[turn.identity] = Known(source.consumed, source.changed, source.head, records, closed)
        self._current = None
        self._list_again = 0.0  # what was listed before may be less than was read

    def places(self, turn: Turn | None = None, records: int = 0) -> list[Place]:
        """Return how far each file was read, and the one whose `turn` it is: so many of its records."""
        known = dict(self._known)
        if turn is not None:
            # Of no known size: it is read on, behind these records, unless it begins otherwise.
            known[turn.identity] = Known(0, -1, turn.source.head, records, closed=False)
        return [
            {
                "device": device,
                "inode": inode,
                "size": each.size,
                "changed": each.changed,
                "head": each.head.hex(),
                "records": each.records,
                "closed": each.closed,
            }
            for (device, inode), each in known.items()
        ]

    def know(self, places: Iterable[Place]) -> None:
        """Take over what another process knew of the files. Names are not among it."""
        for said in places:
            self._known[int(said["device"]), int(said["inode"])] = Known(
                int(said["size"]),
                int(said["changed"]),
                bytes.fromhex(str(said["head"])),
                int(said["records"]),
                bool(said["closed"]),
            )

    def _is_over(self, status: os.stat_result, quiet: bool) -> bool:
        return quiet and (status.st_nlink == 0 or any(self._waiting()))

    def _waiting(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Iterate over the files that are to be read beside the current one, in their order."""
        for path, status in self._list():
            identity = _identity(status)
            if identity == self._current:
                continue
            known = self._known.get(identity)
            if known is None:
                if not (path.suffix in PACKED and path.stem in self._names):
                    yield path, status
            elif (status.st_size, status.st_mtime_ns) != (known.size, known.changed):
                if self._was_replaced(path, status, known) or (status.st_size > known.size and not known.closed):
                    yield path, status
                else:
                    known.changed = status.st_mtime_ns

    def _was_replaced(self, path: Path, status: os.stat_result, known: Known) -> bool:
        if status.st_size < known.size:
            return True
        try:
            with path.open("rb", buffering=0) as file:
                return not file.read(KEPT).startswith(known.head)
        except OSError:
            return False

    def _list(self) -> list[tuple[Path, os.stat_result]]:
        """List the folder, unless it was a moment ago and has not changed."""
        with contextlib.suppress(OSError):
            changed = self.folder.stat().st_mtime_ns
            begin = time.monotonic()
            if changed == self._changed and begin < self._list_again:
                return self._listed
            self._changed = changed
            self._listed = sorted(self._matching(), key=lambda found: (found[1].st_mtime_ns, natural(found[0].name)))
            end = time.monotonic()
            self._list_again = end + max(POLL, (end - begin) / LISTING_SHARE)
            present = {_identity(status) for _, status in self._listed}
            self._known = {identity: known for identity, known in self._known.items() if identity in present}
        return self._listed

    def _matching(self) -> Iterator[tuple[Path, os.stat_result]]:
        hidden = self.pattern.startswith(".")
        for entry in os.scandir(self.folder):
            if fnmatchcase(entry.name, self.pattern) and entry.name != TEMPLATES:
                with contextlib.suppress(OSError):
                    status = entry.stat()  # of what a link means
                    if stat.S_ISREG(status.st_mode) and (hidden or not entry.name.startswith(".")):
                        yield Path(entry.path), status


def natural(name: str) -> list[tuple[int, str]]:
    """Order names as people do: numbers in them by their value.

    >>> sorted(["trace10", "trace", "trace2"], key=natural)
    ['trace', 'trace2', 'trace10']
    """
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", name) if part]


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino
