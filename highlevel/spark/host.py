"""Operators in Spark's tasks: one operator partition of every query, one micro-batch at a time.

The task of a partition loads the state of the previous micro-batch and runs the operators. It saves their state under
the ID of this micro-batch and returns the results. Rows of all ports are processed first, then the watermarks of all
ports. So windows close once per micro-batch.

A query in several fragments (`highlevel.plan.fragments`) runs level by level. The output of all fragments except the
last is repartitioned and processed by the tasks of the next level. It has the form of the source's rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from highlevel.spark.counters import counts_of
from highlevel.spark.feeds import InputAssignment
from highlevel.spark.fragment_task import Arrival, FragmentTask
from highlevel.spark.packing import pack
from highlevel.spark.reading import COUNTERS, ArrivalRow, batch_of
from highlevel.spark.reading import SPARK_SCHEMA as BETWEEN_LEVELS
from highlevel.spark.state import PartState
from lowlevel.punctuation import BEGINNING

SPARK_SCHEMA = "part int, query int, payload binary"
ARROW_SCHEMA = pa.schema({"part": pa.int32(), "query": pa.int32(), "payload": pa.binary()})

RESULTS = -2
"""Port number of rows that are results before the last level."""

ARRIVAL_COLUMNS = ("part", "query", "port", "sequence", "low", "second")


@dataclass(frozen=True)
class Host:
    """Task function of micro-batch `batch_id` at one level. Picklable. The state is in the folder `state`."""

    feeds: InputAssignment
    state: Path
    batch_id: int
    level: int = 0

    @property
    def schema(self) -> str:
        """Output schema in Spark's notation."""
        return SPARK_SCHEMA if self._last else BETWEEN_LEVELS

    @property
    def _last(self) -> bool:
        return self.level == self.feeds.levels - 1

    @property
    def _folder(self) -> Path:
        return self.state if self.level == 0 else self.state / f"level {self.level}"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Process the rows of the partitions of one task.

        Yield (part, query, payload): packed results and counters; before the last level also repartitioned rows.
        """
        arrivals: dict[int, list[Arrival]] = {}
        out: list[ArrivalRow] = []
        for batch in batches:
            columns = (batch.column(name).to_pylist() for name in ARRIVAL_COLUMNS)
            for row in zip(*columns, batch.column("payload"), strict=True):
                part, query, port, sequence, low, second, payload = row
                passed_on = part == COUNTERS or port == RESULTS
                if part != COUNTERS:
                    mine = arrivals.setdefault(part, [])
                    if query != COUNTERS and port != RESULTS:
                        mine.append(Arrival(query, port, sequence, low, second, payload))
                        passed_on = self._needed(query, port) > self.level
                if passed_on:
                    out.append((part, query, port, sequence, low, second, payload.as_py()))
        for part in sorted(arrivals):
            out += self._run(part, arrivals[part])
        if not self._last:
            yield batch_of(out)
            return
        found: list[tuple[Any, ...]] = [(part, query, payload) for part, query, *_, payload in out]
        parts, queries, payloads = zip(*found, strict=True) if found else ((), (), ())
        yield pa.RecordBatch.from_arrays(
            [pa.array(parts, pa.int32()), pa.array(queries, pa.int32()), pa.array(payloads, pa.binary())],
            schema=ARROW_SCHEMA,
        )

    def _needed(self, query: int, port: int) -> int:
        """Return the highest level that reads the rows of a port."""
        return self.feeds.fragments[query].last_level(self.feeds.ports[query][port].source)

    def _run(self, part: int, arrivals: list[Arrival]) -> Iterator[ArrivalRow]:
        state = PartState(self._folder, part)
        snapshots = []
        counts = []
        arrivals.sort(key=lambda each: (each.query, each.port, each.sequence))
        fragments = [
            FragmentTask(self.feeds, query, number, part)
            for query, fragments in enumerate(self.feeds.fragments)
            for number, level in enumerate(fragments.levels)
            if level == self.level
        ]
        for task, tables in zip(fragments, state.load(self.batch_id - 1, len(fragments)), strict=True):
            task.pipeline.restore(tables)
            output = task.feed([arrival for arrival in arrivals if arrival.query == task.query])
            counts.append(counts_of(task, output))
            if not task.last:
                yield from task.repartitioned(output, self.batch_id)
            elif output.batches:
                payload = pack(pa.Table.from_batches(output.batches))
                yield part, task.query, RESULTS, 0, BEGINNING, BEGINNING, payload
            snapshots.append(task.pipeline.snapshot())
        state.save(self.batch_id, snapshots)
        yield part, COUNTERS, RESULTS, 0, BEGINNING, BEGINNING, json.dumps(counts).encode()
