"""Planning for one spool: its waiting segments, the segments of a micro-batch, and deletable segments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from highlevel.inline.engine import Input
from highlevel.spark.spool_backlog import WaitingSegment, segment_runs
from highlevel.spark.spool_reading import SpoolRun
from lowlevel.spool.folder import SpoolError, numbers, segment_path
from lowlevel.spool.reader import SpoolReader
from lowlevel.spool.segment import read_trailer

POLL = 200_000_000
"""Nanoseconds for which a folder listing is valid, because Spark polls more often than segments arrive."""


class SpoolPlanner:
    """Planner for the spool in `folder`, which may be created later. Not thread safe.

    Input `number` of the run reads it.
    """

    def __init__(self, number: int, folder: Path) -> None:
        """Create a planner without reading the folder."""
        self.number = number
        self.folder = folder
        self._reader: SpoolReader | None = None
        self._waiting: list[WaitingSegment] = []
        self._looked: int | None = None

    @property
    def reader(self) -> SpoolReader | None:
        """Reader, which remembers verified segments; None before the folder exists."""
        if self._reader is None and self.folder.is_dir():
            self._reader = SpoolReader(self.folder)
        return self._reader

    def first(self) -> int:
        """Return the first position of a new run: after the segments that another run committed."""
        return 0 if self.reader is None else self.reader.committed + 1

    def waiting(self, place: int, now: int) -> list[WaitingSegment]:
        """Return the segments from `place` on, also damaged segments.

        The list is at most POLL older than `now` (any clock, ns).

        Raises SpoolError if the spool was started again from its beginning since `place` was reached.
        """
        if self.reader is None:
            return []
        if self._looked is None or now - self._looked >= POLL:
            self._looked = now
            try:
                there = numbers(self.folder)
            except FileNotFoundError:
                raise SpoolError(f"{self.folder}: the spool was removed while it was read") from None
            newest = max(there, default=place)
            if newest + 1 < place:
                newest = max(newest, self.reader.newest)  # newer segments were deleted
            if newest + 1 < place:
                raise SpoolError(
                    f"{self.folder}: got {newest} as the newest segment, expected {place - 1} or a later one: the "
                    "spool was started again since it was read; take another folder for the run, or delete that one"
                )
            known = {each.number: each for each in self._waiting}
            found = (known.get(number) or self._look(number) for number in there if number >= place)
            self._waiting = [each for each in found if each is not None]
        return [each for each in self._waiting if each.number >= place]

    def forget(self) -> None:
        """Discard the listing, so that the next call reads the folder."""
        self._looked = None

    def _look(self, number: int) -> WaitingSegment | None:
        path = segment_path(self.folder, number)
        try:
            trailer = read_trailer(path)
            return WaitingSegment(number, path.stat().st_size, 0 if trailer is None else trailer.last)
        except FileNotFoundError:
            return None  # the full spool has dropped it since the listing

    def runs(self, before: int, after: int, tasks: int) -> list[SpoolRun]:
        """Divide the segments between two positions into tasks.

        The first task receives the number of partials that are known to be lost.

        Before that the spool records the position. Raise SpoolError if the folder has disappeared.
        """
        reader = self.reader or SpoolReader(self.folder)
        reader.record_plan(after - 1)  # before results can contain any of these segments
        gaps = [gap for gap in reader.gaps(before - 1) if gap.first < after]
        lost = sum(gap.rows or 0 for gap in gaps)
        cut = segment_runs(before, after, numbers(self.folder), tasks)
        return [SpoolRun(self.number, run, 0 if place else lost) for place, run in enumerate(cut)]

    def commit(self, place: int) -> None:
        """Delete all segments before `place`. Earlier commits have deleted their segments already."""
        if self.reader is not None and place - 1 > self.reader.committed:
            self.reader.commit(place - 1)


def read_before(inputs: Iterable[Input]) -> Iterator[str]:
    """Yield a message for each spool of which another run has read the first segments."""
    for each in inputs:
        planner = SpoolPlanner(0, each.path)
        if each.spool and planner.first():
            yield f"{each.path}: read from segment {planner.first()} on; another run has read the earlier segments"
