"""Work of the low-level threads: scan all files, then repeatedly process a step of the lane with the smallest key.

So links advance together and as few windows as possible are open, with one thread as with many. A thread without an
available lane ends, because all other lanes are in use by other threads and stay with them.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from queue import Full, Queue
from threading import Condition, Event, Thread
from typing import TypeVar

from capture.files.capture import AnyCapture
from capture.files.stream import StreamedCapture
from highlevel.inline.shards import (
    Deal,
    Lane,
    LiveLane,
    MappedLane,
    Port,
    Progress,
    StreamLane,
    TableShares,
    max_overlap,
)
from lowlevel.punctuation import Item

T = TypeVar("T")

AHEAD_POLL = 0.05
"""Seconds after which a thread that waits at the queue checks whether the consumer has stopped."""

Entry = tuple[list[T], BaseException | None]
"""Entry of the queue: one item (none at the end of an iterator), and the exception of the iterator."""


def ahead(producers: Sequence[Iterator[T]], depth: int, unwanted: Event) -> Iterator[T]:
    """Yield the items of all `producers`, up to `depth` of them computed ahead.

    The items of one producer keep their order.

    This is useful if the producers release the GIL, as kernels do. An exception of a producer is raised here, after its
    earlier items. When the consumer stops early or a producer fails, `unwanted` is set. Each thread then ends at its
    next item, or sooner if its producer checks `unwanted` and raises.
    """
    queue: Queue[Entry[T]] = Queue(depth)
    threads = [
        Thread(target=_work, args=(items, queue, unwanted), name="wiretide-ahead", daemon=True) for items in producers
    ]
    for thread in threads:
        thread.start()
    running = len(threads)
    try:
        while running:
            item, failure = queue.get()
            if failure is not None:
                raise failure
            yield from item
            running -= not item
    finally:
        unwanted.set()
        for thread in threads:
            thread.join()


def _work(items: Iterator[T], queue: Queue[Entry[T]], unwanted: Event) -> None:
    """Put all items of one producer, and its end, into the queue until the consumer stops."""
    failure: BaseException | None = None
    try:
        for item in items:
            _put(queue, ([item], None), unwanted)
            if unwanted.is_set():
                break
        if isinstance(items, Generator):
            items.close()  # in this thread, not in the thread of a garbage collection
    except BaseException as error:  # it is raised again, in the consumer's thread
        failure = error
    _put(queue, ([], failure), unwanted)


def _put(queue: Queue[Entry[T]], entry: Entry[T], unwanted: Event) -> None:
    while not unwanted.is_set():
        try:
            queue.put(entry, timeout=AHEAD_POLL)
        except Full:
            continue
        return


POLL = 0.05
"""Seconds after which a thread that waits for the scans of others checks whether the consumer has stopped."""

LANE_BYTES = 32 << 20
"""Minimum bytes of a mapped file per lane: a lane needs tables, and its groups are merged once more."""

PIECE_BYTES = 64 << 20
"""Bytes that a thread scans at a time."""

Sent = tuple[int, Lane, Item]
"""Number of the leaf, lane, and an item of the lane for the leaf."""


def make_lanes(port: Port, capture: AnyCapture, threads: int) -> list[Lane]:
    """Make the lanes of one input, for at most `threads` threads. All have the same port."""
    if isinstance(capture, StreamedCapture):
        return [LiveLane(port, capture) if capture.live else StreamLane(port, capture)]
    size = len(capture.data)
    pieces = 1 if threads == 1 else -(-size // PIECE_BYTES)
    deal = Deal(capture, pieces, port.block_records)
    shared = all(leaf.low.dealt for _, leaf in port.leaves)
    lanes = max(1, min(threads, size // LANE_BYTES)) if shared else 1
    return [MappedLane(port, deal, first=number == 0) for number in range(lanes)]


class Schedule:
    """Distribution of scans and steps over threads. Each thread iterates over its own `work`."""

    def __init__(self, lanes: Sequence[Lane], tables: TableShares, progress: Progress, unwanted: Event) -> None:
        """Process all finite `lanes` until they end or are `unwanted`."""
        self.lanes = [lane for lane in lanes if isinstance(lane, MappedLane | StreamLane)]
        self.tables = tables
        self.progress = progress
        self.unwanted = unwanted
        self._scans: deque[Callable[[], None]] = deque()
        for lane in self.lanes:
            if isinstance(lane, StreamLane):
                self._scans.append(lane.look)
            elif lane.first:
                pieces = range(lane.deal.scan.pieces)
                self._scans.extend(partial(lane.deal.walk, piece, progress) for piece in pieces)
        self._unscanned = len(self._scans)
        self._scanned = Event()
        self._waiting: list[tuple[int, int, int, MappedLane | StreamLane]] = []
        self._held: set[Lane] = set()
        self._moved = Condition()

    def work(self) -> Iterator[Sent]:
        """Do one thread's share of the work. Yield the items of the lanes for the operators."""
        yield from self._scan()
        while not self._scanned.wait(POLL):
            if self.unwanted.is_set():
                return
        while (lane := self._next()) is not None:
            for reader, item in lane.step(self.progress):
                yield reader, lane, item
            self._put(lane)

    def _scan(self) -> Iterator[Sent]:
        """Scan the remaining pieces. The thread that ends the last scan prepares the steps."""
        while True:
            try:
                scan = self._scans.popleft()
            except IndexError:
                return
            scan()
            with self._moved:
                self._unscanned -= 1
                if self._unscanned:
                    continue
            deals = [lane.deal for lane in self.lanes if isinstance(lane, MappedLane) and not lane.deal.over]
            self.tables.expected = max_overlap((deal.low, deal.newest) for deal in deals)
            # A lane has a watermark before its first row. It may raise the watermark before this one is sent: both are
            # valid.
            promises = [(reader, lane, item) for lane in self.lanes for reader, item in lane.begin()]
            for lane in self.lanes:
                self._put(lane)
            self._scanned.set()
            yield from promises

    def _next(self) -> MappedLane | StreamLane | None:
        """Return the lane with the smallest key, when it may continue.

        Return None if all lanes are in use or have ended.
        """
        with self._moved:
            while self._waiting and not self.unwanted.is_set():
                lane = self._waiting[0][-1]
                if all(lane.key - each.key <= lane.lead for each in self._held):
                    heapq.heappop(self._waiting)
                    self._held.add(lane)
                    return lane
                self._moved.wait(POLL)
            return None

    def _put(self, lane: MappedLane | StreamLane) -> None:
        """Put a lane back, unless it has ended."""
        with self._moved:
            self._held.discard(lane)
            if not lane.ended:
                heapq.heappush(self._waiting, (lane.key, lane.port.number, id(lane), lane))
            self._moved.notify_all()
