"""The data source `wiretide`: rows of captures as a DataFrame in the session of a Spark user.

    spark.read.format("wiretide").load("archive")       schema     the process that plans
                                                        ranges     the same: no scan of classic pcap
                                                        rows       the tasks, as Arrow batches

A byte range of a classic pcap begins at a guessed record boundary (`capture.files.split`). No driver sees the walks
here, so the tasks verify the guesses: a task compares the end of its walk with the guess of the next task, which it
computes again. If every task succeeds, the first range begins at the first record and every other range begins at the
end of the range before it. Then all ranges are exact, by induction. A task with another end fails, and so does the job:
a DataFrame never contains rows of a wrong guess. Rows of flows and samples depend on earlier records, so their files
are read whole.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from capture import arrow_compute as pc
from capture.errors import InputError
from capture.files.blocks import BLOCK_RECORDS
from capture.files.capture import AnyCapture, Capture
from capture.files.pcap import PcapFormat
from capture.files.split import ByteRange, guess_record_boundary
from capture.open import allow_open_files, open_finite
from highlevel.inline.engine import Input, files_of
from highlevel.spark.byte_ranges import (
    RangeTask,
    Task,
    guess_tasks,
    input_size,
    make_exact_tasks,
    make_whole_tasks,
    open_task,
)
from highlevel.spark.compiled import compile_kernels
from highlevel.spark.data_source_options import FORMAT, Damage, Ranges, SourceOptions
from highlevel.spark.pushed_filters import PushedFilters, convert_filter
from lowlevel.expressions.arrow import to_text
from lowlevel.expressions.tree import Column, Expression
from lowlevel.expressions.types import Type
from lowlevel.kinds import SEPARABLE_KINDS
from lowlevel.rows.batches import row_batch
from lowlevel.rows.readers import Rows, make_reader

RANGE_BYTES = 128 << 20
"""Bytes of a range, if there are more ranges than cores."""

BATCH_BYTES = 64 << 20
"""Bytes of a batch that is sent to Spark."""

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Without this setting Spark refuses a Python data source that accepts filters."""

TIMESTAMP = pa.timestamp("us", tz="UTC")

BindFiles = Callable[[Sequence[str]], list[Input]]
"""Function that returns the inputs of captures, folders and globs."""


class FileRange(InputPartition):
    """The input of a task: the input, all files of its link, its size and the byte range."""

    def __init__(self, input_: Input, files: tuple[Path, ...], size: int, task: Task) -> None:
        """`size` are the bytes of the file when the job was planned."""
        self.input = input_
        self.files = files
        self.size = size
        self.task = task


class CaptureTable(DataSource):
    """Data source for Spark; `register` makes a subclass with the attributes of the session.

    `bind_files` returns the inputs of paths, and `cores` is the number of tasks that run at the same time.
    """

    bind_files: BindFiles
    cores: int

    @classmethod
    def name(cls) -> str:
        """Name for `read.format`."""
        return FORMAT

    @property
    def parsed(self) -> SourceOptions:
        """The options. Raises ValueError."""
        return SourceOptions.parse(self.options)

    def schema(self) -> StructType:
        """Schema of the rows. Raises InputError for a path without captures, before the job."""
        parsed = self.parsed
        type(self).bind_files(parsed.paths)
        return parsed.schema

    def reader(self, schema: StructType) -> TableReader:
        """Make the reader. Raises ValueError for a schema with other columns or types."""
        return TableReader(self.parsed, self.parsed.select(schema), type(self).bind_files, self.cores)


class TableReader(DataSourceReader):
    """Plan the tasks of a DataFrame. `read` runs in the tasks."""

    def __init__(self, options: SourceOptions, columns: tuple[Column, ...], bind_files: BindFiles, cores: int) -> None:
        """Read `columns`."""
        self.options = options
        self.columns = columns
        self.bind_files = bind_files
        self.cores = cores
        self.conditions: tuple[Expression, ...] = ()

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802
        """Take the filters that the tasks evaluate, and yield the others."""
        for filter_ in filters:
            condition = convert_filter(filter_, self.columns)
            if condition is None:
                yield filter_
            else:
                self.conditions += (condition,)

    def partitions(self) -> list[InputPartition]:
        """Divide the captures into byte ranges. Raises InputError for a file that is no capture."""
        return plan_ranges(self.bind_files(self.options.paths), self.options, self.cores)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run one task."""
        assert isinstance(partition, FileRange)
        return read_rows(partition, self.options, self.columns, self.conditions)


def plan_ranges(inputs: Sequence[Input], options: SourceOptions, cores: int) -> list[InputPartition]:
    """Divide captures into byte ranges: at least one for each file, and of similar size for large files."""
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
    return [
        FileRange(
            inputs[task.input_number],
            files_of(inputs[task.input_number].link, inputs) if options.kind == "flows" else (),
            sizes[task.input_number],
            task,
        )
        for task in tasks
    ]


def read_rows(
    partition: FileRange,
    options: SourceOptions,
    columns: Sequence[Column],
    conditions: Sequence[Expression] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one byte range that pass all conditions.

    Raises InputError at the end for damage and for a wrong guess.
    """
    input_, task = partition.input, partition.task
    file, scan = open_task(task, input_.path, partition.size)
    if scan is None:
        raise make_guess_error(input_.path, getattr(task, "start", 0))
    filters = PushedFilters(conditions)
    # A pcapng may have times that the reader replaces, and flows have times of their own.
    skips_blocks = options.kind in SEPARABLE_KINDS and isinstance(file.format, PcapFormat)
    needed = {"ts", *(column.name for column in columns)}
    reader = make_reader(options.kind, input_.link, file, needed, BLOCK_RECORDS, files=partition.files)
    for block in scan:
        if not (skips_blocks and filters.excludes(block)):
            for rows in reader.read(block):
                for chosen in filters.select(rows):
                    yield from make_batches(chosen, columns, options)
    for rows in reader.finish():
        for chosen in filters.select(rows):
            yield from make_batches(chosen, columns, options)
    check_walk(file, task, scan.range, options)


def check_walk(file: AnyCapture, task: Task, walked: ByteRange, options: SourceOptions) -> None:
    """Raise InputError if a walk ended with damage, or not where the next range begins."""
    if walked.damage is not None:
        if options.damage == Damage.STOP:
            return
        raise InputError(
            f"{file.path}: damaged: {walked.damage.replace('_', ' ')} at byte {walked.end}; "
            f'option("damage", "{Damage.STOP}") reads the rows before it'
        )
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


def register_source(spark: object, bind_files: BindFiles) -> None:
    """Make the format `wiretide` known to a session. Raises ValueError for an object that is no classic session.

    Python workers of a session on this machine run the Python of this process, unless PYSPARK_PYTHON or
    `spark.pyspark.python` selects another one: a plain `python3` has no Wiretide.
    """
    if not isinstance(spark, SparkSession):
        got = f"{type(spark).__module__}.{type(spark).__qualname__}"
        raise ValueError(f"got {got}, expected a pyspark.sql.SparkSession without Spark Connect")
    context = spark.sparkContext
    use_this_python(context)
    spark.conf.set(PUSHDOWN, "true")
    attributes: dict[str, Any] = {"bind_files": staticmethod(bind_files), "cores": context.defaultParallelism}
    spark.dataSource.register(type("BoundCaptureTable", (CaptureTable,), attributes))


def use_this_python(context: SparkContext) -> None:
    """Select the Python of this process for the workers on this machine, if the user has not selected one."""
    selected = os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python")
    if selected is None and str(context.master).startswith("local"):
        context.pythonExec = sys.executable
