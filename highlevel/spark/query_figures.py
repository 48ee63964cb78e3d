"""Figures of the running Spark query for metrics: number of micro-batches, their seconds by phase, backlog, executors.

They describe this process and its cluster, not the rows. So they are not stored in the folder of the run, and begin at
zero after a restart.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping

from pyspark import SparkContext
from pyspark.sql.streaming.query import StreamingQuery

from capture.metrics import Samples
from highlevel.metrics import SPARK_BACKLOG, SPARK_BATCH_SECONDS, SPARK_BATCHES, SPARK_EXECUTORS
from highlevel.spark.cluster.executors import count_executors, has_executors
from highlevel.spark.inputs.assignment import InputAssignment
from lowlevel.spool.folder import segment_numbers

PHASES: Mapping[str, tuple[str, ...]] = {
    "offsets": ("latestOffset", "getBatch"),
    "plan": ("queryPlanning",),
    "log": ("walCommit",),
    "work": ("addBatch",),
    "commit": ("commitOffsets", "commitBatch"),
    "total": ("triggerExecution",),
}
"""The phases of a micro-batch: the value of the label `phase`, and Spark's names of the parts of this phase."""

READ_SECONDS = 1.0
"""Minimum time between two readings, because each reading calls the JVM and lists the folders of the spools."""


class QueryFigures:
    """The figures of a query. `count_batch` and `read` may be called by different threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Create an object without figures. `clock` returns seconds."""
        self.samples = Samples()
        self.samples.add(SPARK_BATCHES, 0)
        self._clock = clock
        self._last_reading: float | None = None

    def count_batch(self) -> None:
        """Count a micro-batch whose results have been written."""
        self.samples.add(SPARK_BATCHES, 1)

    def read(
        self,
        context: SparkContext,
        query: StreamingQuery,
        assignment: InputAssignment,
        progress: Mapping[int, tuple[int, int]],
        *,
        is_final: bool = False,
    ) -> None:
        """Read all figures. Do nothing if the last reading was less than READ_SECONDS ago, unless `is_final`.

        `progress` contains (position, size) of each started input by its ID, in blocks or segments.
        """
        now = self._clock()
        if not is_final and self._last_reading is not None and now - self._last_reading < READ_SECONDS:
            return
        self._last_reading = now
        last = query._jsq.lastProgress()
        if last is not None:
            self.read_progress(json.loads(last.json()))
        self.read_backlog(assignment, progress)
        if has_executors(str(context.master)):
            self.samples.set(SPARK_EXECUTORS, count_executors(context))

    def read_progress(self, document: Mapping[str, Mapping[str, int]]) -> None:
        """Set the seconds of the last micro-batch from a progress report of Spark, which contains durations in ms."""
        durations = document.get("durationMs", {})
        if "addBatch" not in durations:
            return  # nothing was read
        for phase, parts in PHASES.items():
            self.samples.set(SPARK_BATCH_SECONDS, sum(durations.get(part, 0) for part in parts) / 1000, phase)

    def read_backlog(self, assignment: InputAssignment, progress: Mapping[int, tuple[int, int]]) -> None:
        """Set the number of blocks, segments or messages of each link that no finished micro-batch has read."""
        backlog: dict[tuple[str, str], int] = {}
        for input_, number in zip(assignment.inputs, assignment.input_ids, strict=True):
            if input_.frame is not None:  # its backlog is unknown
                continue
            position, size = progress.get(number, (0, 0))
            if input_.spool:
                try:
                    waiting = sum(segment >= position for segment in segment_numbers(input_.path))
                except FileNotFoundError:  # the node has not created its spool yet
                    waiting = 0
            else:
                waiting = max(0, size - position - (input_.topic is not None))  # a topic has no end
            unit = "segments" if input_.spool else "messages" if input_.topic is not None else "blocks"
            key = input_.link, unit
            backlog[key] = backlog.get(key, 0) + waiting
        for labels, count in backlog.items():
            self.samples.set(SPARK_BACKLOG, count, *labels)
