"""A run of the stream engine, from captures and spools to final results. After a restart no row is lost or repeated.

    folder/run.json      queries and inputs of the run
    folder/lock          locked by the process of the run
    folder/inputs        decompressed captures
    folder/checkpoint    written by Spark: planned offsets and committed micro-batches
    folder/state         state of the operators, by partition and batch ID
    folder/totals        counters, by batch ID
    folder/output        results, by query and date
    folder/staged        results that tasks have written in an unfinished micro-batch
    folder/quarantine    list of damaged parts of inputs, and copies of damaged segments
    folder/watched       copies of files with watchlists and settings

Exactly once: Spark writes the offsets of micro-batch n to its log before a task runs, and commits n after all tasks.
Tasks depend only on these offsets, and operators only on the tasks and on the state after n - 1. Every output file
contains the IDs of its micro-batches. So if n is repeated after any interruption, the files are the same.

If the folder is in an object store, a run works in a copy of it (`highlevel.spark.remote.run_copy`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from capture.errors import InputError
from capture.files.blocks import BLOCK_RECORDS
from capture.files.capture import Capture
from capture.metrics import Samples
from capture.open import open_finite
from capture.private_files import make_private_folder
from highlevel.inline.engine import ALL_METRICS, Input, check_one_input
from highlevel.plan.measurement import Measurement
from highlevel.plan.plan import Plan, leaves_of
from highlevel.results.row_limit import RowLimit
from highlevel.spark.cluster.cluster_checks import check_executors
from highlevel.spark.cluster.executors import is_on_this_machine
from highlevel.spark.cluster.kernel_compilation import compile_kernels
from highlevel.spark.errors import RunError, make_report
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.decompressed_inputs import Say, replace_compressed_inputs
from highlevel.spark.inputs.frame_reading import add_batch_end, open_frames
from highlevel.spark.inputs.source import (
    MAX_BYTES,
    IndexedCapture,
    StreamSpec,
    index_captures,
    open_captures,
    open_stream,
)
from highlevel.spark.inputs.spool_planner import report_earlier_runs
from highlevel.spark.inputs.topic_reading import check_topic
from highlevel.spark.micro_batch import BatchProcessor
from highlevel.spark.query_figures import QueryFigures
from highlevel.spark.remote.file_entries import FileEntry
from highlevel.spark.remote.run_copy import RunCopy
from highlevel.spark.restarts import Restarts
from highlevel.spark.run_folder.folder_start import check_subfolders, prepare_folder
from highlevel.spark.run_folder.identity import QueryChanges, describe_run
from highlevel.spark.run_folder.locks import Locks
from highlevel.spark.run_folder.state import list_state_folders
from highlevel.spark.run_folder.totals import Totals
from highlevel.spark.run_folder.watched_copies import WatchedCopies
from highlevel.spark.session.java_references import JavaReferences
from highlevel.spark.session.session import JVM_END_SECONDS, convert_jvm_failures, make_jvm_error, read_jvm_end
from lowlevel.kinds import RECORD_KINDS, TABLE
from lowlevel.node.node import TABLE_SLOTS

OnBatch = Callable[[int, dict[str, pa.Table], Samples], None]
"""Called with the batch ID, the new final rows of each query, and the sums of all counters.

