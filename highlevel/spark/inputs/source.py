"""A streaming source for Spark: captures and spools, read as micro-batches of packed partials.

Spark asks a planning process for the end offsets of the next micro-batch, and how to divide it into tasks. Spark stores
the answer before the first task runs, so a failed micro-batch can be repeated exactly. The driver scans each file once
per start, and sends the index of its blocks to the planning process. The offset of a capture is the number of blocks
that have been read, or UNREAD before its first watermark. The offset of a spool is the number of its next
segment. Segments may be deleted when Spark reports that its checkpoint contains their results. The offset of a
partition of a topic is that of its broker.

The watermark of a query WITH CONSISTENCY is computed from all rows of the link so far, but a task reads only some
blocks. So the driver reads the times of all rows once, as a node does (`lowlevel.watermarks.jumps`), and each task
continues at the time of the link before its first block. So watermarks do not depend on the division into tasks.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, ThreadPoolExecutor, wait
from functools import cached_property
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from capture.cores import count_cores
from capture.files.blocks import Block, Index
from capture.files.capture import Capture
from capture.files.formats import FileFormat
from capture.files.scan import scan
from capture.lazy_dataclasses import dataclass
from capture.open import open_mapped
from capture.topics import Topic, TopicClient
from highlevel.inline.engine import Input
from highlevel.spark.cluster.python_worker import run_task
from highlevel.spark.inputs.admission import (
    FIRST_BLOCKS,
    FIRST_ROW_BLOCKS,
    UNREAD,
    BatchGrowth,
    BlockSelector,
    divide_blocks,
    watermark_after,
)
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.decompressed_inputs import add_damage
from highlevel.spark.inputs.reading import SPARK_SCHEMA, BlockRange, make_batch, read_block_range, rows_without_data
from highlevel.spark.inputs.spool_backlog import select_segments
from highlevel.spark.inputs.spool_planner import SpoolPlanner
from highlevel.spark.inputs.spool_reading import SpoolRange, read_spool_range
from highlevel.spark.inputs.table_reading import IndexedTable, TableRange, index_table, read_table_range
from highlevel.spark.inputs.topic_reading import MAX_MESSAGES, TopicPlanner, TopicRange, read_topic_range
from highlevel.spark.run_folder.totals import TotalsFiles
from lowlevel.expressions.columns import Vector
from lowlevel.plan import LowLevelPlan
from lowlevel.punctuation import BEGINNING
from lowlevel.rows.readers import make_reader
from lowlevel.watermarks.jumps import JumpGuard, LinkTime

FORMAT = "wiretide_captures"
MAX_BYTES = 32 << 20
"""Maximum bytes of the segments of one spool in a micro-batch. Their partials need about three times this memory."""

MAX_PARTIAL_BYTES = 128 << 20
"""Maximum expected bytes of partials for each task of a micro-batch. A partial of an address pair has about 50 bytes
before it is packed. So FIRST_BLOCKS blocks for two tasks do not exceed this limit, even with a partial for each packet.
"""

PACED_BLOCKS = 64
"""Minimum number of blocks of a file in a paced replay.

