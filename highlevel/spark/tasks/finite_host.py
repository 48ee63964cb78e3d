"""Run the parts of plans (fragments) over finite inputs, in Spark's tasks.

A task runs the fragments of one level: each fragment receives all its rows, and then the end of the input.

    byte ranges ──► level 0 ──► level 1 ──► …        each edge: rows repartitioned, packed

All rows of a partition are present when its task begins, so no watermarks are sent between levels. Until the end of the
input a fragment stores everything that its operators need; a join stores both of its sides. Only queries with REMEMBER
receive the watermarks of their links, because these watermarks decide which rows are late.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pyarrow as pa

from capture.lazy_dataclasses import dataclass
from highlevel.spark.cluster.python_worker import run_task
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.reading import COUNTERS, ArrivalRow, make_batch
from highlevel.spark.inputs.reading import SPARK_SCHEMA as BETWEEN_LEVELS
from highlevel.spark.tasks.counters import collect_counts
from highlevel.spark.tasks.fragment_task import Arrival, FragmentTask
from highlevel.spark.tasks.host import ARRIVAL_COLUMNS, RESULTS, SPARK_SCHEMA, make_result_batch
from highlevel.spark.tasks.packing import pack
from lowlevel.punctuation import BEGINNING


@dataclass(frozen=True)
class FiniteLevelTask:
    """The function of the tasks of one level, for all queries of `assignment`. Picklable.

    The last level yields packed results and counters (`spark.tasks.host`). Other levels yield rows for the next
    level, and pass on results and counters of earlier levels. With `measure` the counters also contain `measured`: the
    figures of each plan node.
    """

    assignment: InputAssignment
    level: int
    measure: bool = False

    @property
    def is_last(self) -> bool:
        """Return True if no level follows."""
        return self.level == self.assignment.levels - 1

    @property
    def schema(self) -> str:
        """The output schema in Spark's notation."""
        return SPARK_SCHEMA if self.is_last else BETWEEN_LEVELS

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Process all rows of some partitions, then the end of the input."""
        return run_task(self._process(batches))

    def _process(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrivals: dict[int, dict[int, list[Arrival]]] = {}  # keys: partition, query
        output_rows: list[ArrivalRow] = []
        for batch in batches:
            columns = (batch.column(name).to_pylist() for name in ARRIVAL_COLUMNS)
            for row in zip(*columns, batch.column("payload"), strict=True):
                part, query, port, sequence, low, _, payload = row
                is_passed_on = query == COUNTERS or port == RESULTS
                if not is_passed_on:
                    arrival = Arrival(query, port, sequence, low, BEGINNING, payload)
                    arrivals.setdefault(part, {}).setdefault(query, []).append(arrival)
                    source = self.assignment.ports[query][port].source
                    is_passed_on = self.assignment.fragments[query].last_level(source) > self.level
                if is_passed_on:
                    output_rows.append((*row[:-1], payload.as_py()))
        yield self._make_batch(output_rows)
        for part in sorted(arrivals):
            for fragment_rows in self._run_fragments(part, arrivals.pop(part)):
                yield self._make_batch(fragment_rows)

    def _run_fragments(self, part: int, arrivals: dict[int, list[Arrival]]) -> Iterator[list[ArrivalRow]]:
        """Run the fragments of this level in one partition. Yield the output of each, and then their counters."""
        counts = []
        for query, fragments in enumerate(self.assignment.fragments):
            query_arrivals = sorted(arrivals.pop(query, ()), key=lambda arrival: (arrival.port, arrival.sequence))
            for fragment_number, level in enumerate(fragments.levels):
                if level != self.level:
                    continue
                task = FragmentTask(self.assignment, query, fragment_number, part, is_finite=True, measure=self.measure)
                output = task.finish(query_arrivals)
                task_counts = collect_counts(task, output)
                if self.measure:
                    task_counts["measured"] = task.measurements()
                counts.append(task_counts)
                if not task.is_last:
                    yield [row for row in task.repartition(output, 0) if row[-1] is not None]
                elif output.batches:
                    payload = pack(pa.Table.from_batches(output.batches))
                    yield [(part, query, RESULTS, 0, BEGINNING, BEGINNING, payload)]
        yield [(part, COUNTERS, RESULTS, 0, BEGINNING, BEGINNING, json.dumps(counts).encode())]

    def _make_batch(self, rows: Sequence[ArrivalRow]) -> pa.RecordBatch:
        """Return rows as a batch of the output schema."""
        return make_result_batch(rows) if self.is_last else make_batch(rows)
