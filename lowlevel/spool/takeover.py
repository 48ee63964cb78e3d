"""Taking a spool's folder over from the writer before: one writer at a time, and what the last one left."""

from __future__ import annotations

import contextlib
import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from capture.private_files import make_private_folder, open_private
from lowlevel.spool import segment
from lowlevel.spool.committed import keep_reserve, read_committed
from lowlevel.spool.errors import SegmentLostError, SpoolError
from lowlevel.spool.folder import LOCK, PART, segment_path
from lowlevel.spool.held import HeldSegments
from lowlevel.spool.segment import Segment


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
