"""DataFrames of Spark as inputs of both engines; streaming DataFrames in the micro-batches of Spark.

    DataFrame ──► tasks: declared columns and types ──► packed rows ──► operators, as for other inputs

The rows of a DataFrame have no order, so the tasks send no watermarks. The batch engine processes all rows before the
end of the input, so no row is late. For streams, the schema states how much older than the newest row a row may be. The
totals contain the newest time of all micro-batches so far. The next micro-batch processes its own rows, and then the
watermark that follows from this time. So a row is late only if it is too old in comparison with the rows of earlier
micro-batches, and a repeated micro-batch has the same late rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.functions import col
from pyspark.sql.pandas.types import to_arrow_schema

from capture import arrow_compute as pc
from capture.errors import InputError
from capture.lazy_dataclasses import dataclass
from capture.metrics import Samples
from highlevel.inline.engine import Input
from highlevel.inline.table_files import FileStream
from highlevel.inline.tables import BATCH_ROWS, rows_of_leaf
from highlevel.plan.plan import Plan
from highlevel.spark.cluster.python_worker import run_task
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.reading import SPARK_SCHEMA, LeafOutput, TaskOutput, leaf_rows, make_batch, pack_output
from lowlevel.punctuation import BEGINNING


def frame_input(stream: FileStream) -> Input:
    """Return a DataFrame with the columns of `stream` as an input. Its path only names it."""
    return Input(stream.name, Path("/dataframe", stream.name), stream.name, frame=stream)


def check_frame(frame: object, stream: FileStream, *, is_streaming: bool) -> DataFrame:
    """Return a DataFrame with the declared columns only.

    Raises ValueError for another object, and InputError for a missing column, for a column of another type, for a
    stream whose schema has no watermarks, and for a schema with a key.
    """
    got = f"{type(frame).__module__}.{type(frame).__qualname__}"
    kind = "a streaming DataFrame" if is_streaming else "a DataFrame"
    if not isinstance(frame, DataFrame) or got.startswith("pyspark.sql.connect."):
        raise ValueError(f"{stream.name}: got {got}, expected {kind} of a classic session of Spark")
    if is_streaming and not frame.isStreaming:
        raise ValueError(
            f"{stream.name}: got a DataFrame that does not stream, expected one of spark.readStream; wiretide.query "
            "reads other DataFrames"
        )
    if frame.isStreaming and not is_streaming:
        raise ValueError(
            f"{stream.name}: got a streaming DataFrame, expected one that does not stream; wiretide.stream reads it"
        )
    time = next(iter(stream.times), None)
    if is_streaming and (time is None or stream.slack_of(time) is None):
        raise InputError(
            f"{stream.name}: got a schema without watermarks, expected a TIME with increasing or banded_increasing"
        )
    if stream.keys:
        raise InputError(
            f"{stream.name}: got the key {', '.join(stream.keys)}, expected a schema without the attribute key: the "
            "rows of a DataFrame are no events of Debezium"
        )
    positions = stream.find_indexes(frame.columns)
    frame = frame.select(*(col(f"`{frame.columns[position].replace('`', '``')}`") for position in positions))
    stream.check_types(to_arrow_schema(frame.schema, timezone="UTC"))
    return frame


def check_plan(plan: Plan, stream: FileStream) -> None:
    """Raise InputError for a query with windows over a time that has no watermarks."""
    for leaf in plan.leaves:
        if leaf.streams[0].lower() == stream.name.lower() and leaf.streams[1] not in ("", stream.times[0]):
            raise InputError(
                f"query {plan.name}: got {leaf.streams[1]} as the time of its windows, expected {stream.times[0]}: "
                f"only the first time of {stream.name} with an attribute has watermarks in a DataFrame"
            )


@dataclass(frozen=True)
class FrameTask:
    """The function of the tasks that read input `input_number`. Picklable. `is_finite`: for the batch engine."""

    assignment: InputAssignment
    input_number: int
    is_finite: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task for each leaf. For the stream engine, then yield the newest time.

        Raises InputError for a wrong value.
        """
        return run_task(self._read(batches))

    def _read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stream = self.assignment.inputs[self.input_number].frame
        assert stream is not None, "the input is a DataFrame"
        context = TaskContext.get()
        sequence = -1 if context is None else -1 - context.partitionId()  # the end of a finite input has 0
        newest = BEGINNING
        for table in _collect(batches):
            for _, rows, _ in replace(stream, sources=(table,)).rows():
                if not self.is_finite:
                    newest = max(newest, pc.max(rows[stream.times[0]]).as_py())
                for reader in self.assignment.readers(self.input_number):
                    leaf_output = LeafOutput(BEGINNING, [rows_of_leaf(self.assignment.leaf(reader), rows)])
                    yield make_batch([*leaf_rows(self.assignment, reader, self.input_number, sequence, leaf_output)])
        if newest != BEGINNING:
            yield pack_output(self.assignment, _make_output(self.input_number, 0, newest))


def _collect(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield tables of about BATCH_ROWS rows: Spark sends smaller batches."""
    collected: list[pa.RecordBatch] = []
    for batch in batches:
        collected.append(batch)
        if sum(each.num_rows for each in collected) >= BATCH_ROWS:
            yield pa.Table.from_batches(collected)
            collected = []
    if collected:
        yield pa.Table.from_batches(collected)


def _make_output(input_number: int, position: int, newest: int | None) -> TaskOutput:
    """Return the counters of an input without end: its size is always one more than its position."""
    return TaskOutput(
        input_number=input_number,
        sequence=position,
        leaf_outputs={},
        samples=Samples(),
        newest_time=newest,
        position=position,
        input_size=position + 1,
    )


def open_frames(frames: Mapping[str, DataFrame], assignment: InputAssignment) -> DataFrame:
    """Return the rows of all inputs as one stream with SPARK_SCHEMA. `frames`: by the links of the inputs."""
    rows = (
        frames[input_.link].mapInArrow(FrameTask(assignment, number), SPARK_SCHEMA)
        for number, input_ in enumerate(assignment.inputs)
    )
    return reduce(DataFrame.unionAll, rows)


def make_batch_end(assignment: InputAssignment, batch_id: int) -> pa.Table:
    """Return rows with the progress of all inputs after a micro-batch.

    Every partition has such a row. So it runs and saves its state, also if the micro-batch is empty.
    """
    outputs = (_make_output(number, batch_id, None) for number in range(len(assignment.inputs)))
    return pa.Table.from_batches([pack_output(assignment, output) for output in outputs])


def add_batch_end(rows: DataFrame, assignment: InputAssignment, batch_id: int) -> DataFrame:
    """Add the rows of `make_batch_end` to those of a micro-batch."""
    return rows.unionAll(rows.sparkSession.createDataFrame(make_batch_end(assignment, batch_id), SPARK_SCHEMA))
