"""Rows of captures as Spark DataFrames: divide captures into byte ranges, read their rows, verify guessed boundaries.

A byte range of a classic pcap begins at a guessed record boundary (`capture.files.split`). A data source has no code on
the driver that could compare the ranges afterwards, so the tasks verify the guesses: each task computes the guess of
the next task again, and compares it with the position at which it has ended. If they differ, the task fails, and so
does the job: so a DataFrame never contains rows of a wrong guess. If every task succeeds, all ranges are exact by
induction: the first range begins at the first record, and every other range begins at the end of the range before it.
Rows of flows and samples depend on earlier records, so their files are read whole.

Tasks write a time index of their captures. If a condition limits the time, later jobs read only the byte ranges that
the index selects (`highlevel.spark.data_source.time_index`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from capture import arrow_compute as pc
from capture.errors import InputError
from capture.files.blocks import BLOCK_RECORDS
from capture.files.capture import AnyCapture, Capture
from capture.files.pcap import PcapFormat
from capture.files.split import ByteRange, guess_record_boundary
from capture.open import allow_open_files, open_finite
from highlevel.inline.engine import Input, files_of
from highlevel.spark.cluster.kernel_compilation import compile_kernels
from highlevel.spark.data_source import time_index
from highlevel.spark.data_source.options import Damage, Ranges, SourceOptions
from highlevel.spark.data_source.row_condition import RowCondition
from highlevel.spark.data_source.time_index import PieceCollector, index_folder, read_index, select_ranges
from highlevel.spark.inputs.byte_ranges import (
    RangeTask,
    TableTask,
    Task,
    guess_tasks,
    input_size,
    make_exact_tasks,
    make_whole_tasks,
    open_task,
)
from lowlevel.expressions.arrow import to_text
from lowlevel.expressions.tree import Column, Expression, columns_of
from lowlevel.expressions.types import Type
from lowlevel.kinds import SEPARABLE_KINDS
from lowlevel.rows.batches import row_batch
from lowlevel.rows.readers import Rows, make_reader

RANGE_BYTES = 128 << 20
"""Bytes of a range, if there are more ranges than cores."""

BATCH_BYTES = 64 << 20
"""Bytes of a batch that is sent to Spark."""

TIMESTAMP = pa.timestamp("us", tz="UTC")

BindFiles = Callable[[Sequence[str]], list[Input]]
"""Function that returns the inputs for the paths of captures, folders and globs."""


class FileRange(InputPartition):
    """What a task reads: an input, all files of its link, the size of the file, and the byte range."""

    def __init__(self, input_: Input, files: tuple[Path, ...], size: int, task: Task, is_indexed: bool = False) -> None:
        """`size` are the bytes of the file when the job was planned. If `is_indexed`, both bounds are exact."""
        self.is_indexed = is_indexed
        self.input = input_
        self.files = files
        self.size = size
        self.task = task


class CaptureReader:
    """The parameters and the tasks of a reader of captures, for a DataFrame or a stream."""

    def __init__(
        self,
        options: SourceOptions,
        columns: tuple[Column, ...],
        bind_files: BindFiles,
        cores: int,
        where: Expression | None,
    ) -> None:
        """Read `columns` of the rows that pass `where`, with `cores` tasks that run at the same time."""
        self.options = options
        self.columns = columns
        self.bind_files = bind_files
        self.cores = cores
        self.where = where

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run one task."""
        assert isinstance(partition, FileRange)
        return read_rows(partition, self.options, self.columns, self.where)


