"""Plans over a finite input in Spark's tasks: one level of fragments, which receives all rows and then the end.

    byte ranges ──► level 0 ──► level 1 ──► …        each edge: rows repartitioned, packed

All rows are present at once, so no watermark is sent between levels: every partition ends with its task. Until then a
fragment stores the finite state of its operators; a join stores both of its sides. Only queries with REMEMBER receive
the watermarks of their links, because these watermarks decide which rows are late.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pyarrow as pa

from capture.lazy_dataclasses import dataclass
from highlevel.spark.counters import collect_counts
from highlevel.spark.fragment_task import Arrival, FragmentTask
from highlevel.spark.input_assignment import InputAssignment
from highlevel.spark.packing import pack
from highlevel.spark.reading import COUNTERS, ArrivalRow, make_batch
from highlevel.spark.reading import SPARK_SCHEMA as BETWEEN_LEVELS
from lowlevel.punctuation import BEGINNING

PACKED = "part int, payload binary"
"""Schema of the last stage: packed rows of a partition, and for part COUNTERS the counters as JSON."""


def make_counter_batch(counters: Sequence[bytes]) -> pa.RecordBatch:
    """Return counters, possibly none, as a batch of PACKED."""
    parts = pa.array([COUNTERS] * len(counters), pa.int32())
    return pa.RecordBatch.from_arrays([parts, pa.array(counters, pa.binary())], ["part", "payload"])


@dataclass(frozen=True)
class FiniteHost:
    """Task function of one level, for the one query of `assignment`. Picklable.

    The last level yields PACKED rows. Other levels yield rows for the next level. With `measure` its counters contain
    `measured`: the figures of nodes.
    """

    assignment: InputAssignment
    level: int
    measure: bool = False

    @property
    def is_last(self) -> bool:
        """Return True if the level yields results."""
        return self.level == self.assignment.levels - 1

    @property
    def schema(self) -> str:
        """The output schema in Spark's notation."""
        return PACKED if self.is_last else BETWEEN_LEVELS

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Process all rows of some partitions, then the end of the input."""
        arrivals: dict[int, list[Arrival]] = {}
        counts: list[bytes] = []
        output_rows: list[ArrivalRow] = []
        for batch in batches:
            columns = (batch.column(name).to_pylist() for name in ("part", "query", "port", "sequence", "low"))
            for part, query, port, sequence, low, payload in zip(*columns, batch.column("payload"), strict=True):
                if part == COUNTERS:
                    counts.append(payload.as_py())
                    continue
                arrivals.setdefault(part, []).append(Arrival(query, port, sequence, low, BEGINNING, payload))
                if self.assignment.fragments[query].last_level(self.assignment.ports[query][port].source) > self.level:
                    output_rows.append((part, query, port, sequence, BEGINNING, BEGINNING, payload.as_py()))
        for part, part_arrivals in sorted(arrivals.items()):
            part_arrivals.sort(key=lambda arrival: (arrival.port, arrival.sequence))
            for task in self._make_fragment_tasks(part):
                output = task.finish(part_arrivals)
                task_counts = collect_counts(task, output)
                if self.measure:
                    task_counts["measured"] = task.measurements()
                counts.append(json.dumps(task_counts).encode())
                if not task.is_last:
                    output_rows += [row for row in task.repartition(output, 0) if row[-1] is not None]
                elif output.batches:
                    payloads = pa.array([pack(pa.Table.from_batches(output.batches))], pa.binary())
                    yield pa.RecordBatch.from_arrays([pa.array([part], pa.int32()), payloads], ["part", "payload"])
        if not self.is_last:
            yield make_batch(
                [*output_rows, *((COUNTERS, COUNTERS, 0, 0, BEGINNING, BEGINNING, arrival) for arrival in counts)]
            )
        else:
            yield make_counter_batch(counts)

    def _make_fragment_tasks(self, part: int) -> list[FragmentTask]:
        levels = self.assignment.fragments[0].levels
        return [
            FragmentTask(self.assignment, 0, fragment_number, part, is_finite=True, measure=self.measure)
            for fragment_number, level in enumerate(levels)
            if level == self.level
        ]
