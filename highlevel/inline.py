"""The inline engine: captures in, results out, in this process and without a JVM."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import pyarrow as pa

from capture.files.blocks import Index
from capture.files.capture import Capture, allow_open_files, open_mapped
from capture.files.scan import scan
from capture.metrics import METRICS as CAPTURE_METRICS
from capture.metrics import Samples, by_name
from highlevel.ahead import ahead
from highlevel.metrics import METRICS as HIGH_METRICS
from highlevel.pipeline import Pipeline
from highlevel.plan import QueryPlan
from lowlevel.metrics import METRICS as LOW_METRICS
from lowlevel.metrics import TABLE_BYTES
from lowlevel.node import TABLE_SLOTS, Node
from lowlevel.punctuation import BEGINNING, Item, Punctuation

ALL_METRICS = by_name(CAPTURE_METRICS, LOW_METRICS, HIGH_METRICS)

QUEUED = 4
"""Items between the levels; each holds at most as many partials as a table has slots."""


TABLES_IN_FULL = 4
"""Files that are read at the same time before their tables are made smaller, so that memory does not grow with them."""

FEWEST_SLOTS = 1024


class UnwantedError(Exception):
    """Ends the low level's thread when nobody takes its results any more."""


@dataclass(frozen=True, slots=True)
class Input:
    """One capture file and the link it belongs to; several files may be one link.

    `stream` is the name in FROM that reads it (without regard to case); None where every name does.
    """

    link: str
    path: Path
    stream: str | None = None

    def feeds(self, plan: QueryPlan) -> bool:
        """Whether the plan reads this input: it does whatever the name where FROM has a kind of rows alone."""
        if self.stream is None or plan.of_every_link:
            return True
        return self.stream.lower() in {stream.lower() for stream in plan.streams}


