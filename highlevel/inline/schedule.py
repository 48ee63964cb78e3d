"""Work of the low-level threads: scan all files, then repeatedly process a block of the shard with the earliest rows.

So links advance together, and few windows are open, for any number of threads. A thread ends if no shard waits, because
then other threads process all remaining shards.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from functools import partial
from queue import Full, Queue
from threading import Condition, Event, Thread
from typing import TypeVar

from capture.files.capture import AnyCapture
from capture.files.stream import StreamedCapture
from highlevel.inline.shards import (
    BlockDistribution,
    LiveShard,
    MappedShard,
    Progress,
    Shard,
    ShardInput,
    StreamShard,
    TableSizes,
    max_overlap,
)
from lowlevel.punctuation import Item

T = TypeVar("T")

QUEUE_POLL_SECONDS = 0.05
"""Seconds after which a thread that waits at the queue checks whether the consumer has stopped."""

Entry = tuple[list[T], BaseException | None]
"""Entry of the queue: a list of one item, or an empty list at the end of a producer, and the producer's exception."""


def run_ahead(producers: Sequence[Iterator[T]], max_queued: int, consumer_stopped: Event) -> Iterator[T]:
    """Yield the items of all `producers`. Each producer runs in a thread; at most `max_queued` items wait in the queue.

    The items of one producer keep their order. Threads are useful if the producers release the GIL, as compiled
    functions do. An exception of a producer is raised here, after its earlier items. When the consumer stops early or a
    producer fails, `consumer_stopped` is set. Each thread then ends at its next item, or earlier if its producer checks
    `consumer_stopped`. If another thread sets it, the iterator ends soon.
    """
    queue: Queue[Entry[T]] = Queue(max_queued)
    threads = [
        Thread(target=_produce, args=(items, queue, consumer_stopped), name="wiretide-ahead", daemon=True)
        for items in producers
    ]
    running = len(threads)
    try:
        for thread in threads:
            thread.start()
        while running:
            item, failure = queue.get()
            if consumer_stopped.is_set():
                return
            if failure is not None:
                raise failure
            yield from item
            running -= not item
    finally:
        consumer_stopped.set()
        for thread in threads:
            if thread.ident is not None:  # Ctrl-C may arrive before all threads have started
                thread.join()


def _produce(items: Iterator[T], queue: Queue[Entry[T]], consumer_stopped: Event) -> None:
    """Put all items of one producer, and its end, into the queue until the consumer stops."""
    failure: BaseException | None = None
    try:
        for item in items:
            _put(queue, ([item], None), consumer_stopped)
            if consumer_stopped.is_set():
                break
        if isinstance(items, Generator):
            items.close()  # in this thread, not in the thread of a garbage collection
    except BaseException as error:  # it is raised again, in the consumer's thread
        failure = error
    _put(queue, ([], failure), consumer_stopped)


def _put(queue: Queue[Entry[T]], entry: Entry[T], consumer_stopped: Event) -> None:
    while not consumer_stopped.is_set():
        try:
            queue.put(entry, timeout=QUEUE_POLL_SECONDS)
        except Full:
            continue
        return
    with suppress(Full):  # a full queue wakes the consumer too
        queue.put_nowait(entry)


SCAN_POLL_SECONDS = 0.05
"""Seconds after which a thread that waits for the scans of others checks whether the consumer has stopped."""

SHARD_BYTES = 32 << 20
"""Minimum bytes of a mapped file per shard. More shards would need more tables and more merges of equal groups."""

PIECE_BYTES = 64 << 20
"""Bytes that a thread scans at a time."""

LeafShardItem = tuple[int, Shard, Item]
"""Number of a leaf, a shard, and an item of the shard for the leaf."""


