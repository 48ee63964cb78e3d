"""Lanes: the shares in which inputs go through the low level, each with tables of its own.

An input is one lane. Only a big mapped file is several: its blocks are dealt to them, one after the other, to whichever
is free. A lane is a port of every pipeline that reads the input, and what it promises holds for its own later rows; so
Meld, which takes the minimum over all ports, is all that lanes have to do with each other.

A block's `low` looks at all later blocks of its file. Those that its lane will take are among them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from capture.files.blocks import BLOCK_RECORDS, Block
from capture.files.capture import AnyCapture, Capture
from capture.files.scan import PiecewiseScan
from capture.files.stream import StreamedCapture
from capture.metrics import Samples
from highlevel.plan import LeafPlan
from highlevel.table_sizes import TableShares
from lowlevel.node.node import Node
from lowlevel.plan import LowLevelPlan
from lowlevel.promises.knowledge import Kind, Knowledge
from lowlevel.promises.lull import LullRule
from lowlevel.punctuation import BEGINNING, END, Item, Punctuation

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
    leaves: Sequence[tuple[int, LeafPlan]]
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
        self.newest = max(self.newest, block.last)
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
        self.low, self.damage = index.low, index.damage
        self.newest = max((block.last for block in index.blocks), default=BEGINNING)
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
            self.key = block.low
            progress(block.end - block.start)
        if self.deal.over:
            yield from self.end(self.deal.damage if self.first else None)
