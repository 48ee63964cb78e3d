"""Tasks of the batch engine: pre-aggregate a byte range of one capture to packed partials.

A range is given by two offsets, which need not be record boundaries. The task guesses the boundary at the first offset
and reads to the first boundary at or after the second (`capture.files.split`). The task returns the bounds of its walk
with the partials. The driver checks that the walks are contiguous; otherwise it reads the ranges again from exact
boundaries.

The memory of a task is its tables and BUFFERED_PARTIALS partials, independent of its range: more partials are sent to
Spark. A range has a maximum size too, so that a failed task is cheap to repeat.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from capture.errors import InputError
from capture.files.blocks import BLOCK_RECORDS, NO_SECTION, Block
from capture.files.capture import AnyCapture, Capture
from capture.files.formats import FileFormat
from capture.files.pcap import PcapFormat
from capture.files.split import ByteRange, RangeScan, even_offsets, guess_record_boundary, split
from capture.files.stream import StreamedCapture
from capture.open import open_finite, open_mapped
from highlevel.inline.engine import files_of
from highlevel.plan.measurement import Measurement
from highlevel.plan.plan import leaf_names
from highlevel.spark.feeds import InputAssignment
from highlevel.spark.reading import COUNTERS, ArrivalRow, LeafOutput, batch_of, leaf_rows
from lowlevel.node.node import Node
from lowlevel.punctuation import BEGINNING


class StreamScan:
    """Iterator over the blocks of a capture. Afterwards `range` contains the read bytes and the damage at the end."""

    def __init__(self, file: StreamedCapture) -> None:
        """Read `file`, which is not live."""
        self.file = file

    def __iter__(self) -> Iterator[Block]:
        """Iterate from its beginning."""
        return (block for block in self.file.blocks(BLOCK_RECORDS) if block is not None)

    @property
    def range(self) -> ByteRange:
        """The whole file."""
        return ByteRange(0, self.file.size, self.file.damage)


@dataclass(frozen=True)
class StreamTask:
    """Task for the whole input `number`, which cannot be mapped. It has the interface of RangeTask."""

    number: int
    start: int = 0

    def open(self, path: Path, size: int) -> StreamedCapture:
        """Open the input as the driver saw it. Raise InputError if the file has changed."""
        file = open_finite(path, "the batch engine")
        if isinstance(file, StreamedCapture) and file.size == size:
            return file
        raise InputError(f"{path}: changed while it was read; expected a compressed capture of {size} bytes")

    def scan(self, file: StreamedCapture) -> StreamScan:
        """Walk the file."""
        return StreamScan(file)


MIN_RANGE_BYTES = 8 << 20
"""Minimum bytes of a range."""

MAX_RANGE_BYTES = 4 << 30
"""Maximum bytes of a range."""

MAPPED_BYTES = 64 << 20
"""Bytes of a capture that are mapped at a time."""

BUFFERED_PARTIALS = 1 << 20
"""Partials that a task stores before it sends them to Spark: 13 to some 40 MB for pairs of addresses."""


@dataclass(frozen=True)
class RangeTask:
    """Bytes `[start, cut)` of input `number`. `exact` is True if start is known to be a record boundary.

    `form` is the record format of the file. `section` and `interfaces` are the state of a pcapng reader at `start`.
    """

    number: int
    start: int
    cut: int
    exact: bool
    form: FileFormat
    section: int = NO_SECTION
    interfaces: int = 0

    def open(self, path: Path, size: int) -> Capture:
        """Open the input with the length that the driver saw."""
        return replace(open_as_seen(path, size), format=self.form)

    def scan(self, file: Capture) -> RangeScan | None:
        """Walk the range. Return None if its start must be guessed and no offset looks like a boundary."""
        start = self.start if self.exact else guess_record_boundary(file, self.start)
        if start is None:
            return None
        return RangeScan(file, start, self.cut, BLOCK_RECORDS, self.section, self.interfaces)


Task = RangeTask | StreamTask


def guessed_tasks(files: Sequence[AnyCapture], tasks: int) -> list[Task]:
    """Divide the inputs into about `tasks` ranges of similar size, at least one per input.

    More tasks are used if a range would be larger than MAX_RANGE_BYTES. Only classic pcap files are divided at guessed
    offsets. Other formats are divided at exact boundaries, and compressed files are not divided.
    """
    found: list[Task] = []
    for number, (file, count) in enumerate(zip(files, _counts(files, tasks), strict=True)):
        form = file.format
        if isinstance(file, StreamedCapture) or not isinstance(form, PcapFormat):
            found += _exact(number, file, count)
            continue
        bounds = even_offsets(form.first_record, len(file.data), count)
        for start, end in pairwise(bounds):
            found.append(RangeTask(number, start, end, start == bounds[0], form))
    return found


def exact_tasks(files: Sequence[AnyCapture], tasks: int) -> list[Task]:
    """Divide the inputs at exact record boundaries, after a walk over the files."""
    counts = zip(files, _counts(files, tasks), strict=True)
    return [task for number, (file, count) in enumerate(counts) for task in _exact(number, file, count)]


def whole_tasks(files: Sequence[AnyCapture]) -> list[Task]:
    """Make one task of each input, for rows that depend on earlier records."""
    return [task for number, file in enumerate(files) for task in _exact(number, file, 1)]


def size_of(file: AnyCapture) -> int:
    """Bytes of the file of an input."""
    return file.size if isinstance(file, StreamedCapture) else len(file.data)


def _exact(number: int, file: AnyCapture, count: int) -> Sequence[Task]:
    if isinstance(file, StreamedCapture):
        return [StreamTask(number)]
    form, size = file.format, len(file.data)
    ranges = split(file, count) if count > 1 else [ByteRange(form.first_record, size)]
    return [
        RangeTask(number, each.start, size if each.damage else each.end, True, form, each.section, each.interfaces)
        for each in ranges
    ]


def _counts(files: Sequence[AnyCapture], tasks: int) -> list[int]:
    """Return the number of ranges of each file."""
    sizes = [size_of(file) for file in files]
    share = max(MIN_RANGE_BYTES, sum(sizes) // tasks)
    return [max(1, round(size / share), -(-size // MAX_RANGE_BYTES)) for size in sizes]


def open_as_seen(path: Path, size: int) -> Capture:
    """Open a capture with the length `size` that the driver saw, and ignore later data.

    Raise InputError if it has become shorter.
    """
    file = open_mapped(path, "the batch engine")
    if len(file.data) < size:
        raise InputError(f"{path}: changed while it was read: got {len(file.data)} bytes, expected {size}")
    return replace(file, data=file.data[:size])


def opened(task: Task, path: Path, size: int) -> tuple[AnyCapture, RangeScan | StreamScan | None]:
    """Open the input of a task, and the iterator over its blocks (None if no boundary was found)."""
    if isinstance(task, StreamTask):
        stream = task.open(path, size)
        return stream, task.scan(stream)
    file = task.open(path, size)
    return file, task.scan(file)


@dataclass(frozen=True)
class RangeReader:
    """Task function for the one query of `feeds`. Picklable. Row n of the mapped DataFrame is task n.

    `sizes` are the lengths of the inputs in bytes. With `measure` counters have the name of their leaf in the plan in
    place of the query, and contain `seconds` of the task and `measured`: the figures of leaves.
    """

    feeds: InputAssignment
    sizes: tuple[int, ...]
    tasks: tuple[Task, ...]
    slots: int
    measure: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield packed partials (`reading`), and for part COUNTERS the bounds of the walk and the counters as JSON."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for rows in self._read(self.tasks[number]):
                    if rows:
                        yield batch_of(rows)

    def _read(self, task: Task) -> Iterator[list[ArrivalRow]]:
        """Yield the rows of one task, at least once. The last rows are the counters."""
        begin, waited = time.perf_counter(), 0.0
        each_input = self.feeds.inputs[task.number]
        readers = self.feeds.readers(task.number)
        leaves = [self.feeds.leaf(reader) for reader in readers]
        measured = [Measurement() for _ in readers]
        file, scan = opened(task, each_input.path, self.sizes[task.number])
        files = files_of(each_input.link, self.feeds.inputs)
        node = Node(each_input.link, file, [leaf.low for leaf in leaves], self.slots, BLOCK_RECORDS, files=files)
        walked = ByteRange(-1, -1)
        partials: list[list[pa.RecordBatch]] = [[] for _ in readers]
        gathered = 0
        place = 0
        if scan is not None:
            expected = 0
            for block in scan:
                if isinstance(file, Capture) and block.end >= expected:
                    expected = block.end + MAPPED_BYTES
                    file.prefault_pages(block.end, MAPPED_BYTES)
                for leaf, item in node.process(block):
                    if isinstance(item, pa.RecordBatch):
                        partials[leaf].append(item)
                        gathered += item.num_rows
                if gathered >= BUFFERED_PARTIALS:
                    if self.measure:
                        _count(measured, partials)
                    rows = self._packed(task.number, readers, partials, place)
                    waiting = time.perf_counter()
                    yield rows
                    waited += time.perf_counter() - waiting
                    partials, gathered, place = [[] for _ in readers], 0, place + 1
            walked = scan.range
        for leaf, item in itertools.chain(node.finish(), node.flush()):
            if isinstance(item, pa.RecordBatch):
                partials[leaf].append(item)
        plan = self.feeds.plans[0]
        names = leaf_names(plan) if self.measure else [leaf.name for leaf in plan.leaves]
        samples = node.samples([(names[self.feeds.leaves[reader][1]],) for reader in readers], walked.damage)
        counts: dict[str, Any] = {
            "task": {"number": task.number, "start": task.start},
            "walked": asdict(walked),
            "samples": [[name, labels, value] for (name, labels), value in samples.items()],
        }
        rows = self._packed(task.number, readers, partials, place)
        if self.measure:
            _count(measured, partials)
            counts["seconds"] = time.perf_counter() - begin - waited
            counts["measured"] = [
                (plan.nodes.index(leaf), each.figures) for leaf, each in zip(leaves, measured, strict=True)
            ]
        counted = (COUNTERS, COUNTERS, 0, place, BEGINNING, BEGINNING, json.dumps(counts).encode())
        yield [*rows, counted]

    def _packed(
        self, number: int, readers: list[int], partials: list[list[pa.RecordBatch]], place: int
    ) -> list[ArrivalRow]:
        """Return the partials of each leaf as rows for its ports. `place` is their position in the task's output."""
        rows = []
        for reader, batches in zip(readers, partials, strict=True):
            taken = LeafOutput(BEGINNING, batches)
            rows += [row for row in leaf_rows(self.feeds, reader, number, place, taken) if row[-1] is not None]
        return rows


def _count(measured: Sequence[Measurement], partials: Sequence[Sequence[pa.RecordBatch]]) -> None:
    """Add the rows and bytes of the partials of each leaf."""
    for measurement, batches in zip(measured, partials, strict=True):
        measurement.add(sum(each.num_rows for each in batches), sum(each.nbytes for each in batches), 0.0, 0)
