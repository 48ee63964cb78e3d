"""Select the blocks of the next micro-batch: how many, when, and of which input. No I/O; the clock is an argument.

Inputs advance together: the input with the smallest watermark advances by one block at a time, so that few windows are
open. The selection ends when an input has its maximum number of blocks.

With a `speed`, blocks are delayed as in a replay of the trace. The replay clock starts at the smallest time of all
inputs and runs `speed` times as fast as the wall clock. A block is due when the replay clock has reached its *moment*:
the newest time in the block. Two rules ensure that wrong packet times and idle hours do not delay the replay:

* if the newest time of a block is later than its watermark (the smallest time of all later packets), its moment is the
  watermark;
* between two successive moments, over all inputs, at most LONGEST_PAUSE wall seconds pass.

    trace   |1970 .......... |2026-01-01 10:00:00 |10:00:01 |10:00:02 .......... |16:00:00   speed 1
    replay  |0 s             |5 s                 |6 s      |7 s                 |12 s

The moments depend only on the indexes and the speed, so a restart computes the same moments.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import accumulate

import numpy as np

from capture.files.blocks import Index
from capture.units import SECOND
from lowlevel.punctuation import BEGINNING, END

UNREAD = -1
"""Offset of an input that has not emitted its initial watermark. An offset >= 0 is the number of blocks read."""


FIRST_BLOCKS = 256
"""Maximum number of blocks of an input in the first micro-batch."""

FIRST_ROW_BLOCKS = 16
"""The same if a query needs single rows, because a row can be large: a text of the payload has 1,400 bytes."""

MOST_BLOCKS = 8 * FIRST_BLOCKS
"""Maximum number of blocks of an input in any micro-batch. A micro-batch is repeated if a task fails."""

GROWTH = 4
"""Maximum ratio of the blocks of an input in two successive micro-batches."""

LONGEST_PAUSE = 5
"""Maximum wall seconds that a paced replay waits for the next block of any input."""


class BatchGrowth:
    """Chooses the maximum number of blocks of an input in the next micro-batch, from the partials of earlier ones.

    Each micro-batch has a constant cost for processes, files and the JVM, so large ones are faster. But its tasks need
    memory for its partials, and the partials of a block are only known afterwards. So the first micro-batch is small.
    Later ones have as many blocks as are expected to have at most `max_bytes` of partials, but at least one. If the
    partials of a block increase, one micro-batch may need more memory, in the ratio of this increase.
    """

    def __init__(self, input_count: int, max_bytes: int, first_blocks: int = FIRST_BLOCKS) -> None:
        """`input_count`: the number of inputs, which may all have the maximum number of blocks."""
        self.input_count = input_count
        self.max_bytes = max_bytes
        self._max_blocks = first_blocks
        self._sums = 0, 0

    def next_blocks(self, blocks: int, partial_bytes: int) -> int:
        """Return the maximum number of blocks of an input. The arguments are the sums of the run so far.

        The higher rate counts: that of the run, or that of the micro-batches since the last call.

        >>> growth = BatchGrowth(input_count=2, max_bytes=1_000_000)
        >>> [growth.next_blocks(*sums) for sums in ((0, 0), (512, 100_000), (2_560, 500_000), (5_000, 9_500_000))]
        [256, 1024, 2048, 135]
        """
        before_blocks, before_bytes = self._sums
        if blocks > before_blocks:
            rate = max(partial_bytes / blocks, (partial_bytes - before_bytes) / (blocks - before_blocks))
            affordable = self.max_bytes / (rate * self.input_count) if rate else MOST_BLOCKS
            self._max_blocks = int(max(1, min(affordable, GROWTH * self._max_blocks, MOST_BLOCKS)))
            self._sums = blocks, partial_bytes
        return self._max_blocks


class BlockSelector:
    """Decides up to which block each input is read. Positions are lists with one number per input. Not thread safe."""

    def __init__(self, indexes: Sequence[Index], max_blocks: int, speed: float | None = None) -> None:
        """Admit up to `max_blocks` blocks per input and micro-batch. `speed` is in capture seconds per wall second."""
        self.indexes = indexes
        self.max_blocks = max_blocks
        self.speed = speed
        self.moments = compute_moments(indexes, speed) if speed is not None else []
        self.replay_start = 0
        self.wall_start: int | None = None

    def select_blocks(self, start_positions: Sequence[int], wall_time: int) -> list[int]:
        """Return the end position of each input in the next micro-batch.

        The micro-batch reads from `start_positions`. `wall_time` is the time of any clock, in ns.
        """
        positions = [max(position, 0) for position in start_positions]
        block_counts = [0] * len(positions)
        replay_time = self._replay_time(positions, wall_time)
        queue = [
            (order_of(index, positions[input_number]), input_number) for input_number, index in enumerate(self.indexes)
        ]
        heapify(queue)
        while queue:
            _, input_number = heappop(queue)
            position, index = positions[input_number], self.indexes[input_number]
            if position == len(index.blocks):
                continue
            if block_counts[input_number] == self.max_blocks:
                break
            if replay_time is not None and self.moments[input_number][position] > replay_time:
                continue
            positions[input_number] += 1
            block_counts[input_number] += 1
            heappush(queue, (order_of(index, positions[input_number]), input_number))
        return positions

    def _replay_time(self, positions: Sequence[int], wall_time: int) -> int | None:
        """Return the time of the replay clock. The first call starts it at the moment of the newest block read so far.

        So after a restart no block that was already read delays the replay.
        """
        if self.speed is None:
            return None
        if self.wall_start is None:
            self.wall_start = wall_time
            self.replay_start = max(
                (
                    self.moments[input_number][position - 1]
                    for input_number, position in enumerate(positions)
                    if position
                ),
                default=0,
            )
        return self.replay_start + int((wall_time - self.wall_start) * self.speed)


def compute_moments(indexes: Sequence[Index], speed: float) -> list[list[int]]:
    """Return, for each block of each input, the moment at which it is due in a replay at `speed`.

    Moments are ns of trace time, after long pauses were shortened to LONGEST_PAUSE wall seconds. A block is never due
    before an earlier block of the same input.
    """
    due_times = [
        list(accumulate((due_time(index, position) for position in range(len(index.blocks))), max)) for index in indexes
    ]
    start_time = min((index.watermark for index in indexes if index.blocks), default=0)
    times = np.unique(np.array([start_time, *(time for input_times in due_times for time in input_times)], np.int64))
    pauses = np.minimum(np.diff(times), int(LONGEST_PAUSE * speed * SECOND))
    moments = np.concatenate([[0], np.cumsum(pauses)])
    return [moments[np.searchsorted(times, input_times)].tolist() if input_times else [] for input_times in due_times]


def watermark_after(index: Index, position: int) -> int:
    """Return the watermark of an input after `position` blocks, END after the last."""
    return index.watermark if position == 0 else index.blocks[position - 1].watermark


def order_of(index: Index, position: int) -> int:
    """Return the time by which inputs are ordered. The input with the smallest time is read next, after its `position`.

    If rows may be late, the first blocks of all inputs are read first, as in the inline engine. A row is late only if
    the watermarks of all inputs are larger than its time.
    """
    return BEGINNING if position == 0 and not index.is_exact else watermark_after(index, position)


def due_time(index: Index, position: int) -> int:
    """Return the trace time, in ns, from which block `position` is due."""
    block = index.blocks[position]
    # The watermark of the last block is END, so it cannot show that the newest time of the block is wrong. So the
    # newest time is used only if the block covers at most as much time as all blocks before it together.
    if block.watermark == END:
        return (
            block.max_ts
            if position == 0 or block.max_ts - block.min_ts <= block.min_ts - index.watermark
            else block.min_ts
        )
    return block.max_ts if block.max_ts <= block.watermark else max(block.min_ts, block.watermark)


def divide_blocks(block_counts: Sequence[int], task_count: int) -> list[list[tuple[int, int, int]]]:
    """Divide the blocks of several inputs among tasks with similar numbers of blocks.

    Return the ranges of each input as (number of the task, first block, block after the last one). An input without
    blocks has one empty range.

    >>> divide_blocks([4, 4, 4], 2)
    [[(0, 0, 4)], [(0, 0, 2), (1, 2, 4)], [(1, 0, 4)]]
    """
    total = sum(block_counts)
    ends = [total * (task + 1) // task_count for task in range(task_count)]
    task = position = 0
    ranges = []
    for block_count in block_counts:
        input_ranges: list[tuple[int, int, int]] = []
        begin = 0
        while not input_ranges or begin < block_count:
            while ends[task] <= position and task < task_count - 1:
                task += 1
            size = min(block_count - begin, ends[task] - position)
            input_ranges.append((task, begin, begin + size))
            begin, position = begin + size, position + size
        ranges.append(input_ranges)
    return ranges
