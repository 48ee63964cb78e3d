"""Selection of the blocks of the next micro-batch: amount, pace and order. No I/O; the clock is an argument.

Inputs advance together: the input with the smallest watermark advances by one block at a time, so that few windows are
open. The first input to reach its share of a micro-batch ends it.

With a *speed* the trace clock delays blocks. It starts at the smallest time of all inputs and runs `speed` times as
fast as the wall clock. A block is due when the clock has passed its newest time. Two rules ensure
that packets with wrong times and idle hours do not delay the replay:

* if a block's newest time is later than its watermark (the smallest time of all later packets), the watermark
  is used instead;
* between two moments at which blocks of any input become due, at most LONGEST_PAUSE wall seconds pass.

    trace   |1970 .......... |2026-01-01 10:00:00 |10:00:01 |10:00:02 .......... |16:00:00   speed 1
    replay  |0 s             |5 s                 |6 s      |7 s                 |12 s

The moments depend only on the indexes and the speed, so a restart computes the same moments.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import accumulate, pairwise

import numpy as np

from capture.files.blocks import Block, Index
from capture.units import SECOND
from lowlevel.punctuation import END

UNREAD = -1
"""Offset of an input that has not emitted its initial watermark. An offset >= 0 is the number of blocks read."""


LONGEST_PAUSE = 5
"""Maximum wall seconds that a paced replay waits for the next block of any input."""


class Admission:
    """Decides how far each input may be read. Offsets are lists, one number per input. Not thread safe."""

    def __init__(self, indexes: Sequence[Index], max_blocks: int, speed: float | None = None) -> None:
        """Admit up to `max_blocks` blocks per input and micro-batch. `speed` is in capture seconds per wall second."""
        self.indexes = indexes
        self.max_blocks = max_blocks
        self.speed = speed
        self.moments = replay_moments(indexes, speed) if speed is not None else []
        self.replay_start = 0
        self.wall_start: int | None = None

    def latest(self, start: Sequence[int], wall: int) -> list[int]:
        """Return the offsets that the next micro-batch reads up to, from `start`, at `wall` (any clock, ns)."""
        places = [max(place, 0) for place in start]
        taken = [0] * len(places)
        clock = self._clock(places, wall)
        going = [(low_at(index, places[n]), n) for n, index in enumerate(self.indexes)]
        heapify(going)
        while going:
            _, number = heappop(going)
            place, index = places[number], self.indexes[number]
            if place == len(index.blocks):
                continue
            if taken[number] == self.max_blocks:
                break
            if clock is not None and self.moments[number][place] > clock:
                continue
            places[number] += 1
            taken[number] += 1
            heappush(going, (low_at(index, places[number]), number))
        return places

    def _clock(self, places: Sequence[int], wall: int) -> int | None:
        """Return the time of the replay clock. The first call starts it at the moment of the newest block read so far.

        So after a restart no block that was already read delays the replay.
        """
        if self.speed is None:
            return None
        if self.wall_start is None:
            self.wall_start = wall
            self.replay_start = max((self.moments[n][place - 1] for n, place in enumerate(places) if place), default=0)
        return self.replay_start + int((wall - self.wall_start) * self.speed)


def replay_moments(indexes: Sequence[Index], speed: float) -> list[list[int]]:
    """Return, for each block of each input, the moment at which it is due in a replay at `speed`.

    Moments are ns of trace time, without the excess of long pauses. A block of an input is never due before an earlier
    block of this input. No pause is longer than LONGEST_PAUSE wall seconds.
    """
    dues = [list(accumulate((due(index, n) for n in range(len(index.blocks))), max)) for index in indexes]
    begin = min((index.watermark for index in indexes if index.blocks), default=0)
    times = np.unique(np.array([begin, *(time for each in dues for time in each)], np.int64))
    pauses = np.minimum(np.diff(times), int(LONGEST_PAUSE * speed * SECOND))
    moments = np.concatenate([[0], np.cumsum(pauses)])
    return [moments[np.searchsorted(times, each)].tolist() if each else [] for each in dues]


def low_at(index: Index, place: int) -> int:
    """Return the watermark of an input after `place` blocks, END after the last."""
    return index.watermark if place == 0 else index.blocks[place - 1].watermark


def due(index: Index, place: int) -> int:
    """Return the trace time, in ns, from which block `place` is due."""
    block = index.blocks[place]
    # The watermark of the last block is END, so it cannot show that its newest time is wrong. This time is used only if
    # the block covers no more time than all blocks before it.
    if block.watermark == END:
        return (
            block.max_ts
            if place == 0 or block.max_ts - block.min_ts <= block.min_ts - index.watermark
            else block.min_ts
        )
    return block.max_ts if block.max_ts <= block.watermark else max(block.min_ts, block.watermark)


def split_run(blocks: Sequence[Block], tasks: int) -> list[Sequence[Block]]:
    """Divide consecutive blocks into up to `tasks` ranges of about the same number of blocks."""
    tasks = max(1, min(tasks, len(blocks)))
    cuts = [len(blocks) * n // tasks for n in range(tasks + 1)]
    return [blocks[start:end] for start, end in pairwise(cuts)]