With fewer blocks, a short file would have no watermark before its end.
"""


@dataclass(frozen=True)
class StreamSpec:
    """The parameters of the source. A micro-batch is divided into at most `task_count` tasks.

    A micro-batch contains at most `max_blocks` blocks of each capture and `max_bytes` bytes of each spool. Without
    `max_blocks`, the number depends on the partials of earlier micro-batches, which are in the folder `totals`
    (`spark.inputs.admission.BatchGrowth`). `measure`: measure the leaves of the query; then there is only one.
    """

    assignment: InputAssignment
    slots: int
    block_records: int
    max_blocks: int | None
    speed: float | None
    task_count: int
    max_bytes: int = MAX_BYTES
    measure: bool = False
    totals: Path = Path("totals")


InputRange = BlockRange | SpoolRange | TableRange | TopicRange
"""A part of one input."""


class RangePartition(InputPartition):
    """What a task reads: parts of one or several inputs."""

    def __init__(self, input_ranges: Sequence[InputRange]) -> None:
        """The task reads `input_ranges` one after another."""
        self.input_ranges = tuple(input_ranges)


class CaptureSource(DataSource):
    """Data source for Spark. `open_stream` makes a subclass with the `spec` of one stream.

    Spark sends the class, and with it the spec, to its own processes, so the spec is never written to a file. A file
    would not be safe: a plan may contain Python functions of the user, which only pickle can store, and whoever can
    change a pickle file can run any code. `captures`: the scanned captures, by the number of the input.
    """

    spec: StreamSpec
    captures: Mapping[int, IndexedCapture]

    @classmethod
    def name(cls) -> str:
        """Name for `readStream.format`."""
        return FORMAT

    def schema(self) -> str:
        """Schema of the rows of `highlevel.spark.inputs.reading`."""
        return SPARK_SCHEMA

    def streamReader(self, schema: StructType) -> CaptureReader:  # noqa: N802
        """Make the reader of the stream."""
        return CaptureReader(self.spec, self.captures)


@dataclass(frozen=True)
class LinkTimes:
    """The times of a link before each block and after the last block, by kind of rows."""

    by_kind: dict[str, list[LinkTime]]

    def before(self, block_number: int) -> dict[str, LinkTime]:
        """Return, for each kind of rows, the time before a block.

        `block_number` = number of blocks: after the last block.
        """
        return {kind: times[block_number] for kind, times in self.by_kind.items()}


@dataclass(frozen=True)
class IndexedCapture:
    """The result of the scan of a capture: its record format, length in bytes, index of blocks, and times."""

    file_format: FileFormat
    size: int
    index: Index
    link_times: LinkTimes


class CaptureReader(DataSourceStreamReader):
    """Plans micro-batches. Only `read` runs in the tasks; it uses only its partition and the spec."""

    def __init__(self, spec: StreamSpec, captures: Mapping[int, IndexedCapture]) -> None:
        """Create a reader. `captures`: the scanned captures, by the number of the input."""
        self.spec = spec
        self.captures = captures
        self._read_batch = -1  # the micro-batch whose totals `growth` has received

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickle, without the indexes. They may be large, and tasks do not need them."""
        return {"spec": self.spec}

    @cached_property
    def tables(self) -> dict[int, IndexedTable]:
        """The batches of each file with a schema, by the number of the input."""
        return {
            input_number: index_table(input_.table)
            for input_number, input_ in enumerate(self.spec.assignment.inputs)
            if input_.table is not None
        }

    @cached_property
    def spools(self) -> dict[int, SpoolPlanner]:
        """The spools, by the number of the input."""
        return {
            input_number: SpoolPlanner(input_number, input_.path)
            for input_number, input_ in enumerate(self.spec.assignment.inputs)
            if input_.spool
        }

    @cached_property
    def topics(self) -> dict[int, TopicPlanner]:
        """The partitions of topics, by the number of the input. Those of a topic share a connection."""
        partitions = {
            input_number: input_.topic
            for input_number, input_ in enumerate(self.spec.assignment.inputs)
            if input_.topic is not None
        }
        counts = Counter(partition.stream.name for partition in partitions.values())
        return {
            number: TopicPlanner(number, partition, self.topic_clients[partition.topic], counts[partition.stream.name])
            for number, partition in partitions.items()
        }

    @cached_property
    def topic_clients(self) -> dict[Topic, TopicClient]:
        """The connections to the brokers of each topic."""
        topics = {input_.topic.topic for input_ in self.spec.assignment.inputs if input_.topic is not None}
        return {topic: TopicClient(topic) for topic in topics}

    @cached_property
    def admission(self) -> BlockSelector:
        """Selects the next blocks of captures, and the next batches of tables."""
        if self.spec.max_blocks is None:
            max_blocks = FIRST_BLOCKS if self.spec.speed is not None else self.growth.next_blocks(0, 0)
        else:
            max_blocks = self.spec.max_blocks
        return BlockSelector([self.indexes[number] for number in self.indexes], max_blocks, self.spec.speed)

    @cached_property
    def growth(self) -> BatchGrowth:
        """Chooses the sizes of micro-batches."""
        assignment = self.spec.assignment
        readers = {reader for number in self.indexes for reader in assignment.readers(number)}
        is_reduced = all(assignment.leaf(reader).low.reduced for reader in readers)
        first_blocks = FIRST_BLOCKS if is_reduced else FIRST_ROW_BLOCKS
        return BatchGrowth(len(self.indexes), MAX_PARTIAL_BYTES * self.spec.task_count, first_blocks)

    @cached_property
    def indexes(self) -> dict[int, Index]:
        """The blocks of each capture and the batches of each table, by the number of the input."""
        return {number: capture.index for number, capture in self.captures.items()} | {
            number: table.index for number, table in self.tables.items()
        }

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Return the offsets before the first read."""
        return self._add_new_inputs({})

    def _add_new_inputs(self, offsets: dict[str, int]) -> dict[str, int]:
        """Add the first positions of inputs that `offsets` does not contain, because only a new query reads them.

        The first position of a spool stays the same until offsets that contain it are committed.
        """
        return offsets | {
            key: self._first_position(number) for number, key in enumerate(self._keys()) if key not in offsets
        }

    def _first_position(self, number: int) -> int:
        planners: dict[int, SpoolPlanner | TopicPlanner] = {**self.spools, **self.topics}
        return planners[number].first_position() if number in planners else UNREAD

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return no limit, because `latestOffset` limits the micro-batch."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Return the end offsets of the next micro-batch. Inputs that no query reads keep their offsets."""
        keys, now = self._keys(), time.monotonic_ns()
        start = self._add_new_inputs(start)
        has_blocks = any(start[keys[number]] < len(index.blocks) for number, index in self.indexes.items())
        if self.spec.max_blocks is None and self.spec.speed is None and has_blocks:
            self.admission.max_blocks = self._choose_max_blocks()
        block_positions = self.admission.select_blocks([start[keys[number]] for number in self.indexes], now)
        spool_positions = [start[keys[number]] for number in self.spools]
        waiting_segments = [
            spool.list_waiting(position, now)
            for spool, position in zip(self.spools.values(), spool_positions, strict=True)
        ]
        end_positions = dict(zip(self.indexes, block_positions, strict=True))
        end_positions |= zip(
            self.spools, select_segments(spool_positions, waiting_segments, self.spec.max_bytes), strict=True
        )
        end_positions |= {
            number: min(topic.find_end(start[keys[number]], now), start[keys[number]] + MAX_MESSAGES)
            for number, topic in self.topics.items()
        }
        return start | {key: end_positions[number] for number, key in enumerate(keys)}

    def _choose_max_blocks(self) -> int:
        """Return the maximum number of blocks of each input in the next micro-batch."""
        files = TotalsFiles(self.spec.totals)
        batch_id = files.last_batch_id()
        if batch_id == self._read_batch:  # Spark asks every 50 ms
            return self.admission.max_blocks
        totals, self._read_batch = files.load(batch_id), batch_id
        input_ids = [self.spec.assignment.input_ids[number] for number in self.indexes]
        blocks = sum(totals.progress[input_id][0] for input_id in input_ids if input_id in totals.progress)
        return self.growth.next_blocks(blocks, sum(totals.partial_bytes.get(input_id, 0) for input_id in input_ids))

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802
        """Return the end offsets of all available data, for Spark's progress reports."""
        keys, now = self._keys(), time.monotonic_ns()
        end_positions = {keys[number]: len(index.blocks) for number, index in self.indexes.items()}
        for number, spool in self.spools.items():
            waiting_segments = spool.list_waiting(0, now)
            end_positions[keys[number]] = (
                waiting_segments[-1].number + 1 if waiting_segments else spool.first_position()
            )
        end_positions |= {keys[number]: topic.find_end(0, now) for number, topic in self.topics.items()}
        return end_positions

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Divide the data between two offsets into tasks.

        Starting a task takes time, and a core without a task is idle. So there is one task per core, which reads parts
        of several captures. Ranges of spools and tables are distributed over the tasks one after another.

        Spark runs the first micro-batch even if nothing can be read yet. It has one task without ranges.
        """
        start = self._add_new_inputs(start)
        keys, task_count = self._keys(), self.spec.task_count
        positions = {
            number: (start[key], end[key])
            for number, key in enumerate(keys)
            # No end: no query read the input when the offsets were planned. All partitions of topics report their ends.
            if key in end and (end[key] != start[key] or number in self.topics)
        }
        tasks: list[list[InputRange]] = [[] for _ in range(task_count)]
        for task, block_range in self._block_ranges({n: positions[n] for n in positions if n in self.captures}):
            tasks[task].append(block_range)
        others = [number for number in positions if number not in self.captures]
        input_ranges = itertools.chain.from_iterable(
            self._ranges(number, *positions[number], max(1, task_count // len(others))) for number in others
        )
        for position, input_range in enumerate(input_ranges):
            tasks[position % task_count].append(input_range)
        return [RangePartition(ranges) for ranges in tasks if ranges] or [RangePartition(())]

    def _ranges(self, number: int, start: int, end: int, range_count: int) -> Iterable[InputRange]:
        """Divide the data of a spool, table or topic between two positions into at most `range_count` ranges."""
        if number in self.topics:
            return [self.topics[number].plan_range(start, end)]
        if number in self.spools:
            return self.spools[number].plan_ranges(start, end, range_count)
        return self.tables[number].ranges(number, max(start, 0), end, range_count)

    def _block_ranges(self, positions: Mapping[int, tuple[int, int]]) -> Iterator[tuple[int, BlockRange]]:
        """Divide blocks of captures among tasks: yield (number of the task, block range).

        `positions` contains the first and the last offset of each capture.
        """
        block_counts = [end - max(start, 0) for start, end in positions.values()]
        divided = divide_blocks(block_counts, self.spec.task_count)
        for (number, (start, _)), input_ranges in zip(positions.items(), divided, strict=True):
            file = self.captures[number]
            index = file.index
            for task, begin, end in input_ranges:
                first, last = max(start, 0) + begin, max(start, 0) + end
                watermark = watermark_after(index, 0) if start == UNREAD and first == 0 else BEGINNING
                damage = index.damage if last == len(index.blocks) else None
                blocks = tuple(index.blocks[first:last])
                yield (
                    task,
                    BlockRange(
                        *(number, first, len(index.blocks), watermark, blocks, file.size, damage),
                        file_format=file.file_format,
                        link_times=file.link_times.before(first),
                        newest={kind: time.newest for kind, time in file.link_times.before(last).items()},
                    ),
                )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run one task."""
        assert isinstance(partition, RangePartition)
        if not partition.input_ranges:
            return iter([make_batch(rows_without_data(self.spec.assignment))])
        return run_task(itertools.chain.from_iterable(map(self._read_range, partition.input_ranges)))

    def _read_range(self, input_range: InputRange) -> Iterator[pa.RecordBatch]:
        spec = self.spec
        if isinstance(input_range, SpoolRange):
            return read_spool_range(spec.assignment, input_range)
        if isinstance(input_range, TopicRange):
            return read_topic_range(spec.assignment, input_range)
        if isinstance(input_range, TableRange):
            return read_table_range(spec.assignment, input_range)
        return read_block_range(spec.assignment, input_range, spec.slots, spec.block_records, measure=spec.measure)

    def commit(self, end: dict[str, int]) -> None:
        """Allow the deletion of segments before `end`, because the checkpoint contains their results."""
        keys = self._keys()
        for number, spool in self.spools.items():
            if keys[number] in end:
                spool.commit(end[keys[number]])

    def stop(self) -> None:
        """Close the connections to brokers."""
        for client in self.__dict__.get("topic_clients", {}).values():  # empty if no topic was planned
            client.close()

    def _keys(self) -> list[str]:
        return self.spec.assignment.offset_keys


