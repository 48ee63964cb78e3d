"""Select the segments of the next micro-batch, and divide them into tasks. No I/O.

The position of a spool is the number of the next segment to read: all segments before it were read or are lost. The
numbers of waiting segments may have gaps, because the writer of a full spool drops segments.

    position 7    waiting  8 9 10      the next micro-batch reads to position 9, 10 or 11; segment 7 is lost

Spools advance together: segments are selected one at a time, always from the spool whose last selected segment is the
oldest. So if the reader was stopped for a while, it then reads all spools through the same times, and few windows are
open. The selection ends when the next spool has reached its maximum number of bytes. A spool without waiting segments,
because its link is idle or its node is stopped, does not delay the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise

from capture.lazy_dataclasses import dataclass
from lowlevel.punctuation import BEGINNING


@dataclass(frozen=True, slots=True)
class WaitingSegment:
    """A segment in a spool: its number, its length in bytes, and the time in ns when it was written (0 if damaged)."""

    number: int
    bytes: int
    written: int


def select_segments(positions: Sequence[int], spools: Sequence[Sequence[WaitingSegment]], max_bytes: int) -> list[int]:
    """Return the end position of each spool in the next micro-batch.

    `positions[i]` is the position of spool i, and `spools[i]` its waiting segments in the order of their numbers. The
    selection ends when the next segment would come from a spool of which at least `max_bytes` are selected. So the last
    segment of a spool may exceed the limit, and at least one segment is selected.
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
    """The segments with numbers in `[first, end)`, which one task reads. A number without a file is a lost segment."""

    first: int
    end: int


def split_segments(
    start_position: int, end_position: int, existing_numbers: Iterable[int], task_count: int
) -> list[SegmentRange]:
    """Divide the segments between two positions into at most `task_count` contiguous ranges of similar length.

    `existing_numbers` are the numbers of the existing segments, ascending. Lost segments belong to the range before
    them.
    """
    numbers = [number for number in existing_numbers if start_position <= number < end_position]
    task_count = max(1, min(task_count, len(numbers)))
    indexes = [len(numbers) * task // task_count for task in range(task_count + 1)]
    bounds = [start_position, *(numbers[index] for index in indexes[1:-1]), end_position]
    return [SegmentRange(first, end) for first, end in pairwise(bounds)]
