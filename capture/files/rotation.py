"""The order in which followed files are read: all captures of a folder, or the rotated captures at one path.

Writers that rotate close a file before they begin the next file. So files are read in the order of their last change,
and files with equal times in the natural order of their names. The device and the inode identify a file, not its name,
so a renamed file is not read again. The progress in each file is stored and compared at the next listing:

    the file is unchanged                           it is skipped
    the file is longer                              its new records are read
    it is shorter, or its first bytes or the        it is a replacement, which is read from its beginning
    bytes before the position have changed

So no record is read twice or missed with any method of rotation (`tcpdump -C`, `-G`, `-W`, logrotate with `create` or
`copytruncate`). A file that is deleted or overwritten before it is read is lost, and no counter shows the loss.

After a restart, files are recognised in the same way, because the stored progress covers all present files. After a
reboot a device may have another number (NFS, btrfs, overlay). So an unknown file is identified by its inode and its
first bytes. A file that was compressed while no process read it is identified by its name, and the records already read
from the original are skipped.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from capture.descriptors import is_shortage
from capture.files.decompressed import SUFFIXES
from capture.lazy_dataclasses import dataclass

TEMPLATES_FILE = "templates.json"
"""File with the flow templates that exporters have announced. Captures in the same folder are decoded with them."""

POLL_SECONDS = 0.1
"""Seconds between two polls of a file that has not grown."""

QUIET_SECONDS = 1.0
"""Seconds without growth after which a file is complete if another file follows."""

IDENTITY_BYTES = 64
"""Number of first bytes of a file that identify its content. In a pcap file they include a part of the first packet.
The last IDENTITY_BYTES before the position are compared too, because an edited copy has the same first packet."""


class GrowingBytes:
    """A regular file that grows, until `is_complete` returns True or its content is replaced.

    `is_complete` is called at the end of the file. Its arguments are the status of the file, and whether the file has
    not grown for QUIET_SECONDS. The content has been replaced if the file is shorter than the position, or if its first
    bytes or the bytes before the position have changed. The source then ends, and unread bytes of the old content are
    lost. Changes of other bytes already read are not detected.
    """

    live = True
    size = 0

    def __init__(self, descriptor: int, is_complete: Callable[[os.stat_result, bool], bool]) -> None:
        """Take ownership of the descriptor of an open file."""
        self.descriptor = descriptor
        self.consumed = 0
        self.head = b""
        self.tail = b""
        """The last bytes before the position, up to IDENTITY_BYTES."""
        self.change_time = -1
        """Modification time in ns of the content read; -1 if the content has been replaced."""
        self.close = weakref.finalize(self, os.close, descriptor)
        self._is_complete = is_complete
        self._complete = False
        self._last_growth = time.monotonic()

    def read_into(self, buffer: memoryview, wait: float) -> int | None:
        """Read available bytes. At the end of the file, poll it for up to `wait` seconds. Implements ByteSource."""
        deadline = time.monotonic() + wait
        while True:
            count = os.preadv(self.descriptor, [buffer], self.consumed)
            if not self._is_unchanged(self.consumed + count):
                return 0
            if count:
                self.consumed += count
                self.tail = (self.tail + buffer[max(0, count - IDENTITY_BYTES) : count].tobytes())[-IDENTITY_BYTES:]
                self._last_growth = time.monotonic()
                return count
            if self._complete:
                return 0
            if self._has_ended():
                self._complete = True  # read once more: the file may have grown before the check
                continue
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return None
            time.sleep(min(POLL_SECONDS, remaining))

    def rewind(self) -> None:
        """Raise OSError, because a followed file is read only once."""
        raise OSError("a file that is followed cannot be read again")

    def _is_unchanged(self, min_size: int) -> bool:
        """Return whether the file has at least `min_size` bytes, and its identifying bytes are unchanged."""
        status = os.fstat(
            self.descriptor
        )  # called before the content is read, so its time is not newer than the compared content
        head = os.pread(self.descriptor, min(IDENTITY_BYTES, min_size), 0)
        tail = os.pread(self.descriptor, len(self.tail), self.consumed - len(self.tail))
        is_same = head.startswith(self.head) and tail == self.tail
        if not is_same or status.st_size < min_size or len(head) < min(IDENTITY_BYTES, min_size):
            self.change_time = -1
            return False
        self.head, self.change_time = head, status.st_mtime_ns
        return True

    def _has_ended(self) -> bool:
        """Return the result of `is_complete` for the current state of the file."""
        status = os.fstat(self.descriptor)
        is_quiet = (
            time.monotonic() - self._last_growth >= QUIET_SECONDS or time.time() - status.st_mtime >= QUIET_SECONDS
        )
        return self._is_complete(status, is_quiet)


Identity = tuple[int, int]
"""Device and inode number of a file."""

MAX_LISTING_SHARE = 0.05
"""Largest share of the time that may be spent on listing the folder. An unchanged modification time of the folder does
not prevent a listing, because the folder's files may have changed."""

MAX_STORED_NAMES = 65_536
"""Maximum number of stored names of read files. A compressed version of such a file is recognised by its name."""


