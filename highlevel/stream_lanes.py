"""Lanes over captures that are read once, in their order: compressed files, pipes, what grows."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from threading import Event

from capture.files.blocks import Block
from capture.files.stream import AT_LAST, GRACE, StreamedCapture
from highlevel.lanes import PASSES, Lane, Numbered, Port, Progress
from lowlevel.promises.guard import AGREEING
from lowlevel.promises.lull import TraceClock
from lowlevel.punctuation import BEGINNING, Described, Punctuation


class StreamLane(Lane):
    """A lane over a finite stream: steps of a block each, as those of mapped files.

    Its key is the least time of its last block, so that several streams advance together; a record that is dated wrong
    moves it by a block at most. Before the first it is the least of the first AGREEING records, which a look at the
    beginning of the stream tells: of many files that follow each other few are open at a time.
    """

    def __init__(self, port: Port, capture: StreamedCapture) -> None:
        """Read `capture`, which is not live."""
        super().__init__(port, capture)
        self.stream = capture
        if port.slack is not None:  # windows close only up to the stream that is least far: the others wait for it
            self.lead = port.slack + max((leaf.slide for _, leaf in port.leaves), default=0)
        self._blocks: Iterator[Block | None] | None = None
        self._consumed = 0

    def look(self) -> None:
        """Read the first records and let go of them."""
        with closing(_blocks(self.stream, AGREEING)) as blocks:
            first = next((block for block in blocks if block is not None), None)
        self.key = BEGINNING if first is None else first.first

    def begin(self) -> Iterator[Numbered]:
        """Promise before the first row what its beginning allows: as much as its rows will (`lowlevel.promises`)."""
        if self.port.slack is not None and self.key != BEGINNING:
            yield from self.promise(max(BEGINNING + 1, self.key - self.port.slack))

    def step(self, progress: Progress) -> Iterator[Numbered]:
        """Reduce the next block; end where the stream does."""
        if self._blocks is None:
            self._blocks = self.stream.blocks(self.port.block_records)
        try:
            block = next(self._blocks)
        except StopIteration:
            yield from self.end(self.stream.damage)
            progress(PASSES * (self.stream.size - self._consumed))
            self._blocks = None
            self.stream.close()
            return
        if block is None:
            return
        yield from self.take_in(block)
        self.key = block.first
        before, self._consumed = self._consumed, self.stream.consumed
        progress(PASSES * (self._consumed - before))


class LiveLane(Lane):
    """A lane over a live input, in a thread of its own: it waits for what comes, and in lulls it goes by the clock.

    A silent input is told with the time since which it was. While the lane waits for whoever takes its items it does
    not ask, and an input with something to be read is not silent: back-pressure promises nothing.
    """

    def __init__(self, port: Port, capture: StreamedCapture) -> None:
        """Read `capture`, which is live."""
        super().__init__(port, capture)
        self.stream = capture
        self._polled: int | None = None  # the last poll in vain before the first row
        self._described = [Described(leaf.low.pane, leaf.low.origin) for _, leaf in port.leaves]

    def run(self, stopping: Callable[[], bool], unwanted: Event) -> Iterator[Numbered]:
        """Reduce blocks as they come, until the input ends or, soon after `stopping` says so, with what has been read.

        Ends without a result once `unwanted` is set.
        """
        heard = time.monotonic()
        stopped: float | None = None
        with closing(_blocks(self.stream, self.port.block_records)) as blocks:
            polled = self._clock()
            for block in blocks:
                if unwanted.is_set():
                    break
                now = time.monotonic()
                silent = block is None and self.stream.silent
                if block is not None:
                    heard = now
                    yield from self._heard(block)
                elif silent:
                    yield from self._silent(polled)
                if stopping():
                    stopped = stopped or now
                    if not self.stream.written or now >= min(max(heard, stopped) + GRACE, stopped + AT_LAST):
                        self.stream.stop()
                if silent or block is not None:
                    polled = self._clock()
        self.stream.close()
        if not unwanted.is_set():
            yield from self.end(self.stream.damage)

    def _clock(self) -> int:
        return BEGINNING if self.port.lull is None else self.port.lull.clock()

    def _heard(self, block: Block) -> Iterator[Numbered]:
        """Take in what came."""
        if self.node is None and self._polled is not None:
            deque(self._opened().tick(self._polled), 0)  # it has been said, and the node is to stand by it
        yield from self.take_in(block)
        if self.port.lull is not None and isinstance(self.port.lull.clock, TraceClock):
            self.port.lull.clock.advance(self._opened().newest)

    def _silent(self, polled: int) -> Iterator[Numbered]:
        """Let the clock go on, where the input is to be taken as silent: nothing had come at `polled`."""
        if self.port.lull is None or polled == BEGINNING:
            return
        if self.node is not None:
            yield from self._numbered(self.node.tick(polled))
            return
        self._polled = polled
        for (reader, _), described in zip(self.port.leaves, self._described, strict=True):
            mark = described.news(max(BEGINNING + 1, polled - self.port.lull.threshold))
            if mark is not None:
                yield reader, Punctuation(self.port.link, mark)


def _blocks(stream: StreamedCapture, records: int) -> Generator[Block | None, None, None]:
    """Iterate over the blocks so that it can be closed."""
    yield from stream.blocks(records)
