"""Which segments of spools go into the next micro-batch, and how they are cut into tasks. No I/O.

The place of a spool is the number of the next segment to read; all before it were read, or lost. Numbers may be missing
from what waits: the writer of a full spool drops segments.

    place 7    waiting  8 9 10      the next micro-batch reads up to place 9, 10 or 11; segment 7 is lost

Spools advance together: of all spools the one whose last segment taken is the oldest goes on, a segment at a time, so
that after a standstill as few windows as possible are open. The first spool to reach its share of a micro-batch ends
it. One with nothing waiting holds nobody back: its link is silent, or its node is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise

from lowlevel.punctuation import BEGINNING


@dataclass(frozen=True, slots=True)
class Waiting:
    """A segment that lies in a spool: its number, its length in bytes, and when it was written, ns; 0 if damaged."""

    number: int
    bytes: int
    written: int


def latest(places: Sequence[int], spools: Sequence[Sequence[Waiting]], most_bytes: int) -> list[int]:
    """Return the places that the next micro-batch reads up to; `spools` is what waits in each, by number.

    Of each spool at least one segment that waits may be taken, whatever its length, and no more once `most_bytes` are.
    """
    reached = list(places)
    taken = [0] * len(places)
    queues = [[each for each in waiting if each.number >= place] for place, waiting in zip(places, spools, strict=True)]
    positions = [0] * len(places)
    ahead = [(BEGINNING, n) for n, queue in enumerate(queues) if queue]
    heapify(ahead)
    while ahead:
        _, n = heappop(ahead)
        if taken[n] >= most_bytes:
            break
        segment = queues[n][positions[n]]
        positions[n] += 1
        reached[n] = segment.number + 1
        taken[n] += segment.bytes
        if positions[n] < len(queues[n]):
            heappush(ahead, (segment.written, n))
    return reached


@dataclass(frozen=True, slots=True)
class SegmentRun:
    """The segments with numbers in `[first, end)`, which one task reads; those that are not there are lost."""

    first: int
    end: int


def segment_runs(before: int, after: int, there: Iterable[int], tasks: int) -> list[SegmentRun]:
    """Cut the segments between two places into up to `tasks` runs of about as many segments; no number is left out.

    `there` are the numbers of segments in the spool, ascending. Lost ones are in the run before them.
    """
    numbers = [number for number in there if before <= number < after]
    tasks = max(1, min(tasks, len(numbers)))
    cuts = [len(numbers) * n // tasks for n in range(tasks + 1)]
    edges = [before, *(numbers[cut] for cut in cuts[1:-1]), after]
    return [SegmentRun(first, end) for first, end in pairwise(edges)]
