"""The order of files in a followed folder, where captures appear and grow, or at one path with rotating captures.

Writers that rotate close a file before they begin the next one. So files are read in the order of their last change;
files with equal times in the natural order of their names. A file is identified by device and inode, not by its name,
so a renamed file is not read again. The progress in each file is stored. When the file is seen again, it is

    unchanged                                skipped
    longer                                   read on after the records already read
    shorter, or other bytes at its           a replacement: read from its beginning
    beginning or before the position

So no record is read twice or missed, whichever way a writer rotates (`tcpdump -C`, `-G`, `-W`, logrotate with `create`
or `copytruncate`). A file that is deleted or overwritten before it is read is lost without a counter.

The same holds after a restart, for which the progress in all present files is stored. After a reboot a device may have
another number (NFS, btrfs, overlay): an unknown file is then identified by its inode and its first bytes. A file that
has been compressed meanwhile is identified by its name, and read after the records already read from the original.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import blake2b
from pathlib import Path

from capture.descriptors import is_shortage
from capture.files.decompressed import SUFFIXES

TEMPLATES = "templates.json"
"""File with the flow templates that exporters have announced. Captures in the same folder are decoded with them."""


POLL = 0.1
"""Seconds between two looks at a file that has not grown."""

QUIET = 1.0
"""Seconds without growth after which a file may be taken as complete, once there is something to go on with."""

KEPT = 64
"""First bytes of a file that tell whether it is still the one it was: of a pcap they reach into the first packet.

