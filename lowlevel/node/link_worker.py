"""The worker of one link of a low-level node: it reads blocks of a capture and writes items to a spool.

An item is a batch of partials (the partial aggregates of a group and a pane) or a punctuation. If the spool is full,
items wait in a list that is at most as large as the tables. While items wait, no block is processed: a live link sheds
load (`lowlevel.node.shedding`), and a file or a followed folder is not read.

A file or a followed folder can be read again from a stored position. When a segment is due, the tables are flushed into
it, and its header stores the input position. So this segment and all older ones contain exactly the rows before the
position. If the node is killed, the next node continues from the newest segment without loss. A killed node of a live
link loses its table entries and the unfinished segment.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from threading import Event

import numpy as np

from capture.errors import InputError
from capture.files.blocks import BLOCK_RECORDS, TRUNCATIONS, Block
from capture.files.capture import AnyCapture, Capture
from capture.files.decompressed import CUT_IN_COMPRESSION
from capture.files.followed import FollowedCapture
from capture.files.positions import FilePosition, add_waiting_sets, blocks_after, count_waiting_sets, initial_position
from capture.files.stream import StreamedCapture, blocks_until_stopped
from capture.flows.waiting_sets import NODE_RESTARTED
from capture.interface_path import is_interface
from capture.metrics import BYTES_READ, FLOW_SETS_DROPPED, INTERFACE_DROPPED, PACKETS_DECODED, RECORDS_READ, Samples
from capture.units import SECOND
from lowlevel.metrics import (
    ITEMS_WAITING,
    LULL_WATERMARKS,
    NODE_LAG,
    NODE_WATERMARK,
    PARTIALS_WRITTEN,
    RECORDS_SHED,
    ROWS_BELOW_WATERMARK,
    SAMPLING_RATE,
    SAMPLING_REQUIRED,
)
from lowlevel.node.node import Node
from lowlevel.node.shedding import RingPressure, Shedding, scale_partials
from lowlevel.plan import LowLevelPlan
from lowlevel.punctuation import BEGINNING, END, Item, Punctuation
from lowlevel.spool.folder import SpoolFullError
from lowlevel.spool.limits import WhenFull
from lowlevel.spool.segment import LinkCounts
from lowlevel.spool.writer import SpoolWriter
from lowlevel.watermarks.lateness import Lateness

COUNTER_INTERVAL = SECOND // 4
"""Time in ns between two updates of the counters for other threads, and of the free space in the spool."""

RETRY_PAUSE = 0.05
"""Seconds between two retries of a link that can wait for room in its spool."""

RETRIES_AFTER_STOP = 20
"""Number of retries after a stop request: one second."""

LINK_COUNT_METRICS = {
    "records": RECORDS_READ,
    "bytes": BYTES_READ,
    "packets": PACKETS_DECODED,
    "late": ROWS_BELOW_WATERMARK,
    "lulls": LULL_WATERMARKS,
    "dropped": INTERFACE_DROPPED,
    "shed": RECORDS_SHED,
}
"""The metrics of the counters in LinkCounts."""

LATENESS_SHARE = 0.99
"""The share of the late rows whose lateness is a field of LinkCounts."""

RELEASE_INTERVAL = SECOND // 10
"""Nanoseconds between two releases of provisional partials. Until then they are merged in their tables, because a spool
would store each of them."""

MAX_ITEM_ROWS = 1 << 16
"""Maximum number of rows of an item. Larger batches, such as a whole table, are split."""


class LinkWorker:
    """Reads one link until it ends or is stopped. One thread calls `run`; any thread may read `samples`.

    After `run`, `has_ended` is True if the input has ended and the spool contains all of it.
    """

    def __init__(
        self,
        capture: AnyCapture,
        node: Node,
        plans: Sequence[tuple[str, LowLevelPlan]],
        spool: SpoolWriter,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """Connect an input, its node and its spool.

        * `plans`: name and plan of each query, in the order of the node's plans.
        * `spool`: must have `cuts=True` if the input can be read again (`positions` is not None).
        * `clock`: returns ns since the epoch. It is called after each block and each empty poll.

        Raises InputError if the spool contains a part of another input.
        """
        # This loads the kernel of late rows. Later the process may have no file descriptor to open the file of the
        # kernel.
        Lateness().add_rows(np.empty(0, np.int64), BEGINNING)
        self.capture = capture
        self.node = node
        node.holds_provisional = True
        self.plan_names = [name for name, _ in plans]
        self.plans = [plan for _, plan in plans]
        self.spool = spool
        self.clock = clock
        self.position = initial_position(capture)
        if self.position is not None and spool.position is not None:
            self.position.resume(spool.position)
        self.lost_sets = 0 if spool.position is None else count_waiting_sets(spool.position)
        """Number of sets of flow records that were lost: they waited for a template when the last node ended."""
        self.shedding = Shedding()
        self.pressure = RingPressure()
        self.waiting_items: deque[tuple[int, Item]] = deque()
        self.has_ended = False
        self.partials_written = [0] * len(plans)
        self.watermarks = [BEGINNING] * len(plans)
        self.newest_time = BEGINNING
        self.damage: str | None = None
        """The damage at the end of the input, if any."""
        self._poll_time = self._last_count = self._last_release = clock()
        self._file_count = 1
        self._has_skipped = False  # True after the first block that was not processed: the next node reads it again
        self._samples = self._collect_samples()

    def run(self, stopping: Callable[[], bool]) -> None:
        """Read until the input ends or `stopping` returns True. Close the spool, so that another node can continue.

        Raises InputError if the input fails, SpoolError or OSError if the spool fails.
        """
        failure: InputError | None = None
        try:
            try:
                with closing(self._blocks(stopping)) as blocks:
                    for block in blocks:
                        self._process_poll(block, stopping)
            except InputError as error:
                failure = error  # first write the rows before the failure
            # Flush the tables. The watermark becomes END only if no row can follow.
            self._write_to_spool(self.node.declare_watermark(END) if self.has_ended else self.node.flush())
            self._update_counters()
            self._close(stopping)
        finally:
            self.spool.abandon()  # has no effect if the spool was closed normally
            if isinstance(self.capture, StreamedCapture):
                self.capture.close()
            self._samples = self._collect_samples()
        if failure is not None:
            raise failure

    def _blocks(self, stopping: Callable[[], bool]) -> Generator[Block | None, None, None]:
        """Yield blocks, and None for an empty poll. Set `has_ended` if the input has ended without a stop request."""
        if isinstance(self.capture, Capture):
            records_read = self.position.records if isinstance(self.position, FilePosition) else 0
            blocks, damage = blocks_after(self.capture, records_read)
            for block in blocks:
                if stopping():
                    return
                yield block
            self.damage = damage
        else:
            with closing(blocks_until_stopped(self.capture, stopping, BLOCK_RECORDS)) as live_blocks:
                yield from live_blocks
            self.damage = self.capture.damage
        # A corrupt record in a pipe is a failure and not the end, because the writer may continue.
        is_corrupt = self.damage not in (None, *TRUNCATIONS, CUT_IN_COMPRESSION)
        if is_corrupt and self.position is None and not is_interface(self.capture.path):
            raise InputError(f"{self.damage_text}; later records cannot be read: start the stream again")
        # An interface that disappeared may come back.
        self.has_ended = not stopping() and not is_interface(self.capture.path)

    def _process_poll(self, block: Block | None, stopping: Callable[[], bool]) -> None:
        """Process a block, or an empty poll (None). A block is skipped if items wait or if it is not sampled."""
        last_poll_time, now = self._poll_time, self.clock()
        is_empty_poll = block is None and isinstance(self.capture, StreamedCapture) and self.capture.is_idle
        if is_empty_poll or block is not None:
            self._poll_time = now
        self._write_to_spool(())
        if self.position is None:
            if self.waiting_items:
                self.pressure.restart_mean()
            else:
                self._update_sampling_rate(now, read_spool=now - self._last_count >= COUNTER_INTERVAL)
        if block is None:
            if is_empty_poll and not self.waiting_items:
                self._write_to_spool(self.node.tick(last_poll_time))
        elif self.position is not None:
            self._retry_waiting(stopping)
            self._has_skipped |= bool(self.waiting_items)
            if not self._has_skipped:
                self._process_block(block)
                self.position.advance(block)
        elif not self.waiting_items and self.shedding.select_block(block.records):
            self._process_block(block)
        else:
            if self.waiting_items:
                self.shedding.count_skipped(block.records)
            self.spool.skip(block.min_ts, block.max_ts + 1)
        if now - self._last_release >= RELEASE_INTERVAL:
            self._last_release = now
            self._write_to_spool(self.node.release())
        self.spool.tick(now)
        if self.position is not None and self.spool.is_due and not self._has_skipped:
            self._end_segment()
        self._refresh_counters(now)

    def _refresh_counters(self, now: int) -> None:
        """Update the counters for other threads if the last update is COUNTER_INTERVAL or more ago."""
        if now - self._last_count >= COUNTER_INTERVAL:
            self._last_count = now
            self._update_counters()

    def _update_counters(self) -> None:
        """Update the counters for other threads and for the headers of the next segments."""
        self._samples = samples = self._collect_samples()
        link = self.node.link
        counts = {field: samples.total(metric, link=link) for field, metric in LINK_COUNT_METRICS.items()}
        late = [lateness.quantile(LATENESS_SHARE) for lateness in self.node.lateness.values() if lateness.late_rows]
        self.spool.link_counts = LinkCounts(
            **{field: round(count) for field, count in counts.items()}, lateness=max(late, default=0)
        )

    def _update_sampling_rate(self, now: int, *, read_spool: bool) -> None:
        """Update the sampling rate of a live link from its ring and, if `read_spool`, from the room in the spool."""
        spool_k, limits = self.shedding.spool_k, self.spool.limits
        if read_spool and limits.when_full is WhenFull.STOP:
            spool_k = self.shedding.next_spool_k(self.spool.used, limits.spool_bytes)
        ring_k = self.pressure.update(self.capture.occupancy, now) if isinstance(self.capture, StreamedCapture) else 0
        if max(spool_k, ring_k) != self.shedding.k:
            self._write_to_spool(self.node.flush())
        self.shedding.spool_k, self.shedding.ring_k = spool_k, ring_k

    def _process_block(self, block: Block) -> None:
        """Process a block, and write its partials and punctuation."""
        if isinstance(self.capture, FollowedCapture) and self.capture.files_opened != self._file_count:
            self._file_count = self.capture.files_opened
            self._write_to_spool(self.node.end_block())
        self.newest_time = block.max_ts
        self._write_to_spool(self.node.process(block))

    def _write_to_spool(self, items: Iterable[tuple[int, Item]]) -> None:
        """Write the waiting items, and then `items`, to the spool. Items without room wait."""
        while self.waiting_items and self._append(*self.waiting_items[0]):
            self.waiting_items.popleft()
        for plan_index, item in items:
            for part in self._split(plan_index, item):
                if self.waiting_items or not self._append(plan_index, part):
                    self.waiting_items.append((plan_index, part))

    def _split(self, plan_index: int, item: Item) -> Iterator[Item]:
        """Split a long item. If blocks were sampled, multiply its counts and sums."""
        if isinstance(item, Punctuation):
            yield item
            return
        batch = scale_partials(item, self.plans[plan_index], self.shedding.factor)
        fitting_rows = batch.num_rows * (self.spool.limits.spool_bytes // 8) // max(1, batch.nbytes)
        max_rows = min(
            MAX_ITEM_ROWS, max(1, fitting_rows)
        )  # at most 1/8 of the spool, because `append` accepts up to 1/4
        for first in range(0, batch.num_rows, max_rows):
            yield batch.slice(first, max_rows)

    def _append(self, plan_index: int, item: Item) -> bool:
        """Append an item to the spool. Returns False if the spool has no room."""
        try:
            self.spool.append(plan_index, item)
        except SpoolFullError:
            return False
        if isinstance(item, Punctuation):
            self.watermarks[plan_index] = item.watermark
        else:
            self.partials_written[plan_index] += item.num_rows
        return True

    def _retry_waiting(self, stopping: Callable[[], bool]) -> None:
        """Retry until no item waits. After a stop request, retry RETRIES_AFTER_STOP times, and not in later calls."""
        pause_event, retries_left = Event(), 0 if self._has_skipped else RETRIES_AFTER_STOP
        while self.waiting_items and retries_left:
            retries_left -= stopping()
            pause_event.wait(RETRY_PAUSE)
            now = self.clock()
            self.spool.tick(now)
            self._write_to_spool(())
            self._refresh_counters(now)

    def _end_segment(self) -> bool:
        """End a segment that contains all rows so far, and store the position in the input.

        Returns False if the spool has no room. Then a later segment stores a later position.
        """
        assert self.position is not None, "the input cannot be read again, so it has no position"
        self._write_to_spool(self.node.flush())
        if self.waiting_items:
            return False
        self._update_counters()
        try:
            self.spool.cut(add_waiting_sets(self.position.text(), self.node.sets_waiting))
        except SpoolFullError:
            return False
        return True

    def _close(self, stopping: Callable[[], bool]) -> None:
        """Write the waiting items and close the spool. If the input has ended, record the end of the link.

        Items without room are shed. If the input can be read again, the next node computes them again.
        """
        self._retry_waiting(stopping)
        if self.position is None:
            while self.waiting_items:
                self.spool.shed(*self.waiting_items.popleft())
        elif self.waiting_items or self._has_skipped or not (self.has_ended or self._end_segment()):
            self.has_ended = False
            self.spool.abandon()
            return
        self.spool.close(has_ended=self.has_ended)

    @property
    def damage_text(self) -> str:
        """A sentence about the damage at the end of the input."""
        records = self.node.records + sum(self.shedding.skipped_records.values())
        if isinstance(self.position, FilePosition):
            records = self.position.records  # includes the records of earlier nodes
        return f"{self.capture.path}: {(self.damage or '').replace('_', ' ')}, after {records:,} whole records"

    @property
    def samples(self) -> Samples:
        """The counters at the last update; exact after `run`."""
        return self._samples

    def _collect_samples(self) -> Samples:
        link = self.node.link
        samples = self.node.samples([(name,) for name in self.plan_names], self.damage)
        if isinstance(self.capture, StreamedCapture):
            samples.update(self.capture.samples(link))
        samples.update(self.spool.samples())
        for cause, records in self.shedding.skipped_records.items():
            samples.add(RECORDS_SHED, records, link, cause)
        if self.lost_sets:
            samples.add(FLOW_SETS_DROPPED, self.lost_sets, link, NODE_RESTARTED)
        samples.set(SAMPLING_RATE, self.shedding.factor, link)
        samples.set(SAMPLING_REQUIRED, 1 << self.shedding.spool_k, link, "spool")
        samples.set(SAMPLING_REQUIRED, 1 << self.shedding.ring_k, link, "ring")
        samples.set(ITEMS_WAITING, len(self.waiting_items), link)
        for plan_index, name in enumerate(self.plan_names):
            samples.add(PARTIALS_WRITTEN, self.partials_written[plan_index], name, link)
            if self.watermarks[plan_index] not in (BEGINNING, END):
                samples.set(NODE_WATERMARK, self.watermarks[plan_index] / SECOND, name, link)
                samples.set(NODE_LAG, max(0, self.newest_time - self.watermarks[plan_index]) / SECOND, name, link)
        return samples
