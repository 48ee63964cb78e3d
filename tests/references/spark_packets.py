"""Packets and frames as a Spark DataFrame with one row each, so that SQL of Spark can answer the same questions.

The DataFrame is read in byte ranges, in parallel and lazily.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from capture.files.blocks import BLOCK_RECORDS
from capture.open import allow_open_files, open_finite
from highlevel.inline.engine import Input
from highlevel.spark.cluster.kernel_compilation import compile_kernels
from highlevel.spark.inputs.byte_ranges import Task, input_size, make_exact_tasks, open_task
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.rows.batches import named_columns, row_batch
from lowlevel.rows.readers import make_reader

KINDS = ("packets", "frames")
"""Kinds of rows that are read in parallel. Flow records depend on earlier records of their file."""


SPARK_TYPES = {
    Type.INT: "bigint",
    Type.TIME: "bigint",
    Type.FLOAT: "double",
    Type.BOOL: "boolean",
    Type.ADDRESS: "binary",
    Type.TEXT: "string",
    Type.MAC: "binary",
    Type.BYTES: "binary",
}
"""An address is 4 or 16 bytes in network order, a MAC 6."""


@dataclass(frozen=True)
class PacketReader:
    """Task function. Picklable. Row n of the mapped DataFrame is task n."""

    inputs: tuple[Input, ...]
    sizes: tuple[int, ...]
    tasks: tuple[Task, ...]
    kind: str
    columns: tuple[Column, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the packets of the tasks, a block at a time."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._read(self.tasks[number])

    def _read(self, task: Task) -> Iterator[pa.RecordBatch]:
        file, scan = open_task(task, self.inputs[task.input_number].path, self.sizes[task.input_number])
        columns = {"ts", *(column.name for column in self.columns)}
        reader = make_reader(self.kind, self.inputs[task.input_number].link, file, columns, BLOCK_RECORDS)
        for block in scan or ():
            for rows in reader.read(block):
                yield row_batch(rows, self.columns)


def packets_dataframe(
    spark: SparkSession, inputs: Sequence[Input], columns: Iterable[str] | None = None, kind: str = "packets"
) -> DataFrame:
    """Return the packets (or frames) of all inputs as a lazy DataFrame of `columns` (docs/guide/columns.md).

    Integers are bigint (`ts` in ns), addresses binary of 4 or 16 bytes in network order, MACs of 6 bytes, payloads
    binary. Missing values are NULL. Raise InputError for an invalid input, ValueError for an unknown column or kind.
    """
    if kind not in KINDS:
        raise ValueError(f"got rows of the kind {kind}, expected {' or '.join(KINDS)}: others are read in order")
    wanted = tuple(named_columns(kind, columns))
    compile_kernels()
    allow_open_files(len(inputs))
    files = [open_finite(each.path, "the batch engine") for each in inputs]
    placed = tuple(replace(each, path=Path(each.path).absolute()) for each in inputs)
    tasks = make_exact_tasks(files, spark.sparkContext.defaultParallelism)
    schema = ", ".join(f"`{column.name}` {SPARK_TYPES[column.type]}" for column in wanted)
    reader = PacketReader(placed, tuple(input_size(file) for file in files), tuple(tasks), kind, wanted)
    return spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(reader, schema)
