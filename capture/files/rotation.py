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


POLL_SECONDS = 0.1
"""Seconds between two polls of a file that has not grown."""

QUIET_SECONDS = 1.0
"""Seconds without growth after which a file may be complete, if another file follows."""

IDENTITY_BYTES = 64
"""Number of first bytes of a file that identify its content. In a pcap file they reach into the first packet.

The same number of bytes before the position is compared too, because an edited copy has the same first packet.
"""


class GrowingBytes:
    """A regular file that grows, until `is_complete` returns True or its content is replaced.

    `is_complete` is called at the end of the file with its status, and whether it has not grown for QUIET_SECONDS
    seconds. A file has been replaced if it is shorter than the position, or if its first bytes or those before the
    position have changed. It then ends, and its unread bytes are lost. Changes of other bytes already read are not
    detected.
    """

    live = True
    size = 0

    def __init__(self, descriptor: int, is_complete: Callable[[os.stat_result, bool], bool]) -> None:
        """Take ownership of an open file."""
        self.descriptor = descriptor
        self.consumed = 0
        self.head = b""
        self.tail = b""
        """The last bytes before the position, up to IDENTITY_BYTES."""
        self.changed = -1
        """Modification time, ns, of the content read; -1 if the content has been replaced."""
        self.close = weakref.finalize(self, os.close, descriptor)
        self._is_complete = is_complete
        self._complete = False
        self._grew = time.monotonic()

    def read_into(self, room: memoryview, wait: float) -> int | None:
        """Read available bytes. At the end of the file poll it until `wait` seconds have passed."""
        until = time.monotonic() + wait
        while True:
            count = os.preadv(self.descriptor, [room], self.consumed)
            if not self._is_unchanged(self.consumed + count):
                return 0
            if count:
                self.consumed += count
                self.tail = (self.tail + room[max(0, count - IDENTITY_BYTES) : count].tobytes())[-IDENTITY_BYTES:]
                self._grew = time.monotonic()
                return count
            if self._complete:
                return 0
            if self._is_over():
                self._complete = True  # read once more, because the file may have grown before `is_complete` was called
                continue
            left = until - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(POLL_SECONDS, left))

    def rewind(self) -> None:
        """Raise OSError: a followed file is read only once."""
        raise OSError("a file that is followed cannot be read again")

    def _is_unchanged(self, known: int) -> bool:
        """Return whether the first bytes and those before the position are unchanged, and `known` bytes exist."""
        status = os.fstat(self.descriptor)  # before the comparison: its time is never newer than the compared content
        head = os.pread(self.descriptor, min(IDENTITY_BYTES, known), 0)
        tail = os.pread(self.descriptor, len(self.tail), self.consumed - len(self.tail))
        same = head.startswith(self.head) and tail == self.tail
        if not same or status.st_size < known or len(head) < min(IDENTITY_BYTES, known):
            self.changed = -1
            return False
        self.head, self.changed = head, status.st_mtime_ns
        return True

    def _is_over(self) -> bool:
        status = os.fstat(self.descriptor)
        quiet = time.monotonic() - self._grew >= QUIET_SECONDS or time.time() - status.st_mtime >= QUIET_SECONDS
        return self._is_complete(status, quiet)


Identity = tuple[int, int]
"""Device and inode."""

LISTING_SHARE = 0.05
"""Maximum share of time for listing a folder whose modification time has not changed; its files may have changed."""

MAX_NAMES = 65_536
"""Number of names of read files that are stored to recognise their compressed versions."""


def digest(head: bytes) -> bytes:
    """Return 9 bytes that identify the beginning of a file: the length of `head` and its hash."""
    return bytes([len(head)]) + blake2b(head, digest_size=8).digest()


EMPTY_DIGEST = digest(b"")


@dataclass
class FileProgress:
    """Progress in a file: `size` bytes and `records` records were read. A `closed` file is complete.

    `name`: its name when it was opened. `changed`: its modification time, ns. `head_digest`: `digest` of its first
    bytes, up to IDENTITY_BYTES. `tail_digest`: `digest` of the bytes before `position`, up to IDENTITY_BYTES;
    EMPTY_DIGEST of a file that another process read.
    """

    name: str
    size: int
    changed: int
    head_digest: bytes
    records: int
    closed: bool
    tail_digest: bytes = EMPTY_DIGEST
    position: int = 0


StoredProgress = tuple[str, int, int, int, str, int, bool]
"""Stored progress in a file: name, device, inode, size, digest in hexadecimal, records, closed. Each segment of a spool
contains it for all files. So it is short and omits values that can be read again (the modification time)."""


@dataclass(frozen=True)
class NextFile:
    """The next file to read, after its first `skip` records. `is_replacement`: it replaced content already read."""

    path: Path
    identity: Identity
    source: GrowingBytes
    skip: int
    is_replacement: bool


