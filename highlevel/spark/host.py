"""Operators in Spark's tasks: one operator partition of every query, one micro-batch at a time.

The task of a partition takes the state of the micro-batch before, feeds the operators, saves their state under this
micro-batch's id and hands back the results. Rows of all ports go in first, then the promises of all ports: windows
close once per micro-batch, and what closed is the difference between the open windows before and after.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from highlevel.pipeline import Pipeline
from highlevel.spark.feeds import Feeds
from highlevel.spark.packing import pack, unpack
from highlevel.spark.reading import COUNTERS
from highlevel.spark.state import PartState
from highlevel.wid_ranges import Ranges
from highlevel.window_operator import beyond_cap
from lowlevel.punctuation import BEGINNING, Punctuation

SPARK_SCHEMA = "part int, query int, payload binary"
ARROW_SCHEMA = pa.schema({"part": pa.int32(), "query": pa.int32(), "payload": pa.binary()})


@dataclass(frozen=True)
class Arrival:
    """One row of the source for one port of one query."""

    query: int
    port: int
    sequence: int
    low: int
    payload: pa.Scalar


@dataclass(frozen=True)
class Host:
    """The function of the tasks of micro-batch `batch_id`; picklable. State lies below `state`."""

    feeds: Feeds
    state: Path
    batch_id: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take the rows of the partitions of one task; yield (part, query, payload), packed results and counters."""
        arrivals: dict[int, list[Arrival]] = {}
        out: list[tuple[int, int, Any]] = []
        for batch in batches:
            columns = (batch.column(name).to_pylist() for name in ("part", "query", "port", "sequence", "low"))
            for part, query, port, sequence, low, payload in zip(*columns, batch.column("payload"), strict=True):
                if part == COUNTERS:
                    out.append((COUNTERS, COUNTERS, payload.as_py()))
                    continue
                mine = arrivals.setdefault(part, [])
                if query != COUNTERS:
                    mine.append(Arrival(query, port, sequence, low, payload))
        for part in sorted(arrivals):
            out += self._run(part, arrivals[part])
        parts, queries, payloads = zip(*out, strict=True) if out else ((), (), ())
        yield pa.RecordBatch.from_arrays(
            [pa.array(parts, pa.int32()), pa.array(queries, pa.int32()), pa.array(payloads, pa.binary())],
            schema=ARROW_SCHEMA,
        )

    def _run(self, part: int, arrivals: list[Arrival]) -> Iterator[tuple[int, int, bytes]]:
        plans = self.feeds.plans
        state = PartState(self.state, part)
        snapshots = []
        told = []
        arrivals.sort(key=lambda each: (each.query, each.port, each.sequence))
        for query, tables in enumerate(state.load(self.batch_id - 1, len(plans))):
            pipeline = Pipeline(plans[query], self.feeds.links(query))
            pipeline.restore(tables)
            mine = [each for each in arrivals if each.query == query]
            results = feed(pipeline, mine)
            closed = results.closed
            if results.batches:
                yield part, query, pack(pa.Table.from_batches(results.batches))
            told.append(counters(pipeline, query, closed))
            snapshots.append(pipeline.snapshot())
        state.save(self.batch_id, snapshots)
        yield part, COUNTERS, json.dumps(told).encode()


@dataclass(frozen=True)
class Results:
    """What left an operator in one micro-batch: rows, and the windows that became final."""

    batches: list[pa.RecordBatch]
    closed: Ranges | int


def feed(pipeline: Pipeline, arrivals: list[Arrival]) -> Results:
    """Give a pipeline the rows of all ports, then the promises of all ports."""
    left: list[Any] = []
    for each in arrivals:
        if each.payload.is_valid:
            for batch in unpack(each.payload.as_buffer()).to_batches():
                left += pipeline.rows(each.port, batch)
    for each in arrivals:
        if each.low != BEGINNING:
            left += pipeline.punctuate(each.port, Punctuation(pipeline.links[each.port], each.low))
    return Results([item for item in left if isinstance(item, pa.RecordBatch)], pipeline.windows.take_closed())


def counters(pipeline: Pipeline, query: int, closed: Ranges | int) -> dict[str, Any]:
    """What happened in this micro-batch and partition; `bounds` and `open` are as they stand after it."""
    return {
        "query": query,
        "received": pipeline.windows.received,
        "outside": pipeline.windows.outside,
        "late": pipeline.windows.late,
        "late_rows": pipeline.windows.late_rows,
        "beyond_cap": beyond_cap(pipeline.windows),
        "results": pipeline.finish.results,
        "closed": closed,
        "open": pipeline.windows.open_windows(),
        "bytes": pipeline.windows.bytes,
        "bounds": pipeline.meld.bounds,
    }
