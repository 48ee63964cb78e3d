"""The batch engine: a finite answer over archives of captures, on every core of a machine or a cluster.

    byte ranges ──► decode + low-level table ──► partials ──► one partition per hash of the group ──► windows ──► rows
      guessed          in the source's tasks       packed          all partials of a group

Ranges are guessed and verified: each task returns the bounds of its walk with the results. If the end of one walk is
not the beginning of the next, the answer is discarded and computed again over exact ranges (`capture.files.split`). A
classic pcap is not scanned before the first task.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from capture.files.capture import Capture
from capture.files.split import ByteRange, ranges_are_contiguous
from capture.lazy_dataclasses import dataclass
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
    count_tasks,
    guess_tasks,
    input_size,
    make_exact_tasks,
    make_whole_tasks,
)
from highlevel.spark.compiled import compile_kernels
from highlevel.spark.counters import add_counts
from highlevel.spark.errors import make_report
from highlevel.spark.executors import has_executors
from highlevel.spark.finite_host import FiniteHost
from highlevel.spark.input_assignment import InputAssignment
from highlevel.spark.packing import unpack
from highlevel.spark.preflight import check_executors
from highlevel.spark.reading import COUNTERS
from highlevel.spark.reading import SPARK_SCHEMA as BETWEEN_LEVELS
from highlevel.spark.restarts import Restarts
from highlevel.spark.session import convert_jvm_failures
from highlevel.speculation.changes import final_changes
from lowlevel.metrics import TABLE_BYTES
from lowlevel.node.node import TABLE_SLOTS


@dataclass
class BatchRun:
    """One finite answer. Raises InputError for an input. `say` receives warnings.

    The answer of a query with changes is its final rows, with weights: a finite input has no results before its end.
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
    has_wrong_guess: bool = False
    measure: bool = False
    measurements: list[Measurement] = field(default_factory=list)
    task_seconds: list[float] = field(default_factory=list)
    say: Callable[[str], None] = lambda line: print(f"wiretide: {line}", file=sys.stderr)

    def __post_init__(self) -> None:
        """Open and check the inputs that the query reads."""
        self._restarts = Restarts(self.say)
        self._has_changes = self.plan.has_changes
        self.plan = self.plan.with_final_rows()
        if self.plan.is_by_arrival:
            self.plan = self.plan.counting_rows()
        used_inputs = [input_ for input_ in self.inputs if any(input_.feeds(leaf) for leaf in self.plan.leaves)]
        check_one_input(self.plan.leaves, used_inputs)
        allow_open_files(len(used_inputs))
        self.files = [open_finite(input_.path, "the batch engine") for input_ in used_inputs]
        self.inputs = [replace(input_, path=Path(input_.path).absolute()) for input_ in used_inputs]
        for leaf in self.plan.leaves:
            compile_kernels(leaf.low.kind)

    def run(self) -> pa.Table:
        """Compute the answer. The order of the rows is not defined."""
        rows = self._answer()
        return final_changes(rows) if self._has_changes else rows

    def _answer(self) -> pa.Table:
        kinds = {leaf.low.kind for leaf in self.plan.leaves}
        with convert_jvm_failures():
            check_executors(self.spark.sparkContext, [input_.path for input_ in self.inputs], kinds, self.say)
        if self._is_divisible:
            answer = self._compute(guess_tasks(self.files, self._task_count))
            if answer is not None:
                return answer
            self.has_wrong_guess = True
        answer = self._compute(self._make_exact_tasks())
        assert answer is not None, "walks from exact boundaries are contiguous"
        return answer

    def _make_exact_tasks(self) -> list[Task]:
        """Divide the inputs at exact boundaries, or not at all if rows depend on earlier records."""
        if not self._is_divisible:
            return make_whole_tasks(self.files)
        return make_exact_tasks(self.files, self._task_count)

    @property
    def _task_count(self) -> int:
        context = self.spark.sparkContext
        return count_tasks(
            sum(map(input_size, self.files)), context.defaultParallelism, has_executors(str(context.master))
        )

    @property
    def _is_divisible(self) -> bool:
        return all(leaf.low.dealt for leaf in self.plan.leaves)

    def _make_last_stage(self, tasks: Sequence[Task]) -> DataFrame:
        """Return the output of the last stage: PACKED rows and counters."""
        part_count = self.spark.sparkContext.defaultParallelism if cut(self.plan).partitioned else 1
        assignment = InputAssignment.of([self.plan], self.inputs, part_count)
        sizes = tuple(input_size(file) for file in self.files)
        reader = RangeReader(assignment, sizes, tuple(tasks), self.slots, self.measure)
        rows = self.spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(reader, BETWEEN_LEVELS)
        for level in range(assignment.levels):
            host = FiniteHost(assignment, level, self.measure)
            rows = rows.repartitionById(part_count, "part").mapInArrow(host, host.schema)
        return rows

    def _compute(self, tasks: Sequence[Task]) -> pa.Table | None:
        """Run over ranges. Return None if their walks are not contiguous, because the answer is then wrong."""
        if not tasks:
            return self.plan.schema.empty_table()
        job_output = self._run_job(tasks)
        tables: list[pa.Table] = []
        scan_counts: list[dict[str, Any]] = []  # by the tasks of the first stage
        fragment_counts: list[dict[str, Any]] = []  # and of the second
        for part, payload in zip(job_output.column("part").to_pylist(), job_output.column("payload"), strict=True):
            if part == COUNTERS:
                counts = json.loads(payload.as_py())
                (scan_counts if "task" in counts else fragment_counts).append(counts)
            else:
                tables.append(unpack(payload.as_buffer()))
        scan_counts.sort(key=lambda counts: (counts["task"]["number"], counts["task"]["start"]))
        for input_number, file in enumerate(self.files):
            walked_ranges = [
                ByteRange(**counts["walked"]) for counts in scan_counts if counts["task"]["number"] == input_number
            ]
            if isinstance(file, Capture) and not ranges_are_contiguous(
                walked_ranges, file.format.first_record, len(file.data)
            ):
                return None
        self.samples = Samples()
        samples_by_input: list[list[Samples]] = [[] for _ in self.files]
        for counts in scan_counts:
            task_samples = Samples({(name, tuple(labels)): value for name, labels, value in counts["samples"]})
            self.samples.merge(task_samples, ALL_METRICS)
            samples_by_input[counts["task"]["number"]].append(task_samples)
        self.readings = [
            reading_of(str(file.path), task_samples, file)
            for task_samples, file in zip(samples_by_input, self.files, strict=True)
        ]
        add_counts(self.samples, self.plan.name, fragment_counts)
        if self.measure:
            self._add_measurements(scan_counts, fragment_counts)
        self.samples.merge(self._restarts.samples, ALL_METRICS)
        return pa.concat_tables(tables) if tables else self.plan.schema.empty_table()

    def _add_measurements(
        self, scan_counts: Sequence[dict[str, Any]], fragment_counts: Sequence[dict[str, Any]]
    ) -> None:
        """Add the figures of all tasks. Tables of tasks add their memory to that of their leaf."""
        self.measurements = [Measurement() for _ in self.plan.nodes]
        self.task_seconds = [counts["seconds"] for counts in scan_counts]
        for counts in (*scan_counts, *fragment_counts):
            for position, figures in counts["measured"]:
                self.measurements[position].add(*figures)
        leaves = dict(zip(leaf_names(self.plan), self.plan.leaves, strict=True))
        for counts in scan_counts:
            for metric, labels, value in counts["samples"]:
                if metric == TABLE_BYTES.name:
                    leaf = leaves[labels[TABLE_BYTES.labels.index("query")]]
                    self.measurements[self.plan.nodes.index(leaf)].state_bytes += int(value)

    def _run_job(self, tasks: Sequence[Task]) -> pa.Table:
        """Run the job. Repeat it if a process of Spark did not start or ended."""
        while True:
            try:
                with convert_jvm_failures():
                    return self._make_last_stage(tasks).toArrow()
            except PySparkException as failure:
                report = make_report(failure)
                delay = self._restarts.next_delay(report)
                if delay is None:
                    self.samples.merge(self._restarts.samples, ALL_METRICS)
                    raise self._restarts.make_final_error(report) from None
                time.sleep(delay)


def run_batch(spark: SparkSession, plan: Plan, inputs: Sequence[Input], slots: int = TABLE_SLOTS) -> pa.Table:
    """Answer one query over finite inputs, as a table of the plan's schema with rows in no particular order."""
    return BatchRun(spark, plan, inputs, slots).run()
