"""Reads a spool. A writer may be active at the same time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from capture.lazy_dataclasses import dataclass
from capture.private_files import open_private
from lowlevel.spool import segment
from lowlevel.spool.folder import (
    ReaderCommit,
    SegmentLostError,
    SpoolError,
    read_committed,
    segment_numbers,
    segment_path,
    write_committed,
)
from lowlevel.spool.newest_segment import WriterRecord, read_record
from lowlevel.spool.segment import Segment, Trailer

LOCK_NAME = ".reader.lock"


@dataclass(frozen=True, slots=True)
class Gap:
    """Segments `first` to `last`, inclusive, that were not committed and are missing or damaged.

    `rows`: number of rows of partials in these segments, or None if unknown.
    """

    first: int
    last: int
    rows: int | None


class SpoolReader:
    """Reader of the undamaged segments of a spool. It also commits segments. Not thread safe."""

    def __init__(self, folder: Path) -> None:
        """Open the spool in `folder`. Raises SpoolError if there is no such folder."""
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise SpoolError(f"{folder}: no folder, expected a spool: the folder that a low-level node writes")
        self._checked_trailers: dict[int, tuple[tuple[int, int, int], Trailer | None]] = {}

    @property
    def link(self) -> str:
        """The link of this spool. Raises SegmentLostError if there is no undamaged segment."""
        for number in reversed(segment_numbers(self.folder)):
            if self._trailer(number) is not None:
                return segment.read_header(segment_path(self.folder, number)).link
        raise SegmentLostError(f"{self.folder}: no undamaged segment yet, so the link of the spool is unknown")

    @property
    def committed(self) -> int:
        """The number of the last committed segment; -1 before the first commit."""
        return read_committed(self.folder).number

    def segments(self) -> list[int]:
        """Return the numbers of all undamaged segments, including committed segments, in ascending order.

        Each file is read once to verify its checksum, and again only if it has changed.
        """
        return self._undamaged_numbers(segment_numbers(self.folder))

    def _undamaged_numbers(self, listed: list[int]) -> list[int]:
        self._checked_trailers = {
            number: self._checked_trailers[number] for number in listed if number in self._checked_trailers
        }
        return [number for number in listed if self._trailer(number) is not None]

    def read(self, number: int) -> Segment:
        """Read one segment. Raises SegmentLostError if it is missing or damaged."""
        path = segment_path(self.folder, number)
        try:
            decoded = segment.decode(path)
        except FileNotFoundError:
            raise SegmentLostError(f"{path}: gone: committed and deleted, or dropped by a full spool") from None
        if decoded.number != number:
            raise SegmentLostError(f"{path}: got segment {decoded.number} under this name, expected {number}")
        return decoded

    def __iter__(self) -> Iterator[Segment]:
        """Read all undamaged segments that are not committed, in order. Segments that disappear are skipped."""
        committed = self.committed
        for number in self.segments():
            if number > committed:
                try:
                    yield self.read(number)
                except SegmentLostError:
                    continue

    def gaps(self, after: int | None = None) -> list[Gap]:
        """Return the gaps between segment `after` (default: the last committed) and the newest written segment."""
        written = (
            self._written()
        )  # read before the listing, which then contains all segments up to the newest written one
        start = read_committed(self.folder)
        if after is not None and after != start.number:
            start = ReaderCommit(after, self._rows_through(after))
        gaps = []
        last = start.number
        listed = segment_numbers(self.folder)
        for number in self._undamaged_numbers(listed):
            if number > last + 1:
                before = start.rows if last == start.number else self._rows_through(last)
                gaps.append(self._gap(last + 1, number - 1, before, self._rows_before(number)))
            last = max(last, number)
        newest = max([written.number, *listed[-1:]])
        if newest > last:
            before = start.rows if last == start.number else self._rows_through(last)
            gaps.append(self._gap(last + 1, newest, before, written.rows if newest == written.number else None))
        return gaps

    def _gap(self, first: int, last: int, rows_before: int | None, rows_through: int | None) -> Gap:
        """Return a gap with `rows_through - rows_before` rows. The number is None if a file of these segments exists.

        Such a file is damaged, but a repair may make its rows readable.
        """
        has_file = any(segment_path(self.folder, number).exists() for number in range(first, last + 1))
        return Gap(
            first, last, None if rows_before is None or rows_through is None or has_file else rows_through - rows_before
        )

    def record_plan(self, number: int) -> None:
        """Record that results will contain segments up to `number`, inclusive.

        The record is on the disk when this method returns. A writer that is started later reads this record
        and does not write the rows of these segments again.
        Raises SpoolError if the file of commits is damaged.
        """
        with self._commit_lock():
            known = read_committed(self.folder)
            if number > max(known.number, known.planned):
                write_committed(self.folder, replace(known, planned=number))

    def commit(self, number: int) -> None:
        """Commit all segments up to `number`, inclusive: they may be deleted.

        The commit is on the disk when this method returns. A number below the last commit has no effect. Raises
        SpoolError for a number above the newest segment.
        """
        newest = self.newest
        if number > newest:
            raise SpoolError(f"{self.folder}: got {number} to commit, expected at most {newest}, the newest segment")
        with self._commit_lock():
            try:
                known = read_committed(self.folder)
            except SpoolError:
                known = ReaderCommit()  # this commit repairs it
            if number > known.number:
                write_committed(self.folder, ReaderCommit(number, self._rows_through(number), known.planned))

    @property
    def newest(self) -> int:
        """The largest segment number ever written, even if the segment is missing; -1 if there is none."""
        return max([self._written().number, *segment_numbers(self.folder)[-1:]])

    def _written(self) -> WriterRecord:
        """Return the writer's record of its newest segment; an empty record if it is damaged."""
        try:
            return read_record(self.folder)
        except SpoolError:
            return WriterRecord()

    @contextlib.contextmanager
    def _commit_lock(self) -> Iterator[None]:
        """Lock the file of commits against other processes."""
        lock = open_private(self.folder / LOCK_NAME, os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _rows_through(self, number: int) -> int | None:
        """Return the number of rows in all segments up to `number`, inclusive; None if unknown."""
        if number < 0:
            return 0
        trailer = self._trailer(number)
        before = self._rows_before(number)
        if trailer is not None and before is not None:
            return before + trailer.rows
        written = self._written()
        return written.rows if written.number == number else self._rows_before(number + 1)

    def _rows_before(self, number: int) -> int | None:
        """Return the number of rows in all segments before `number`; None if segment `number` is missing or damaged."""
        if self._trailer(number) is None:
            return None
        try:
            return segment.read_header(segment_path(self.folder, number)).rows_before
        except FileNotFoundError:
            return None

    def _trailer(self, number: int) -> Trailer | None:
        """Return the trailer of a segment; None if it is missing or damaged."""
        path = segment_path(self.folder, number)
        try:
            status = path.stat()
            identity = status.st_ino, status.st_size, status.st_mtime_ns
            known = self._checked_trailers.get(number)
            if known is None or known[0] != identity:
                trailer = segment.check(path)
                known = identity, trailer if trailer is not None and trailer.number == number else None
                self._checked_trailers[number] = known
        except FileNotFoundError:
            return None
        return known[1]
