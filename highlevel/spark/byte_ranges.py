"""What a task of the batch engine reads: a byte range of one capture, reduced to packed partials.

A range is given by two cuts, which need not be record boundaries: the task guesses the boundary at the first and walks
to the first boundary at the second, as `capture.split` explains. What it walked goes back to the driver with the
partials, and the driver proves that the walks join, or has the ranges read again from exact boundaries.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

from capture.pcap import PcapFile
from capture.scan import BLOCK_RECORDS
from capture.split import ByteRange, RangeScan, cuts, guess, split
from highlevel.inline import Input
from highlevel.plan import QueryPlan
from highlevel.spark.reading import COUNTERS, split_by_part
from lowlevel.node import Node

SPARK_SCHEMA = "part int, payload binary"
ARROW_SCHEMA = pa.schema({"part": pa.int32(), "payload": pa.binary()})

SMALLEST = 8 << 20
"""Bytes under which a range is not worth a task of its own."""


@dataclass(frozen=True)
class RangeTask:
    """Bytes `[start, cut)` of input `number`; `exact` where start is known to be a record boundary."""

    number: int
    start: int
    cut: int
    exact: bool


def guessed_tasks(files: Sequence[PcapFile], tasks: int) -> list[RangeTask]:
    """Cut the inputs into about `tasks` ranges of about the same number of bytes; at least one of each input."""
    share = max(SMALLEST, sum(len(file.data) for file in files) // tasks)
    found = []
    for number, file in enumerate(files):
        bounds = cuts(len(file.data), max(1, round(len(file.data) / share)))
        for start, cut in pairwise(bounds):
            found.append(RangeTask(number, start, cut, exact=start == bounds[0]))
    return found


def exact_tasks(files: Sequence[PcapFile], tasks: int) -> list[RangeTask]:
    """Cut the inputs at record boundaries, all of which are proved here by walking the files."""
    share = max(SMALLEST, sum(len(file.data) for file in files) // tasks)
    return [
        RangeTask(number, each.start, each.end if each.damage is None else len(file.data), exact=True)
        for number, file in enumerate(files)
        for each in split(file, max(1, round(len(file.data) / share)))
    ]


@dataclass(frozen=True)
class RangeReader:
    """The function of the tasks; picklable. Row n of the DataFrame it maps over stands for task n."""

    plan: QueryPlan
    inputs: tuple[Input, ...]
    tasks: tuple[RangeTask, ...]
    parts: int
    slots: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield (part, payload): packed partials, and for part COUNTERS what was walked and counted, as JSON."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                rows = self._read(self.tasks[number])
                parts, payloads = zip(*rows, strict=True)
                yield pa.RecordBatch.from_arrays(
                    [pa.array(parts, pa.int32()), pa.array(payloads, pa.binary())], schema=ARROW_SCHEMA
                )

    def _read(self, task: RangeTask) -> list[tuple[int, bytes]]:
        each_input = self.inputs[task.number]
        file = PcapFile.open(each_input.path)
        node = Node(each_input.link, file, [self.plan.low], self.slots, BLOCK_RECORDS)
        start = task.start if task.exact else guess(file, task.start)
        walked = ByteRange(-1, -1)
        partials: list[pa.RecordBatch] = []
        if start is not None:
            scan = RangeScan(file, start, task.cut)
            for block in scan:
                partials += [item for _, item in node.process(block) if isinstance(item, pa.RecordBatch)]
            walked = scan.range
        partials += [item for _, item in node.flush() if isinstance(item, pa.RecordBatch)]
        samples = node.samples([self.plan.name], walked.damage)
        told: dict[str, Any] = {
            "task": asdict(task),
            "walked": asdict(walked),
            "samples": [[name, labels, value] for (name, labels), value in samples.items()],
        }
        shares = enumerate(split_by_part(self.plan, partials, self.parts))
        rows = [(part, payload) for part, payload in shares if payload is not None]
        return [*rows, (COUNTERS, json.dumps(told).encode())]
