"""The files in a collector's folder.

The name of a file is a time. A reader can read a file while it grows. The oldest files are deleted first.

A file has its final name before its first record is written. The next file is created only after a file is complete. So
a reader can follow the folder: it reads the files in the order of their names, and at the end of the last file it waits
for more records or for the next file. It reads each record once, shortly after the arrival of the datagram. The file
header is written under a hidden name, so that a reader can open every visible file.

A name is the time of the first datagram, `20260131T235959.123456789Z.pcap`. Each name is larger than all existing
names. If the clock was set back, the name is the time of the newest name plus 1 ns.

A complete file is written to disk (`fsync`) while the next file is recorded. Written records survive a crash of the
process. They survive a power failure after the system's write-back delay, usually 30 s.
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
from capture.files.pcap import FILE_HEADER_BYTES
from capture.private_files import make_private_folder, open_private
from capture.units import SECOND

MAX_PENDING_SYNCS = 8
"""Maximum number of complete files that wait for fsync. If more files wait, the collector waits for the disk."""

NAME_PATTERN = re.compile(r"(\d{8}T\d{6})\.(\d{9})Z\.pcap", re.ASCII)
"""Names of files: date and time, and nanoseconds."""

LOCK_NAME = ".collector.lock"
"""Name of the file that a running collector locks."""

TEMPORARY_NAME = ".collector.next"
"""Hidden name of a file whose header is being written."""

RAW_IP, SNAP_LENGTH = 101, 262_144
PCAP_HEADER = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, SNAP_LENGTH, RAW_IP)
"""File header of each file: a classic pcap file with nanoseconds, of link type RAW_IP."""


class RecordingError(WiretideError):
    """The disk cannot store the received datagrams. The user must free space or repair the disk, then start again."""


def file_name(time: int) -> str:
    """Return the name of a file that begins at `time` (ns).

    >>> file_name(1_700_000_000_000_000_001)
    '20231114T221320.000000001Z.pcap'
    """
    return f"{datetime.fromtimestamp(time // SECOND, UTC):%Y%m%dT%H%M%S}.{time % SECOND:09d}Z.pcap"


def start_time(name: str) -> int | None:
    """Return the time (ns) in a file's name, or None if the name has another form.

    >>> start_time(file_name(1_700_000_000_000_000_001)), start_time("trace.pcap")
    (1700000000000000001, None)
    """
    matched = NAME_PATTERN.fullmatch(name)
    if not matched:
        return None
    try:
        whole_seconds = datetime.strptime(matched[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(whole_seconds.timestamp()) * SECOND + int(matched[2])


class RecordFiles:
    """The folder of one running collector. Only one thread may use it."""

    def __init__(self, folder: Path, max_file_bytes: int, max_folder_bytes: int | None) -> None:
        """Create the folder and lock it. `max_file_bytes`, `max_folder_bytes`: limits of one file and of all files.

        Raises InputError if this fails, and UnsafeFolderError if another user can write to the folder.
        """
        self.folder = folder
        self.file_count = self.deleted_count = self.bytes = self.retries = 0
        self.wait_until = math.inf
        """Time (`time.monotonic`) until which `start` waits for a free file descriptor."""
        self._max_file_bytes = max_file_bytes
        self._max_folder_bytes = max_folder_bytes
        self._file: int | None = None
        self._path = folder
        self._sizes: dict[Path, int] = {}
        with contextlib.ExitStack() as undo:
            try:
                make_private_folder(folder)
                self._lock = open_private(folder / LOCK_NAME, os.O_RDWR)
                undo.callback(os.close, self._lock)
                self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                undo.callback(os.close, self._folder)
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                recorded = [path for path in folder.iterdir() if start_time(path.name) is not None]
                self._sizes = {path: path.stat().st_size for path in recorded}
                for path, size in list(self._sizes.items()):
                    if size < FILE_HEADER_BYTES:  # a power failure lost the rest; no reader can open the file
                        path.unlink()
                        del self._sizes[path]
            except BlockingIOError as error:
                raise InputError(f"{folder}: another collector is recording here; choose another folder") from error
            except OSError as error:
                raise InputError(f"{folder}: cannot record here: {error.strerror}") from error
            undo.pop_all()
        self._newest = max((start_time(path.name) or 0 for path in recorded), default=0)
        self._sync_thread = ThreadPoolExecutor(1, "fsync")
        self._pending_syncs: deque[Future[None]] = deque()

    @property
    def path(self) -> Path:
        """The current file. Before the first file, it is the folder."""
        return self._path

    def start(self, first_time: int) -> None:
        """Complete the current file and begin the next file. Its name is the time `first_time` (ns) or later."""
        self._complete_file()
        self._delete_oldest()
        self._newest = max(first_time, self._newest + 1)
        self._path = self.folder / file_name(self._newest)
        temporary = self.folder / TEMPORARY_NAME
        try:
            self._file = retry_shortage(
                lambda: open_private(temporary, os.O_WRONLY | os.O_TRUNC),
                count_retry=self._count_retry,
                give_up=lambda: time.monotonic() >= self.wait_until,
            )
            os.write(self._file, PCAP_HEADER)
            temporary.rename(self._path)
        except OSError as error:
            raise self._recording_error(error) from error
        self._sizes[self._path] = len(PCAP_HEADER)
        self.bytes += len(PCAP_HEADER)
        self.file_count += 1

    def _count_retry(self) -> None:
        self.retries += 1

    def append(self, records: memoryview) -> None:
        """Write whole records. If this fails, remove the partly written records and raise RecordingError."""
        assert self._file is not None, "start() comes first"
        whole_bytes = self._sizes[self._path]
        try:
            remaining = records
            while remaining:
                remaining = remaining[os.write(self._file, remaining) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, whole_bytes)
            raise self._recording_error(error) from error
        self._sizes[self._path] = whole_bytes + len(records)
        self.bytes += len(records)

    def close(self) -> None:
        """Complete the current file and release the folder. May be called again."""
        if self._lock < 0:
            return
        try:
            self._complete_file()
            self._wait_for_sync(0)
        finally:
            self._sync_thread.shutdown()
            os.close(self._folder)
            os.close(self._lock)
            self._lock = -1

    def _complete_file(self) -> None:
        """Let the sync thread sync and close the current file, if there is one. Wait if too many syncs are pending."""
        if self._file is not None:
            self._pending_syncs.append(self._sync_thread.submit(_sync, self._file, self._folder))
            self._file = None
        self._wait_for_sync(MAX_PENDING_SYNCS)

    def _wait_for_sync(self, max_pending: int) -> None:
        """Wait until at most `max_pending` files wait for their sync. Raise RecordingError if a sync has failed."""
        while self._pending_syncs and (len(self._pending_syncs) > max_pending or self._pending_syncs[0].done()):
            try:
                self._pending_syncs.popleft().result()
            except OSError as error:
                raise self._recording_error(error) from error

    def _delete_oldest(self) -> None:
        """Delete the oldest files, until another file of `max_file_bytes` fits into the limit `max_folder_bytes`."""
        while (
            self._max_folder_bytes is not None
            and self._sizes
            and sum(self._sizes.values()) + self._max_file_bytes > self._max_folder_bytes
        ):
            oldest = min(self._sizes)
            try:
                oldest.unlink(missing_ok=True)
            except OSError as error:
                raise RecordingError(f"{oldest}: cannot be deleted to keep the limit: {error.strerror}") from error
            del self._sizes[oldest]
            self.deleted_count += 1

    def _recording_error(self, error: OSError) -> RecordingError:
        """Return the error to raise if the current file cannot be written."""
        advice = (
            "; free some space, or limit the folder with --keep" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        )
        return RecordingError(f"{self._path}: cannot be written: {error.strerror}{advice}")


def _sync(file: int, folder: int) -> None:
    """Sync a file and its folder entry to disk, and close the file. The arguments are file descriptors."""
    try:
        os.fsync(file)
    finally:
        os.close(file)
    os.fsync(folder)


assert len(PCAP_HEADER) == FILE_HEADER_BYTES
