"""The batch engine: a finite answer over archives of captures, on every core of a machine or a cluster.

    byte ranges ──► decode + low-level table ──► partials ──► one partition per hash of the group ──► windows ──► rows
      guessed          in the source's tasks       packed          all partials of a group            by definition

Ranges are guessed and verified: each task returns the bounds of its walk with the results. If the end of one walk is
not the beginning of the next, the answer is discarded and computed again over exact ranges (`capture.files.split`). A
classic pcap is not scanned before the first task.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from capture.files.capture import Capture
from capture.files.split import ByteRange, ranges_are_contiguous
from capture.metrics import Samples
from capture.open import allow_open_files, open_finite
from highlevel.inline.engine import ALL_METRICS, Input, check_one_input
from highlevel.inline.readings import Reading, reading_of
from highlevel.plan.fragments import cut
from highlevel.plan.measurement import Measurement
from highlevel.plan.plan import Plan, leaf_names
from highlevel.spark.byte_ranges import (
    RangeReader,
    Task,
    exact_tasks,
    guessed_tasks,
    size_of,
    whole_tasks,
)
from highlevel.spark.compiled import compile_kernels
from highlevel.spark.counters import add_counts
from highlevel.spark.errors import report_of
from highlevel.spark.feeds import InputAssignment
from highlevel.spark.finite_host import FiniteHost
from highlevel.spark.packing import unpack
from highlevel.spark.reading import COUNTERS
from highlevel.spark.reading import SPARK_SCHEMA as BETWEEN_LEVELS
from highlevel.spark.restarts import Restarts
from highlevel.spark.session import jvm_failures
from lowlevel.metrics import TABLE_BYTES
from lowlevel.node.node import TABLE_SLOTS


@dataclass
class BatchRun:
    """One finite answer. Raises InputError for an input. `say` receives warnings.

    Call `run` once. Afterwards `samples` contains the counters and `readings` the outcome of each input. If `run`
    fails, `samples` contains the restarts. With `measure`, `measurements` contains the figures of each node of the plan
    and `task_seconds` the time of each task of the low level; counters of a leaf have its name in the plan in place of
    the query.
    """

    spark: SparkSession
    plan: Plan
    inputs: Sequence[Input]
    slots: int = TABLE_SLOTS
    samples: Samples = field(default_factory=Samples)
    readings: list[Reading] = field(default_factory=list)
    guessed_wrong: bool = False
    measure: bool = False
    measurements: list[Measurement] = field(default_factory=list)
    task_seconds: list[float] = field(default_factory=list)
    say: Callable[[str], None] = lambda line: print(f"wiretide: {line}", file=sys.stderr)

    def __post_init__(self) -> None:
        """Open and check the inputs that the query reads."""
        self._restarts = Restarts(self.say)
        read = [each for each in self.inputs if any(each.feeds(leaf) for leaf in self.plan.leaves)]
        check_one_input(self.plan.leaves, read)
        allow_open_files(len(read))
        self.files = [open_finite(each.path, "the batch engine") for each in read]
        self.inputs = [replace(each, path=Path(each.path).absolute()) for each in read]
        for leaf in self.plan.leaves:
            compile_kernels(leaf.low.kind)

    def run(self) -> pa.Table:
        """Compute the answer. The order of the rows is not defined."""
        if self._divisible:
            answer = self._collect(guessed_tasks(self.files, self.spark.sparkContext.defaultParallelism))
            if answer is not None:
                return answer
            self.guessed_wrong = True
        answer = self._collect(self._proved_tasks())
        assert answer is not None, "walks from exact boundaries are contiguous"
        return answer

    def _proved_tasks(self) -> list[Task]:
        """Divide the inputs at exact boundaries, or not at all if rows depend on earlier records."""
        if not self._divisible:
            return whole_tasks(self.files)
        return exact_tasks(self.files, self.spark.sparkContext.defaultParallelism)

    @property
    def _divisible(self) -> bool:
        return all(leaf.low.dealt for leaf in self.plan.leaves)

    def _stages(self, tasks: Sequence[Task]) -> DataFrame:
        """Return the output of the last stage: PACKED rows and counters."""
        parts = self.spark.sparkContext.defaultParallelism if cut(self.plan).partitioned else 1
        feeds = InputAssignment.of([self.plan], self.inputs, parts)
        reader = RangeReader(feeds, tuple(size_of(file) for file in self.files), tuple(tasks), self.slots, self.measure)
        rows = self.spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(reader, BETWEEN_LEVELS)
        for level in range(feeds.levels):
            host = FiniteHost(feeds, level, self.measure)
            rows = rows.repartitionById(parts, "part").mapInArrow(host, host.schema)
        return rows

    def _collect(self, tasks: Sequence[Task]) -> pa.Table | None:
        """Run over ranges. Return None if their walks are not contiguous, because the answer is then wrong."""
        if not tasks:
            return self.plan.schema.empty_table()
        answers = self._answers(tasks)
        tables: list[pa.Table] = []
        scans: list[dict[str, Any]] = []  # by the tasks of the first stage
        merged: list[dict[str, Any]] = []  # and of the second
        for part, payload in zip(answers.column("part").to_pylist(), answers.column("payload"), strict=True):
            if part == COUNTERS:
                each = json.loads(payload.as_py())
                (scans if "task" in each else merged).append(each)
            else:
                tables.append(unpack(payload.as_buffer()))
        scans.sort(key=lambda each: (each["task"]["number"], each["task"]["start"]))
        for number, file in enumerate(self.files):
            walked = [ByteRange(**each["walked"]) for each in scans if each["task"]["number"] == number]
            if isinstance(file, Capture) and not ranges_are_contiguous(
                walked, file.format.first_record, len(file.data)
            ):
                return None
        self.samples = Samples()
        by_input: list[list[Samples]] = [[] for _ in self.files]
        for each in scans:
            counted = Samples({(name, tuple(labels)): value for name, labels, value in each["samples"]})
            self.samples.merge(counted, ALL_METRICS)
            by_input[each["task"]["number"]].append(counted)
        self.readings = [
            reading_of(str(file.path), counted, file) for counted, file in zip(by_input, self.files, strict=True)
        ]
        add_counts(self.samples, self.plan.name, merged)
        if self.measure:
            self._measure(scans, merged)
        self.samples.merge(self._restarts.samples, ALL_METRICS)
        return pa.concat_tables(tables) if tables else self.plan.schema.empty_table()

    def _measure(self, scans: Sequence[dict[str, Any]], merged: Sequence[dict[str, Any]]) -> None:
        """Add the figures of all tasks. Tables of tasks add their memory to that of their leaf."""
        self.measurements = [Measurement() for _ in self.plan.nodes]
        self.task_seconds = [each["seconds"] for each in scans]
        for each in (*scans, *merged):
            for position, figures in each["measured"]:
                self.measurements[position].add(*figures)
        names = dict(zip(leaf_names(self.plan), self.plan.leaves, strict=True))
        for each in scans:
            for metric, labels, value in each["samples"]:
                if metric == TABLE_BYTES.name:
                    leaf = names[labels[TABLE_BYTES.labels.index("query")]]
                    self.measurements[self.plan.nodes.index(leaf)].state_bytes += int(value)

    def _answers(self, tasks: Sequence[Task]) -> pa.Table:
        """Run the job. Repeat it if a process of Spark did not start or ended."""
        while True:
            try:
                with jvm_failures():
                    return self._stages(tasks).toArrow()
            except PySparkException as failure:
                report = report_of(failure)
                delay = self._restarts.delay(report)
                if delay is None:
                    self.samples.merge(self._restarts.samples, ALL_METRICS)
                    raise self._restarts.failure(report) from None
                time.sleep(delay)


def run_batch(spark: SparkSession, plan: Plan, inputs: Sequence[Input], slots: int = TABLE_SLOTS) -> pa.Table:
    """Answer one query over finite inputs, as a table of the plan's schema with rows in no particular order."""
    return BatchRun(spark, plan, inputs, slots).run()
