"""Selection of the segments of the next micro-batch, and their division into tasks. No I/O.

The position of a spool is the number of the next segment to read. All segments before it were read or lost. The
numbers of waiting segments may have gaps, because the writer of a full spool drops segments.

    position 7    waiting  8 9 10      the next micro-batch reads to position 9, 10 or 11; segment 7 is lost

Spools advance together: the spool whose last selected segment is the oldest advances by one segment at a time. After a
standstill all spools then advance through the same time, so few windows are open. The micro-batch ends when a spool
with its share of bytes is next. A spool without waiting segments delays no other spool: its link is idle, or its node
is down.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise

from lowlevel.punctuation import BEGINNING


@dataclass(frozen=True, slots=True)
class WaitingSegment:
    """Segment in a spool: its number, its length in bytes, and the time of its writing in ns (0 if damaged)."""

    number: int
    bytes: int
    written: int


def latest(places: Sequence[int], spools: Sequence[Sequence[WaitingSegment]], most_bytes: int) -> list[int]:
    """Return the end position of each spool in the next micro-batch.

    `places[i]` is the position of spool i, and `spools[i]` its waiting segments in the order of their numbers. The
    selection ends when a spool with at least `most_bytes` selected is next. So the last segment of a spool may exceed
    the limit, and at least one segment is selected.
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
    """Segments with numbers in `[first, end)`, which one task reads. Numbers without a segment are lost."""

    first: int
    end: int


def segment_runs(before: int, after: int, there: Iterable[int], tasks: int) -> list[SegmentRun]:
    """Divide the segments between two positions into up to `tasks` similar runs, without gaps.

    `there` are the numbers of the existing segments, ascending. Lost segments belong to the previous run.
    """
    numbers = [number for number in there if before <= number < after]
    tasks = max(1, min(tasks, len(numbers)))
    cuts = [len(numbers) * n // tasks for n in range(tasks + 1)]
    edges = [before, *(numbers[cut] for cut in cuts[1:-1]), after]
    return [SegmentRun(first, end) for first, end in pairwise(edges)]