As many bytes before the position tell it as well, because an edited copy of a capture has the same first packet.
"""


class GrowingBytes:
    """A regular file that grows, until `over` says that nothing more comes, or its content is replaced.

    `over` is called at the end of the file, with its status and whether it is quiet. A file has been replaced if it is
    shorter than the position, or if its first bytes or those before the position have changed. It then ends, and what
    had not been read of it is lost. Changes of other bytes that were read are not noticed.
    """

    live = True
    size = 0

    def __init__(self, descriptor: int, over: Callable[[os.stat_result, bool], bool]) -> None:
        """Take over an open file."""
        self.descriptor = descriptor
        self.consumed = 0
        self.head = b""
        self.tail = b""
        """The bytes before the position, up to KEPT."""
        self.changed = -1
        """Time of change, ns, of what was read; -1 once the file is known to be another."""
        self.close = weakref.finalize(self, os.close, descriptor)
        self._over = over
        self._complete = False
        self._grew = time.monotonic()

    def read_into(self, room: memoryview, wait: float) -> int | None:
        """Read what is there; at the end of the file look again until `wait` seconds have passed."""
        until = time.monotonic() + wait
        while True:
            count = os.preadv(self.descriptor, [room], self.consumed)
            if not self._is_itself(self.consumed + count):
                return 0
            if count:
                self.consumed += count
                self.tail = (self.tail + room[max(0, count - KEPT) : count].tobytes())[-KEPT:]
                self._grew = time.monotonic()
                return count
            if self._complete:
                return 0
            if self._is_over():
                self._complete = True  # and is read once more: it may have grown before that was said
                continue
            left = until - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(POLL, left))

    def rewind(self) -> None:
        """Refuse: who follows does not go back."""
        raise OSError("a file that is followed cannot be read again")

    def _is_itself(self, known: int) -> bool:
        """Return whether the first bytes and those before the position are as before, and the `known` bytes exist."""
        status = os.fstat(self.descriptor)  # before the head is read: what it says is of that content
        head = os.pread(self.descriptor, min(KEPT, known), 0)
        tail = os.pread(self.descriptor, len(self.tail), self.consumed - len(self.tail))
        same = head.startswith(self.head) and tail == self.tail
        if not same or status.st_size < known or len(head) < min(KEPT, known):
            self.changed = -1
            return False
        self.head, self.changed = head, status.st_mtime_ns
        return True

    def _is_over(self) -> bool:
        status = os.fstat(self.descriptor)
        quiet = time.monotonic() - self._grew >= QUIET or time.time() - status.st_mtime >= QUIET
        return self._over(status, quiet)


Identity = tuple[int, int]
"""Device and inode."""

LISTING_SHARE = 0.05
"""Maximum share of time for listing a folder whose modification time has not changed; its files may have changed."""

NAMES_KEPT = 65_536
"""Number of names of read files that are stored to recognise their compressed versions."""


def digest(head: bytes) -> bytes:
    """Return 9 bytes that identify the beginning of a file: the length of `head` and its hash."""
    return bytes([len(head)]) + blake2b(head, digest_size=8).digest()


NOTHING = digest(b"")


@dataclass
class Known:
    """Progress in a file: `size` bytes and `records` records were read. A `closed` file is complete.

    `name`: its name when it was opened. `changed`: its modification time, ns. `begins`: `digest` of its first bytes, up
    to KEPT. `ends`: `digest` of the bytes before `position`, up to KEPT; NOTHING of a file that another process read.
    """

    name: str
    size: int
    changed: int
    begins: bytes
    records: int
    closed: bool
    ends: bytes = NOTHING
    position: int = 0


Place = tuple[str, int, int, int, str, int, bool]
"""Stored progress in a file: name, device, inode, size, digest in hexadecimal, records, closed. Each segment of a spool
contains it for all files. So it is short and omits values that can be read again (the modification time)."""


@dataclass(frozen=True)
class Turn:
    """The next file to read, after its first `skip` records. `anew`: its content replaced content that was read."""

    path: Path
    identity: Identity
    source: GrowingBytes
    skip: int
    anew: bool


class Rotation:
    """Choose the file to read next. Call `next` and `left` in turn."""

    def __init__(self, folder: Path, pattern: str) -> None:
        """Read the files of `folder` that match `pattern`; hidden files only if the pattern begins with a dot."""
        self.folder = folder
        self.pattern = pattern
        self._known: dict[Identity, Known] = {}
        self._names: dict[str, None] = {}
        self._before: dict[str, int] = {}  # names of files that another process read -> records that it read
        self._inodes: dict[int, list[Identity]] = {}  # inodes of these files, until the first listing of the folder
        self._current: Identity | None = None
        self._listed: list[tuple[Path, os.stat_result]] = []
        self._list_again = 0.0
        self._changed = -1
        self.retries = 0
        """Number of failed attempts to open a file or the folder because no file descriptor was free."""

    def next(self) -> Turn | None:
        """Open the next file. Return None if there is no input, or no file descriptor is free.

        Raises OSError for a file that cannot be opened, but only once per file.
        """
        try:
            return self._next()
        except OSError as error:
            if not is_shortage(error):
                raise
            self.retries += 1
            return None

    def _next(self) -> Turn | None:
        for path, status in self._waiting():
            identity = _identity(status)
            known = self._known.get(identity)
            replaced = known is not None and self._was_replaced(path, status, known)
            try:
                descriptor = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                continue
            except OSError as error:
                if is_shortage(error):
                    raise
                self._known[identity] = Known(path.name, status.st_size, status.st_mtime_ns, NOTHING, 0, closed=True)
                raise
            if _identity(os.fstat(descriptor)) != identity:  # the file was replaced after the listing
                os.close(descriptor)
                continue
            self._current = identity
            if known is not None and not replaced:
                skip = known.records
            else:
                skip = self._before.get(path.stem, 0) if path.suffix in SUFFIXES else 0
            self._before.pop(path.name, None)
            self._remember(path.name)
            return Turn(path, identity, GrowingBytes(descriptor, self._is_over), skip, replaced and not skip)
        return None

    def left(self, turn: Turn, records: int, *, closed: bool) -> None:
        """Store the progress in the file of `turn`. A `closed` file is not read further until it is replaced."""
        source = turn.source
        begins, ends = digest(source.head), digest(source.tail)
        known = Known(turn.path.name, source.consumed, source.changed, begins, records, closed, ends, source.consumed)
        self._known[turn.identity] = known
        self._current = None
        self._list_again = 0.0  # the last listing may be older than the last read

    def places(self, turn: Turn | None = None, records: int = 0) -> list[Place]:
        """Return the stored progress in all files. `turn` is the current file, `records` its records read so far."""
        files = dict(self._known)
        if turn is not None:
            # Size 0 means unknown: after a restart it is read on after these records, unless its beginning differs.
            begins = digest(turn.source.head)
            files[turn.identity] = Known(turn.path.name, 0, -1, begins, records, closed=False)
        return [
            (known.name, device, inode, known.size, known.begins.hex(), known.records, known.closed)
            for (device, inode), known in files.items()
            if known.begins != NOTHING or not known.closed  # omit files that could not be opened: another process may
        ]

    def know(self, places: Iterable[Place]) -> None:
        """Restore the progress stored by another process, before the first file is opened."""
        for name, device, inode, size, begins, records, closed in places:
            self._known[device, inode] = Known(name, size, -1, bytes.fromhex(begins), records, closed)
            self._inodes.setdefault(inode, []).append((device, inode))
            if closed:
                self._remember(name)
            else:
                self._before[name] = records

    def _remember(self, name: str) -> None:
        self._names[name] = None
        if len(self._names) > NAMES_KEPT:
            del self._names[next(iter(self._names))]

    def _is_over(self, status: os.stat_result, quiet: bool) -> bool:
        if not quiet or status.st_nlink == 0:
            return quiet
        try:
            return any(self._waiting())
        except OSError as error:
            if not is_shortage(error):
                raise
            self.retries += 1
            return False  # the caller asks again later

    def _waiting(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Iterate over the files that must be read in addition to the current one, in order."""
        for path, status in self._list():
            identity = _identity(status)
            if identity == self._current:
                continue
            known = self._known.get(identity)
            same = known is not None and (status.st_size, status.st_mtime_ns) == (known.size, known.changed)
            if known is None or (not same and self._was_replaced(path, status, known)):
                if path.suffix in SUFFIXES and path.stem in self._names:  # the inode may be that of the original file
                    self._pass_over(path, status)
                else:
                    yield path, status
            elif status.st_size > known.size and not known.closed:
                yield path, status
            else:
                known.changed = status.st_mtime_ns
                if known.closed:
                    known.size = status.st_size

    def _pass_over(self, path: Path, status: os.stat_result) -> None:
        """Mark a compressed copy of a read file as complete. A file shorter than KEPT cannot be identified safely."""
        with contextlib.suppress(OSError), path.open("rb", buffering=0) as file:
            head = file.read(KEPT)
            self._known.pop(_identity(status), None)
            if len(head) == KEPT:
                begins = digest(head)
                self._known[_identity(status)] = Known(
                    path.name, status.st_size, status.st_mtime_ns, begins, 0, closed=True
                )
                self._remember(path.name)

    def _was_replaced(self, path: Path, status: os.stat_result, known: Known) -> bool:
        if status.st_size < known.size:
            return True
        try:
            with path.open("rb", buffering=0) as file:
                if digest(file.read(KEPT)[: known.begins[0]]) != known.begins:
                    return True
                file.seek(known.position - known.ends[0])
                return digest(file.read(known.ends[0])) != known.ends
        except OSError as error:
            if is_shortage(error):
                raise
            return False

    def _list(self) -> list[tuple[Path, os.stat_result]]:
        """List the folder, unless it is unchanged since a recent listing. Raises OSError if no descriptor is free."""
        try:
            changed = self.folder.stat().st_mtime_ns
            begin = time.monotonic()
            if changed == self._changed and begin < self._list_again:
                return self._listed
            self._changed = changed
            self._listed = sorted(self._matching(), key=lambda file: (file[1].st_mtime_ns, natural(file[0].name)))
            end = time.monotonic()
            self._list_again = end + max(POLL, (end - begin) / LISTING_SHARE)
            present = {_identity(status) for _, status in self._listed}
            self._meet_again(present)
            new = {path.name for path, status in self._listed if _identity(status) not in self._known}
            # Forget deleted files, except those whose compressed version has not been read yet.
            self._known = {
                identity: known
                for identity, known in self._known.items()
                if identity in present or any(known.name + suffix in new for suffix in SUFFIXES)
            }
        except OSError as error:
            self._list_again = 0.0
            if is_shortage(error):
                raise
        return self._listed

    def _meet_again(self, present: set[Identity]) -> None:
        """Identify files of another process whose device number has changed; runs once, at the first listing."""
        inodes = self._inodes
        for path, status in self._listed if inodes else ():
            identity = _identity(status)
            for former in inodes.get(status.st_ino, ()) if identity not in self._known else ():
                known = self._known.get(former)
                if known is None or former in present or known.begins == NOTHING:
                    continue
                if not self._was_replaced(path, status, known):
                    self._known[identity] = self._known.pop(former)
                    break
        self._inodes = {}

    def _matching(self) -> Iterator[tuple[Path, os.stat_result]]:
        hidden = self.pattern.startswith(".")
        for entry in os.scandir(self.folder):
            if fnmatchcase(entry.name, self.pattern) and entry.name != TEMPLATES:
                with contextlib.suppress(OSError):
                    status = entry.stat()  # follows symbolic links
                    if stat.S_ISREG(status.st_mode) and (hidden or not entry.name.startswith(".")):
                        yield Path(entry.path), status


def natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key for the natural order of names: numbers in names are compared by value.

    >>> sorted(["trace10", "trace", "trace2"], key=natural)
    ['trace', 'trace2', 'trace10']
    """
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", name) if part]


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino
