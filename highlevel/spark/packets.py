"""The stream `packets` as a Spark DataFrame: every packet a row, for questions the query language has no words for.

It is read in byte ranges, in parallel and lazily, and costs what a row of Spark costs: some hundred times more per
packet than a query that reduces packets next to the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from capture.files.blocks import BLOCK_RECORDS
from capture.files.capture import allow_open_files, open_mapped
from capture.packets.columns import COLUMNS
from highlevel.inline import Input
from highlevel.spark.byte_ranges import RangeTask, exact_tasks
from highlevel.spark.compiled import compile_kernels
from lowlevel.packet_batches import row_batch
from lowlevel.readers import make_reader

SPARK_TYPES = {"integer": "bigint", "address": "binary", "text": "string"}


@dataclass(frozen=True)
class PacketReader:
    """The function of the tasks; picklable. Row n of the DataFrame it maps over stands for task n."""

    inputs: tuple[Input, ...]
    sizes: tuple[int, ...]
    tasks: tuple[RangeTask, ...]
    columns: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the packets of the tasks, a block at a time."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._read(self.tasks[number])

    def _read(self, task: RangeTask) -> Iterator[pa.RecordBatch]:
        file = task.open(self.inputs[task.number].path, self.sizes[task.number])
        columns = {"ts", *self.columns}
        reader = make_reader("packets", self.inputs[task.number].link, file, columns, BLOCK_RECORDS)
        for block in task.scan(file) or ():
            for rows in reader.read(block):
                yield row_batch(rows, self.columns)


def packets_dataframe(
    spark: SparkSession, inputs: Sequence[Input], columns: Sequence[str] = tuple(COLUMNS)
) -> DataFrame:
    """Return the packets of all inputs as a lazy DataFrame of `columns` (names of the catalogue, spelled as there).

    Integers are bigint (`ts` in ns), addresses binary of 4 or 16 bytes in network order; what a packet lacks is NULL.
    Raises InputError for an input, ValueError for a column that does not exist.
    """
    unknown = [name for name in columns if name not in COLUMNS]
    if unknown:
        raise ValueError(f"packets have no column {', '.join(unknown)}; they have {', '.join(COLUMNS)}")
    compile_kernels()
    placed = tuple(Input(each.link, Path(each.path).absolute(), each.stream) for each in inputs)
    allow_open_files(len(placed))
    files = [open_mapped(each.path, "the batch engine") for each in placed]
    tasks = exact_tasks(files, spark.sparkContext.defaultParallelism)
    schema = ", ".join(f"`{name}` {SPARK_TYPES[COLUMNS[name].type]}" for name in columns)
    reader = PacketReader(placed, tuple(len(file.data) for file in files), tuple(tasks), tuple(columns))
    return spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(reader, schema)