EMPTY_DIGEST = bytes.fromhex("00e4a6a0577479b2b4")
"""The digest of no bytes."""


def digest(head: bytes) -> bytes:
    """Return 9 bytes that identify the beginning of a file: the length of `head` and its hash.

    >>> digest(b"") == EMPTY_DIGEST
    True
    """
    from hashlib import blake2b

    return bytes([len(head)]) + blake2b(head, digest_size=8).digest()


@dataclass
class FileProgress:
    """Progress in a file: `size` bytes and `records` records were read. `is_closed`: the file is complete.

    `name`: its name when it was opened. `change_time`: its modification time in ns. `head_digest`: `digest` of its
    first bytes, up to IDENTITY_BYTES. `tail_digest`: `digest` of the bytes before `position`, up to IDENTITY_BYTES.
    It is EMPTY_DIGEST if another process read the file.
    """

    name: str
    size: int
    change_time: int
    head_digest: bytes
    records: int
    is_closed: bool
    tail_digest: bytes = EMPTY_DIGEST
    position: int = 0


StoredProgress = tuple[str, int, int, int, str, int, bool]
"""Stored progress in a file: name, device, inode, size, head_digest in hexadecimal, records, closed. Each segment of a
spool contains the progress in all files. So it omits values that can be read from the file (its modification time)."""


@dataclass(frozen=True)
class NextFile:
    """The next file to read, without its first `skip_records` records.

    `is_replacement`: it replaces content already read.
    """

    path: Path
    identity: Identity
    source: GrowingBytes
    skip_records: int
    is_replacement: bool


