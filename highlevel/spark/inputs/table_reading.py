"""Inputs with a schema, such as Parquet files, on Spark: an index for the planner, and the tasks that read them.

    planner    reads the time columns once     ──► first row, bounds and watermark of each batch
    task       reads the rows of some batches  ──► one arrival for each batch, with the watermark after it

The batches are the same as in the inline engine (`highlevel.inline.table_files`), and operators process them in the
order of the watermarks before them. So the same rows are late on all engines. The stream engine divides an input
between batches, and a task begins at the first row of its batches. The batch engine reads an input in one task.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa

from capture import arrow_compute as pc
from capture.errors import InputError
from capture.files.blocks import Block, Index
from capture.files.read_ahead import CHUNK_BYTES
from capture.lazy_dataclasses import dataclass
from capture.metrics import Samples
from highlevel.inline.table_files import FileStream, Position
from highlevel.inline.tables import rows_of_leaf
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.reading import ArrivalRow, LeafOutput, TaskOutput, leaf_rows, make_batch, pack_output
from lowlevel.punctuation import BEGINNING, END


@dataclass(frozen=True)
class TableRange:
    """A range of batches of one input, with everything that the task needs to read it.

    `first_batch` is the number of the first batch, `start` the position of its first row, and `batch_count` the number
    of batches of the whole input. `rows` is the number of rows in the range. `newest` contains the largest value of
    each time column before the first batch, in ns.
    """

    input_number: int
    first_batch: int
    end_batch: int
    batch_count: int
    rows: int
    start: Position
    newest: Mapping[str, int]


@dataclass(frozen=True)
class IndexedTable:
    """What the planner knows about the batches of an input: their index, first rows, and newest times.

    The watermarks of `index` are those of the first time column. They let inputs advance together.
    """

    index: Index
    starts: list[Position]
    newest: list[dict[str, int]]

    def ranges(self, input_number: int, start: int, end: int, task_count: int) -> Iterator[TableRange]:
        """Divide the batches from `start` to `end` into at most `task_count` ranges."""
        count = len(self.starts)
        bounds = sorted({start + (end - start) * task // task_count for task in range(task_count + 1)})
        for first, last in itertools.pairwise(bounds):
            rows = sum(block.records for block in self.index.blocks[first:last])
            yield TableRange(input_number, first, last, count, rows, self.starts[first], self.newest[first])


def index_table(stream: FileStream) -> IndexedTable:
    """Read the time columns of an input, and return its index."""
    starts: list[Position] = []
    newest: list[dict[str, int]] = []
    blocks: list[Block] = []
    so_far = dict.fromkeys(stream.times, BEGINNING)
    time = next(iter(stream.times), "")
    band = stream.slack_of(time)
    for number, summary in enumerate(stream.summaries()):
        starts.append(summary.position)
        newest.append(dict(so_far))
        so_far = {name: max(so_far[name], largest) for name, (_, largest) in summary.bounds.items()}
        smallest, largest = summary.bounds.get(time, (0, 0))
        watermark = BEGINNING if band is None else so_far[time] - band
        blocks.append(Block(number, number + 1, summary.rows, smallest, largest, watermark))
    if not blocks:  # an empty input has one batch without rows, whose watermark is END
        starts, newest, blocks = [Position()], [so_far], [Block(0, 1, 0, 0, 0, END)]
    blocks[-1] = replace(blocks[-1], watermark=END)
    return IndexedTable(Index(blocks, None, is_exact=False), starts, newest)


def read_table_range(assignment: InputAssignment, table_range: TableRange) -> Iterator[pa.RecordBatch]:
    """Run one task of the stream engine: yield the rows of each batch, then the counters.

    Raises InputError if the range has another number of rows than when it was indexed, because a file has changed.
    """
    stream = _stream_of(assignment, table_range.input_number)
    newest = dict(table_range.newest)
    batch_count = table_range.end_batch - table_range.first_batch
    batches = itertools.islice(stream.rows(table_range.start), batch_count)
    row_count = bytes_ = 0
    for number, (_, rows, _) in enumerate(batches, table_range.first_batch):
        row_count, bytes_ = row_count + rows.num_rows, bytes_ + rows.nbytes
        yield make_batch(make_arrivals(assignment, table_range.input_number, number, rows, newest))
    if row_count != table_range.rows:
        raise InputError(
            f"{', '.join(map(str, stream.paths))}: a file changed during the run: got {row_count:,} rows from batch "
            f"{table_range.first_batch} on, expected {table_range.rows:,}"
        )
    is_last = table_range.end_batch == table_range.batch_count
    readers = assignment.readers(table_range.input_number)
    time = newest.get(next(iter(stream.times), ""), BEGINNING)
    output = TaskOutput(
        input_number=table_range.input_number,
        sequence=table_range.end_batch,
        leaf_outputs={reader: LeafOutput(END if is_last else BEGINNING, []) for reader in readers},
        samples=Samples(),
        newest_time=None if time == BEGINNING else time,
        position=table_range.end_batch,
        input_size=table_range.batch_count,
        partial_bytes=bytes_,
    )
    yield pack_output(assignment, output)


def read_table(assignment: InputAssignment, input_number: int) -> Iterator[list[ArrivalRow]]:
    """Yield the rows of all batches of an input, and then its end, for the batch engine."""
    stream = _stream_of(assignment, input_number)
    newest = dict.fromkeys(stream.times, BEGINNING)
    count = 0
    for count, (_, rows, _) in enumerate(stream.rows(), 1):
        yield make_arrivals(assignment, input_number, count - 1, rows, newest)
    end = LeafOutput(END, [])
    for reader in assignment.readers(input_number):
        yield [*leaf_rows(assignment, reader, input_number, count, end)]


def digest_table(stream: FileStream) -> str:
    """Return a digest of the files of an input, and of its columns, because they decide how the files are read."""
    digest = hashlib.blake2b(repr(stream.declared_columns).encode(), digest_size=16)
    for path in stream.paths:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
        digest.update(f"{path.name} {path.stat().st_size}".encode())
    return f"{stream.size} bytes, {digest.hexdigest()}"


def make_arrivals(
    assignment: InputAssignment, input_number: int, number: int, rows: pa.RecordBatch, newest: dict[str, int]
) -> list[ArrivalRow]:
    """Return the rows of batch `number` for each leaf, with their watermark.

    Update `newest` with the times of the batch.
    """
    stream = _stream_of(assignment, input_number)
    for time in newest:
        newest[time] = max(newest[time], pc.max(rows[time]).as_py())
    arrivals: list[ArrivalRow] = []
    for reader in assignment.readers(input_number):
        leaf = assignment.leaf(reader)
        band = stream.slack_of(leaf.streams[1])
        watermark = BEGINNING if band is None else newest[leaf.streams[1]] - band
        arrivals += leaf_rows(
            assignment, reader, input_number, number, LeafOutput(watermark, [rows_of_leaf(leaf, rows)])
        )
    return arrivals


def _stream_of(assignment: InputAssignment, input_number: int) -> FileStream:
    stream = assignment.inputs[input_number].rows
    assert stream is not None, "the input has a schema"
    return stream