def open_captures(inputs: Iterable[Input]) -> dict[Path, Capture]:
    """Map the captures of a stream into memory. Return them by path. Raises InputError for other files."""
    return {input_.path: open_mapped(input_.path, "the stream engine") for input_ in inputs if input_.is_capture}


def index_captures(
    spec: StreamSpec, captures: Mapping[Path, Capture] | None = None, stop: Event | None = None
) -> dict[int, IndexedCapture]:
    """Scan the captures of a stream, in parallel on all cores. Return them by the number of the input.

    `captures` are the mapped captures, by path. None: they are opened here. Another thread can set `stop` to end the
    scan. Raises CancelledError in this case, and the error of the first capture that cannot be scanned.
    """
    inputs = spec.assignment.inputs
    captures = open_captures(inputs) if captures is None else captures
    stop = stop or Event()
    numbers = [number for number, input_ in enumerate(inputs) if input_.is_capture]
    files = [captures[inputs[number].path] for number in numbers]
    with ThreadPoolExecutor(count_cores(), "scan") as threads:
        scans = [threads.submit(_index_file, *arguments, spec, stop) for arguments in zip(files, numbers, strict=True)]
        ended, _ = wait(scans, return_when=FIRST_EXCEPTION)
        stop.set()  # if a scan has failed, the others end
        for scan_ in ended:
            scan_.result()
        return {number: scan_.result() for number, scan_ in zip(numbers, scans, strict=True)}


