"""Which segments of spools go into the next micro-batch. No I/O.

The place of a spool is the number of the next segment to read: all before it were read, or were dropped by the writer
before that. Numbers may be missing from what waits.

    place 7    waiting  8 9 10      the next micro-batch reads up to place 9, 10 or 11; segment 7 is missing

Spools advance together: of all spools the one whose last segment taken is the oldest goes on, a segment at a time, so
that after a standstill as few windows as possible are open. The first spool to reach its share of a micro-batch ends
it. One with nothing waiting holds nobody back: its link is silent, or its node is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise

from highlevel.spark.admission import UNREAD
from lowlevel.punctuation import BEGINNING


@dataclass(frozen=True, slots=True)
class Waiting:
    """A segment that lies in a spool: its number, its length in bytes, and its newest time, ns."""

    number: int
    bytes: int
    newest: int


def latest(places: Sequence[int], spools: Sequence[Sequence[Waiting]], most_bytes: int) -> list[int]:
    """Return the places that the next micro-batch reads up to; `spools` is what waits in each, by number.

    A spool of which nothing was read stays UNREAD until it has a segment. Of each spool at least one segment that waits
    may be taken, whatever its length, and no more once `most_bytes` are.
    """
    reached = list(places)
    taken = [0] * len(places)
    queues = [[each for each in waiting if each.number >= place] for place, waiting in zip(places, spools, strict=True)]
    ahead = [(BEGINNING, n) for n, queue in enumerate(queues) if queue]
    heapify(ahead)
    while ahead:
        _, n = heappop(ahead)
        if taken[n] >= most_bytes:
            break
        segment = queues[n].pop(0)
        reached[n] = segment.number + 1
        taken[n] += segment.bytes
        if queues[n]:
            heappush(ahead, (segment.newest, n))
    return reached


def first_place(place: int, numbers: Sequence[int]) -> int:
    """Return where reading begins: at `place`, or where nothing was read before at the first of the `numbers` there."""
    return place if place != UNREAD else min(numbers, default=0)


@dataclass(frozen=True, slots=True)
class SegmentRun:
    """The segments with numbers in `[first, end)`, which one task reads; those not in `numbers` are missing."""

    first: int
    end: int
    numbers: tuple[int, ...]

    @property
    def missing(self) -> int:
        """How many numbers have no segment."""
        return self.end - self.first - len(self.numbers)


def segment_runs(before: int, after: int, there: Iterable[int], tasks: int) -> list[SegmentRun]:
    """Cut the segments between two places into up to `tasks` runs of about as many segments; no number is left out.

    `there` are the numbers of segments in the spool. What is missing at an end belongs to the run beside it.
    """
    numbers = sorted(number for number in there if before <= number < after)
    first = first_place(before, numbers)
    if before == UNREAD and not numbers:
        first = after  # all that was planned is gone; nobody knows where it began
    tasks = max(1, min(tasks, len(numbers)))
    cuts = [len(numbers) * n // tasks for n in range(tasks + 1)]
    edges = [first, *(numbers[cut] for cut in cuts[1:-1]), after]
    return [
        SegmentRun(begin, end, tuple(number for number in numbers if begin <= number < end))
        for begin, end in pairwise(edges)
    ]
