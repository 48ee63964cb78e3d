"""Selection of the segments of the next micro-batch, and their division into tasks. No I/O.

The position of a spool is the number of the next segment to read. All segments before it were read or lost. The
numbers of waiting segments may have gaps, because the writer of a full spool drops segments.

    position 7    waiting  8 9 10      the next micro-batch reads to position 9, 10 or 11; segment 7 is lost

Spools advance together: the spool whose last selected segment is the oldest advances by one segment at a time. So after
a standstill all spools advance through the same time, and few windows are open. The selection ends when the next spool
has its maximum number of bytes. A spool without waiting segments delays no other spool, because its link is idle or its
node is down.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise

from capture.lazy_dataclasses import dataclass
from lowlevel.punctuation import BEGINNING


@dataclass(frozen=True, slots=True)
class WaitingSegment:
    """Segment in a spool: its number, its length in bytes, and the time of its writing in ns (0 if damaged)."""

    number: int
    bytes: int
    written: int


def select_segments(positions: Sequence[int], spools: Sequence[Sequence[WaitingSegment]], max_bytes: int) -> list[int]:
    """Return the end position of each spool in the next micro-batch.

    `positions[i]` is the position of spool i, and `spools[i]` its waiting segments in the order of their numbers. The
    selection ends when a spool with at least `max_bytes` selected is next. So the last segment of a spool may exceed
    the limit, and at least one segment is selected.
    """
    end_positions = list(positions)
    selected_bytes = [0] * len(positions)
    queues = [
        [segment_ for segment_ in waiting_segments if segment_.number >= position]
        for position, waiting_segments in zip(positions, spools, strict=True)
    ]
    queue_indexes = [0] * len(positions)
    next_spools = [(BEGINNING, spool) for spool, queue in enumerate(queues) if queue]
    heapify(next_spools)
    while next_spools:
        _, spool = heappop(next_spools)
        if selected_bytes[spool] >= max_bytes:
            break
        segment = queues[spool][queue_indexes[spool]]
        queue_indexes[spool] += 1
        end_positions[spool] = segment.number + 1
        selected_bytes[spool] += segment.bytes
        if queue_indexes[spool] < len(queues[spool]):
            heappush(next_spools, (segment.written, spool))
    return end_positions


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """Segments with numbers in `[first, end)`, which one task reads. Numbers without a segment are lost."""

    first: int
    end: int


def split_segments(
    start_position: int, end_position: int, existing_numbers: Iterable[int], task_count: int
) -> list[SegmentRange]:
    """Divide the segments between two positions into up to `task_count` similar runs, without gaps.

    `existing_numbers` are the numbers of the existing segments, ascending. Lost segments belong to the previous run.
    """
    numbers = [number for number in existing_numbers if start_position <= number < end_position]
    task_count = max(1, min(task_count, len(numbers)))
    indexes = [len(numbers) * task // task_count for task in range(task_count + 1)]
    bounds = [start_position, *(numbers[index] for index in indexes[1:-1]), end_position]
    return [SegmentRange(first, end) for first, end in pairwise(bounds)]
