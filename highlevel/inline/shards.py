"""Shards: shares of the inputs in the low level, each with separate tables.

An input is one shard. Only a large mapped file has several shards: its blocks are distributed over them, one after the
other, to the next free shard. A shard is a port of every pipeline that reads the input, and its watermark is about its
own later rows. Shards are connected only by `Meld`, which uses the minimum over all ports.

The watermark of a block is about all later blocks of its file, which include the later blocks of its shard.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock

from capture.files.blocks import BLOCK_RECORDS, Block
from capture.files.capture import AnyCapture, Capture
from capture.files.scan import PiecewiseScan
from capture.files.stream import GRACE_SECONDS, MAX_STOP_SECONDS, StreamedCapture
from capture.metrics import Samples
from highlevel.plan.nodes import Leaf
from lowlevel.node.node import Node
from lowlevel.plan import LowLevelPlan
from lowlevel.punctuation import BEGINNING, END, Item, Punctuation, WatermarkRounder
from lowlevel.watch.watched_file import Watchlists
from lowlevel.watermarks.idle import IdleRule, ReplayClock
from lowlevel.watermarks.jumps import AGREEING
from lowlevel.watermarks.rule import Kind, WatermarkRule

TABLES_IN_FULL = 4
"""Maximum number of shards with tables of full size at the same time."""

FEWEST_SLOTS = 1024


def max_overlap(spans: Iterable[tuple[int, int]]) -> int:
    """Return the maximum number of spans (first and last instant) that overlap: the number of shards with tables."""
    edges = [edge for first, last in spans for edge in ((first, 1), (last + 1, -1))]
    return max(itertools.accumulate(step for _, step in sorted(edges)), default=0)


def shared_slots(slots: int, shards: int) -> int:
    """Return the slots of each table if `shards` shards share the memory of TABLES_IN_FULL full tables."""
    while shards > TABLES_IN_FULL and slots > FEWEST_SLOTS:
        slots //= 2
        shards = (shards + 1) // 2
    return slots


class TableShares:
    """Sizes of the tables of shards, as shards begin and end. Thread-safe.

    Shards whose overlap is known beforehand (`expected`) share the memory of TABLES_IN_FULL whole tables. For other
    shards the first TABLES_IN_FULL have full tables, the same number of further shards half tables, twice that number
    quarter tables, and so on. Doubling the number of shards adds half the memory of the full tables.
    """

    def __init__(self, slots: int) -> None:
        """`slots` is the size of a full table."""
        self.slots = slots
        self.expected = 0
        self._open = 0
        self._lock = Lock()

    def take(self) -> int:
        """Count a shard that begins. Return the slots of each of its tables."""
        with self._lock:
            self._open += 1
            return shared_slots(self.slots, max(self.expected, self._open))

    def give(self) -> None:
        """Count a shard that ends."""
        with self._lock:
            self._open -= 1


Numbered = tuple[int, Item]
"""An item, and the number of the leaf it is for."""

PASSES = 2
"""Times that each byte of a mapped file is read: scanned and decoded.