class InlineRun:
    """One pass over finite inputs for any number of queries.

    Of all inputs the one with the smallest low watermark goes on, a block at a time, so that the links advance
    together and as few windows as possible are open. A file's tables exist from its first block to its last.
    """

    def __init__(
        self,
        plans: Sequence[QueryPlan],
        inputs: Sequence[Input],
        slots: int = TABLE_SLOTS,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Open and check every input. `progress` is called with (bytes done, bytes in all); each byte is passed twice.

        Raises InputError for a file that is no capture.
        """
        self.plans = plans
        self.slots = slots
        inputs = [each for each in inputs if any(each.feeds(plan) for plan in plans)]
        allow_open_files(len(inputs))
        self.files = [open_mapped(each.path, "the inline engine") for each in inputs]
        self.inputs = inputs
        self.total = 2 * sum(len(file.data) for file in self.files)
        self.done = 0
        self.progress = progress
        self.newest: dict[int, int] = {}  # largest packet time of each input begun, ns
        self.finished = Samples()
        self.nodes: dict[int, Node] = {}
        self._unwanted = Event()
        # Ports of a query are the inputs that its streams name, in the order of the inputs.
        self.ports = [
            {number: port for port, number in enumerate(n for n, each in enumerate(inputs) if each.feeds(plan))}
            for plan in plans
        ]
        self.pipelines = [
            Pipeline(plan, [inputs[number].link for number in ports])
            for plan, ports in zip(plans, self.ports, strict=True)
        ]

    def results(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Run; yields (number of the plan, rows of closed windows in order of their end) as they become final.

        The low level runs in a thread of its own, up to QUEUED items ahead of the operators and of whoever takes the
        results.
        """
        for plan, number, item in ahead(self._low_level(), QUEUED, self._unwanted):
            pipeline, port = self.pipelines[plan], self.ports[plan][number]
            items = pipeline.punctuate(port, item) if isinstance(item, Punctuation) else pipeline.rows(port, item)
            for result in items:
                if isinstance(result, pa.RecordBatch):
                    yield plan, result

    def _low_level(self) -> Iterator[tuple[int, int, Item]]:
        """Reduce all inputs; yields (number of the plan, number of the input, item)."""
        indexes = [self._scan(file) for file in self.files]
        self.slots = shared_slots(self.slots, most_at_once(indexes))
        waiting = [(index.low, number, 0) for number, index in enumerate(indexes)]
        for low, number, _ in waiting:
            # Before its first row an input already promises: its index knows its smallest time.
            for reader in self._readers(number):
                yield reader, number, Punctuation(self.inputs[number].link, low)
        heapq.heapify(waiting)
        while waiting:
            _, number, place = heapq.heappop(waiting)
            index = indexes[number]
            if place < len(index.blocks):
                yield from self._block(number, index, place)
            if place + 1 < len(index.blocks):
                heapq.heappush(waiting, (index.blocks[place].low, number, place + 1))
            else:
                self._close(number, index)

    def _scan(self, file: Capture) -> Index:
        before = self.done
        index = scan(file, progress=self._advance_to(before))
        self._advance(before + len(file.data))
        return index

    def _advance_to(self, before: int) -> Callable[[int], None]:
        return lambda offset: self._advance(before + offset)

    def _advance(self, done: int) -> None:
        self.done = done
        if self._unwanted.is_set():
            raise UnwantedError
        if self.progress:
            self.progress(done, self.total)

    def _readers(self, number: int) -> list[int]:
        """Numbers of the plans that read this input."""
        return [plan for plan, ports in enumerate(self.ports) if number in ports]

    def _block(self, number: int, index: Index, place: int) -> Iterator[tuple[int, int, Item]]:
        block = index.blocks[place]
        readers = self._readers(number)
        if number not in self.nodes:
            plans = [self.plans[reader].low for reader in readers]
            self.nodes[number] = Node(self.inputs[number].link, self.files[number], plans, self.slots)
        self.newest[number] = max(self.newest.get(number, block.last), block.last)
        for reader, item in self.nodes[number].process(block):
            yield readers[reader], number, item
        self._advance(self.done + block.end - block.start)

    def _close(self, number: int, index: Index) -> None:
        """Keep a finished input's counters and give its memory back."""
        node = self.nodes.pop(number, None) or Node(self.inputs[number].link, self.files[number], [], self.slots)
        names = [self.plans[reader].name for reader in self._readers(number)][: len(node.queries)]
        self.finished.merge(node.samples(names, index.damage), ALL_METRICS)

    def samples(self) -> Samples:
        """Return every counter and gauge; they are whole once all results have been taken."""
        samples = Samples(self.finished)
        tables = Samples()  # a link may be open in several files, each with tables of its own
        for number, node in list(self.nodes.items()):
            names = [self.plans[reader].name for reader in self._readers(number)]
            counted = node.samples(names)
            for key in [key for key in counted if key[0] == TABLE_BYTES.name]:
                tables[key] = tables.get(key, 0) + counted.pop(key)
            samples.merge(counted, ALL_METRICS)
        samples.merge(tables, ALL_METRICS)
        newest = dict(self.newest)
        for pipeline, ports in zip(self.pipelines, self.ports, strict=True):
            latest = max((newest[number] for number in ports if number in newest), default=BEGINNING)
            samples.merge(pipeline.samples(latest), ALL_METRICS)
        return samples


def most_at_once(indexes: Sequence[Index]) -> int:
    """How many of the files overlap in time at most: so many have tables at the same time."""
    spans = [(index.low, max(block.last for block in index.blocks)) for index in indexes if index.blocks]
    edges = sorted([(first, 1) for first, _ in spans] + [(last + 1, -1) for _, last in spans])
    return max(itertools.accumulate((step for _, step in edges), initial=0))


def shared_slots(slots: int, files: int) -> int:
    """Slots of each table where `files` files have tables at once: the memory of TABLES_IN_FULL whole ones, shared."""
    while files > TABLES_IN_FULL and slots > FEWEST_SLOTS:
        slots //= 2
        files = (files + 1) // 2
    return slots