def plan_ranges(
    inputs: Sequence[Input], options: SourceOptions, cores: int, where: Expression | None = None
) -> list[InputPartition]:
    """Divide captures into byte ranges: at least one for each file, and of similar size for large files.

    Byte ranges in which no row can pass `where` are left out, if the capture has a time index.
    """
    inputs = [replace(input_, path=Path(input_.path).absolute(), link=options.link or input_.link) for input_ in inputs]
    allow_open_files(len(inputs))
    files = [open_finite(input_.path, "Spark") for input_ in inputs]
    sizes = [input_size(file) for file in files]
    count = max(cores, -(-sum(sizes) // RANGE_BYTES))
    if options.kind not in SEPARABLE_KINDS:
        tasks = make_whole_tasks(files)
    elif options.guesses:
        tasks = guess_tasks(files, count)
    else:
        tasks = make_exact_tasks(files, count)
    compile_kernels(options.kind)
    condition = RowCondition(where)
    ranges: list[InputPartition] = []
    for input_number, file_tasks in groupby(tasks, lambda task: task.input_number):
        input_, file, size = inputs[input_number], files[input_number], sizes[input_number]
        indexed_tasks = None
        if condition.limits_times and options.kind in SEPARABLE_KINDS:
            indexed_tasks = make_indexed_tasks(input_number, file, condition, max(1, count // len(inputs)))
        same_link = files_of(input_.link, inputs) if options.kind == "flows" else ()
        is_indexed = indexed_tasks is not None
        ranges += [FileRange(input_, same_link, size, task, is_indexed) for task in indexed_tasks or file_tasks]
    return ranges


def make_indexed_tasks(
    input_number: int, file: AnyCapture, condition: RowCondition, count: int
) -> Sequence[Task] | None:
    """Return tasks for the byte ranges that can contain rows, at least one.

    Return None if the file has no time index.
    """
    if not isinstance(file, Capture) or not isinstance(file.format, PcapFormat):
        return None
    begin = file.format.first_record
    pieces = read_index(index_folder(file.path), begin, len(file.data))
    if pieces is None:
        return None
    ranges = select_ranges(pieces, condition.minimum, condition.maximum, count)
    return [RangeTask(input_number, start, end, True, file.format) for start, end in ranges or [(begin, begin)]]


def read_rows(
    partition: FileRange,
    options: SourceOptions,
    columns: Sequence[Column],
    where: Expression | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one byte range that pass the condition `where`.

    Raises InputError at the end for damage and for a wrong guess.
    """
    input_, task = partition.input, partition.task
    assert not isinstance(task, TableTask), "the inputs are captures"
    file, scan = open_task(task, input_.path, partition.size)
    if scan is None:
        raise make_guess_error(input_.path, getattr(task, "start", 0))
    condition = RowCondition(where)
    index = index_folder(input_.path)
    # The reader may replace times of a pcapng, and the times of flows are not those of the records.
    skips_blocks = options.kind in SEPARABLE_KINDS and isinstance(file.format, PcapFormat)
    needed = {"ts", *(column.name for column in columns)}
    if where is not None:
        needed |= {column.name for column in columns_of(where)}
    is_large = isinstance(file.format, PcapFormat) and partition.size >= time_index.MIN_INDEXED_BYTES
    pieces = PieceCollector() if is_large and not partition.is_indexed else None
    reader = make_reader(options.kind, input_.link, file, needed, BLOCK_RECORDS, files=partition.files)
    for block in scan:
        if pieces is not None:
            pieces.add(block)
        if not (skips_blocks and condition.excludes(block)):
            for rows in reader.read(block):
                for chosen in condition.select(rows):
                    yield from make_batches(chosen, columns, options)
    for rows in reader.finish():
        for chosen in condition.select(rows):
            yield from make_batches(chosen, columns, options)
    check_walk(file, partition, scan.range, options)
    if pieces is not None and scan.range.damage is None:
        pieces.write(index, scan.range)


def check_walk(file: AnyCapture, partition: FileRange, walked: ByteRange, options: SourceOptions) -> None:
    """Raise InputError if reading a range ended with damage, or not where the next range begins."""
    if walked.damage is not None:
        if options.damage == Damage.STOP:
            return
        raise InputError(
            f"{file.path}: damaged: {walked.damage.replace('_', ' ')} at byte {walked.end}; "
            f'option("damage", "{Damage.STOP}") reads the rows before it'
        )
    task = partition.task
    if partition.is_indexed and isinstance(task, RangeTask):
        if walked.end != task.cut:
            raise InputError(
                f"{file.path}: got a record that ends at byte {walked.end}, expected {task.cut} as in its time index: "
                f"the capture has changed, but not its size and time; delete {index_folder(file.path)}"
            )
        return
    is_guessed = options.guesses and isinstance(file.format, PcapFormat)
    if isinstance(file, Capture) and isinstance(task, RangeTask) and is_guessed:
        is_last = task.cut >= len(file.data)
        if not is_last and walked.end != guess_record_boundary(file, task.cut):
            raise make_guess_error(file.path, task.cut)


def make_guess_error(path: Path, cut: int) -> InputError:
    """Return the error for a range that does not begin at a record boundary."""
    return InputError(
        f"{path}: the first record after byte {cut} was guessed wrong, or the capture is damaged before it; "
        f'option("ranges", "{Ranges.EXACT}") finds all records before the job'
    )


def make_batches(rows: Rows, columns: Sequence[Column], options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yield rows in the types of the DataFrame, in batches of a limited size."""
    batch = row_batch(rows, columns)
    count = max(1, batch.num_rows // -(-batch.nbytes // BATCH_BYTES)) if columns else batch.num_rows
    for start in range(0, batch.num_rows, count):
        yield convert_batch(batch.slice(start, count), columns, options)


def convert_batch(batch: pa.RecordBatch, columns: Sequence[Column], options: SourceOptions) -> pa.RecordBatch:
    """Convert a batch of the low level to the types of the DataFrame."""
    arrays = []
    for column, values in zip(columns, batch.columns, strict=True):
        if column.type in (Type.ADDRESS, Type.MAC):
            values = to_text(values)
        elif column.type is Type.BYTES:
            values = pc.cast(values, pa.binary())
        elif options.spark_type(column).typeName() == "timestamp":
            values = make_timestamps(values)
        arrays.append(values)
    return pa.RecordBatch.from_arrays(arrays, [column.name for column in columns])


def make_timestamps(times: pa.Array) -> pa.Array:
    """Round times in ns down to timestamps in microseconds.

    >>> make_timestamps(pa.array([1999, None, -1])).cast(pa.int64()).to_pylist()
    [1, None, -1]
    """
    absent = None if times.null_count == 0 else np.asarray(pc.is_null(times))
    values = np.asarray(times if absent is None else pc.fill_null(times, 0)) // 1000
    return pc.cast(pc.array_of(values, absent), TIMESTAMP)