A byte of a stream is read once, but counts twice.
"""

Progress = Callable[[int], None]
"""Called with the bytes done since its last call."""


@dataclass(frozen=True)
class Port:
    """Input of a shard: the numbers of its input and link, the leaves that read it with their numbers, and its tables.

    `files` are all files of the link, if it has several. `slack` is the parameter of `Node`. `lull` advances idle live
    inputs by the clock, if given. `watchlists` are the open files, which all finite inputs share.
    """

    number: int
    link: str
    leaves: Sequence[tuple[int, Leaf]]
    tables: TableShares
    slack: int | None = None
    block_records: int = BLOCK_RECORDS
    lull: IdleRule | None = None
    files: tuple[Path, ...] = ()
    watchlists: Watchlists | None = None

    @property
    def knowledge(self) -> WatermarkRule:
        """Watermark rule of the input."""
        kind = Kind.EXACT if self.slack is None else Kind.LATE_BY_TIME
        return WatermarkRule(kind, self.slack, None if self.lull is None else self.lull.threshold)


class Shard:
    """One port of the low level: its tables, its counters and its position. Used by one thread at a time."""

    def __init__(self, port: Port, capture: AnyCapture) -> None:
        """Read `capture`, or a share of it."""
        self.port = port
        self.capture = capture
        self.key = BEGINNING
        """Time in ns by which waiting shards continue, the smallest first."""
        self.lead = END
        """Maximum difference in ns between this key and the keys of the shards that are being read."""
        self.newest = BEGINNING
        """Largest record time so far, ns."""
        self.node: Node | None = None
        self.damage: str | None = None
        self._counted: Samples | None = None

    def raise_watermark(self, low: int) -> Iterator[Numbered]:
        """Raise the watermark of the shard to `low`, if it grows."""
        for reader, leaf in self.port.leaves:
            if leaf.low.exact_low or low == END:
                yield reader, Punctuation(self.port.link, low)

    def take_in(self, block: Block) -> Iterator[Numbered]:
        """Reduce one block."""
        node = self._opened()
        self.newest = max(self.newest, block.max_ts)
        yield from self._numbered(node.process(block))

    def end(self, damage: str | None) -> Iterator[Numbered]:
        """Flush the tables, keep the counters and release the memory."""
        if self.node is not None:
            yield from self._numbered(self.node.finish())
            yield from self._numbered(self.node.progress(END))
        yield from self.raise_watermark(END)
        self.damage = damage
        self._counted = self.samples()
        if self.node is not None:
            self.node = None
            self.port.tables.give()

    @property
    def ended(self) -> bool:
        """Return True if no work is left."""
        return self._counted is not None

    def samples(self) -> Samples:
        """Return the counters. They are complete when the shard has ended."""
        if self._counted is not None:
            return self._counted
        node = self.node or self._make_node([], 0)
        samples = node.samples([leaf.name for _, leaf in self.port.leaves][: len(node.queries)], self.damage)
        if isinstance(self.capture, StreamedCapture):
            samples.update(self.capture.samples(self.port.link))
        return samples

    def _opened(self) -> Node:
        """Return the node. The first call makes the node and its tables."""
        if self.node is None:
            self.node = self._make_node([leaf.low for _, leaf in self.port.leaves], self.port.tables.take())
        return self.node

    def _make_node(self, plans: Sequence[LowLevelPlan], slots: int) -> Node:
        port = self.port
        return Node(
            *(port.link, self.capture, plans, slots, port.block_records, port.knowledge),
            files=port.files,
            watchlists=port.watchlists,
        )

    def _numbered(self, items: Iterator[Numbered]) -> Iterator[Numbered]:
        """Replace the leaf numbers of the node by the leaf numbers of the run."""
        for place, item in items:
            yield self.port.leaves[place][0], item


class BlockDistribution:
    """Distribution of the blocks of a mapped file over shards, after a scan in pieces. Thread-safe."""

    def __init__(self, capture: Capture, pieces: int, block_records: int = BLOCK_RECORDS) -> None:
        """Prepare to scan in up to `pieces` pieces."""
        self.capture = capture
        self.scan = PiecewiseScan(capture, pieces, block_records)
        self.low = BEGINNING
        """Smallest record time of the file, ns; END without records."""
        self.newest = BEGINNING
        """Largest record time of the file, ns; BEGINNING without records."""
        self.damage: str | None = None
        self._unwalked = self.scan.pieces
        self._left: deque[Block] = deque()
        self._lock = Lock()

    def walk(self, piece: int, progress: Progress) -> None:
        """Scan one piece. The thread that scans the last piece prepares the distribution of blocks."""
        self.scan.walk(piece, progress)
        with self._lock:
            self._unwalked -= 1
            if self._unwalked:
                return
        index = self.scan.index(progress)
        self.low, self.damage = index.watermark, index.damage
        self.newest = max((block.max_ts for block in index.blocks), default=BEGINNING)
        self._left.extend(index.blocks)

    def take(self) -> Block | None:
        """Return the next block, or None after the last."""
        try:
            return self._left.popleft()
        except IndexError:
            return None

    @property
    def over(self) -> bool:
        """Return True after the last block."""
        return not self._left


class MappedShard(Shard):
    """A shard that takes blocks of a mapped file."""

    def __init__(self, port: Port, distribution: BlockDistribution, first: bool) -> None:
        """Read blocks from `distribution`. The `first` of its shards reports the damage at the end of the file."""
        super().__init__(port, distribution.capture)
        self.distribution = distribution
        self.first = first

    def begin(self) -> Iterator[Numbered]:
        """Emit the watermark of the scan before the first row."""
        self.key = self.distribution.low
        yield from self.raise_watermark(self.distribution.low)

    def step(self, progress: Progress) -> Iterator[Numbered]:
        """Process the next block, or end after the last."""
        block = self.distribution.take()
        if block is not None:
            yield from self.take_in(block)
            self.key = block.watermark
            progress(block.end - block.start)
        if self.distribution.over:
            yield from self.end(self.distribution.damage if self.first else None)


class StreamShard(Shard):
    """Shard over a finite stream. A step processes one block, as for mapped files.

    Its key is the smallest time of its last block, so several streams advance together. A record with a wrong time
    moves the key for one block only. Before the first block the key is the smallest time of the first AGREEING records
    at the beginning of the stream. So few of many consecutive files are open at a time.
    """

    def __init__(self, port: Port, capture: StreamedCapture) -> None:
        """Read `capture`, which is not live."""
        super().__init__(port, capture)
        self.stream = capture
        if port.slack is not None:  # windows close only up to the slowest stream, so other streams wait for it
            self.lead = port.slack + max((leaf.low.pane for _, leaf in port.leaves), default=0)
        self._blocks: Iterator[Block | None] | None = None
        self._consumed = 0

    def look(self) -> None:
        """Read the first records to determine the key, and release them."""
        with closing(_blocks(self.stream, AGREEING)) as blocks:
            first = next((block for block in blocks if block is not None), None)
        self.key = BEGINNING if first is None else first.min_ts

    def begin(self) -> Iterator[Numbered]:
        """Emit the first watermark, computed from the beginning of the stream (`lowlevel.watermarks`)."""
        if self.port.slack is not None and self.key != BEGINNING:
            yield from self.raise_watermark(max(BEGINNING + 1, self.key - self.port.slack))

    def step(self, progress: Progress) -> Iterator[Numbered]:
        """Process the next block, or end at the end of the stream."""
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
        self.key = block.min_ts
        before, self._consumed = self._consumed, self.stream.consumed
        progress(PASSES * (self._consumed - before))


class LiveShard(Shard):
    """Shard over a live input in a separate thread.

    It waits for data, and advances by the clock while the input is idle.

    An idle input is reported with the time since which it is idle. While the shard waits for its consumer it does not
    poll, and an input with unread data is not idle. So back-pressure causes no watermark.
    """

    def __init__(self, port: Port, capture: StreamedCapture) -> None:
        """Read `capture`, which is live."""
        super().__init__(port, capture)
        self.stream = capture
        self._polled: int | None = None  # the last poll without data before the first row
        self._described = [WatermarkRounder(leaf.low.pane, leaf.low.origin) for _, leaf in port.leaves]

    def run(self, stopping: Callable[[], bool], unwanted: Event) -> Iterator[Numbered]:
        """Process blocks as they arrive, until the input ends or `stopping` returns True.

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
                    yield from self._process_block(block)
                elif silent:
                    yield from self._advance_by_clock(polled)
                if stopping():
                    stopped = stopped or now
                    last = min(max(heard, stopped) + GRACE_SECONDS, stopped + MAX_STOP_SECONDS)
                    if not self.stream.has_writer or now >= last:
                        self.stream.stop()
                if silent or block is not None:
                    polled = self._clock()
        self.stream.close()
        if not unwanted.is_set():
            yield from self.end(self.stream.damage)

    def _clock(self) -> int:
        return BEGINNING if self.port.lull is None else self.port.lull.clock()

    def _process_block(self, block: Block) -> Iterator[Numbered]:
        """Process a block."""
        if self.node is None and self._polled is not None:
            deque(self._opened().tick(self._polled), 0)  # the watermark has been emitted, so the node must apply it
        yield from self.take_in(block)
        if self.port.lull is not None and isinstance(self.port.lull.clock, ReplayClock):
            self.port.lull.clock.advance(self._opened().newest)

    def _advance_by_clock(self, polled: int) -> Iterator[Numbered]:
        """Advance by the clock if the input is idle: no data had arrived at `polled`."""
        if self.port.lull is None or polled == BEGINNING:
            return
        if self.node is not None:
            yield from self._numbered(self.node.tick(polled))
            return
        self._polled = polled
        for (reader, _), described in zip(self.port.leaves, self._described, strict=True):
            mark = described.next_boundary(max(BEGINNING + 1, polled - self.port.lull.threshold))
            if mark is not None:
                yield reader, Punctuation(self.port.link, mark)


def _blocks(stream: StreamedCapture, records: int) -> Generator[Block | None, None, None]:
    """Yield the blocks of a stream, in a generator that can be closed."""
    yield from stream.blocks(records)
