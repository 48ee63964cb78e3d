"""Reading a spool, by one reader, while a writer may be writing it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from capture.private_files import open_private
from lowlevel.spool import segment
from lowlevel.spool.folder import (
    Committed,
    SegmentLostError,
    SpoolError,
    numbers,
    read_committed,
    segment_path,
    write_committed,
)
from lowlevel.spool.segment import Segment, Trailer

LOCK = ".reader.lock"


@dataclass(frozen=True, slots=True)
class Gap:
    """Segments `first` to `last`, both included, that were not committed and are gone or not whole.

    `rows` are the rows of partials that were in them; None where no whole segment on both sides says it.
    """

    first: int
    last: int
    rows: int | None


class SpoolReader:
    """A spool's whole segments, and how far they have been read. Cheap to make; not thread safe."""

    def __init__(self, folder: Path) -> None:
        """Read the spool in `folder`; SpoolError where there is no such folder."""
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise SpoolError(f"{folder}: no folder, expected a spool: the folder that a low-level node writes")
        self._known: dict[int, tuple[tuple[int, int, int], Trailer | None]] = {}

    @property
    def link(self) -> str:
        """The link whose spool this is. Raises SegmentLostError while there is no whole segment."""
        for number in reversed(numbers(self.folder)):
            if self._trailer(number) is not None:
                return segment.read_header(segment_path(self.folder, number)).link
        raise SegmentLostError(f"{self.folder}: no whole segment yet, so nobody knows of which link it is")

    @property
    def committed(self) -> int:
        """The number up to which, and with it, everything has been committed; -1 before the first commit."""
        return read_committed(self.folder).number

    def segments(self) -> list[int]:
        """Numbers of the whole segments that are there, ascending, those that are committed already included.

        Every file is read once to prove its checksum, and again only when it changed.
        """
        found = numbers(self.folder)
        self._known = {number: self._known[number] for number in found if number in self._known}
        return [number for number in found if self._trailer(number) is not None]

    def read(self, number: int) -> Segment:
        """Read one segment. Raises SegmentLostError where it is gone or not whole."""
        path = segment_path(self.folder, number)
        try:
            found = segment.decode(path)
        except FileNotFoundError:
            raise SegmentLostError(f"{path}: gone: committed and deleted, or dropped by a full spool") from None
        if found.number != number:
            raise SegmentLostError(f"{path}: got segment {found.number} under this name, expected {number}")
        return found

    def __iter__(self) -> Iterator[Segment]:
        """Read all whole segments that are not committed, in order; those that vanish meanwhile are passed over."""
        committed = self.committed
        for number in self.segments():
            if number > committed:
                try:
                    yield self.read(number)
                except SegmentLostError:
                    continue

    def gaps(self, after: int | None = None) -> list[Gap]:
        """Return what is missing between number `after`, by default the committed one, and the newest whole segment."""
        start = read_committed(self.folder)
        if after is not None and after != start.number:
            start = Committed(after, self._rows_through(after))
        gaps = []
        last = start.number
        for number in self.segments():
            if number > last + 1:
                before = start.rows if last == start.number else self._rows_through(last)
                after_it = self._rows_before(number)
                broken = any(segment_path(self.folder, each).exists() for each in range(last + 1, number))
                if before is None or after_it is None or broken:
                    gaps.append(Gap(last + 1, number - 1, None))
                else:
                    gaps.append(Gap(last + 1, number - 1, after_it - before))
            last = max(last, number)
        return gaps

    def commit(self, number: int) -> None:
        """Say that everything up to and with segment `number` has been dealt with: it may be deleted.

        It is on the disk when this returns. A number below the committed one changes nothing. Raises SpoolError for a
        number beyond the newest segment.
        """
        newest = max(numbers(self.folder), default=-1)
        if number > newest:
            raise SpoolError(f"{self.folder}: got {number} to commit, expected at most {newest}, the newest segment")
        lock = open_private(self.folder / LOCK, os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                before = read_committed(self.folder).number
            except SpoolError:
                before = -1  # this commit mends it
            if number > before:
                write_committed(self.folder, Committed(number, self._rows_through(number)))
        finally:
            os.close(lock)

    def _rows_through(self, number: int) -> int | None:
        """All rows ever up to and with a segment; None where neither it nor the next is there to say."""
        if number < 0:
            return 0
        trailer = self._trailer(number)
        before = self._rows_before(number)
        return self._rows_before(number + 1) if trailer is None or before is None else before + trailer.rows

    def _rows_before(self, number: int) -> int | None:
        """All rows ever before a segment; None where it is not there or not whole."""
        if self._trailer(number) is None:
            return None
        try:
            return segment.read_header(segment_path(self.folder, number)).rows_before
        except FileNotFoundError:
            return None

    def _trailer(self, number: int) -> Trailer | None:
        """The trailer of a segment that is whole, None of one that is not, or not there."""
        path = segment_path(self.folder, number)
        try:
            held = path.stat()
            identity = held.st_ino, held.st_size, held.st_mtime_ns
            known = self._known.get(number)
            if known is None or known[0] != identity:
                trailer = segment.check(path)
                known = identity, trailer if trailer is not None and trailer.number == number else None
                self._known[number] = known
        except FileNotFoundError:
            return None
        return known[1]