class Rotation:
    """Choose the file to read next. Call `next` and `store_progress` in turn."""

    def __init__(self, folder: Path, pattern: str) -> None:
        """Read the files of `folder` that match `pattern`; hidden files only if the pattern begins with a dot."""
        self.folder = folder
        self.pattern = pattern
        self._progress: dict[Identity, FileProgress] = {}
        self._names: dict[str, None] = {}
        self._before: dict[str, int] = {}  # names of files that another process read -> records that it read
        self._inodes: dict[int, list[Identity]] = {}  # inodes of these files, until the first listing of the folder
        self._current: Identity | None = None
        self._listed: list[tuple[Path, os.stat_result]] = []
        self._list_again = 0.0
        self._changed = -1
        self.retries = 0
        """Number of failed attempts to open a file or the folder because no file descriptor was free."""

    def next(self) -> NextFile | None:
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

    def _next(self) -> NextFile | None:
        for path, status in self._waiting():
            identity = _identity(status)
            known = self._progress.get(identity)
            replaced = known is not None and self._was_replaced(path, status, known)
            try:
                descriptor = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                continue
            except OSError as error:
                if is_shortage(error):
                    raise
                self._progress[identity] = FileProgress(
                    path.name, status.st_size, status.st_mtime_ns, EMPTY_DIGEST, 0, closed=True
                )
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
            return NextFile(path, identity, GrowingBytes(descriptor, self._is_over), skip, replaced and not skip)
        return None

    def store_progress(self, file: NextFile, records: int, *, closed: bool) -> None:
        """Store the progress in the file of `file`. A `closed` file is not read further until it is replaced."""
        source = file.source
        head_digest, tail_digest = digest(source.head), digest(source.tail)
        known = FileProgress(
            file.path.name, source.consumed, source.changed, head_digest, records, closed, tail_digest, source.consumed
        )
        self._progress[file.identity] = known
        self._current = None
        self._list_again = 0.0  # the last listing may be older than the last read

    def stored_progress(self, file: NextFile | None = None, records: int = 0) -> list[StoredProgress]:
        """Return the stored progress in all files. `file` is the current file, `records` its records read so far."""
        files = dict(self._progress)
        if file is not None:
            # Size 0 means unknown: after a restart it is read on after these records, unless its beginning differs.
            head_digest = digest(file.source.head)
            files[file.identity] = FileProgress(file.path.name, 0, -1, head_digest, records, closed=False)
        return [
            (known.name, device, inode, known.size, known.head_digest.hex(), known.records, known.closed)
            for (device, inode), known in files.items()
            # Files that could not be opened are omitted, because another process may be able to open them.
            if known.head_digest != EMPTY_DIGEST or not known.closed
        ]

    def restore(self, stored_progress: Iterable[StoredProgress]) -> None:
        """Restore the progress stored by another process, before the first file is opened."""
        for name, device, inode, size, head_digest, records, closed in stored_progress:
            self._progress[device, inode] = FileProgress(name, size, -1, bytes.fromhex(head_digest), records, closed)
            self._inodes.setdefault(inode, []).append((device, inode))
            if closed:
                self._remember(name)
            else:
                self._before[name] = records

    def _remember(self, name: str) -> None:
        self._names[name] = None
        if len(self._names) > MAX_NAMES:
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
            known = self._progress.get(identity)
            same = known is not None and (status.st_size, status.st_mtime_ns) == (known.size, known.changed)
            if known is None or (not same and self._was_replaced(path, status, known)):
                if path.suffix in SUFFIXES and path.stem in self._names:  # the inode may be that of the original file
                    self._mark_as_read(path, status)
                else:
                    yield path, status
            elif status.st_size > known.size and not known.closed:
                yield path, status
            else:
                known.changed = status.st_mtime_ns
                if known.closed:
                    known.size = status.st_size

    def _mark_as_read(self, path: Path, status: os.stat_result) -> None:
        """Mark a compressed copy of a read file as complete, if it is long enough to be identified."""
        with contextlib.suppress(OSError), path.open("rb", buffering=0) as file:
            head = file.read(IDENTITY_BYTES)
            self._progress.pop(_identity(status), None)
            if len(head) == IDENTITY_BYTES:
                head_digest = digest(head)
                self._progress[_identity(status)] = FileProgress(
                    path.name, status.st_size, status.st_mtime_ns, head_digest, 0, closed=True
                )
                self._remember(path.name)

    def _was_replaced(self, path: Path, status: os.stat_result, known: FileProgress) -> bool:
        if status.st_size < known.size:
            return True
        try:
            with path.open("rb", buffering=0) as file:
                if digest(file.read(IDENTITY_BYTES)[: known.head_digest[0]]) != known.head_digest:
                    return True
                file.seek(known.position - known.tail_digest[0])
                return digest(file.read(known.tail_digest[0])) != known.tail_digest
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
            self._list_again = end + max(POLL_SECONDS, (end - begin) / LISTING_SHARE)
            present = {_identity(status) for _, status in self._listed}
            self._identify_by_inode(present)
            new = {path.name for path, status in self._listed if _identity(status) not in self._progress}
            # Forget deleted files, except those whose compressed version has not been read yet.
            self._progress = {
                identity: known
                for identity, known in self._progress.items()
                if identity in present or any(known.name + suffix in new for suffix in SUFFIXES)
            }
        except OSError as error:
            self._list_again = 0.0
            if is_shortage(error):
                raise
        return self._listed

    def _identify_by_inode(self, present: set[Identity]) -> None:
        """Identify files of another process whose device number has changed; runs once, at the first listing."""
        inodes = self._inodes
        for path, status in self._listed if inodes else ():
            identity = _identity(status)
            for former in inodes.get(status.st_ino, ()) if identity not in self._progress else ():
                known = self._progress.get(former)
                if known is None or former in present or known.head_digest == EMPTY_DIGEST:
                    continue
                if not self._was_replaced(path, status, known):
                    self._progress[identity] = self._progress.pop(former)
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
