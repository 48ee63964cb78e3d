"""Taking a spool's folder over from the writer before: one writer at a time, and what the last one left."""

from __future__ import annotations

import contextlib
import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from capture.private_files import make_private_folder, open_private
from lowlevel.spool import segment
from lowlevel.spool.folder import (
    LOCK,
    PART,
    SegmentLostError,
    SpoolError,
    disk_bytes,
    keep_reserve,
    numbers,
    read_committed,
    segment_path,
)
from lowlevel.spool.segment import Segment


class HeldSegments:
    """Numbers of the files and the disk they take, oldest first. Raises SpoolError where one cannot be deleted."""

    def __init__(self, folder: Path) -> None:
        """Look at what is there."""
        self.folder = folder
        self.bytes = 0
        self._bytes: dict[int, int] = {}
        for number in numbers(folder):
            self.add(number, segment_path(folder, number).stat().st_size)

    def __len__(self) -> int:
        return len(self._bytes)

    @property
    def oldest(self) -> int | None:
        """The lowest number."""
        return next(iter(self._bytes), None)

    def oldest_after(self, committed: int) -> int | None:
        """The lowest number above one."""
        return next((number for number in self._bytes if number > committed), None)

    def newest_first(self) -> list[int]:
        """All numbers, descending."""
        return list(reversed(self._bytes))

    def add(self, number: int, size: int) -> None:
        """Take note of a new file, of a greater number than all others."""
        self._bytes[number] = disk_bytes(size)
        self.bytes += disk_bytes(size)

    def delete(self, number: int) -> None:
        """Delete a file, if it still is there."""
        path = segment_path(self.folder, number)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise SpoolError(f"{path}: cannot be deleted: {error.strerror}") from error
        self.bytes -= self._bytes.pop(number)

    def delete_committed(self, committed: int) -> None:
        """Delete all up to and with a number, but never the newest: the next writer goes on from it."""
        while len(self._bytes) > 1 and (number := next(iter(self._bytes))) <= committed:
            self.delete(number)


@dataclass(frozen=True, slots=True)
class Takeover:
    """A folder that is ours until `lock`, a file descriptor, is closed.

    `newest` is the newest whole segment, `next` the number of the one to be written.
    """

    lock: int
    held: HeldSegments
    newest: Segment | None
    next: int


def take_over(folder: Path, link: str, again: bool = False) -> Takeover:
    """Make a folder, or take it with what is in it; files that were never finished are removed.

    `again`: the input is read again from the position of the newest whole segment. Raises SpoolError where another
    writer is at work, where it is another link's, where a segment is of another version, where nothing can be written,
    and where reading `again` would repeat what the reader has committed; UnsafeFolderError if another user can write to
    the folder.
    """
    with contextlib.ExitStack() as undo:
        try:
            make_private_folder(folder)
            lock = open_private(folder / LOCK, os.O_RDWR)
            undo.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for path in folder.glob(f"*.segment{PART}"):
                path.unlink()
            keep_reserve(folder)
            held = HeldSegments(folder)
            newest, damaged = _newest_whole(held)
        except BlockingIOError as error:
            raise SpoolError(
                f"{folder}: another process is writing this spool; end it, or name another folder"
            ) from error
        except OSError as error:
            raise SpoolError(f"{folder}: cannot be a spool: {error.strerror}") from error
        if newest is not None and newest.link != link:
            raise SpoolError(f"{folder}: got link {link}, expected {newest.link}, whose spool this is")
        if again and damaged:
            _check_position(folder, newest, damaged)
        undo.pop_all()
    return Takeover(lock, held, newest, max([committed_number(folder), *held.newest_first()[:1]]) + 1)


def committed_number(folder: Path) -> int:
    """What the reader has committed; where its file is damaged, nothing, so that nothing is deleted."""
    try:
        return read_committed(folder).number
    except SpoolError:
        return -1


def _newest_whole(held: HeldSegments) -> tuple[Segment | None, list[int]]:
    """Return the newest whole segment, and the numbers of the damaged ones above it, descending."""
    damaged: list[int] = []
    for number in held.newest_first():
        try:
            return segment.decode(segment_path(held.folder, number)), damaged
        except SegmentLostError:
            damaged.append(number)
    return None, damaged


def _check_position(folder: Path, newest: Segment | None, damaged: list[int]) -> None:
    """Refuse to read again what a damaged segment held, unless the reader never took it and its place is known."""
    committed, oldest = committed_number(folder), damaged[-1]
    if oldest <= committed:
        reason = f"the reader has committed up to {committed}, and what it held would be counted twice"
    elif newest is None or newest.header.position is None:
        reason = "no older segment says from where to read again"
    else:
        return
    raise SpoolError(
        f"{segment_path(folder, oldest)}: damaged, and with it how far the input was read: {reason}; bring the file "
        "back, or name another folder to begin anew"
    )
