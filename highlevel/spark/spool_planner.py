"""One spool as the planning process sees it: what waits in it, what a micro-batch reads of it, what may be deleted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from highlevel.inline.engine import Input
from highlevel.spark.spool_backlog import Waiting, segment_runs
from highlevel.spark.spool_reading import SpoolRun
from lowlevel.spool.folder import SpoolError, numbers, segment_path
from lowlevel.spool.reader import SpoolReader
from lowlevel.spool.segment import read_trailer

POLL = 200_000_000
"""Nanoseconds for which a look into a spool's folder is good: Spark asks more often than anything can have come."""


class SpoolPlanner:
    """Plans for the spool in `folder`, which need not be there yet: it is waited for. Not thread safe.

    Input `number` of the run reads it.
    """

    def __init__(self, number: int, folder: Path) -> None:
        """Look at nothing yet."""
        self.number = number
        self.folder = folder
        self._reader: SpoolReader | None = None
        self._waiting: list[Waiting] = []
        self._looked: int | None = None

    @property
    def reader(self) -> SpoolReader | None:
        """The reader, which remembers what it has proved; None while there is no folder."""
        if self._reader is None and self.folder.is_dir():
            self._reader = SpoolReader(self.folder)
        return self._reader

    def first(self) -> int:
        """Where a run begins that has read nothing: behind what was committed, by another run."""
        return 0 if self.reader is None else self.reader.committed + 1

    def waiting(self, place: int, now: int) -> list[Waiting]:
        """Return the segments from `place` on, damaged ones too, as they were up to POLL before `now` (any clock, ns).

        Raises SpoolError for a spool that was begun again since `place` was reached.
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
                    "spool was begun again since it was read; take another folder for the run, or delete that one"
                )
            known = {each.number: each for each in self._waiting}
            found = (known.get(number) or self._look(number) for number in there if number >= place)
            self._waiting = [each for each in found if each is not None]
        return [each for each in self._waiting if each.number >= place]

    def forget(self) -> None:
        """Look again, however soon."""
        self._looked = None

    def _look(self, number: int) -> Waiting | None:
        path = segment_path(self.folder, number)
        try:
            trailer = read_trailer(path)
            return Waiting(number, path.stat().st_size, 0 if trailer is None else trailer.last)
        except FileNotFoundError:
            return None  # a full spool has dropped it meanwhile

    def runs(self, before: int, after: int, tasks: int) -> list[SpoolRun]:
        """Cut what lies between two places into tasks. The first is told how many partials are known to be lost.

        The spool records the place before. Raises SpoolError where the folder is gone.
        """
        reader = self.reader or SpoolReader(self.folder)
        reader.record_plan(after - 1)  # before any of it can be in results
        gaps = [gap for gap in reader.gaps(before - 1) if gap.first < after]
        lost = sum(gap.rows or 0 for gap in gaps)
        cut = segment_runs(before, after, numbers(self.folder), tasks)
        return [SpoolRun(self.number, run, 0 if place else lost) for place, run in enumerate(cut)]

    def commit(self, place: int) -> None:
        """Let all segments before `place` be deleted; those that were committed before are gone already."""
        if self.reader is not None and place - 1 > self.reader.committed:
            self.reader.commit(place - 1)


def read_before(inputs: Iterable[Input]) -> Iterator[str]:
    """Say of which spools a part has been read before, which is not there for a run that begins."""
    for each in inputs:
        planner = SpoolPlanner(0, each.path)
        if each.spool and planner.first():
            yield f"{each.path}: read from segment {planner.first()} on; what was before was read by another run"
