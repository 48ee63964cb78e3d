"""Lanes: the shares in which inputs go through the low level, each with tables of its own.

An input is one lane. Only a big mapped file is several: its blocks are dealt to them, one after the other, to whichever
is free. A lane is a port of every pipeline that reads the input, and what it promises holds for its own later rows; so
Meld, which takes the minimum over all ports, is all that lanes have to do with each other.

A block's `low` looks at all later blocks of its file. Those that its lane will take are among them.
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
from lowlevel.promises.guard import AGREEING
from lowlevel.promises.knowledge import Kind, Knowledge
from lowlevel.promises.lull import LullRule, TraceClock
from lowlevel.punctuation import BEGINNING, END, Described, Item, Punctuation

TABLES_IN_FULL = 4
"""Lanes that have tables at the same time before these are made smaller."""

FEWEST_SLOTS = 1024


def most_at_once(spans: Iterable[tuple[int, int]]) -> int:
    """How many of the spans of time, first and last instant, overlap at most: so many lanes have tables at once."""
    edges = [edge for first, last in spans for edge in ((first, 1), (last + 1, -1))]
    return max(itertools.accumulate(step for _, step in sorted(edges)), default=0)


def shared_slots(slots: int, lanes: int) -> int:
    """Slots of each table where `lanes` lanes have tables at once: the memory of TABLES_IN_FULL whole ones, shared."""
    while lanes > TABLES_IN_FULL and slots > FEWEST_SLOTS:
        slots //= 2
        lanes = (lanes + 1) // 2
    return slots


class TableShares:
    """Says how large the tables of each lane are, as lanes begin and end; any threads may call it.

    Lanes whose overlap is known beforehand (`expected`) share the memory of TABLES_IN_FULL whole tables. Of others,
    which begin when they do, the first TABLES_IN_FULL have whole ones, as many more have halves, twice as many
    quarters, and so on: whenever their number doubles, half the memory of the whole ones is added.
    """

    def __init__(self, slots: int) -> None:
        """Give whole tables `slots` slots."""
        self.slots = slots
        self.expected = 0
        self._open = 0
        self._lock = Lock()

    def take(self) -> int:
        """Begin a lane; returns the slots of each of its tables."""
        with self._lock:
            self._open += 1
            return shared_slots(self.slots, max(self.expected, self._open))

    def give(self) -> None:
        """End a lane that had begun."""
        with self._lock:
            self._open -= 1


Numbered = tuple[int, Item]
"""An item, and the number of the leaf it is for."""

PASSES = 2
"""Times that each byte of a mapped file is read: scanned and decoded. A byte of a stream counts as much, read once."""

Progress = Callable[[int], None]
"""Called with the bytes done since its last call."""


@dataclass(frozen=True)
class Port:
    """What a lane is for: the number of its input and its link, the leaves it feeds with their numbers, and its tables.

    `files` are all files of the link, if it has several. `slack` is that of `Node`. `lull` says when live inputs are
    silent, where that is to be known.
    """

    number: int
    link: str
    leaves: Sequence[tuple[int, Leaf]]
    tables: TableShares
    slack: int | None = None
    block_records: int = BLOCK_RECORDS
    lull: LullRule | None = None
    files: tuple[Path, ...] = ()

    @property
    def knowledge(self) -> Knowledge:
        """What is known of the order of the input's rows."""
        kind = Kind.EXACT if self.slack is None else Kind.LATE_BY_TIME
        return Knowledge(kind, self.slack, None if self.lull is None else self.lull.threshold)


