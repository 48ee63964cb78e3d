"""Plans over a finite input in Spark's tasks: one level of fragments, which receives all rows and then the end.

    byte ranges ──► level 0 ──► level 1 ──► …        each edge: rows repartitioned, packed

All rows are present at once, so no watermark is sent between levels: every partition ends with its task. Until then a
fragment stores the finite state of its operators; a join stores both of its sides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from highlevel.spark.counters import counts_of
from highlevel.spark.feeds import InputAssignment
from highlevel.spark.fragment_task import Arrival, FragmentTask
from highlevel.spark.packing import pack
from highlevel.spark.reading import COUNTERS, ArrivalRow, batch_of
from highlevel.spark.reading import SPARK_SCHEMA as BETWEEN_LEVELS
from lowlevel.punctuation import BEGINNING

PACKED = "part int, payload binary"
"""Schema of the last stage: packed rows of a partition, and for part COUNTERS the counters as JSON."""


def counters_of(counters: Sequence[bytes]) -> pa.RecordBatch:
    """Return counters, possibly none, as a batch of PACKED."""
    parts = pa.array([COUNTERS] * len(counters), pa.int32())
    return pa.RecordBatch.from_arrays([parts, pa.array(counters, pa.binary())], ["part", "payload"])


@dataclass(frozen=True)
class FiniteHost:
    """Task function of one level, for the one query of `feeds`. Picklable.

    The last level yields PACKED rows. Other levels yield rows for the next level. With `measure` its counters contain
    `measured`: the figures of nodes.
    """

    feeds: InputAssignment
    level: int
    measure: bool = False

    @property
    def last(self) -> bool:
        """Return True if the level yields results."""
        return self.level == self.feeds.levels - 1

    @property
    def schema(self) -> str:
        """The output schema in Spark's notation."""
        return PACKED if self.last else BETWEEN_LEVELS

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Process all rows of some partitions, then the end of the input."""
        arrivals: dict[int, list[Arrival]] = {}
        counts: list[bytes] = []
        passed_on: list[ArrivalRow] = []
        for batch in batches:
            columns = (batch.column(name).to_pylist() for name in ("part", "query", "port", "sequence"))
            for part, query, port, sequence, payload in zip(*columns, batch.column("payload"), strict=True):
                if part == COUNTERS:
                    counts.append(payload.as_py())
                    continue
                arrivals.setdefault(part, []).append(Arrival(query, port, sequence, BEGINNING, BEGINNING, payload))
                if self.feeds.fragments[query].last_level(self.feeds.ports[query][port].source) > self.level:
                    passed_on.append((part, query, port, sequence, BEGINNING, BEGINNING, payload.as_py()))
        for part, mine in sorted(arrivals.items()):
            mine.sort(key=lambda each: (each.port, each.sequence))
            for task in self._fragments(part):
                output = task.finish(mine)
                counters = counts_of(task, output)
                if self.measure:
                    counters["measured"] = task.measurements()
                counts.append(json.dumps(counters).encode())
                if not task.last:
                    passed_on += [row for row in task.repartitioned(output, 0) if row[-1] is not None]
                elif output.batches:
                    payloads = pa.array([pack(pa.Table.from_batches(output.batches))], pa.binary())
                    yield pa.RecordBatch.from_arrays([pa.array([part], pa.int32()), payloads], ["part", "payload"])
        if not self.last:
            yield batch_of([*passed_on, *((COUNTERS, COUNTERS, 0, 0, BEGINNING, BEGINNING, each) for each in counts)])
        else:
            yield counters_of(counts)

    def _fragments(self, part: int) -> list[FragmentTask]:
        levels = self.feeds.fragments[0].levels
        return [
            FragmentTask(self.feeds, 0, number, part, finite=True, measure=self.measure)
            for number, level in enumerate(levels)
            if level == self.level
        ]
