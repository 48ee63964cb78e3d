"""Which blocks go into the next micro-batch: how much, at what pace, and in what order. No I/O; the clock is passed in.

Inputs advance together: of all inputs the one with the smallest low watermark goes on, a block at a time, so that as
few windows as possible are open. The first input to reach its share of a micro-batch ends it.

With a *speed* the trace clock holds blocks back: it starts at the smallest time of all inputs and runs `speed` times
as fast as the wall clock, and a block is there once the clock has passed its newest time. A packet dated next year
must not stop the replay for a year: where a block's newest time lies beyond its low watermark (what all later packets
are newer than), that low watermark counts instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from capture.scan import Block, Index
from lowlevel.punctuation import END

UNREAD = -1
"""The offset of an input before its initial promise; from 0 on an offset is the number of blocks read."""


class Admission:
    """Decides how far each input may be read. Offsets are lists, one number per input. Not thread safe."""

    def __init__(self, indexes: Sequence[Index], max_blocks: int, speed: float | None = None) -> None:
        """Admit up to `max_blocks` blocks per input and micro-batch; `speed` in capture seconds per wall second."""
        self.indexes = indexes
        self.max_blocks = max_blocks
        self.speed = speed
        self.trace_start = 0
        self.wall_start: int | None = None

    def latest(self, start: Sequence[int], wall: int) -> list[int]:
        """Return the offsets that the next micro-batch reads up to, from `start`, at `wall` (any clock, ns)."""
        places = [max(place, 0) for place in start]
        taken = [0] * len(places)
        clock = self._clock(places, wall)
        held: set[int] = set()
        while True:
            going = [n for n, place in enumerate(places) if n not in held and place < len(self.indexes[n].blocks)]
            if not going:
                return places
            number = min(going, key=lambda n: (low_at(self.indexes[n], places[n]), n))
            if taken[number] == self.max_blocks:
                return places
            if clock is not None and due(self.indexes[number], places[number]) > clock:
                held.add(number)
                continue
            places[number] += 1
            taken[number] += 1

    def _clock(self, places: Sequence[int], wall: int) -> int | None:
        """Read the trace clock. The first reading sets it to the start of the inputs, or to where they were left."""
        if self.speed is None:
            return None
        if self.wall_start is None:
            self.wall_start = wall
            read = [due(self.indexes[n], place - 1) for n, place in enumerate(places) if place > 0]
            self.trace_start = max(read) if read else min((index.low for index in self.indexes), default=0)
        return self.trace_start + int((wall - self.wall_start) * self.speed)


def low_at(index: Index, place: int) -> int:
    """The low watermark of an input of which `place` blocks have been read; END where none is left."""
    return index.low if place == 0 else index.blocks[place - 1].low


def due(index: Index, place: int) -> int:
    """The trace time, in ns, from which on block `place` is there."""
    block = index.blocks[place]
    if block.low == END:  # the last one has nothing after it to be judged by: it may be as long as all before it
        return block.last if place == 0 or block.last - block.first <= block.first - index.low else block.first
    return block.last if block.last <= block.low else max(block.first, block.low)


def split_run(blocks: Sequence[Block], tasks: int) -> list[Sequence[Block]]:
    """Cut a run of blocks into up to `tasks` runs of about the same number of blocks."""
    tasks = max(1, min(tasks, len(blocks)))
    cuts = [len(blocks) * n // tasks for n in range(tasks + 1)]
    return [blocks[start:end] for start, end in pairwise(cuts)]
