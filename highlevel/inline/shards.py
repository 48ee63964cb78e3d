"""Shards: a shard reads an input, or a share of a large file, and aggregates its rows in separate tables.

A large mapped file has several shards, so that several threads can process it: the next free shard processes the next
block. Any other input has one shard. For a pipeline every shard is a separate input (a port) with a separate watermark.
`Meld` in the pipeline computes the minimum of these watermarks.

The watermark of a block is valid for all later blocks of its file, so also for the later blocks of its shard.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from threading import Event, Lock

from capture.files.blocks import BLOCK_RECORDS, Block
from capture.files.capture import AnyCapture, Capture
from capture.files.scan import PiecewiseScan
from capture.files.stream import GRACE_SECONDS, MAX_STOP_SECONDS, StreamedCapture
from capture.lazy_dataclasses import dataclass
from capture.metrics import Samples
from highlevel.plan.nodes import Leaf
from lowlevel.node.node import Node
from lowlevel.plan import LowLevelPlan
from lowlevel.punctuation import BEGINNING, END, Item, Punctuation, WatermarkRounder
from lowlevel.table.budget import TableBudget
from lowlevel.watch.watched_file import Watchlists
from lowlevel.watermarks.idle import IdleRule, ReplayClock
from lowlevel.watermarks.jumps import AGREEING_ROWS
from lowlevel.watermarks.lateness import Lateness
from lowlevel.watermarks.rule import Kind, WatermarkRule

FULL_SIZE_SHARDS = 4
"""Number of shards whose tables can all have the full size. More shards share the memory of these tables."""

MIN_SLOTS = 1024
"""Minimum slots of a table, even if many shards share the memory."""


def max_overlap(spans: Iterable[tuple[int, int]]) -> int:
    """Return the maximum number of spans that overlap at one time. The first and last time belong to a span."""
    edges = [edge for first, last in spans for edge in ((first, 1), (last + 1, -1))]
    return max(itertools.accumulate(step for _, step in sorted(edges)), default=0)


def slots_per_table(slots: int, shards: int) -> int:
    """Return the slots of a table if `shards` shards share the memory of FULL_SIZE_SHARDS full tables."""
    while shards > FULL_SIZE_SHARDS and slots > MIN_SLOTS:
        slots //= 2
        shards = (shards + 1) // 2
    return slots


class TableSizes:
    """Determines the size of the tables of a new shard from the number of open shards. Thread-safe.

    `expected_shards` is the maximum number of shards that will be open at the same time, or 0 before the scan. These
    shards share the memory of FULL_SIZE_SHARDS full tables. If it is 0, the first FULL_SIZE_SHARDS shards have full
    tables, the next FULL_SIZE_SHARDS shards half tables, the next 2 * FULL_SIZE_SHARDS shards quarter tables, and so
    on.
    """

    def __init__(self, slots: int, budget: TableBudget | None = None) -> None:
        """`slots` is the size of a full table. Tables with a `budget` may be smaller, and grow."""
        self.slots = slots
        self.budget = budget
        self.expected_shards = 0
        self._open = 0
        self._lock = Lock()

    def begin_shard(self) -> int:
        """Count a shard that begins. Return the slots of each of its tables."""
        with self._lock:
            self._open += 1
            return slots_per_table(self.slots, max(self.expected_shards, self._open))

    def end_shard(self) -> None:
        """Count a shard that ends."""
        with self._lock:
            self._open -= 1


LeafItem = tuple[int, Item]
"""The number of a leaf, and an item for it."""

READS_PER_BYTE = 2
"""Each byte of a mapped file is read twice: in the scan and in decoding. A byte of a stream is read once, but counts as
two reads."""

Progress = Callable[[int], None]
"""Called with the bytes processed since its last call."""


@dataclass(frozen=True)
class ShardInput:
    """The input of a shard, and the leaves that read it.

    `number`: the index of the input in the run. `link`: the name of its link. `leaves`: the leaves that read the
    input, with their numbers in the run. `queries`: for each leaf the names of the queries that contain it. `tables`:
    the sizes of tables. `slack`: allowed disorder in ns; None for exact watermarks. `block_records`: records per block.
    `lull`: the rule by which the clock raises the watermark of an idle live input. `files`: all files of the link, if
    it has several. `watchlists`: the open watchlist files; finite inputs share them.
    `export_delay`: with a slack, the time in ns after which a flow record is exported at the latest.
    """

    number: int
    link: str
    leaves: Sequence[tuple[int, Leaf]]
    queries: Sequence[tuple[str, ...]]
    tables: TableSizes
    slack: int | None = None
    block_records: int = BLOCK_RECORDS
    lull: IdleRule | None = None
    files: tuple[Path, ...] = ()
    watchlists: Watchlists | None = None
    export_delay: int | None = None

    @property
    def watermark_rule(self) -> WatermarkRule:
        """Return the watermark rule of the input."""
        kind = Kind.EXACT if self.slack is None else Kind.LATE_BY_TIME
        lull = None if self.lull is None else self.lull.threshold
        return WatermarkRule(kind, self.slack, lull, export_delay=None if self.slack is None else self.export_delay)


class Shard:
    """Tables, counters and position of an input or of a share of it. One thread at a time uses a shard."""

    def __init__(self, shard_input: ShardInput, capture: AnyCapture) -> None:
        """Read `capture`, or a share of it."""
        self.input = shard_input
        self.capture = capture
        self.next_time = BEGINNING
        """Approximate time of the next rows, ns. The waiting shard with the smallest value continues first."""
        self.max_lead = END
        """Maximum lead in ns. The shard waits while its `next_time` is later than that of another shard in use by more
        than this. END: it never waits."""
        self.newest_time = BEGINNING
        """Maximum record time so far, in ns."""
        self.node: Node | None = None
        self.damage: str | None = None
        self.lateness: dict[str, Lateness] = {}
        """The late rows so far by kind of rows (`Node.lateness`)."""
        self._final_samples: Samples | None = None

    def raise_watermark(self, watermark: int) -> Iterator[LeafItem]:
        """Yield the watermark for each leaf.

        The exact watermark of a block does not apply to leaves whose times are not the record times. Such leaves
        receive only END.
        """
        for number, leaf in self.input.leaves:
            if leaf.low.has_record_watermarks or watermark == END:
                yield number, Punctuation(self.input.link, watermark)

    def process_block(self, block: Block) -> Iterator[LeafItem]:
        """Aggregate one block in the tables."""
        node = self._ensure_node()
        self.newest_time = max(self.newest_time, block.max_ts)
        yield from self._number_leaves(node.process(block))

    def end(self, damage: str | None) -> Iterator[LeafItem]:
        """Flush the tables, store the counters and release the memory. `damage`: the cause of damage, or None."""
        if self.node is not None:
            yield from self._number_leaves(self.node.finish())
            yield from self._number_leaves(self.node.declare_watermark(END))
        yield from self.raise_watermark(END)
        self.damage = damage
        self._final_samples = self.samples()
        if self.node is not None:
            self.node = None
            self.input.tables.end_shard()

    def close(self) -> None:
        """Close the input, even before its end."""
        if isinstance(self.capture, StreamedCapture):
            self.capture.close()

    @property
    def has_ended(self) -> bool:
        """Return True if no work is left."""
        return self._final_samples is not None

    def samples(self) -> Samples:
        """Return the counters. They are complete when the shard has ended."""
        if self._final_samples is not None:
            return self._final_samples
        node = self.node or self._make_node([], 0)
        samples = node.samples(self.input.queries[: len(node.reducers)], self.damage)
        if isinstance(self.capture, StreamedCapture):
            samples.update(self.capture.samples(self.input.link))
        return samples

    def _ensure_node(self) -> Node:
        """Return the node. The first call creates the node and its tables."""
        if self.node is None:
            self.node = self._make_node([leaf.low for _, leaf in self.input.leaves], self.input.tables.begin_shard())
            self.lateness = self.node.lateness
        return self.node

    def _make_node(self, plans: Sequence[LowLevelPlan], slots: int) -> Node:
        shard_input = self.input
        return Node(
            *(shard_input.link, self.capture, plans, slots, shard_input.block_records, shard_input.watermark_rule),
            files=shard_input.files,
            watchlists=shard_input.watchlists,
            budget=shard_input.tables.budget,
        )

    def _number_leaves(self, items: Iterator[LeafItem]) -> Iterator[LeafItem]:
        """Replace the leaf numbers of the node by the leaf numbers of the run."""
        for leaf_position, item in items:
            yield self.input.leaves[leaf_position][0], item


class BlockDistribution:
    """Scans a mapped file in pieces, and then distributes its blocks over shards. Thread-safe."""

    def __init__(self, capture: Capture, piece_count: int, block_records: int = BLOCK_RECORDS) -> None:
        """Prepare a scan in at most `piece_count` pieces."""
        self.capture = capture
        self.scan = PiecewiseScan(capture, piece_count, block_records)
        self.earliest_time = BEGINNING
        """Minimum record time of the file, in ns; END without records."""
        self.newest_time = BEGINNING
        """Maximum record time of the file, in ns; BEGINNING without records."""
        self.damage: str | None = None
        self._unscanned = self.scan.piece_count
        self._blocks_left: deque[Block] = deque()
        self._lock = Lock()

    def scan_piece(self, piece: int, progress: Progress) -> None:
        """Scan one piece. The thread that scans the last piece prepares the distribution of blocks."""
        self.scan.walk(piece, progress)
        with self._lock:
            self._unscanned -= 1
            if self._unscanned:
                return
        index = self.scan.index(progress)
        self.earliest_time, self.damage = index.watermark, index.damage
        self.newest_time = max((block.max_ts for block in index.blocks), default=BEGINNING)
        self._blocks_left.extend(index.blocks)

    def take_block(self) -> Block | None:
        """Return the next block, or None after the last."""
        try:
            return self._blocks_left.popleft()
        except IndexError:
            return None

    @property
    def is_empty(self) -> bool:
        """Return True if all blocks are taken."""
        return not self._blocks_left


class MappedShard(Shard):
    """A shard that takes blocks of a mapped file."""

    def __init__(self, shard_input: ShardInput, distribution: BlockDistribution, reports_damage: bool) -> None:
        """Read blocks from `distribution`. One of its shards reports the damage at the end of the file."""
        super().__init__(shard_input, distribution.capture)
        self.distribution = distribution
        self.reports_damage = reports_damage

    def begin(self) -> Iterator[LeafItem]:
        """Emit the watermark of the scan before the first row."""
        self.next_time = self.distribution.earliest_time
        yield from self.raise_watermark(self.distribution.earliest_time)

    def step(self, progress: Progress) -> Iterator[LeafItem]:
        """Process the next block, or end after the last."""
        block = self.distribution.take_block()
        if block is not None:
            yield from self.process_block(block)
            self.next_time = block.watermark
            progress(block.end - block.start)
        if self.distribution.is_empty:
            yield from self.end(self.distribution.damage if self.reports_damage else None)


class StreamShard(Shard):
    """Shard over a finite stream, such as a compressed file. A step processes one block, as for mapped files.

    `next_time` is the smallest time of the last block, so several streams advance together. A record with a wrong time
    changes `next_time` for one block only. Before the first block, `next_time` is the smallest time of the first
    AGREEING_ROWS records. So if the files cover successive times, few files are open at the same time.
    """

    def __init__(self, shard_input: ShardInput, capture: StreamedCapture) -> None:
        """Read `capture`, which is not live."""
        super().__init__(shard_input, capture)
        self.stream = capture
        stated = (leaf.low.slack for _, leaf in shard_input.leaves)
        slacks = [slack for slack in (shard_input.slack, *stated) if slack is not None]
        if slacks:  # the slowest stream delays all windows, so the others wait for it
            self.max_lead = max(slacks) + max((leaf.low.pane for _, leaf in shard_input.leaves), default=0)
        self._blocks: Generator[Block | None, None, None] | None = None
        self._consumed = 0

    def close(self) -> None:
        """Close the input, even before its end."""
        if self._blocks is not None:
            self._blocks.close()
        super().close()

    def read_start(self) -> None:
        """Read the first records to determine `next_time`, and release them."""
        with closing(_blocks(self.stream, AGREEING_ROWS)) as blocks:
            first = next((block for block in blocks if block is not None), None)
        self.next_time = BEGINNING if first is None else first.min_ts

    def begin(self) -> Iterator[LeafItem]:
        """Emit the first watermark, computed from the beginning of the stream (`lowlevel.watermarks`)."""
        if self.input.slack is not None and self.next_time != BEGINNING:
            yield from self.raise_watermark(max(BEGINNING + 1, self.next_time - self.input.slack))

    def step(self, progress: Progress) -> Iterator[LeafItem]:
        """Process the next block, or end at the end of the stream."""
        if self._blocks is None:
            self._blocks = _blocks(self.stream, self.input.block_records)
        try:
            block = next(self._blocks)
        except StopIteration:
            yield from self.end(self.stream.damage)
            progress(READS_PER_BYTE * (self.stream.size - self._consumed))
            self._blocks = None
            self.stream.close()
            return
        if block is None:
            return
        yield from self.process_block(block)
        self.next_time = block.min_ts
        before, self._consumed = self._consumed, self.stream.consumed
        progress(READS_PER_BYTE * (self._consumed - before))


class LiveShard(Shard):
    """Shard over a live input, in a separate thread, because it waits for data.

    While the input is idle, the clock raises the watermark. The idle time begins with the last poll that found no data.
    The shard does not poll while its consumer is slow, and an input with unread data is not idle. So a slow consumer
    never raises the watermark.
    """

    def __init__(self, shard_input: ShardInput, capture: StreamedCapture) -> None:
        """Read `capture`, which is live."""
        super().__init__(shard_input, capture)
        self.stream = capture
        self._polled_before_rows: int | None = None  # time of the last poll without data, before the first row
        self._rounders = [WatermarkRounder(leaf.low.pane, leaf.low.origin) for _, leaf in shard_input.leaves]

    def run(self, is_stopping: Callable[[], bool], consumer_stopped: Event) -> Iterator[LeafItem]:
        """Process blocks as they arrive, until the input ends or `is_stopping` returns True.

        If `consumer_stopped` is set, stop without results.
        """
        last_data = time.monotonic()
        stopped: float | None = None
        with closing(_blocks(self.stream, self.input.block_records)) as blocks:
            last_poll = self._clock()
            for block in blocks:
                if consumer_stopped.is_set():
                    break
                now = time.monotonic()
                is_idle = block is None and self.stream.is_idle
                if block is not None:
                    last_data = now
                    yield from self._process_live(block)
                elif is_idle:
                    yield from self._advance_by_clock(last_poll)
                if is_stopping():
                    stopped = stopped or now
                    deadline = min(max(last_data, stopped) + GRACE_SECONDS, stopped + MAX_STOP_SECONDS)
                    if not self.stream.has_writer or now >= deadline:
                        self.stream.stop()
                if is_idle or block is not None:
                    last_poll = self._clock()
        self.stream.close()
        if not consumer_stopped.is_set():
            yield from self.end(self.stream.damage)

    def _clock(self) -> int:
        return BEGINNING if self.input.lull is None else self.input.lull.clock()

    def _process_live(self, block: Block) -> Iterator[LeafItem]:
        """Process a block, and advance the clock of a replay."""
        if self.node is None and self._polled_before_rows is not None:
            deque(
                self._ensure_node().tick(self._polled_before_rows), 0
            )  # the new node must know the watermark that was sent before
        yield from self.process_block(block)
        if self.input.lull is not None and isinstance(self.input.lull.clock, ReplayClock):
            self.input.lull.clock.advance(self._ensure_node().newest)

    def _advance_by_clock(self, polled_at: int) -> Iterator[LeafItem]:
        """Raise the watermark of an idle input by the clock. At the time `polled_at` no data had arrived."""
        if self.input.lull is None or polled_at == BEGINNING:
            return
        if self.node is not None:
            yield from self._number_leaves(self.node.tick(polled_at))
            return
        self._polled_before_rows = polled_at
        for (number, _), rounder in zip(self.input.leaves, self._rounders, strict=True):
            boundary = rounder.next_boundary(max(BEGINNING + 1, polled_at - self.input.lull.threshold))
            if boundary is not None:
                yield number, Punctuation(self.input.link, boundary)


def _blocks(stream: StreamedCapture, records: int) -> Generator[Block | None, None, None]:
    """Yield the blocks of a stream, in a generator that can be closed."""
    yield from stream.blocks(records)