def make_shards(shard_input: ShardInput, capture: AnyCapture, threads: int) -> list[Shard]:
    """Make the shards of one input, for at most `threads` threads."""
    if isinstance(capture, StreamedCapture):
        return [LiveShard(shard_input, capture) if capture.live else StreamShard(shard_input, capture)]
    size = len(capture.data)
    pieces = 1 if threads == 1 else -(-size // PIECE_BYTES)
    distribution = BlockDistribution(capture, pieces, shard_input.block_records)
    is_divisible = all(leaf.low.is_divisible for _, leaf in shard_input.leaves)
    shards = max(1, min(threads, size // SHARD_BYTES)) if is_divisible else 1
    return [MappedShard(shard_input, distribution, reports_damage=position == 0) for position in range(shards)]


class Schedule:
    """Distribution of scans and steps over threads. Each thread calls `work` and iterates over the result."""

    def __init__(
        self, shards: Sequence[Shard], tables: TableSizes, progress: Progress, consumer_stopped: Event
    ) -> None:
        """Process all finite `shards` until they end, or until `consumer_stopped` is set."""
        self.shards = [shard for shard in shards if isinstance(shard, MappedShard | StreamShard)]
        self.tables = tables
        self.progress = progress
        self.consumer_stopped = consumer_stopped
        self._scans: deque[Callable[[], None]] = deque()
        for shard in self.shards:
            if isinstance(shard, StreamShard):
                self._scans.append(shard.read_start)
            elif shard.reports_damage:
                pieces = range(shard.distribution.scan.piece_count)
                self._scans.extend(partial(shard.distribution.scan_piece, piece, progress) for piece in pieces)
        self._unscanned = len(self._scans)
        self._scanned = Event()
        self._waiting: list[tuple[int, int, int, MappedShard | StreamShard]] = []
        self._in_use: set[Shard] = set()
        self._shards_changed = Condition()

    def work(self) -> Iterator[LeafShardItem]:
        """Do one thread's share of the scans and steps. Yield the items of the shards for the operators."""
        yield from self._scan()
        while not self._scanned.wait(SCAN_POLL_SECONDS):
            if self.consumer_stopped.is_set():
                return
        while (shard := self._take_shard()) is not None:
            for leaf_number, item in shard.step(self.progress):
                yield leaf_number, shard, item
            self._put(shard)

    def _scan(self) -> Iterator[LeafShardItem]:
        """Scan the remaining pieces. The thread that ends the last scan prepares the steps."""
        while True:
            try:
                scan = self._scans.popleft()
            except IndexError:
                return
            scan()
            with self._shards_changed:
                self._unscanned -= 1
                if self._unscanned:
                    continue
            distributions = [
                shard.distribution
                for shard in self.shards
                if isinstance(shard, MappedShard) and not shard.distribution.is_empty
            ]
            self.tables.expected_shards = max_overlap(
                (distribution.earliest_time, distribution.newest_time) for distribution in distributions
            )
            # Every shard has a watermark before its first row. Another thread may send a later, higher watermark of
            # the shard before this one; operators ignore the lower one.
            first_watermarks = [
                (leaf_number, shard, item) for shard in self.shards for leaf_number, item in shard.begin()
            ]
            for shard in self.shards:
                self._put(shard)
            self._scanned.set()
            yield from first_watermarks

    def _take_shard(self) -> MappedShard | StreamShard | None:
        """Wait until `max_lead` allows the shard with the smallest `next_time` to continue. Return this shard.

        Return None if no shard waits, because all shards are in use or have ended.
        """
        with self._shards_changed:
            while self._waiting and not self.consumer_stopped.is_set():
                shard = self._waiting[0][-1]
                if all(shard.next_time - shard_in_use.next_time <= shard.max_lead for shard_in_use in self._in_use):
                    heapq.heappop(self._waiting)
                    self._in_use.add(shard)
                    return shard
                self._shards_changed.wait(SCAN_POLL_SECONDS)
            return None

    def _put(self, shard: MappedShard | StreamShard) -> None:
        """Put a shard back, unless it has ended."""
        with self._shards_changed:
            self._in_use.discard(shard)
            if not shard.has_ended:
                heapq.heappush(self._waiting, (shard.next_time, shard.input.number, id(shard), shard))
            self._shards_changed.notify_all()
