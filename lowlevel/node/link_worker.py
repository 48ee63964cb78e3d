"""One link of a low-level node: blocks of a capture in, partials and punctuation into its spool.

Nothing here waits for whoever reads the spool. What a full spool does not take waits in a list, which holds no more
than the tables did; until it is empty no block is reduced. A link that is on a wire sheds meanwhile, and where its ring
fills (`lowlevel.node.shedding`). One whose packets stay where they are, a file or a folder that is followed, is left
unread.

Such an input can be read again, and is, from where it was left: whenever a segment is due, the tables are emptied and
the segment is cut, with the place that the input has been reduced to in its head. All rows before that place are then
in segments up to this one, and none behind it is; a node that is killed at any moment goes on from the newest segment
as if nothing had been. Of a wire what is in the tables and in the segment being written is lost with the process.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from threading import Event

from capture.errors import InputError
from capture.files.blocks import BLOCK_RECORDS, CUTS, Block
from capture.files.capture import AnyCapture, Capture
from capture.files.decompressed import CUT_IN_COMPRESSION
from capture.files.followed import FollowedCapture
from capture.files.positions import FilePosition, blocks_after, positions, sets_waiting, with_sets_waiting
from capture.files.stream import StreamedCapture, blocks_until_stopped
from capture.flows.waiting import NODE_RESTARTED
from capture.interface_path import is_interface
from capture.metrics import FLOW_SETS_DROPPED, Samples
from capture.units import SECOND
from lowlevel.metrics import (
    ITEMS_WAITING,
    NODE_LAG,
    NODE_WATERMARK,
    PARTIALS_LEFT,
    RECORDS_SHED,
    SAMPLING_ASKED,
    SAMPLING_RATE,
)
from lowlevel.node.node import Node
from lowlevel.node.shedding import RingPressure, Shedding, standing_for
from lowlevel.plan import LowLevelPlan
from lowlevel.punctuation import BEGINNING, END, Item, Punctuation
from lowlevel.spool.folder import SpoolFullError
from lowlevel.spool.limits import WhenFull
from lowlevel.spool.writer import SpoolWriter

COUNTED_EVERY = SECOND // 4
"""Nanoseconds after which the counters are made anew for other threads, and the room in the spool is looked at."""

RETRY = 0.05
"""Seconds after which a link that can wait looks again whether its spool has room."""

LAST_TRIES = 20
"""Times that it looks again where it is to stop: a second."""

MOST_ROWS = 1 << 16
"""Rows of an item at most: what leaves a whole table at once is many."""


class Capturing:
    """Reads one link until it ends or is stopped. One thread runs it; any may ask for `samples`.

    `ended` says after `run` whether the input has ended by itself and all of it is in the spool.
    """

    def __init__(
        self,
        capture: AnyCapture,
        node: Node,
        plans: Sequence[tuple[str, LowLevelPlan]],
        spool: SpoolWriter,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """Reduce `capture` by `node`, which serves `plans`, in that order, each with its query's name.

        `clock` tells ns since the epoch; it is asked after each block and at each empty poll. The `spool` is one that
        `cuts` where the input can be read again (`positions` is not None). Raises InputError where the spool holds a
        part of another input.
        """
        self.capture = capture
        self.node = node
        self.names = [name for name, _ in plans]
        self.plans = [plan for _, plan in plans]
        self.spool = spool
        self.clock = clock
        self.positions = positions(capture)
        if self.positions is not None and spool.position is not None:
            self.positions.resume(spool.position)
        self.sets_lost = 0 if spool.position is None else sets_waiting(spool.position)
        """Sets of flow records that waited for their template when the node before ended; they were in memory only."""
        self.shedding = Shedding()
        self.pressure = RingPressure()
        self.waiting: deque[tuple[int, Item]] = deque()
        self.ended = False
        self.left = [0] * len(plans)
        self.lows = [BEGINNING] * len(plans)
        self.newest = BEGINNING
        self.damage: str | None = None
        """How the input has ended, if badly."""
        self._now = self._looked = clock()
        self._turns = 1
        self._passed = False  # whether a block of an input that can be read again was not taken: it is over then
        self._samples = self._count()

    def run(self, stopping: Callable[[], bool]) -> None:
        """Read until the input ends, or `stopping` says so; then leave the spool so that it can be gone on with.

        Raises InputError where the input fails, SpoolError and OSError where the spool does.
        """
        failure: InputError | None = None
        try:
            try:
                with closing(self._blocks(stopping)) as blocks:
                    for block in blocks:
                        self._step(block, stopping)
            except InputError as error:
                failure = error  # what was read before counts all the same
            # What is in the tables belongs to rows that were read; END only where no more can come.
            self._leave(self.node.progress(END) if self.ended else self.node.flush())
            self._close(stopping)
        finally:
            self.spool.abandon()  # where it is not closed
            if isinstance(self.capture, StreamedCapture):
                self.capture.close()
            self._samples = self._count()
        if failure is not None:
            raise failure

    def _blocks(self, stopping: Callable[[], bool]) -> Generator[Block | None, None, None]:
        """Yield what there is to read; `ended` says afterwards whether the input has ended by itself."""
        if isinstance(self.capture, Capture):
            done = self.positions.records if isinstance(self.positions, FilePosition) else 0
            blocks, damage = blocks_after(self.capture, done)
            for block in blocks:
                if stopping():
                    return
                yield block
            self.damage = damage
        else:
            with closing(blocks_until_stopped(self.capture, stopping, BLOCK_RECORDS)) as live:
                yield from live
            self.damage = self.capture.damage
        # The writer of a stream may go on behind what is no record.
        broken = self.damage not in (None, *CUTS, CUT_IN_COMPRESSION)
        if broken and self.positions is None and not is_interface(self.capture.path):
            raise InputError(f"{self.damage_told}; nothing behind it can be read: begin the stream again")
        # An interface that is gone may come back.
        self.ended = not stopping() and not is_interface(self.capture.path)

    def _step(self, block: Block | None, stopping: Callable[[], bool]) -> None:
        """Do what there is to do for a block, or for nothing having come."""
        polled, now = self._now, self.clock()
        silent = block is None and isinstance(self.capture, StreamedCapture) and self.capture.silent
        if silent or block is not None:
            self._now = now
        self._leave(())
        if self.positions is None:
            if self.waiting:
                self.pressure.pass_over()
            else:
                self._sample(now, look=now - self._looked >= COUNTED_EVERY)
        if block is None:
            if silent and not self.waiting:
                self._leave(self.node.tick(polled))
        elif self.positions is not None:
            self._wait(stopping)
            self._passed |= bool(self.waiting)
            if not self._passed:
                self._take(block)
                self.positions.advance(block)
        elif self.waiting:
            self.shedding.refuse(block.records)
        elif self.shedding.takes(block.records):
            self._take(block)
        self.spool.tick(now)
        if self.positions is not None and self.spool.due and not self._passed:
            self._cut()
        self._look(now)

    def _look(self, now: int) -> None:
        """Make the counters anew for other threads, where that was some time ago."""
        if now - self._looked >= COUNTED_EVERY:
            self._looked = now
            self._samples = self._count()

    def _sample(self, now: int, *, look: bool) -> None:
        """Let the sampling of a wire follow its ring and, where it is to `look`, the room in the spool."""
        spool, limits = self.shedding.spool_k, self.spool.limits
        if look and limits.when_full is WhenFull.STOP:
            spool = self.shedding.next_spool_k(self.spool.used, limits.spool_bytes)
        ring = self.pressure.follow(self.capture.occupancy, now) if isinstance(self.capture, StreamedCapture) else 0
        if max(spool, ring) != self.shedding.k:
            self._leave(self.node.flush())
        self.shedding.spool_k, self.shedding.ring_k = spool, ring

    def _take(self, block: Block) -> None:
        """Reduce a block."""
        if isinstance(self.capture, FollowedCapture) and self.capture.files_opened != self._turns:
            self._turns = self.capture.files_opened
            self._leave(self.node.end_block())
        self.newest = block.max_ts
        self._leave(self.node.process(block))

    def _leave(self, items: Iterable[tuple[int, Item]]) -> None:
        """Give items to the spool, behind those that wait; what it has no room for waits."""
        while self.waiting and self._append(*self.waiting[0]):
            self.waiting.popleft()
        for number, item in items:
            for part in self._parts(number, item):
                if self.waiting or not self._append(number, part):
                    self.waiting.append((number, part))

    def _parts(self, number: int, item: Item) -> Iterator[Item]:
        """Cut what is long, and let partials stand for the rows that were not looked at."""
        if isinstance(item, Punctuation):
            yield item
            return
        whole = standing_for(item, self.plans[number], self.shedding.factor)
        few = whole.num_rows * (self.spool.limits.spool_bytes // 8) // max(1, whole.nbytes)
        rows = min(MOST_ROWS, max(1, few))  # a spool takes a quarter of itself at once
        for first in range(0, whole.num_rows, rows):
            yield whole.slice(first, rows)

    def _append(self, number: int, item: Item) -> bool:
        """Give one item to the spool; False where it has no room."""
        try:
            self.spool.append(number, item)
        except SpoolFullError:
            return False
        if isinstance(item, Punctuation):
            self.lows[number] = item.low
        else:
            self.left[number] += item.num_rows
        return True

    def _wait(self, stopping: Callable[[], bool]) -> None:
        """Wait until nothing waits for room any more, or until it is to stop and has tried a while longer, once."""
        pause, tries = Event(), 0 if self._passed else LAST_TRIES
        while self.waiting and tries:
            tries -= stopping()
            pause.wait(RETRY)
            now = self.clock()
            self.spool.tick(now)
            self._leave(())
            self._look(now)

    def _cut(self) -> bool:
        """End a segment with all that has been reduced, and the place of the input up to which that is.

        False where there is no room for that: nothing is lost then, and a later cut goes up to where that one is.
        """
        assert self.positions is not None, "only inputs that can be read again are cut"
        self._leave(self.node.flush())
        if self.waiting:
            return False
        try:
            self.spool.cut(with_sets_waiting(self.positions.text(), self.node.sets_waiting))
        except SpoolFullError:
            return False
        return True

    def _close(self, stopping: Callable[[], bool]) -> None:
        """Close the spool, ended where the input did.

        What it has no room for even then is shed, or, of an input that can be read again, read again by the next node.
        """
        self._wait(stopping)
        if self.positions is None:
            while self.waiting:
                self.spool.shed(*self.waiting.popleft())
        elif self.waiting or self._passed or not (self.ended or self._cut()):
            self.ended = False
            self.spool.abandon()
            return
        self.spool.close(ended=self.ended)

    @property
    def damage_told(self) -> str:
        """How the input has ended badly, for people."""
        records = self.node.records + sum(self.shedding.shed.values())
        if isinstance(self.positions, FilePosition):
            records = self.positions.records  # with those of the nodes before
        return f"{self.capture.path}: {(self.damage or '').replace('_', ' ')}, after {records:,} whole records"

    @property
    def samples(self) -> Samples:
        """The counters, as they were a moment ago; whole once it has run."""
        return self._samples

    def _count(self) -> Samples:
        link = self.node.link
        samples = self.node.samples(self.names, self.damage)
        if isinstance(self.capture, StreamedCapture):
            samples.update(self.capture.samples(link))
        samples.update(self.spool.samples())
        for cause, records in self.shedding.shed.items():
            samples.add(RECORDS_SHED, records, link, cause)
        if self.sets_lost:
            samples.add(FLOW_SETS_DROPPED, self.sets_lost, link, NODE_RESTARTED)
        samples.set(SAMPLING_RATE, self.shedding.factor, link)
        samples.set(SAMPLING_ASKED, 1 << self.shedding.spool_k, link, "spool")
        samples.set(SAMPLING_ASKED, 1 << self.shedding.ring_k, link, "ring")
        samples.set(ITEMS_WAITING, len(self.waiting), link)
        for number, name in enumerate(self.names):
            samples.add(PARTIALS_LEFT, self.left[number], name, link)
            if self.lows[number] not in (BEGINNING, END):
                samples.set(NODE_WATERMARK, self.lows[number] / SECOND, name, link)
                samples.set(NODE_LAG, max(0, self.newest - self.lows[number]) / SECOND, name, link)
        return samples