def _index_file(file: Capture, input_number: int, spec: StreamSpec, stop: Event) -> IndexedCapture:
    """Scan the capture of an input, into blocks of at most `block_records` records; smaller ones for a paced replay."""

    def check_stop(_: int = 0) -> None:
        if stop.is_set():
            raise CancelledError

    check_stop()
    index = scan(file, spec.block_records, check_stop)
    if spec.speed is not None and 0 < index.records < PACED_BLOCKS * spec.block_records:
        index = scan(file, max(1, index.records // PACED_BLOCKS), check_stop)
    assignment, link = spec.assignment, spec.assignment.inputs[input_number].link
    plans = [assignment.leaf(reader).low for reader in assignment.readers(input_number)]
    link_times = read_link_times(link, file, index.blocks, plans, spec.block_records, check_stop)
    return IndexedCapture(file.format, len(file.data), add_damage(index, file.path), link_times)


def open_stream(spark: SparkSession, spec: StreamSpec, captures: Mapping[int, IndexedCapture]) -> Any:
    """Return the streaming DataFrame with the packed rows of the inputs of `spec`. `captures`: of `index_captures`."""
    # The spec cannot be an option of the source: Spark matches options against a recursive pattern, and a long text
    # overflows the stack.
    spark.dataSource.register(type("BoundCaptureSource", (CaptureSource,), {"spec": spec, "captures": captures}))
    return spark.readStream.format(FORMAT).load()


def read_link_times(
    link: str,
    file: Capture,
    blocks: Sequence[Block],
    plans: Iterable[LowLevelPlan],
    capacity: int,
    check_stop: Callable[[], None],
) -> LinkTimes:
    """Read the times of a capture for those `plans` whose watermarks depend on rows. Without such plans, read nothing.

    `capacity`: maximum number of records of a block. `check_stop` is called before each block; it may raise.
    """
    kinds = dict.fromkeys(plan.kind for plan in plans if plan.has_arrival_watermarks)
    return LinkTimes({kind: _times_of(kind, link, file, blocks, capacity, check_stop) for kind in kinds})


def _times_of(
    kind: str, link: str, file: Capture, blocks: Sequence[Block], capacity: int, check_stop: Callable[[], None]
) -> list[LinkTime]:
    reader = make_reader(kind, link, file, frozenset({"ts"}), capacity)
    guard = JumpGuard()
    times = [guard.link_time]
    for block in blocks:
        check_stop()
        for rows in reader.read(block):
            ts = rows.columns["ts"]
            assert isinstance(ts, Vector)
            guard.process(ts.data, BEGINNING, rows.arrivals)
        times.append(guard.link_time)
    return times
