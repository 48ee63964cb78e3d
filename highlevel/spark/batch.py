"""The batch engine: answers over finite archives of captures, on every core of a machine or a cluster.

    byte ranges ──► decode + low-level table ──► partials ──► one partition per hash of the group ──► windows ──► rows
      guessed          in the source's tasks       packed          all partials of a group

All queries of a run are one Spark job. A task of the source reads its range once and computes the partials of every
query, and one shuffle sends them all to their partitions. If a query needs fewer levels than another, its results pass
through the remaining levels unchanged.

The record boundaries at which ranges begin are guessed and then verified: with its results, each task returns where it
began and ended reading. If a task did not begin where the task before it ended, the answer is discarded, and computed
again over exact ranges (`capture.files.split`). So a classic pcap needs no scan before the first task.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
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
from highlevel.inline.input_outcomes import Reading, reading_of
from highlevel.inline.table_files import FileStream
from highlevel.plan.fragments import cut
from highlevel.plan.measurement import Measurement, sum_measurements
from highlevel.plan.plan import Plan, leaves_of
from highlevel.spark.cluster.cluster_checks import check_executors
from highlevel.spark.cluster.executors import has_executors
from highlevel.spark.cluster.kernel_compilation import compile_kernels
from highlevel.spark.errors import make_report
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.byte_ranges import (
    RangeReader,
    Task,
    count_tasks,
    guess_tasks,
    input_size,
    make_exact_tasks,
    make_whole_tasks,
)
from highlevel.spark.inputs.frame_reading import FrameTask
from highlevel.spark.inputs.reading import COUNTERS
from highlevel.spark.inputs.reading import SPARK_SCHEMA as BETWEEN_LEVELS
from highlevel.spark.restarts import Restarts
from highlevel.spark.session.session import convert_jvm_failures
from highlevel.spark.tasks.counters import Counts, add_counts
from highlevel.spark.tasks.finite_host import FiniteLevelTask
from highlevel.spark.tasks.host import ARROW_SCHEMA
from highlevel.spark.tasks.packing import unpack
from highlevel.speculation.changes import final_changes
from lowlevel.kinds import TABLE
from lowlevel.node.node import TABLE_SLOTS

NO_OUTPUT = ARROW_SCHEMA.empty_table()


@dataclass
class BatchRun:
    """The answers of one or several queries with different names over finite inputs, in one job.

    `say` receives warnings. `frames`: the DataFrames of inputs, by link (`highlevel.spark.inputs.frame_reading`).

    The answer of a query with changes consists of its final rows, with weights: a finite input has no results before
    its end. Call `run` once. Afterwards `samples` contains the counters, and `readings` describes how each input was
    read. If `run` fails, `samples` contains the restarts. With `measure` there is only one plan: `measurements`
    contains the figures of each of its nodes, `task_seconds` contains the time of each task of the low level, and the
    counters of a leaf are labelled with the name of the leaf instead of the query. Raises InputError for an input,
    ValueError for several plans with `measure`.
    """

    spark: SparkSession
    plans: Sequence[Plan]
    inputs: Sequence[Input]
    slots: int = TABLE_SLOTS
    samples: Samples = field(default_factory=Samples)
    readings: list[Reading] = field(default_factory=list)
    has_wrong_guess: bool = False
    measure: bool = False
    measurements: list[Measurement] = field(default_factory=list)
    task_seconds: list[float] = field(default_factory=list)
    frames: Mapping[str, DataFrame] = field(default_factory=dict)
    say: Callable[[str], None] = lambda line: print(f"wiretide: {line}", file=sys.stderr)

    def __post_init__(self) -> None:
        """Open and check the inputs that the queries read."""
        if self.measure and len(self.plans) != 1:
            raise ValueError(f"got {len(self.plans)} queries to measure, expected one")
        self._restarts = Restarts(self.say)
        self._has_changes = [plan.has_changes for plan in self.plans]
        final_plans = [plan.with_final_rows() for plan in self.plans]
        self.plans = [plan.with_row_counts() if plan.is_by_arrival else plan for plan in final_plans]
        self._leaves = leaves_of(self.plans)
        used_inputs = [input_ for input_ in self.inputs if any(input_.feeds(leaf) for leaf in self._leaves)]
        check_one_input(self._leaves, used_inputs)
        allow_open_files(len(used_inputs))
        self.inputs = [input_.absolute() for input_ in used_inputs]
        self.files = [input_.rows or open_finite(input_.path, "the batch engine") for input_ in used_inputs]
        for kind in self._kinds - {TABLE}:
            compile_kernels(kind)

    @property
    def _kinds(self) -> set[str]:
        return {leaf.low.kind for leaf in self._leaves}

    def run(self) -> list[pa.Table]:
        """Compute the answer of each query. The order of the rows is not defined."""
        answers = zip(self._answer(), self._has_changes, strict=True)
        return [final_changes(rows) if has_changes else rows for rows, has_changes in answers]

    def _answer(self) -> list[pa.Table]:
        with convert_jvm_failures():
            paths = [path for input_ in self.inputs for path in input_.files]
            check_executors(self.spark.sparkContext, paths, self._kinds, self.say, plans=self.plans)
        if self._is_divisible:
            answers = self._compute(guess_tasks(self.files, self._task_count))
            if answers is not None:
                return answers
            self.has_wrong_guess = True
        answers = self._compute(self._make_exact_tasks())
        assert answers is not None, "walks from exact boundaries are contiguous"
        return answers

    def _make_exact_tasks(self) -> list[Task]:
        """Divide the inputs at exact record boundaries. If rows depend on earlier records, do not divide them."""
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
        return all(leaf.low.is_divisible for leaf in self._leaves)

    def _assign_inputs(self) -> InputAssignment:
        """Assign the inputs to the queries. One partition is enough if no query partitions its rows."""
        is_partitioned = any(cut(plan).partitioned for plan in self.plans)
        part_count = self.spark.sparkContext.defaultParallelism if is_partitioned else 1
        return InputAssignment.of(self.plans, self.inputs, part_count)

    def _make_last_stage(self, tasks: Sequence[Task]) -> DataFrame:
        """Return the output of the last stage: results and counters (`highlevel.spark.tasks.host`)."""
        assignment = self._assign_inputs()
        sizes = tuple(input_size(file) for file in self.files)
        reader = RangeReader(assignment, sizes, tuple(tasks), self.slots, self.measure)
        rows = self.spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(reader, BETWEEN_LEVELS)
        for number, input_ in enumerate(assignment.inputs):
            if input_.frame is not None:  # a task of `reader` sends its end
                frame_task = FrameTask(assignment, number, is_finite=True)
                rows = rows.unionAll(self.frames[input_.link].mapInArrow(frame_task, BETWEEN_LEVELS))
        for level in range(assignment.levels):
            host = FiniteLevelTask(assignment, level, self.measure)
            rows = rows.repartitionById(assignment.partitions, "part").mapInArrow(host, host.schema)
        return rows

    def _compute(self, tasks: Sequence[Task]) -> list[pa.Table] | None:
        """Answer the queries over the ranges of `tasks`. Return None if a guessed boundary was wrong."""
        tables: list[list[pa.Table]] = [[plan.schema.empty_table()] for plan in self.plans]
        scan_counts: list[dict[str, Any]] = []  # of the tasks of the first stage
        fragment_counts: list[list[Counts]] = [[] for _ in self.plans]  # of the tasks of later stages, by query
        job_output = self._run_job(tasks) if tasks else NO_OUTPUT
        for part, query, payload in zip(*(job_output.column(name) for name in NO_OUTPUT.column_names), strict=True):
            if query.as_py() != COUNTERS:
                tables[query.as_py()].append(unpack(payload.as_buffer()))
            elif part.as_py() == COUNTERS:
                scan_counts.append(json.loads(payload.as_py()))
            else:
                for counts in json.loads(payload.as_py()):
                    fragment_counts[counts["query"]].append(counts)
        scan_counts.sort(key=lambda counts: (counts["task"]["number"], counts["task"]["start"]))
        if not self._are_contiguous(scan_counts):
            return None
        self._add_samples(scan_counts, fragment_counts)
        if self.measure:
            self._add_measurements(self.plans[0], scan_counts, fragment_counts[0])
        self.samples.merge(self._restarts.samples, ALL_METRICS)
        return [pa.concat_tables(query_tables) for query_tables in tables]

    def _are_contiguous(self, scan_counts: Sequence[dict[str, Any]]) -> bool:
        """Return True if the walk of each range begins where the walk before it ended."""
        for input_number, file in enumerate(self.files):
            walked_ranges = [
                ByteRange(**counts["walked"]) for counts in scan_counts if counts["task"]["number"] == input_number
            ]
            if isinstance(file, Capture) and not ranges_are_contiguous(
                walked_ranges, file.format.first_record, len(file.data)
            ):
                return False
        return True

    def _add_samples(self, scan_counts: Sequence[dict[str, Any]], fragment_counts: Sequence[Sequence[Counts]]) -> None:
        """Add up the counters of all tasks, and describe how each input was read."""
        self.samples = Samples()
        samples_by_input: list[list[Samples]] = [[] for _ in self.files]
        for counts in scan_counts:
            task_samples = Samples({(name, tuple(labels)): value for name, labels, value in counts["samples"]})
            self.samples.merge(task_samples, ALL_METRICS)
            samples_by_input[counts["task"]["number"]].append(task_samples)
        self.readings = [
            reading_of(str(file.path), task_samples, file)
            for task_samples, file in zip(samples_by_input, self.files, strict=True)
            if not isinstance(file, FileStream)
        ]
        for plan, query_counts in zip(self.plans, fragment_counts, strict=True):
            add_counts(self.samples, plan.name, query_counts)

    def _add_measurements(
        self, plan: Plan, scan_counts: Sequence[dict[str, Any]], fragment_counts: Sequence[Counts]
    ) -> None:
        """Add the figures of all tasks. The memory of a leaf is the sum over the tables of all its tasks."""
        self.task_seconds = [counts["seconds"] for counts in scan_counts]
        self.measurements = sum_measurements(len(plan.nodes), (*scan_counts, *fragment_counts))

    def _run_job(self, tasks: Sequence[Task]) -> pa.Table:
        """Run the job. Repeat it if a Spark process did not start, or ended unexpectedly."""
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
    (answer,) = BatchRun(spark, [plan], inputs, slots).run()
    return answer