class Lane:
    """One port of the low level: its tables, its counters and how far it has come. One thread at a time."""

    def __init__(self, port: Port, capture: AnyCapture) -> None:
        """Read `capture`, or a share of it."""
        self.port = port
        self.capture = capture
        self.key = BEGINNING
        """Time, ns, by which lanes that wait go on: the smallest first."""
        self.lead = END
        """How much greater, ns, the key may be than those of lanes that are being read."""
        self.newest = BEGINNING
        """Largest record time so far, ns."""
        self.node: Node | None = None
        self.damage: str | None = None
        self._counted: Samples | None = None

    def promise(self, low: int) -> Iterator[Numbered]:
        """Promise that no later record of the lane has a ts below `low`, where that says something about its rows."""
        for reader, leaf in self.port.leaves:
            if leaf.low.exact_low or low == END:
                yield reader, Punctuation(self.port.link, low)

    def take_in(self, block: Block) -> Iterator[Numbered]:
        """Reduce one block."""
        node = self._opened()
        self.newest = max(self.newest, block.max_ts)
        yield from self._numbered(node.process(block))

    def end(self, damage: str | None) -> Iterator[Numbered]:
        """Let everything leave that is in the tables; keep the counters and give the memory back."""
        if self.node is not None:
            yield from self._numbered(self.node.finish())
            yield from self._numbered(self.node.progress(END))
        yield from self.promise(END)
        self.damage = damage
        self._counted = self.samples()
        if self.node is not None:
            self.node = None
            self.port.tables.give()

    @property
    def ended(self) -> bool:
        """Whether there is nothing left to do."""
        return self._counted is not None

    def samples(self) -> Samples:
        """Return the counters; they are whole once the lane has ended."""
        if self._counted is not None:
            return self._counted
        node = self.node or self._make_node([], 0)
        samples = node.samples([leaf.name for _, leaf in self.port.leaves][: len(node.queries)], self.damage)
        if isinstance(self.capture, StreamedCapture):
            samples.update(self.capture.samples(self.port.link))
        return samples

    def _opened(self) -> Node:
        """Return the node, which takes its share of the tables when it is first needed."""
        if self.node is None:
            self.node = self._make_node([leaf.low for _, leaf in self.port.leaves], self.port.tables.take())
        return self.node

    def _make_node(self, plans: Sequence[LowLevelPlan], slots: int) -> Node:
        port = self.port
        return Node(port.link, self.capture, plans, slots, port.block_records, port.knowledge, files=port.files)

    def _numbered(self, items: Iterator[Numbered]) -> Iterator[Numbered]:
        """Number the node's items as the leaves are in the whole run."""
        for place, item in items:
            yield self.port.leaves[place][0], item


class Deal:
    """A mapped file: its pieces are walked and then its blocks dealt to lanes. Any threads may call it."""

    def __init__(self, capture: Capture, pieces: int, block_records: int = BLOCK_RECORDS) -> None:
        """Prepare to scan in up to `pieces` pieces."""
        self.capture = capture
        self.scan = PiecewiseScan(capture, pieces, block_records)
        self.low = BEGINNING
        """Smallest record time of the file, ns; END where it has none."""
        self.newest = BEGINNING
        """Largest record time of the file, ns; BEGINNING where it has none."""
        self.damage: str | None = None
        self._unwalked = self.scan.pieces
        self._left: deque[Block] = deque()
        self._lock = Lock()

    def walk(self, piece: int, progress: Progress) -> None:
        """Scan one piece; the thread that ends the last one makes ready to deal."""
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
        """Take the next block; None where none is left."""
        try:
            return self._left.popleft()
        except IndexError:
            return None

    @property
    def over(self) -> bool:
        """Whether no block is left."""
        return not self._left


class MappedLane(Lane):
    """A lane that takes blocks of a mapped file."""

    def __init__(self, port: Port, deal: Deal, first: bool) -> None:
        """Take blocks from `deal`; of its lanes the `first` tells how the file ended."""
        super().__init__(port, deal.capture)
        self.deal = deal
        self.first = first

    def begin(self) -> Iterator[Numbered]:
        """Promise before the first row what the scan has found."""
        self.key = self.deal.low
        yield from self.promise(self.deal.low)

    def step(self, progress: Progress) -> Iterator[Numbered]:
        """Reduce the next block, where one is left; end where none is."""
        block = self.deal.take()
        if block is not None:
            yield from self.take_in(block)
            self.key = block.watermark
            progress(block.end - block.start)
        if self.deal.over:
            yield from self.end(self.deal.damage if self.first else None)


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
            self.lead = port.slack + max((leaf.low.pane for _, leaf in port.leaves), default=0)
        self._blocks: Iterator[Block | None] | None = None
        self._consumed = 0

    def look(self) -> None:
        """Read the first records and let go of them."""
        with closing(_blocks(self.stream, AGREEING)) as blocks:
            first = next((block for block in blocks if block is not None), None)
        self.key = BEGINNING if first is None else first.min_ts

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
        self.key = block.min_ts
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
                    last = min(max(heard, stopped) + GRACE_SECONDS, stopped + MAX_STOP_SECONDS)
                    if not self.stream.written or now >= last:
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
