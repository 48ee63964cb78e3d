"""Tasks of the batch engine: aggregate a byte range of one capture to packed partials.

A range is two byte offsets, which need not be record boundaries. The task guesses the first record boundary after the
first offset, and reads to the first boundary at or after the second offset (`capture.files.split`). With the partials
it returns where it began and ended reading. The driver checks that each task began where the task before it ended.
Otherwise the capture is read again from exact boundaries.

The memory of a task does not depend on the size of its range: it consists of its tables and at most BUFFERED_PARTIALS
partials, because further partials are sent to Spark. A range still has a maximum size, so that repeating a failed task
is cheap.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
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
from capture.lazy_dataclasses import dataclass
from capture.open import open_finite, open_mapped
from highlevel.inline.engine import files_of
from highlevel.inline.table_files import FileStream
from highlevel.plan.measurement import Measurement
from highlevel.spark.cluster.python_worker import run_task
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.reading import COUNTERS, ArrivalRow, LeafOutput, leaf_figures, leaf_rows, make_batch
from highlevel.spark.inputs.table_reading import read_table
from lowlevel.node.node import Node, budget_of
from lowlevel.punctuation import BEGINNING


class StreamScan:
    """Iterate over the blocks of a whole capture.

    Afterwards `range` contains the bytes that were read, and the damage at the end.
    """

    def __init__(self, file: StreamedCapture) -> None:
        """Read `file`, which is not live."""
        self.file = file

    def __iter__(self) -> Iterator[Block]:
        """Iterate from the beginning of the file."""
        return (block for block in self.file.blocks(BLOCK_RECORDS) if block is not None)

    @property
    def range(self) -> ByteRange:
        """The whole file."""
        return ByteRange(0, self.file.size, self.file.damage)


@dataclass(frozen=True)
class StreamTask:
    """The task for a whole input that cannot be mapped into memory. It has the interface of RangeTask."""

    input_number: int
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


@dataclass(frozen=True)
class TableTask:
    """The task for a whole input that has a schema, such as a Parquet file."""

    input_number: int


MIN_RANGE_BYTES = 8 << 20
"""Minimum bytes of a range."""

MAX_RANGE_BYTES = 4 << 30
"""Maximum bytes of a range."""

CLUSTER_RANGE_BYTES = 64 << 20, 256 << 20
"""Minimum and maximum bytes of a range on a cluster."""

CLUSTER_RANGES_PER_CORE = 3
"""Ranges per core on a cluster, unless the ranges would be too small. With several ranges per core, a slow executor
reads fewer of them.
"""

BUFFERED_PARTIALS = 1 << 20
"""Maximum number of partials that a task stores before it sends them to Spark: 13 to about 40 MB for address pairs."""


@dataclass(frozen=True)
class RangeTask:
    """Bytes `[start, cut)` of input `input_number`. `is_exact` is True if start is known to be a record boundary.

    `file_format` is the record format of the file. `section` and `interfaces`: the state of a pcapng reader at `start`.
    """

    input_number: int
    start: int
    cut: int
    is_exact: bool
    file_format: FileFormat
    section: int = NO_SECTION
    interfaces: int = 0

    def open(self, path: Path, size: int) -> Capture:
        """Open the input with the length that the driver saw."""
        return replace(open_with_size(path, size), format=self.file_format)

    def scan(self, file: Capture) -> RangeScan | None:
        """Return the scan of the range.

        Return None if its start must be guessed and no offset looks like a record boundary.
        """
        start = self.start if self.is_exact else guess_record_boundary(file, self.start)
        if start is None:
            return None
        return RangeScan(file, start, self.cut, BLOCK_RECORDS, self.section, self.interfaces)


Task = RangeTask | StreamTask | TableTask

AnyInput = AnyCapture | FileStream
"""An open capture, or files with a schema."""


def count_tasks(size: int, cores: int, is_cluster: bool) -> int:
    """Return the number of ranges for inputs of `size` bytes.

    On one machine one range per core is best. Three ranges per core took 20 % more CPU time, because each task flushes
    its tables at the end of its range.

    >>> [count_tasks(gigabytes << 30, 64, True) for gigabytes in (1, 4, 8, 100, 1000)]
    [64, 64, 128, 400, 4000]
    """
    if not is_cluster:
        return cores
    smallest, largest = CLUSTER_RANGE_BYTES
    return max(-(-size // largest), min(CLUSTER_RANGES_PER_CORE * cores, max(cores, size // smallest)))


def guess_tasks(files: Sequence[AnyInput], task_count: int) -> list[Task]:
    """Divide the inputs into about `task_count` ranges of similar size, at least one per input.

    More tasks are used if a range would be larger than MAX_RANGE_BYTES. Only classic pcap files are divided at guessed
    offsets. Other formats are divided at exact boundaries, and compressed files are not divided.
    """
    tasks: list[Task] = []
    for input_number, (file, range_count) in enumerate(zip(files, _count_ranges(files, task_count), strict=True)):
        if not isinstance(file, Capture) or not isinstance(file.format, PcapFormat):
            tasks += _split_input(input_number, file, range_count)
            continue
        file_format = file.format
        bounds = even_offsets(file_format.first_record, len(file.data), range_count)
        for start, end in pairwise(bounds):
            tasks.append(RangeTask(input_number, start, end, start == bounds[0], file_format))
    return tasks


def make_exact_tasks(files: Sequence[AnyInput], task_count: int) -> list[Task]:
    """Divide the inputs at exact record boundaries, which a scan of the files finds."""
    files_and_counts = zip(files, _count_ranges(files, task_count), strict=True)
    return [
        task
        for input_number, (file, range_count) in enumerate(files_and_counts)
        for task in _split_input(input_number, file, range_count)
    ]


def make_whole_tasks(files: Sequence[AnyInput]) -> list[Task]:
    """Make one task for each input, because rows depend on earlier records."""
    return [task for input_number, file in enumerate(files) for task in _split_input(input_number, file, 1)]


def input_size(file: AnyInput) -> int:
    """Bytes of the files of an input."""
    return len(file.data) if isinstance(file, Capture) else file.size


def _split_input(input_number: int, file: AnyInput, range_count: int) -> Sequence[Task]:
    if isinstance(file, FileStream):
        return [TableTask(input_number)]
    if isinstance(file, StreamedCapture):
        return [StreamTask(input_number)]
    file_format, size = file.format, len(file.data)
    ranges = split(file, range_count) if range_count > 1 else [ByteRange(file_format.first_record, size)]
    return [
        RangeTask(
            input_number,
            byte_range.start,
            size if byte_range.damage else byte_range.end,
            True,
            file_format,
            byte_range.section,
            byte_range.interfaces,
        )
        for byte_range in ranges
    ]


def _count_ranges(files: Sequence[AnyInput], task_count: int) -> list[int]:
    """Return the number of ranges of each file."""
    sizes = [input_size(file) for file in files]
    range_size = max(MIN_RANGE_BYTES, sum(sizes) // task_count)
    return [max(1, round(size / range_size), -(-size // MAX_RANGE_BYTES)) for size in sizes]


def open_with_size(path: Path, size: int) -> Capture:
    """Open a capture, and ignore data beyond `size`, the length that the driver saw.

    Raise InputError if it has become shorter.
    """
    file = open_mapped(path, "the batch engine")
    if len(file.data) < size:
        raise InputError(f"{path}: changed while it was read: got {len(file.data)} bytes, expected {size}")
    return replace(file, data=file.data[:size])


def open_task(task: RangeTask | StreamTask, path: Path, size: int) -> tuple[AnyCapture, RangeScan | StreamScan | None]:
    """Open the input of a task, and the iterator over its blocks (None if no boundary was found)."""
    if isinstance(task, StreamTask):
        stream = task.open(path, size)
        return stream, task.scan(stream)
    file = task.open(path, size)
    return file, task.scan(file)


@dataclass(frozen=True)
class RangeReader:
    """The function of the tasks for all queries of `assignment`. Picklable.

    Row n of the input DataFrame stands for task n.

    `sizes` are the lengths of the inputs in bytes. With `measure` there is only one query. Then counters are labelled
    with the name of their leaf in the plan instead of the query, and they contain `seconds`, the time of the task, and
    `measured`, the figures of the leaves.
    """

    assignment: InputAssignment
    sizes: tuple[int, ...]
    tasks: tuple[Task, ...]
    slots: int
    measure: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield packed partials (`reading`).

        Then yield a row for part COUNTERS: the bytes that were read, and counters, as JSON.
        """
        return run_task(self._read_all(batches))

    def _read_all(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task_number in batch.column(0).to_pylist():
                for rows in self._read(self.tasks[task_number]):
                    if rows:
                        yield make_batch(rows)

    def _read(self, task: Task) -> Iterator[list[ArrivalRow]]:
        """Yield the rows of one task, at least once. The last rows are the counters."""
        if isinstance(task, TableTask):
            yield from self._read_table(task)
            return
        begin, waited_seconds = time.perf_counter(), 0.0
        input_ = self.assignment.inputs[task.input_number]
        readers = self.assignment.readers(task.input_number)
        leaves = [self.assignment.leaf(reader) for reader in readers]
        measurements = [Measurement() for _ in readers]
        file, scan = open_task(task, input_.path, self.sizes[task.input_number])
        files = files_of(input_.link, self.assignment.inputs)
        lows, budget = [leaf.low for leaf in leaves], budget_of(self.slots)
        node = Node(input_.link, file, lows, self.slots, BLOCK_RECORDS, files=files, budget=budget)
        walked_range = ByteRange(-1, -1)
        partials: list[list[pa.RecordBatch]] = [[] for _ in readers]
        watermarks = [BEGINNING] * len(readers)
        partial_count = 0
        sequence = 0
        if scan is not None:
            for block in file.prefault_blocks(scan, len(file.data)) if isinstance(file, Capture) else scan:
                for leaf_index, item in node.process(block):
                    if isinstance(item, pa.RecordBatch):
                        partials[leaf_index].append(item)
                        partial_count += item.num_rows
                    elif leaves[leaf_index].low.has_arrival_watermarks:
                        watermarks[leaf_index] = item.watermark
                if partial_count >= BUFFERED_PARTIALS or any(low != BEGINNING for low in watermarks):
                    if self.measure:
                        _add_partials(measurements, partials)
                    rows = self._pack_partials(task.input_number, readers, partials, watermarks, sequence)
                    watermarks = [BEGINNING] * len(readers)
                    wait_begin = time.perf_counter()
                    yield rows
                    waited_seconds += time.perf_counter() - wait_begin
                    partials, partial_count, sequence = [[] for _ in readers], 0, sequence + 1
            walked_range = scan.range
        for leaf_index, item in itertools.chain(node.finish(), node.flush()):
            if isinstance(item, pa.RecordBatch):
                partials[leaf_index].append(item)
        labels = [self.assignment.counter_label(reader, measure=self.measure) for reader in readers]
        samples = node.samples([(label,) for label in labels], walked_range.damage)
        counts: dict[str, Any] = {
            "task": {"number": task.input_number, "start": task.start},
            "walked": asdict(walked_range),
            "samples": [[name, labels, value] for (name, labels), value in samples.items()],
        }
        rows = self._pack_partials(task.input_number, readers, partials, watermarks, sequence)
        if self.measure:
            _add_partials(measurements, partials)
            counts["seconds"] = time.perf_counter() - begin - waited_seconds
            counts["measured"] = [
                leaf_figures(self.assignment, reader, measurement.rows, measurement.bytes, samples)
                for reader, measurement in zip(readers, measurements, strict=True)
            ]
        counter_row = (COUNTERS, COUNTERS, 0, sequence, BEGINNING, BEGINNING, json.dumps(counts).encode())
        yield [*rows, counter_row]

    def _read_table(self, task: TableTask) -> Iterator[list[ArrivalRow]]:
        """Yield the rows of a file with a schema, then its counters, which are empty."""
        yield from read_table(self.assignment, task.input_number)
        size = self.sizes[task.input_number]
        counts: dict[str, Any] = {
            "task": {"number": task.input_number, "start": 0},
            "walked": asdict(ByteRange(0, size)),
            "samples": [],
        }
        yield [(COUNTERS, COUNTERS, 0, 0, BEGINNING, BEGINNING, json.dumps(counts).encode())]

    def _pack_partials(
        self,
        input_number: int,
        readers: list[int],
        partials: list[list[pa.RecordBatch]],
        watermarks: list[int],
        sequence: int,
    ) -> list[ArrivalRow]:
        """Return the partials of each leaf as rows for its ports, and the watermarks of leaves with late rows.

        `sequence` is the position of these rows in the output of the task.
        """
        rows = []
        for reader, batches, watermark in zip(readers, partials, watermarks, strict=True):
            leaf_output = LeafOutput(watermark, batches)
            rows += [
                row
                for row in leaf_rows(self.assignment, reader, input_number, sequence, leaf_output)
                if row[-1] is not None or watermark != BEGINNING
            ]
        return rows


def _add_partials(measurements: Sequence[Measurement], partials: Sequence[Sequence[pa.RecordBatch]]) -> None:
    """Add the rows and bytes of the partials of each leaf."""
    for measurement, batches in zip(measurements, partials, strict=True):
        measurement.add(sum(batch.num_rows for batch in batches), sum(batch.nbytes for batch in batches), 0.0, 0)
