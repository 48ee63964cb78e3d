"""Plan how one spool is read: which segments wait, which ones a micro-batch reads, and which ones may be deleted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from highlevel.inline.engine import Input
from highlevel.spark.inputs.spool_backlog import WaitingSegment, split_segments
from highlevel.spark.inputs.spool_reading import SpoolRange
from lowlevel.spool.folder import SpoolError, segment_numbers, segment_path
from lowlevel.spool.reader import SpoolReader
from lowlevel.spool.segment import read_trailer

LISTING_LIFETIME = 200_000_000
"""Nanoseconds for which the list of a folder is reused, because Spark polls more often than segments arrive."""


class SpoolPlanner:
    """Plans the reading of the spool in `folder`, which need not exist yet. Not thread safe.

    The spool is input `input_number` of the run.
    """

    def __init__(self, input_number: int, folder: Path) -> None:
        """Create a planner. The folder is not read yet."""
        self.input_number = input_number
        self.folder = folder
        self._reader: SpoolReader | None = None
        self._waiting: list[WaitingSegment] = []
        self._listing_time: int | None = None

    @property
    def reader(self) -> SpoolReader | None:
        """The reader, which remembers the segments that it has verified; None while the folder does not exist."""
        if self._reader is None and self.folder.is_dir():
            self._reader = SpoolReader(self.folder)
        return self._reader

    def first_position(self) -> int:
        """Return the first position of a new run: after the segments that an earlier run has committed."""
        return 0 if self.reader is None else self.reader.committed + 1

    def list_waiting(self, position: int, now: int) -> list[WaitingSegment]:
        """Return the segments from `position` on, including damaged segments.

        The list is at most LISTING_LIFETIME older than `now`, a time of any clock in ns.

        Raises SpoolError if the spool was deleted and started again after it was read up to `position`.
        """
        if self.reader is None:
            return []
        if self._listing_time is None or now - self._listing_time >= LISTING_LIFETIME:
            self._listing_time = now
            try:
                existing_numbers = segment_numbers(self.folder)
            except FileNotFoundError:
                raise SpoolError(f"{self.folder}: the spool was removed while it was read") from None
            newest = max(existing_numbers, default=position)
            if newest + 1 < position:
                newest = max(newest, self.reader.newest)  # newer segments were deleted
            if newest + 1 < position:
                raise SpoolError(
                    f"{self.folder}: got {newest} as the newest segment, expected {position - 1} or a later one: the "
                    "spool was started again since it was read; choose another folder for the run, or delete the "
                    "folder of the run (not the spool)"
                )
            known_segments = {segment.number: segment for segment in self._waiting}
            segments = (
                known_segments.get(number) or self._read_waiting_segment(number)
                for number in existing_numbers
                if number >= position
            )
            self._waiting = [segment for segment in segments if segment is not None]
        return [segment for segment in self._waiting if segment.number >= position]

    def discard_listing(self) -> None:
        """Forget the list, so that the next call reads the folder."""
        self._listing_time = None

    def _read_waiting_segment(self, segment_number: int) -> WaitingSegment | None:
        path = segment_path(self.folder, segment_number)
        try:
            trailer = read_trailer(path)
            return WaitingSegment(segment_number, path.stat().st_size, 0 if trailer is None else trailer.last)
        except FileNotFoundError:
            return None  # the full spool has dropped it since it was listed

    def plan_ranges(self, start_position: int, end_position: int, task_count: int) -> list[SpoolRange]:
        """Divide the segments between two positions into tasks.

        The first range also contains the number of partials that are known to be lost.

        Before it returns, the spool stores that results may contain the segments before `end_position`. Raises
        SpoolError if the folder has disappeared.
        """
        reader = self.reader or SpoolReader(self.folder)
        reader.record_plan(end_position - 1)  # before results can contain any of these segments
        gaps = [gap for gap in reader.gaps(start_position - 1) if gap.first < end_position]
        lost_partials = sum(gap.rows or 0 for gap in gaps)
        segment_ranges = split_segments(start_position, end_position, segment_numbers(self.folder), task_count)
        return [
            SpoolRange(self.input_number, segments, 0 if index else lost_partials)
            for index, segments in enumerate(segment_ranges)
        ]

    def commit(self, position: int) -> None:
        """Delete all segments before `position`."""
        if self.reader is not None and position - 1 > self.reader.committed:
            self.reader.commit(position - 1)


def report_earlier_runs(inputs: Iterable[Input]) -> Iterator[str]:
    """Yield a message for each spool whose first segments another run has already read."""
    for input_ in inputs:
        position = SpoolPlanner(0, input_.path).first_position() if input_.spool else 0
        if position:
            yield f"{input_.path}: read from segment {position} on; another run has read the earlier segments"
