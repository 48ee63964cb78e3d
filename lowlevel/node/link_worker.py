"""One link of a low-level node: blocks of a capture in, partials and punctuation into its spool.

The link never waits for the reader of the spool. Items that do not fit into a full spool wait in a list, which holds at
most the content of the tables. While the list is not empty, no block is processed. A live link then sheds load, as it
does if its ring fills (`lowlevel.node.shedding`). A file or a followed folder is not read meanwhile.

A file or a followed folder can be read again from a stored position. When a segment is due, the tables are flushed into
it, and its header stores the input position. Then this segment and older segments contain exactly the rows before that
position. A node that is killed at any moment continues from the newest segment without loss. A live
link loses the table entries and the unfinished segment with the process.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from threading import Event

from capture.errors import InputError
from capture.files.blocks import BLOCK_RECORDS, TRUNCATIONS, Block
from capture.files.capture import AnyCapture, Capture
from capture.files.decompressed import CUT_IN_COMPRESSION
from capture.files.followed import FollowedCapture
from capture.files.positions import FilePosition, blocks_after, positions, sets_waiting, with_sets_waiting
from capture.files.stream import StreamedCapture, blocks_until_stopped
from capture.flows.waiting_sets import NODE_RESTARTED
from capture.interface_path import is_interface
from capture.metrics import FLOW_SETS_DROPPED, Samples
from capture.units import SECOND
from lowlevel.metrics import (
    ITEMS_WAITING,
    NODE_LAG,
    NODE_WATERMARK,
    PARTIALS_WRITTEN,
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
"""Time in ns between updates of the counters for other threads, and between reads of the room in the spool."""

RETRY = 0.05
"""Seconds between retries of a link that can wait for room in its spool."""

LAST_TRIES = 20
"""Number of retries after a stop request: 20 retries of 0.05 s are one second."""

MOST_ROWS = 1 << 16
"""Largest number of rows of an item. A flush of a whole table is split into several items."""


class Capturing:
    """Reads one link until it ends or is stopped. One thread calls `run`; any thread may read `samples`.

    After `run`, `ended` is True if the input has ended and the spool contains all of it.
    """

    def __init__(
        self,
        capture: AnyCapture,
        node: Node,
        plans: Sequence[tuple[str, LowLevelPlan]],
        spool: SpoolWriter,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """Set the input and its node. `plans`: name and plan of each query of the node, in its order.

        `clock` returns ns since the epoch; it is called after each block and each empty poll. `spool` must be opened
        with `cuts=True` if the input can be read again (`positions` is not None). Raises InputError if the spool
        contains a part of another input.
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
        """Number of sets of flow records that waited for a template when the last node ended; they are lost."""
        self.shedding = Shedding()
        self.pressure = RingPressure()
        self.waiting: deque[tuple[int, Item]] = deque()
        self.ended = False
        self.left = [0] * len(plans)
        self.lows = [BEGINNING] * len(plans)
        self.newest = BEGINNING
        self.damage: str | None = None
        """The damage at the end of the input, if any."""
        self._now = self._counted_at = clock()
        self._files_seen = 1
        self._has_skipped = False  # True after the first block that was not processed: the next node reads it again
        self._samples = self._count()

    def run(self, stopping: Callable[[], bool]) -> None:
        """Read until the input ends or `stopping` returns True; then close the spool so that a node can continue it.

        Raises InputError if the input fails, SpoolError or OSError if the spool fails.
        """
        failure: InputError | None = None
        try:
            try:
                with closing(self._blocks(stopping)) as blocks:
                    for block in blocks:
                        self._step(block, stopping)
            except InputError as error:
                failure = error  # the rows before the failure are kept
            # The tables contain rows that were read. END only if no more rows can arrive.
            self._write_to_spool(self.node.progress(END) if self.ended else self.node.flush())
            self._close(stopping)
        finally:
            self.spool.abandon()  # has no effect if the spool was closed normally
            if isinstance(self.capture, StreamedCapture):
                self.capture.close()
            self._samples = self._count()
        if failure is not None:
            raise failure

    def _blocks(self, stopping: Callable[[], bool]) -> Generator[Block | None, None, None]:
        """Yield blocks, and None for an empty poll; set `ended` if the input has ended without a stop request."""
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
        # The writer of a pipe may continue after a corrupt record, so this is a failure, not the end.
        broken = self.damage not in (None, *TRUNCATIONS, CUT_IN_COMPRESSION)
        if broken and self.positions is None and not is_interface(self.capture.path):
            raise InputError(f"{self.damage_told}; later records cannot be read: start the stream again")
        # An interface that disappeared may come back.
        self.ended = not stopping() and not is_interface(self.capture.path)

    def _step(self, block: Block | None, stopping: Callable[[], bool]) -> None:
        """Process a block, or an empty poll."""
        polled, now = self._now, self.clock()
        silent = block is None and isinstance(self.capture, StreamedCapture) and self.capture.silent
        if silent or block is not None:
            self._now = now
        self._write_to_spool(())
        if self.positions is None:
            if self.waiting:
                self.pressure.pass_over()
            else:
                self._update_sampling_rate(now, look=now - self._counted_at >= COUNTED_EVERY)
        if block is None:
            if silent and not self.waiting:
                self._write_to_spool(self.node.tick(polled))
        elif self.positions is not None:
            self._wait(stopping)
            self._has_skipped |= bool(self.waiting)
            if not self._has_skipped:
                self._process_block(block)
                self.positions.advance(block)
        elif not self.waiting and self.shedding.takes(block.records):
            self._process_block(block)
        else:
            if self.waiting:
                self.shedding.refuse(block.records)
            self.spool.skip(block.min_ts, block.max_ts + 1)
        self.spool.tick(now)
        if self.positions is not None and self.spool.due and not self._has_skipped:
            self._end_segment()
        self._refresh_counters(now)

    def _refresh_counters(self, now: int) -> None:
        """Update the counters for other threads if the last update is COUNTED_EVERY or more ago."""
        if now - self._counted_at >= COUNTED_EVERY:
            self._counted_at = now
            self._samples = self._count()

    def _update_sampling_rate(self, now: int, *, look: bool) -> None:
        """Update the sampling rate of a live link from its ring and, if `look`, from the room in the spool."""
        spool, limits = self.shedding.spool_k, self.spool.limits
        if look and limits.when_full is WhenFull.STOP:
            spool = self.shedding.next_spool_k(self.spool.used, limits.spool_bytes)
        ring = self.pressure.follow(self.capture.occupancy, now) if isinstance(self.capture, StreamedCapture) else 0
        if max(spool, ring) != self.shedding.k:
            self._write_to_spool(self.node.flush())
        self.shedding.spool_k, self.shedding.ring_k = spool, ring

    def _process_block(self, block: Block) -> None:
        """Pass a block to the node."""
        if isinstance(self.capture, FollowedCapture) and self.capture.files_opened != self._files_seen:
            self._files_seen = self.capture.files_opened
            self._write_to_spool(self.node.end_block())
        self.newest = block.max_ts
        self._write_to_spool(self.node.process(block))

    def _write_to_spool(self, items: Iterable[tuple[int, Item]]) -> None:
        """Write the waiting items, then `items`, to the spool; items that do not fit wait."""
        while self.waiting and self._append(*self.waiting[0]):
            self.waiting.popleft()
        for number, item in items:
            for part in self._parts(number, item):
                if self.waiting or not self._append(number, part):
                    self.waiting.append((number, part))

    def _parts(self, number: int, item: Item) -> Iterator[Item]:
        """Split a long item; multiply counts and sums if blocks were sampled."""
        if isinstance(item, Punctuation):
            yield item
            return
        whole = standing_for(item, self.plans[number], self.shedding.factor)
        few = whole.num_rows * (self.spool.limits.spool_bytes // 8) // max(1, whole.nbytes)
        rows = min(MOST_ROWS, max(1, few))  # at most 1/8 of the spool: one append may take 1/4
        for first in range(0, whole.num_rows, rows):
            yield whole.slice(first, rows)

    def _append(self, number: int, item: Item) -> bool:
        """Append one item to the spool; return False if it has no room."""
        try:
            self.spool.append(number, item)
        except SpoolFullError:
            return False
        if isinstance(item, Punctuation):
            self.lows[number] = item.watermark
        else:
            self.left[number] += item.num_rows
        return True

    def _wait(self, stopping: Callable[[], bool]) -> None:
        """Wait until no item waits. After a stop request, give up after LAST_TRIES retries; later calls do not wait."""
        pause, tries = Event(), 0 if self._has_skipped else LAST_TRIES
        while self.waiting and tries:
            tries -= stopping()
            pause.wait(RETRY)
            now = self.clock()
            self.spool.tick(now)
            self._write_to_spool(())
            self._refresh_counters(now)

    def _end_segment(self) -> bool:
        """End a segment, with all rows processed so far and the position in the input.

        Returns False if the spool has no room. No data is lost: a later cut stores a later position.
        """
        assert self.positions is not None, "only inputs that can be read again are cut"
        self._write_to_spool(self.node.flush())
        if self.waiting:
            return False
        try:
            self.spool.cut(with_sets_waiting(self.positions.text(), self.node.sets_waiting))
        except SpoolFullError:
            return False
        return True

    def _close(self, stopping: Callable[[], bool]) -> None:
        """Close the spool, as ended if the input has ended.

        Items without room are shed; if the input can be read again, the next node reads their rows again.
        """
        self._wait(stopping)
        if self.positions is None:
            while self.waiting:
                self.spool.shed(*self.waiting.popleft())
        elif self.waiting or self._has_skipped or not (self.ended or self._end_segment()):
            self.ended = False
            self.spool.abandon()
            return
        self.spool.close(ended=self.ended)

    @property
    def damage_told(self) -> str:
        """The damage at the end of the input, as text."""
        records = self.node.records + sum(self.shedding.shed.values())
        if isinstance(self.positions, FilePosition):
            records = self.positions.records  # includes the records of earlier nodes
        return f"{self.capture.path}: {(self.damage or '').replace('_', ' ')}, after {records:,} whole records"

    @property
    def samples(self) -> Samples:
        """The counters at the last update; exact after `run`."""
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
            samples.add(PARTIALS_WRITTEN, self.left[number], name, link)
            if self.lows[number] not in (BEGINNING, END):
                samples.set(NODE_WATERMARK, self.lows[number] / SECOND, name, link)
                samples.set(NODE_LAG, max(0, self.newest - self.lows[number]) / SECOND, name, link)
        return samples
