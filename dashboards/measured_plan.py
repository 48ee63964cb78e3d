"""The figures of a measured run, node by node: `wiretide explain --analyze`."""

from __future__ import annotations

import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from capture.metrics import Metric, Samples
from dashboards.output.console import format_bytes
from dashboards.output.run_warnings import run_warnings
from highlevel.inline.engine import InlineRun, Input
from highlevel.inline.input_outcomes import Reading
from highlevel.plan.measurement import Measurement
from highlevel.plan.nodes import Leaf
from highlevel.plan.plan import Plan, leaf_names
from lowlevel.metrics import ROWS_ACCEPTED, ROWS_FILTERED, TABLE_BYTES, TABLE_COLLISIONS, TABLE_EVICTIONS, TABLE_FLUSHED
from queries.explain.drawing import Figures, draw
from queries.explain.plan import explain

if TYPE_CHECKING:
    from highlevel.spark.batch import BatchRun

TABLE_EXITS = (
    (TABLE_FLUSHED, "flushed at the end of a pane"),
    (TABLE_EVICTIONS, "evicted by other groups"),
    (TABLE_COLLISIONS, "collisions"),
)
"""The counters of entries that left a table, each with its text."""

HEADER = ("node", "rows in", "rows out", "bytes out", "seconds", "state")


class Analysis(ABC):
    """One run of a query with measurements. `lines` are complete after the run."""

    plan: Plan
    """The plan as the engine runs it."""
    seconds = 0.0
    """Seconds of the whole run."""
    result_rows = 0
    ended_early = False
    """True if the query ended before the end of its inputs."""
    workers = "threads"
    """The name of the units that run the low level."""

    def __init__(self) -> None:
        """Measure nothing yet."""
        self.measurements: Sequence[Measurement] = ()
        """The figures of each node of the plan."""
        self.low_level_seconds: Sequence[float] = ()
        """Busy seconds of each worker."""
        self._samples = Samples()
        self._readings: Sequence[Reading] = ()

    @abstractmethod
    def complete(self) -> None:
        """Run the query to the end, and set all figures. The results are not stored."""

    def warnings(self) -> list[str]:
        """Return warnings about data that could not be read."""
        return list(run_warnings(self._samples, self._readings))

    def text(self) -> str:
        """Return the plan and the figures."""
        return "\n".join([explain(self.plan), "", *self.lines()])

    def drawing(self) -> str:
        """Return the plan with the figures as SVG."""
        figures = {}
        for node, measured in zip(self.plan.nodes, self.measurements, strict=True):
            returned = f"{measured.rows:,} rows, {format_bytes(measured.bytes)}"
            figures[node] = Figures(returned, None if isinstance(node, Leaf) else measured.seconds)
        return draw(self.plan, figures)

    def lines(self) -> Iterator[str]:
        """Yield the figures: the time of both levels, a table of the nodes, and the work of each leaf."""
        samples, busy = self._samples, self.low_level_seconds
        operators = sum(measurement.seconds for measurement in self.measurements)
        workers = f" in {len(busy)} {self.workers}" if len(busy) > 1 else ""
        yield (
            f"measured: {self.seconds:.2f} s; low level {sum(busy):.2f} s{workers}, high level {operators:.2f} s;"
            f" {self.result_rows:,} rows of results"
        )
        if self.ended_early:
            yield "the query ended before the end of its inputs: rows that the low level had read were not used"
        yield from _align([HEADER, *self._rows(samples)])
        for leaf, name in zip(self.plan.leaves, leaf_names(self.plan), strict=True):
            accepted, filtered = (_total(samples, metric, name) for metric in (ROWS_ACCEPTED, ROWS_FILTERED))
            entries = ", ".join(f"{_total(samples, metric, name):,} {what}" for metric, what in TABLE_EXITS)
            table = f"; entries of the table: {entries}" if leaf.low.reduced else ""
            yield f"{name}: {accepted:,} of {accepted + filtered:,} rows pass WHERE{table}"

    def _rows(self, samples: Samples) -> Iterator[tuple[str, ...]]:
        """Yield a row for each node, in the order of the plan."""
        by_node = dict(zip(self.plan.nodes, self.measurements, strict=True))
        for (node, measured), name in zip(by_node.items(), self.plan.node_names, strict=True):
            if isinstance(node, Leaf):
                received = _total(samples, ROWS_ACCEPTED, name) + _total(samples, ROWS_FILTERED, name)
                seconds = ""
            else:
                received = sum(by_node[source].rows for source in node.inputs)
                seconds = f"{measured.seconds:.3f}"
            state = format_bytes(measured.state_bytes)
            yield name, f"{received:,}", f"{measured.rows:,}", format_bytes(measured.bytes), seconds, state


