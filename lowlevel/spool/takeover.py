"""Takeover of a spool's folder by a new writer, which continues from the state of the previous writer.

The newest segments may be damaged, or deleted by hand. Three sources contain their numbers: the names of the files, the
record of the writer (`lowlevel.spool.newest_segment`) and the file of the reader (`lowlevel.spool.folder`). The next
segment gets a number above all these, so lost segments are a gap that the reader counts. An input that can be read
again is read from the position of the newest undamaged segment, and the lost rows are computed again. If the reader may
have read these rows already, they would be counted twice, so the writer rejects the folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from capture.lazy_dataclasses import dataclass
from capture.private_files import make_private_folder, open_private
from lowlevel.spool import segment
from lowlevel.spool.folder import (
    LOCK_NAME,
    NO_SPACE_ERRORS,
    PART_SUFFIX,
    ReaderCommit,
    SegmentLostError,
    SpoolError,
    disk_bytes,
    keep_reserve,
    read_committed,
    segment_numbers,
    segment_path,
)
from lowlevel.spool.newest_segment import WriterRecord, read_record, replace_record
from lowlevel.spool.segment import Segment


class SegmentFiles:
    """The segment files in a folder and their disk space, oldest first. Raises SpoolError if a deletion fails."""

    def __init__(self, folder: Path) -> None:
        """List the folder."""
        self.folder = folder
        self.bytes = 0
        self._bytes: dict[int, int] = {}
        for number in segment_numbers(folder):
            self.add(number, segment_path(folder, number).stat().st_size)

    def __len__(self) -> int:
        return len(self._bytes)

    @property
    def oldest(self) -> int | None:
        """The smallest segment number; None if there is no file."""
        return next(iter(self._bytes), None)

    def oldest_after(self, committed: int) -> int | None:
        """Return the smallest segment number above `committed`; None if there is none."""
        return next((number for number in self._bytes if number > committed), None)

    def newest_first(self) -> list[int]:
        """Return all segment numbers in descending order."""
        return list(reversed(self._bytes))

    def add(self, number: int, size: int) -> None:
        """Add a file of `size` bytes. `number` must be larger than all other numbers."""
        self._bytes[number] = disk_bytes(size)
        self.bytes += disk_bytes(size)

    def delete(self, number: int) -> None:
        """Delete a file, if it still exists."""
        path = segment_path(self.folder, number)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise SpoolError(f"{path}: cannot be deleted: {error.strerror}") from error
        self.bytes -= self._bytes.pop(number)

    def delete_committed(self, committed: int) -> None:
        """Delete all files up to the number `committed`, except the newest file, which the next writer needs."""
        while len(self._bytes) > 1 and (number := next(iter(self._bytes))) <= committed:
            self.delete(number)


@dataclass(frozen=True, slots=True)
class Takeover:
    """A folder that this writer has locked.

    * `lock`: a file descriptor; closing it releases the folder.
    * `newest`: the newest undamaged segment, or None. * `written`: the counters up to the largest number ever used.
      The segment with this number may be lost.
    """

    lock: int
    files: SegmentFiles
    newest: Segment | None
    written: WriterRecord


def take_over(folder: Path, link: str, rereads_input: bool = False) -> Takeover:
    """Create a folder, or take over an existing folder; remove unfinished files.

    `rereads_input`: the input is read again from the position of the newest undamaged segment.

    Raises UnsafeFolderError if another user can write to the folder. Raises SpoolError if

    * another writer is active, or the folder cannot be written;
    * the folder is the spool of another link, or a segment has another version;
    * the record of the newest segment is damaged;
    * with `rereads_input`, rows that the reader has read would be repeated.
    """
    with contextlib.ExitStack() as undo:
        try:
            make_private_folder(folder)
            lock = open_private(folder / LOCK_NAME, os.O_RDWR)
            undo.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for path in folder.glob(f"*.segment{PART_SUFFIX}"):
                path.unlink()
            keep_reserve(folder)
            files = SegmentFiles(folder)
            newest = _newest_whole(files)
            record = read_record(folder, cautious=True)
        except BlockingIOError as error:
            raise SpoolError(
                f"{folder}: another process is writing this spool; end it, or name another folder"
            ) from error
        except OSError as error:
            raise SpoolError(f"{folder}: cannot be a spool: {error.strerror}") from error
        if newest is not None and newest.link != link:
            raise SpoolError(f"{folder}: got link {link}, expected {newest.link}, the link of this spool")
        committed = _committed(folder)
        reached = ReaderCommit() if committed is None else committed
        number = max([record.number, reached.number, reached.planned, *files.newest_first()[:1]])
        if rereads_input:
            _check_position(folder, newest, number, committed)
        written = _account(newest, number, record, reached, rereads_input)
        if written != read_record(folder):  # no record, a damaged record, or lost segments
            _keep_record(folder, written)
        undo.pop_all()
    return Takeover(lock, files, newest, written)


def committed_number(folder: Path) -> int:
    """Return the number of the last committed segment; -1 if the file is damaged, so that no segment is deleted."""
    committed = _committed(folder)
    return -1 if committed is None else committed.number


def _committed(folder: Path) -> ReaderCommit | None:
    """Return the progress of the reader; None if its file is damaged."""
    try:
        return read_committed(folder)
    except SpoolError:
        return None


def _newest_whole(files: SegmentFiles) -> Segment | None:
    for number in files.newest_first():
        with contextlib.suppress(SegmentLostError):
            return segment.decode(segment_path(files.folder, number))
    return None


def _account(
    newest: Segment | None, number: int, record: WriterRecord, committed: ReaderCommit, rereads_input: bool
) -> WriterRecord:
    """Return the counters up to segment `number`, without the rows of lost segments if `rereads_input`."""
    epoch, rows, shed = record.epoch, 0, record.shed
    if newest is not None:
        epoch, shed = max(epoch, newest.header.epoch), max(shed, newest.header.shed_before)
        rows = newest.header.rows_before + newest.rows
    if not rereads_input or newest is None:
        rows = max(rows, record.rows, committed.rows or 0)
    return WriterRecord(number, epoch, rows, shed)


def _keep_record(folder: Path, written: WriterRecord) -> None:
    """Replace the record of the writer. On a full disk the old record stays until the next segment is written."""
    try:
        replace_record(folder, written)
    except OSError as error:
        if error.errno not in NO_SPACE_ERRORS:
            raise SpoolError(f"{folder}: cannot be a spool: {error.strerror}") from error


def _check_position(folder: Path, newest: Segment | None, number: int, committed: ReaderCommit | None) -> None:
    """Raise SpoolError if rows of lost segments cannot be computed again exactly once.

    The position before these rows must be known, and the reader must not have read the rows.
    """
    lost = 0 if newest is None else newest.number + 1
    if number < lost or (newest is not None and newest.ended):
        return
    path = segment_path(folder, lost)
    if committed is None:
        reason = "the file committed is damaged too, so it is unknown whether the reader has read it"
    elif lost <= committed.number:
        reason = f"the reader has committed up to {committed.number}, so its rows would be counted twice"
    elif lost <= committed.planned:
        reason = f"the reader has read up to {committed.planned}, so its rows could be counted twice"
    elif newest is None or newest.header.position is None:
        reason = "no older segment contains a position in the input"
    else:
        return
    raise SpoolError(
        f"{path}: {'damaged' if path.exists() else 'missing'}, so the position in the input is unknown: {reason}; "
        "restore the file, or name another folder to begin from the start"
    )
