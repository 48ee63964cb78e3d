"""The files of a collector's folder: named by time, visible while they grow, oldest deleted first.

A file has its final name from the first record on. The next file is created only after a file is complete. So a reader
that follows the folder reads the files in the order of their names, follows the last one, and moves to the next one
when it exists. It reads no record twice, no file is renamed, and it sees datagrams shortly after their arrival. Only
the file header is written under a hidden name, so that every visible file can be opened.

A name is the time of the first datagram, `20260131T235959.123456789Z.pcap`. Names only increase: if the clock was set
back, or the folder has files of an earlier run, the next name follows the newest existing one.

A complete file is written to disk (`fsync`) while the next one is recorded. Written data survive a crash of the process
immediately, and a power failure after the system's write-back delay, usually 30 s.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import re
import struct
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from capture.descriptors import retry_shortage
from capture.errors import InputError, WiretideError
from capture.files.pcap import FILE_HEADER
from capture.private_files import make_private_folder, open_private
from capture.units import SECOND

MAX_PENDING_SYNCS = 8
"""Maximum number of complete files that wait for fsync. If more wait, the collector waits for the disk."""

NAME = re.compile(r"(\d{8}T\d{6})\.(\d{9})Z\.pcap", re.ASCII)
LOCK = ".collector.lock"
TEMPORARY_NAME = ".collector.next"
"""Hidden name of a file whose header is being written."""

RAW_IP, SNAP_LENGTH = 101, 262_144
HEADER = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, SNAP_LENGTH, RAW_IP)


class RecordingError(WiretideError):
    """The disk cannot store the received datagrams: free space or repair it, then start again."""


def file_name(time: int) -> str:
    """Return the name of a file that begins at a time (ns).

    >>> file_name(1_700_000_000_000_000_001)
    '20231114T221320.000000001Z.pcap'
    """
    return f"{datetime.fromtimestamp(time // SECOND, UTC):%Y%m%dT%H%M%S}.{time % SECOND:09d}Z.pcap"


def start_time(name: str) -> int | None:
    """Return the time (ns) in a file's name, or None if the name has another form.

    >>> start_time(file_name(1_700_000_000_000_000_001)), start_time("trace.pcap")
    (1700000000000000001, None)
    """
    matched = NAME.fullmatch(name)
    if not matched:
        return None
    try:
        whole = datetime.strptime(matched[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(whole.timestamp()) * SECOND + int(matched[2])


class RecordFiles:
    """The folder of one running collector. Only one thread may use it."""

    def __init__(self, folder: Path, largest: int, keep: int | None) -> None:
        """Create the folder and lock it. `largest`: maximum bytes of a file. `keep`: maximum bytes of all files.

        Raises InputError if this fails, UnsafeFolderError if another user can write to the folder.
        """
        self.folder = folder
        self.files = self.deleted = self.bytes = self.retries = 0
        self.wait_until = math.inf
        """Time (`time.monotonic`) until which `start` waits for a free file descriptor."""
        self._largest = largest
        self._keep = keep
        self._file: int | None = None
        self._path = folder
        self._sizes: dict[Path, int] = {}
        with contextlib.ExitStack() as undo:
            try:
                make_private_folder(folder)
                self._lock = open_private(folder / LOCK, os.O_RDWR)
                undo.callback(os.close, self._lock)
                self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                undo.callback(os.close, self._folder)
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                ours = [path for path in folder.iterdir() if start_time(path.name) is not None]
                self._sizes = {path: path.stat().st_size for path in ours}
                for path, held in list(self._sizes.items()):
                    if held < FILE_HEADER:  # left by a power failure; it has no datagram, and no reader could open it
                        path.unlink()
                        del self._sizes[path]
            except BlockingIOError as error:
                raise InputError(f"{folder}: another collector is recording here; choose another folder") from error
            except OSError as error:
                raise InputError(f"{folder}: cannot record here: {error.strerror}") from error
            undo.pop_all()
        self._newest = max((start_time(path.name) or 0 for path in ours), default=0)
        self._syncing = ThreadPoolExecutor(1, "fsync")
        self._synced: deque[Future[None]] = deque()

    @property
    def path(self) -> Path:
        """The file being written; the folder if there is none."""
        return self._path

    def start(self, begin: int) -> None:
        """Complete the current file and begin the next one. Its name is the time `begin` (ns) or the next free one."""
        self._complete()
        self._make_room()
        self._newest = max(begin, self._newest + 1)
        self._path = self.folder / file_name(self._newest)
        temporary = self.folder / TEMPORARY_NAME
        try:
            self._file = retry_shortage(
                lambda: open_private(temporary, os.O_WRONLY | os.O_TRUNC),
                retried=self._count_retry,
                give_up=lambda: time.monotonic() >= self.wait_until,
            )
            os.write(self._file, HEADER)
            temporary.rename(self._path)
        except OSError as error:
            raise self._failed(error) from error
        self._sizes[self._path] = len(HEADER)
        self.bytes += len(HEADER)
        self.files += 1

    def _count_retry(self) -> None:
        self.retries += 1

    def append(self, records: memoryview) -> None:
        """Write whole records. If this fails, remove the partial data and raise RecordingError."""
        assert self._file is not None, "start() comes first"
        whole = self._sizes[self._path]
        try:
            left = records
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, whole)
            raise self._failed(error) from error
        self._sizes[self._path] = whole + len(records)
        self.bytes += len(records)

    def close(self) -> None:
        """Complete the file and release the folder. May be called twice."""
        if self._lock < 0:
            return
        try:
            self._complete()
            self._wait_for_sync(0)
        finally:
            self._syncing.shutdown()
            os.close(self._folder)
            os.close(self._lock)
            self._lock = -1

    def _complete(self) -> None:
        if self._file is not None:
            self._synced.append(self._syncing.submit(_sync, self._file, self._folder))
            self._file = None
        self._wait_for_sync(MAX_PENDING_SYNCS)

    def _wait_for_sync(self, most: int) -> None:
        """Wait until at most `most` files are still being synced. Raise RecordingError if a sync has failed."""
        while self._synced and (len(self._synced) > most or self._synced[0].done()):
            try:
                self._synced.popleft().result()
            except OSError as error:
                raise self._failed(error) from error

    def _make_room(self) -> None:
        """Delete the oldest files until another file of maximum size fits into the limit."""
        while self._keep is not None and self._sizes and sum(self._sizes.values()) + self._largest > self._keep:
            oldest = min(self._sizes)
            try:
                oldest.unlink(missing_ok=True)
            except OSError as error:
                raise RecordingError(f"{oldest}: cannot be deleted to keep the limit: {error.strerror}") from error
            del self._sizes[oldest]
            self.deleted += 1

    def _failed(self, error: OSError) -> RecordingError:
        advice = (
            "; free some space, or limit the folder with --keep" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        )
        return RecordingError(f"{self._path}: cannot be written: {error.strerror}{advice}")


def _sync(file: int, folder: int) -> None:
    """Sync a file and its folder entry to disk, and close the file. Both arguments are file descriptors."""
    try:
        os.fsync(file)
    finally:
        os.close(file)
    os.fsync(folder)


assert len(HEADER) == FILE_HEADER