class Rotation:
    """Choose the file to read next. Call `next` and `store_progress` alternately."""

    def __init__(self, folder: Path, pattern: str) -> None:
        """Read the files of `folder` that match `pattern`; hidden files only if the pattern begins with a dot."""
        self.folder = folder
        self.pattern = pattern
        self._progress: dict[Identity, FileProgress] = {}
        self._names: dict[str, None] = {}
        self._records_read: dict[str, int] = {}  # name of a file that another process read -> records read
        self._restored_inodes: dict[int, list[Identity]] = {}
        """inode -> identities with restored progress; emptied by the first listing."""
        self._current: Identity | None = None
        self._listing: list[tuple[Path, os.stat_result]] = []
        self._next_listing = 0.0
        self._folder_changed = -1
        self.retries = 0
        """Number of failed attempts to open a file or the folder, because no file descriptor was free."""

    def next(self) -> NextFile | None:
        """Open the next file. Return None if no file has unread records, or no file descriptor is free.

        Raises OSError once for each file that cannot be opened.
        """
        try:
            return self._next()
        except OSError as error:
            if not is_shortage(error):
                raise
            self.retries += 1
            return None

    def _next(self) -> NextFile | None:
        for path, status in self._unread_files():
            identity = _identity(status)
            known = self._progress.get(identity)
            is_replaced = known is not None and self._was_replaced(path, status, known)
            try:
                descriptor = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                continue
            except OSError as error:
                if is_shortage(error):
                    raise
                self._progress[identity] = FileProgress(
                    path.name, status.st_size, status.st_mtime_ns, EMPTY_DIGEST, 0, is_closed=True
                )
                raise
            if _identity(os.fstat(descriptor)) != identity:  # the file was replaced after the listing
                os.close(descriptor)
                continue
            self._current = identity
            if known is not None and not is_replaced:
                skip = known.records
            else:
                skip = self._records_read.get(path.stem, 0) if path.suffix in SUFFIXES else 0
            self._records_read.pop(path.name, None)
            self._add_name(path.name)
            source = GrowingBytes(descriptor, self._is_complete_file)
            return NextFile(path, identity, source, skip, is_replaced and not skip)
        return None

    def store_progress(self, file: NextFile, records: int, *, is_closed: bool) -> None:
        """Store that `records` records of `file` were read.

        If `is_closed`, it is read again only if it is replaced.
        """
        source = file.source
        head_digest, tail_digest = digest(source.head), digest(source.tail)
        known = FileProgress(
            file.path.name,
            source.consumed,
            source.change_time,
            head_digest,
            records,
            is_closed,
            tail_digest,
            source.consumed,
        )
        self._progress[file.identity] = known
        self._current = None
        self._next_listing = 0.0  # the last listing may be older than the last read

    def all_progress(self, file: NextFile | None = None, records: int = 0) -> list[StoredProgress]:
        """Return the stored progress in all files. `file` is the current file, `records` its records read so far."""
        files = dict(self._progress)
        if file is not None:
            # Size 0 means unknown. After a restart, reading continues after these records if the first bytes are equal.
            head_digest = digest(file.source.head)
            files[file.identity] = FileProgress(file.path.name, 0, -1, head_digest, records, is_closed=False)
        return [
            (known.name, device, inode, known.size, known.head_digest.hex(), known.records, known.is_closed)
            for (device, inode), known in files.items()
            # Files that could not be opened are omitted, because another process may be able to open them.
            if known.head_digest != EMPTY_DIGEST or not known.is_closed
        ]

    def restore(self, stored_progress: Iterable[StoredProgress]) -> None:
        """Restore the progress that another process stored. Call this before the first file is opened."""
        for name, device, inode, size, head_digest, records, closed in stored_progress:
            self._progress[device, inode] = FileProgress(name, size, -1, bytes.fromhex(head_digest), records, closed)
            self._restored_inodes.setdefault(inode, []).append((device, inode))
            if closed:
                self._add_name(name)
            else:
                self._records_read[name] = records

    def _add_name(self, name: str) -> None:
        """Store the name of a file that is read, to recognise its compressed version."""
        self._names[name] = None
        if len(self._names) > MAX_STORED_NAMES:
            del self._names[next(iter(self._names))]

    def _is_complete_file(self, status: os.stat_result, is_quiet: bool) -> bool:
        """Return whether the current file is complete: it does not grow, and is deleted or another file is unread."""
        if not is_quiet or status.st_nlink == 0:
            return is_quiet
        try:
            return any(self._unread_files())
        except OSError as error:
            if not is_shortage(error):
                raise
            self.retries += 1
            return False  # the caller retries later

    def _unread_files(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Iterate in order over the files with unread records, except the current file."""
        for path, status in self._list():
            identity = _identity(status)
            if identity == self._current:
                continue
            known = self._progress.get(identity)
            is_same = known is not None and (status.st_size, status.st_mtime_ns) == (known.size, known.change_time)
            if known is None or (not is_same and self._was_replaced(path, status, known)):
                # A compressed copy may have reused the inode of the original file.
                if path.suffix in SUFFIXES and path.stem in self._names:
                    self._mark_as_read(path, status)
                else:
                    yield path, status
            elif status.st_size > known.size and not known.is_closed:
                yield path, status
            else:
                known.change_time = status.st_mtime_ns
                if known.is_closed:
                    known.size = status.st_size

    def _mark_as_read(self, path: Path, status: os.stat_result) -> None:
        """Mark `path`, the compressed copy of a file that was read before, as complete.

        A copy that is too short to be identified is examined again later.
        """
        with contextlib.suppress(OSError), path.open("rb", buffering=0) as file:
            head = file.read(IDENTITY_BYTES)
            self._progress.pop(_identity(status), None)
            if len(head) == IDENTITY_BYTES:
                head_digest = digest(head)
                self._progress[_identity(status)] = FileProgress(
                    path.name, status.st_size, status.st_mtime_ns, head_digest, 0, is_closed=True
                )
                self._add_name(path.name)

    def _was_replaced(self, path: Path, status: os.stat_result, known: FileProgress) -> bool:
        """Return whether the content of a file has been replaced since `known` was stored."""
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
        """Return the files of the folder in order. List it again unless it is unchanged since a recent listing.

        Raises OSError if no descriptor is free.
        """
        try:
            changed = self.folder.stat().st_mtime_ns
            begin = time.monotonic()
            if changed == self._folder_changed and begin < self._next_listing:
                return self._listing
            self._folder_changed = changed
            files = self._list_matching()
            self._listing = sorted(files, key=lambda file: (file[1].st_mtime_ns, natural_order(file[0].name)))
            end = time.monotonic()
            self._next_listing = end + max(POLL_SECONDS, (end - begin) / MAX_LISTING_SHARE)
            present = {_identity(status) for _, status in self._listing}
            self._identify_by_inode(present)
            new = {path.name for path, status in self._listing if _identity(status) not in self._progress}
            # Forget deleted files, except those whose compressed version has not been read yet.
            self._progress = {
                identity: known
                for identity, known in self._progress.items()
                if identity in present or any(known.name + suffix in new for suffix in SUFFIXES)
            }
        except OSError as error:
            self._next_listing = 0.0
            if is_shortage(error):
                raise
        return self._listing

    def _identify_by_inode(self, present: set[Identity]) -> None:
        """Identify files in the restored progress whose device number has changed. Runs once, at the first listing."""
        inodes = self._restored_inodes
        for path, status in self._listing if inodes else ():
            identity = _identity(status)
            for former in inodes.get(status.st_ino, ()) if identity not in self._progress else ():
                known = self._progress.get(former)
                if known is None or former in present or known.head_digest == EMPTY_DIGEST:
                    continue
                if not self._was_replaced(path, status, known):
                    self._progress[identity] = self._progress.pop(former)
                    break
        self._restored_inodes = {}

    def _list_matching(self) -> Iterator[tuple[Path, os.stat_result]]:
        hidden = self.pattern.startswith(".")
        for entry in os.scandir(self.folder):
            if fnmatchcase(entry.name, self.pattern) and entry.name != TEMPLATES_FILE:
                with contextlib.suppress(OSError):
                    status = entry.stat()  # follows symbolic links
                    if stat.S_ISREG(status.st_mode) and (hidden or not entry.name.startswith(".")):
                        yield Path(entry.path), status


def natural_order(name: str) -> list[tuple[int, str]]:
    """Return a sort key for the natural order of names, which compares numbers in names by value.

    >>> sorted(["trace10", "trace", "trace2"], key=natural_order)
    ['trace', 'trace2', 'trace10']
    """
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", name) if part]


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino
