"""Run operators in Spark's tasks: a task runs some partitions of every query for one micro-batch.

For each partition the task loads the state after the previous micro-batch, runs the operators, saves their state under
the ID of this micro-batch, and returns the results. The rows of all ports are processed before the watermarks of all
ports. So windows close once per micro-batch.

If a query has several fragments (`highlevel.plan.fragments`), it runs level by level. The output of each fragment
except the last one is repartitioned, and the tasks of the next level process it. Its schema is that of the source's
rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field
from pathlib import Path

import pyarrow as pa

from capture.lazy_dataclasses import dataclass
from highlevel.spark.cluster.python_worker import run_task
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.reading import COUNTERS, ArrivalRow, make_batch
from highlevel.spark.inputs.reading import SPARK_SCHEMA as BETWEEN_LEVELS
from highlevel.spark.remote.task_files import TaskFiles
from highlevel.spark.run_folder.staged_results import ResultWriter, encode_written
from highlevel.spark.run_folder.state import PartitionState, level_path
from highlevel.spark.tasks.counters import collect_counts
from highlevel.spark.tasks.fragment_task import Arrival, FragmentTask
from highlevel.spark.tasks.packing import pack
from lowlevel.punctuation import BEGINNING

SPARK_SCHEMA = "part int, query int, payload binary"
ARROW_SCHEMA = pa.schema({"part": pa.int32(), "query": pa.int32(), "payload": pa.binary()})

STORED_STATE = -3
"""Query number of the entries of state that a partition has stored as objects (`highlevel.spark.remote.task_files`)."""

RESULTS = -2
"""Port number of rows that are already results before the last level."""

ARRIVAL_COLUMNS = ("part", "query", "port", "sequence", "low", "second")


def make_result_batch(rows: Sequence[ArrivalRow]) -> pa.RecordBatch:
    """Return the output of the last level, results and counters, as a batch of ARROW_SCHEMA. It may be empty."""
    columns = zip(*((part, query, payload) for part, query, *_, payload in rows), strict=True) if rows else ((), (), ())
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, ARROW_SCHEMA, strict=True)], schema=ARROW_SCHEMA
    )


@dataclass(frozen=True)
class LevelTask:
    """The function of the tasks of micro-batch `batch_id` at one level. Picklable. The state is in the folder `state`.

    `ended_inputs` are the IDs of the inputs that earlier micro-batches have read to their ends. These inputs send no
    more watermarks, so this function sends their last watermark to queries that begin with this micro-batch.
    `newest_times`: the newest times of DataFrames, and of topics for partitions that have no more rows
    (`highlevel.spark.inputs.topic_reading`). With `measure` the counters also contain `measured`: the figures of each
    plan node. `writer` writes the results of partitions with many rows. `files`: the objects with the state; None if
    the task sees the folder `state`.
    """

    assignment: InputAssignment
    state: Path
    batch_id: int
    level: int = 0
    ended_inputs: frozenset[int] = frozenset()
    newest_times: Mapping[int, int] = field(default_factory=dict)
    measure: bool = False
    writer: ResultWriter | None = None
    files: TaskFiles | None = None

    @property
    def schema(self) -> str:
        """Output schema in Spark's notation."""
        return SPARK_SCHEMA if self._is_last else BETWEEN_LEVELS

    @property
    def _is_last(self) -> bool:
        return self.level == self.assignment.levels - 1

    @property
    def _level_path(self) -> str:
        """The path of the state of this level in the folder of the run."""
        return level_path(self.state.name, self.level)

    def _open_state(self, part: int) -> AbstractContextManager[Path]:
        """Return a context with the folder of the state of this level."""
        if self.files is None:
            return nullcontext(self.state.parent / self._level_path)
        return self.files.open_state(self._level_path, part)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Process the rows of the partitions of one task.

        Yield rows (part, query, payload) with packed results and counters; before the last level also repartitioned
        rows.
        """
        return run_task(self._process(batches))

    def _process(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrivals: dict[int, list[Arrival]] = {}
        output_rows: list[ArrivalRow] = []
        for batch in batches:
            columns = (batch.column(name).to_pylist() for name in ARRIVAL_COLUMNS)
            for row in zip(*columns, batch.column("payload"), strict=True):
                part, query, port, sequence, low, second, payload = row
                is_passed_on = part == COUNTERS or port == RESULTS
                if part != COUNTERS:
                    part_arrivals = arrivals.setdefault(part, [])
                    if query != COUNTERS and port != RESULTS:
                        part_arrivals.append(Arrival(query, port, sequence, low, second, payload))
                        is_passed_on = self._last_level_of(query, port) > self.level
                if is_passed_on:
                    output_rows.append((part, query, port, sequence, low, second, payload.as_py()))
        for part in sorted(arrivals):
            with self._open_state(part) as folder:
                output_rows += self._run_fragments(folder, part, arrivals[part])
        yield make_result_batch(output_rows) if self._is_last else make_batch(output_rows)

    def _begins(self, query: int) -> bool:
        """Return True if the query has no state before this micro-batch."""
        return self.assignment.first_batches[query] >= self.batch_id

    def _last_level_of(self, query: int, port: int) -> int:
        """Return the highest level that reads the rows of a port."""
        return self.assignment.fragments[query].last_level(self.assignment.ports[query][port].source)

    def _run_fragments(self, folder: Path, part: int, arrivals: list[Arrival]) -> Iterator[ArrivalRow]:
        state = PartitionState(folder, part)
        snapshots = {}
        counts = []
        arrivals.sort(key=lambda arrival_: (arrival_.query, arrival_.port, arrival_.sequence))
        query_fragments = [
            FragmentTask(self.assignment, query, fragment_number, part, measure=self.measure)
            for query, query_fragments in enumerate(self.assignment.fragments)
            for fragment_number, level in enumerate(query_fragments.levels)
            if level == self.level
        ]
        is_new = {task.state_key: self._begins(task.query) for task in query_fragments}
        stored_tables = state.load(self.batch_id - 1, is_new)
        for task in query_fragments:
            task.pipeline.restore(stored_tables[task.state_key])
            query_arrivals = [arrival for arrival in arrivals if arrival.query == task.query]
            if self._begins(task.query):
                query_arrivals += task.ends_of(self.ended_inputs)
            output = task.feed([*query_arrivals, *task.watermarks_from(self.newest_times)])
            counts.append(collect_counts(task, output))
            if self.measure:
                counts[-1]["measured"] = task.measurements()
            if not task.is_last:
                yield from task.repartition(output, self.batch_id)
            elif output.batches:
                rows = pa.Table.from_batches(output.batches)
                if self.writer is not None:
                    rows, rest, files = self.writer.write(task.fragments.plan, part, rows)
                    if files:
                        counts[-1]["written"] = encode_written(part, files, rest)
                payload = pack(rows)
                yield part, task.query, RESULTS, 0, BEGINNING, BEGINNING, payload
            snapshots[task.state_key] = task.pipeline.snapshot()
        state.save(self.batch_id, snapshots)
        if self.files is not None:
            stored = json.dumps(self.files.store_state(folder, self._level_path, part)).encode()
            yield part, STORED_STATE, RESULTS, 0, BEGINNING, BEGINNING, stored
        yield part, COUNTERS, RESULTS, 0, BEGINNING, BEGINNING, json.dumps(counts).encode()