class InlineAnalysis(Analysis):
    """A run of the inline engine."""

    def __init__(self, plan: Plan, inputs: Sequence[Input], threads: int | None = None) -> None:
        """Open the inputs. Raises InputError for one that cannot be read."""
        super().__init__()
        self.run = InlineRun([plan], inputs, threads=threads, is_measured=True)
        self.plan = self.run.plans[0]

    def complete(self) -> None:
        """Run the query in the threads of this process."""
        begin = time.perf_counter()
        try:
            for _ in self.run.results():
                pass
            self.seconds = time.perf_counter() - begin
            self._samples, self._readings = self.run.samples(), self.run.readings()
        finally:
            self.run.close()
        nodes = self.run.nodes
        self.measurements = [nodes.measurements[nodes.positions[node]] for node in self.plan.nodes]
        for leaf, name in zip(self.plan.leaves, leaf_names(self.plan), strict=True):
            nodes.measurements[nodes.positions[leaf]].state_bytes = _total(self._samples, TABLE_BYTES, name)
        self.low_level_seconds = self.run.low_level_seconds or ()
        self.result_rows, self.ended_early = nodes.results[0], self.run.has_ended_early


class SparkAnalysis(Analysis):
    """A run on Spark. The rows, bytes and seconds of a node are the sums over its tasks."""

    workers = "tasks"

    def __init__(self, plan: Plan, inputs: Sequence[Input], on: str) -> None:
        """Prepare a run on the engine `on`: `local`, `local[N]` or the URL of a Spark master."""
        super().__init__()
        self.plan, self._inputs, self._on = plan, inputs, on

    def complete(self) -> None:
        """Start Spark and run the query. The start of Spark is not measured. Raises InputError for a wrong input."""
        from highlevel.spark.session.session import open_finite_session

        with open_finite_session(self._on, [source.path for source in self._inputs]) as spark:
            self.complete_in(spark)

    @abstractmethod
    def complete_in(self, spark: Any) -> None:
        """Run the query in a session of Spark."""


class BatchAnalysis(SparkAnalysis):
    """A run of the batch engine. The state of a node is the sum over its tasks."""

    def complete_in(self, spark: Any) -> None:
        """Run the query as one job."""
        from highlevel.spark.batch import BatchRun

        self.measure(BatchRun(spark, [self.plan], list(self._inputs), measure=True))

    def measure(self, batch: BatchRun) -> None:
        """Run `batch` and set all figures. For a query with changes, a batch runs the plan of the final rows."""
        (self.plan,) = batch.plans
        begin = time.perf_counter()
        self.result_rows = sum(rows.num_rows for rows in batch.run())
        self.seconds = time.perf_counter() - begin
        self.measurements, self.low_level_seconds = batch.measurements, batch.task_seconds
        self._samples, self._readings = batch.samples, batch.readings


class StreamAnalysis(SparkAnalysis):
    """A run of the streaming engine. The state of a node is the largest sum over the tasks of a micro-batch."""

    def complete_in(self, spark: Any) -> None:
        """Run the query to the end of its inputs, in a temporary folder."""
        from highlevel.spark.stream import StreamRun

        with tempfile.TemporaryDirectory(prefix="wiretide-analysis-") as folder:
            run = StreamRun(
                spark,
                [self.plan],
                self._inputs,
                Path(folder),
                partitions=spark.sparkContext.defaultParallelism,
                on_batch=self._count_rows,
                say=lambda line: print(f"wiretide: {line}", file=sys.stderr),
                measure=True,
            )
            begin = time.perf_counter()
            try:
                run.start()
                run.wait()
            finally:
                run.stop()
        self.seconds = time.perf_counter() - begin
        self.measurements, self.low_level_seconds = run.measurements, run.task_seconds
        self._samples = run.samples

    def _count_rows(self, _: int, results: Mapping[str, pa.Table], __: Samples) -> None:
        self.result_rows += results[self.plan.name].num_rows


def _total(samples: Samples, metric: Metric, leaf: str) -> int:
    return int(samples.total(metric, query=leaf))


def _align(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield rows as text. The first column is aligned to the left, the other columns to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        yield "  " + "  ".join([row[0].ljust(widths[0]), *cells]).rstrip()