After a crash it may be called again with the last batch ID and the same rows. If a query has a RowLimit, each partition
sends at most this number of rows; `StreamRun.rests` contains the others, added up.
"""

PACED_BLOCK_RECORDS = 1024


class StreamRun:
    """One run of any number of queries over captures and spools.

    Start it once. To continue after `stop`, create a new object.

    `keep_results`: results are deleted this many ns after the end of their window, None: never. `partitions` is the
    number of operator partitions, and `slots` the size of each low-level table. `speed` is in seconds of capture per
    wall second, None: as fast as possible. A micro-batch reads at most `max_blocks` blocks of `block_records` records
    of each capture, `max_bytes` bytes of each spool, and 262,144 messages of each partition of a topic. Without
    `max_blocks` a paced micro-batch reads at most 256 blocks. Others read up to 2,048 blocks of each capture, as many
    as are expected to have at most 128 MiB of partials for each task (`highlevel.spark.inputs.admission`). Captures are
    finite. A spool ends when its node closes it; the run waits for a spool that does not exist yet. A topic does not
    end. Each partition needs memory for the partials of one micro-batch and for its open windows.
    """

    def __init__(
        self,
        spark: SparkSession | Callable[[], SparkSession],
        plans: Sequence[Plan],
        inputs: Sequence[Input],
        folder: Path,
        *,
        partitions: int = 2,
        slots: int = TABLE_SLOTS,
        speed: float | None = None,
        max_blocks: int | None = None,
        block_records: int | None = None,
        max_bytes: int = MAX_BYTES,
        keep_results: int | None = None,
        on_batch: OnBatch | None = None,
        row_limits: Mapping[str, RowLimit] | None = None,
        say: Say = print,
        on_restart: Callable[[], None] = lambda: None,
        measure: bool = False,
        frames: Mapping[str, DataFrame] | None = None,
        trigger: Mapping[str, Any] | None = None,
        copy: RunCopy | None = None,
    ) -> None:
        """Check the options. Inputs are not opened yet.

        `spark` is a session, or a function that starts one after all other checks. `say` receives messages for the
        user: progress before the start, and warnings about spools, each once. `on_restart` is called before each
        restart. `row_limits` contains the maximum number of rows that `on_batch` needs of a query; it receives all rows
        of a query without a limit, and always all changes. Without `on_batch`, every query has the default limit,
        except queries with changes. With `measure` there is only one query: its nodes are measured (`measurements`),
        and the counters of a leaf are labelled with the name of the leaf instead of the query. `frames`: the streaming
        DataFrames of the inputs, by link (`spark.inputs.frame_reading`); then all inputs are DataFrames. `trigger`:
        arguments of Spark's `DataStreamWriter.trigger`. With `availableNow` the run ends after the rows that exist.
        `copy`: `folder` is this open copy of a folder in an object store; the caller closes it after `stop`.
        """
        options = {"partitions": partitions, "max_blocks": max_blocks, "speed": speed, "max_bytes": max_bytes}
        options["keep_results"] = keep_results
        for option, value in options.items():
            if value is not None and value <= 0:
                raise ValueError(f"{option} must be positive, got {value}")
        if measure and len(plans) != 1:
            raise ValueError(f"got {len(plans)} queries to measure, expected one")
        names = [plan.name for plan in plans]
        if len(set(names)) < len(names):
            raise ValueError(f"queries of one run need different names, got {', '.join(names)}")
        self._session = spark
        leaves = leaves_of(plans)
        used_inputs = [input_ for input_ in inputs if any(input_.feeds(leaf) for leaf in leaves)]
        check_one_input(leaves, used_inputs)
        for plan in leaves:
            if plan.low.kind not in (*RECORD_KINDS, TABLE) and any(
                input_.feeds(plan) and not input_.spool for input_ in used_inputs
            ):
                problem = f"query {plan.name}: {plan.low.kind} must be read in one pass"
                raise InputError(f"{problem}: expected wiretide query, with --follow for live inputs")
            if plan.low.depends_on_earlier_rows and any(
                input_.feeds(plan) and not input_.spool for input_ in used_inputs
            ):
                problem = f"query {plan.name}: seen_within depends on earlier rows, but tasks read parts of a file"
                raise InputError(f"{problem}: expected a link with a spool, or wiretide query")
        self.assignment = InputAssignment.of(plans, used_inputs, partitions)
        self.folder = folder.absolute()
        self.partitions = partitions
        self.slots = slots
        self.speed = speed
        self.max_blocks = max_blocks
        self.max_bytes = max_bytes
        self.keep_results = keep_results
        self.block_records = block_records or (BLOCK_RECORDS if speed is None else PACED_BLOCK_RECORDS)
        self.on_batch = on_batch
        self.say = say
        self._on_restart = on_restart
        limits = row_limits or (dict.fromkeys(names, RowLimit()) if on_batch is None else {})
        self._row_limits = {
            plan.name: limits[plan.name] for plan in plans if plan.name in limits and not plan.has_changes
        }
        self.rests: dict[str, pa.Table] = {}
        """For each query, the rows of the last micro-batch that the driver has not received, added up by window."""
        self.written_files: dict[str, list[Path]] = {}
        """For each query, the files that contain the rows of the last micro-batch."""
        self._repeats_batch = True
        self.totals = Totals()
        self.changes = QueryChanges()
        """Differences between the queries in the folder and the queries of this object. `prepare` sets it."""
        self.continued_batch = -1
        """The newest micro-batch with totals when this object was prepared, or -1. It may be repeated."""
        self.next_batch = 0
        """The micro-batch with which the run continues. `prepare` sets it. An earlier process may have begun this
        micro-batch.
        """
        self._query: StreamingQuery | None = None
        self._locks = Locks()
        self._printed_warnings: set[str] = set()
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._is_prepared = False
        self._batch_lock = threading.RLock()
        self._restarts = Restarts(say)
        self._java_references = JavaReferences()
        self._measure = measure
        self._copy = copy
        self._frames = frames or {}
        self._trigger = trigger or {}
        self._measured_batches: dict[int, tuple[list[Measurement], list[float]]] = {}
        self._figures = QueryFigures()
        self._mapped: dict[Path, Capture] = {}
        """The captures between `prepare` and `start`. Their pages are mapped once, for the digest and for the scan."""
        self._captures: dict[int, IndexedCapture] = {}
        self._copies = WatchedCopies(plans, self.folder, self.say)

    @property
    def samples(self) -> Samples:
        """All counters after the last micro-batch, and those of restarts and watched files of this object."""
        return self._add_counters(self.totals.samples)

    @property
    def measurements(self) -> list[Measurement]:
        """The figures of each node of the measured query, over the micro-batches of this object."""
        measurements = [Measurement() for _ in self.assignment.plans[0].nodes]
        for measured, _ in self._measured_batches.values():
            for measurement, later in zip(measurements, measured, strict=True):
                measurement.continue_with(later)
        return measurements

    @property
    def task_seconds(self) -> list[float]:
        """The seconds of each task of the low level, in a measured run."""
        return [seconds for _, task_seconds in self._measured_batches.values() for seconds in task_seconds]

    @property
    def figures(self) -> Samples:
        """Figures of the Spark query. They also change between micro-batches. `wait` reads them."""
        return self._figures.samples

    def _add_counters(self, samples: Samples) -> Samples:
        """Return the samples of the tasks with the counters of this process."""
        merged = Samples(samples)
        merged.merge(self._restarts.samples, ALL_METRICS)
        merged.merge(self._copies.samples, ALL_METRICS)
        return merged

    @property
    def spark(self) -> SparkSession | None:
        """The session, or None before it is started."""
        return self._session if isinstance(self._session, SparkSession) else None

    def prepare(self) -> None:
        """Check everything that can be checked without Spark, and lock the folder and the spools.

        Raises InputError for an input, FolderError for a folder that is damaged, in use, or of another run.
        """
        for input_ in self.assignment.inputs:
            # Inputs are checked before the folder is created.
            if input_.topic is not None:
                check_topic(input_.topic)
            elif input_.table is not None:
                input_.table.check()
            elif input_.is_capture:
                open_finite(input_.path, "the stream engine")
        make_private_folder(self.folder)
        check_subfolders(self.folder)
        self._locks.lock_folder(self.folder)
        try:
            self._locks.lock_spools(self.assignment.inputs)
            self._prepare_folder()
        except BaseException:
            self._locks.release()
            raise
        self._is_prepared = True

    def _prepare_folder(self) -> None:
        inputs = replace_compressed_inputs(self.assignment.inputs, self.folder, self.say)
        inputs = [input_.absolute() for input_ in inputs]
        assignment = InputAssignment.of(self.assignment.plans, inputs, self.partitions)
        self._mapped = open_captures(inputs)
        identity = describe_run(assignment, self.partitions, self.block_records, self.speed is not None, self._mapped)
        start = prepare_folder(self.folder, assignment, identity, self.say)
        self.next_batch, self.continued_batch = start.next_batch, start.last_batch
        self.totals, self.changes = start.totals, start.changes
        if self.totals.is_finished(start.assignment.input_ids):
            self._ended.set()
        self._copies.open()
        self.assignment = replace(start.assignment, plans=self._copies.bind(start.assignment.plans))
        self._publish(self.next_batch - 1)

    def _publish(self, batch_id: int, task_state: dict[str, FileEntry] | None = None) -> None:
        """Store the files after a micro-batch, if the folder is in an object store."""
        if self._copy is not None:
            self._copy.publish(batch_id, list_state_folders(self.assignment, batch_id), task_state)

    def start(self) -> None:
        """Start or continue the run; first call `prepare` if that was not done.

        Raises RunError, or an error of `prepare`.
        """
        if not self._is_prepared:
            self.prepare()
        try:
            with self._index_captures():
                if callable(self._session):
                    self._session = self._session()
                with convert_jvm_failures():
                    self._check_executors(self._session)
                self._compile_kernels()
            with convert_jvm_failures():
                self._start(self._session)
        except BaseException:
            self.stop()
            raise

    @contextmanager
    def _index_captures(self) -> Iterator[None]:
        """Scan the captures while the block runs. The scan ends early if the block or the wait for the scan fails."""
        stop = threading.Event()
        with ThreadPoolExecutor(1, "index") as thread:
            spec = self._make_spec(task_count=1)  # the scan does not depend on the number of tasks
            captures = thread.submit(index_captures, spec, self._mapped, stop)
            try:
                yield
                self._captures, self._mapped = captures.result(), {}
            finally:
                stop.set()

    def _check_executors(self, spark: SparkSession) -> None:
        kinds = {leaf.low.kind for leaf in leaves_of(self.assignment.plans)}
        paths = [path for input_ in self.assignment.inputs for path in input_.files]
        store = None if (copy := self._find_remote_copy(spark)) is None else copy.store
        folder = self.folder if store is None else None
        check_executors(spark.sparkContext, paths, kinds, self.say, folder, self.assignment.plans, store=store)

    def _compile_kernels(self) -> None:
        """Compile the kernels that read captures. For a spool, the node that writes it compiles them."""
        for leaf in leaves_of(self.assignment.plans):
            if any(input_.feeds(leaf) and input_.is_capture for input_ in self.assignment.inputs):
                compile_kernels(leaf.low.kind)

    def _find_remote_copy(self, spark: SparkSession) -> RunCopy | None:
        """Return the copy of the folder if tasks do not see it, so they use the object store; else None."""
        return None if is_on_this_machine(str(spark.sparkContext.master)) else self._copy

    def _start(self, spark: SparkSession) -> None:
        if not (self.folder / "checkpoint").exists():
            for line in report_earlier_runs(self.assignment.inputs):
                self.say(f"warning: {line}")
        self._processor = BatchProcessor(
            self.folder,
            self.assignment,
            row_limits=self._row_limits,
            keep_results=self.keep_results,
            measure=self._measure,
            say=self.say,
        )
        make_private_folder(self.folder / "checkpoint")
        spec = self._make_spec(spark.sparkContext.defaultParallelism)
        self._query = self._start_query(spark, spec, self._captures)

    def _make_spec(self, task_count: int) -> StreamSpec:
        return StreamSpec(
            assignment=self.assignment,
            slots=self.slots,
            block_records=self.block_records,
            max_blocks=self.max_blocks,
            speed=self.speed,
            task_count=task_count,
            max_bytes=self.max_bytes,
            measure=self._measure,
            totals=self.folder / "totals",
        )

    def _start_query(
        self, spark: SparkSession, spec: StreamSpec, captures: Mapping[int, IndexedCapture]
    ) -> StreamingQuery:
        """Start the query from its checkpoint. Try again if Spark cannot start a process."""
        self._repeats_batch = True
        if self._copy is not None:
            self._copy.add_commit()
        while True:
            try:
                rows = (
                    open_frames(self._frames, self.assignment) if self._frames else open_stream(spark, spec, captures)
                )
                writer = rows.writeStream.foreachBatch(self._on_micro_batch)
                if self._trigger:
                    writer = writer.trigger(**self._trigger)
                # The path has the scheme `file:`, because `spark.hadoop.fs.defaultFS` may name another file system.
                # `Path.as_uri` is not used, because Spark does not decode %XX.
                return writer.option("checkpointLocation", f"file:{self.folder / 'checkpoint'}").start()
            except (PySparkException, Py4JJavaError) as failure:
                self._wait_for_restart(make_report(failure))

    def _wait_for_restart(self, report: str) -> None:
        """Wait before a restart. Raise the reason of the failure if no restart is possible."""
        delay = self._restarts.next_delay(report)
        if delay is None:
            raise self._restarts.make_final_error(report) from None
        self._on_restart()
        time.sleep(delay)

    def _on_micro_batch(self, rows: DataFrame, batch_id: int) -> None:
        """Process one micro-batch. Remember a failure for `wait`."""
        with self._batch_lock:
            try:
                self._process_batch(rows, batch_id)
            except BaseException as failure:
                self._failure = failure
                raise
            self._restarts.reset_delay()
            self._figures.count_batch()
            self._java_references.release()

    def _process_batch(self, rows: DataFrame, batch_id: int) -> None:
        self._locks.lock_spools(self.assignment.inputs)
        self._copies.refresh(batch_id)
        task_files = None
        if self._copy is not None:
            self._copy.publish_plan(batch_id)
            if self._find_remote_copy(rows.sparkSession) is not None:
                task_files = self._copy.make_task_files(batch_id)
        if self._frames:
            rows = add_batch_end(rows, self.assignment, batch_id)
        batch = self._processor.process(rows, batch_id, is_repeated=self._repeats_batch, task_files=task_files)
        self._repeats_batch = False
        self.totals, self.written_files, self.rests = batch.totals, batch.files, batch.rests
        if batch.figures is not None:
            self._measured_batches[batch_id] = batch.figures
        for line in batch.totals.warnings:
            if line not in self._printed_warnings:
                self._printed_warnings.add(line)
                self.say(f"warning: {line}")
        if self._copy is not None:
            self._copy.check()
        if self.on_batch is not None:
            self.on_batch(batch_id, batch.tables, self._add_counters(batch.totals.samples))
        self._publish(batch_id, batch.task_state)
        if batch.totals.is_finished(self.assignment.input_ids):
            self._ended.set()

    @property
    def finished(self) -> bool:
        """Return True if every input has been read to its end and all results have been written."""
        return self._ended.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds for the end of all inputs. Return True if the last micro-batch is committed.

        If the run has failed, raise the reason: InputError, FolderError, RunError, or an error of `on_batch`.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with convert_jvm_failures():
            while not self._ended.wait(0.2):
                if self._is_running():
                    self._read_figures()
                elif self._is_triggered_to_end and self._running_query().exception() is None:
                    self._read_figures(is_final=True)
                    return True
                else:
                    self._restart()
                if deadline is not None and time.monotonic() >= deadline:
                    return False
            while True:  # all rows are written; wait for the commit of the last micro-batch
                try:
                    self._running_query().processAllAvailable()
                except PySparkException:
                    if self._is_running():
                        raise
                if self._is_running():
                    self._read_figures(is_final=True)
                    return True
                self._restart()

    @property
    def _is_triggered_to_end(self) -> bool:
        return bool(self._trigger.get("availableNow") or self._trigger.get("once"))

    def _read_figures(self, *, is_final: bool = False) -> None:
        assert isinstance(self._session, SparkSession), "a started run has a session"
        query, progress = self._running_query(), self.totals.progress
        self._figures.read(self._session.sparkContext, query, self.assignment, progress, is_final=is_final)

    def _is_running(self) -> bool:
        """Return whether the query is running. Raises RunError if the JVM has ended."""
        jvm_end = read_jvm_end()
        if jvm_end is not None:
            raise make_jvm_error(jvm_end)
        return bool(self._running_query().isActive)

    def _restart(self) -> None:
        """Restart a failed query from its checkpoint. Raise the reason of the failure if no restart is possible."""
        query = self._running_query()
        failure = query.exception()
        cause, self._failure = self._failure, None
        if isinstance(cause, OSError) and cause.filename is not None:  # for example a full disk
            raise RunError(f"{cause.filename}: {cause.strerror}") from cause
        if cause is not None and not isinstance(cause, PySparkException | Py4JError):
            raise cause
        if cause is None and failure is None:
            raise RunError("the query on Spark was stopped by another program before the inputs ended")
        report = "\n".join(make_report(error) for error in (cause, failure) if error is not None)
        self._wait_for_restart(report)
        assert isinstance(self._session, SparkSession), "a started run has a session"
        with self._batch_lock:
            self._query = None
        self._start(self._session)

    def stop(self) -> None:
        """Stop after the current micro-batch. A later run can continue in the folder. A second call has no effect.

        It is not an error if the JVM has already ended. This method waits until the function of the current micro-batch
        returns, because an interpreter that ends while it reads from Spark crashes.
        """
        if self._query is not None:
            query, self._query = self._query, None
            try:
                query.stop()
            except (Py4JError, PySparkException, OSError):
                if read_jvm_end(JVM_END_SECONDS) is None:
                    raise
            with self._batch_lock:
                pass
        self._locks.release()
        self._is_prepared = False

    def _running_query(self) -> StreamingQuery:
        if self._query is None:
            raise RuntimeError("the run is not started")
        return self._query
