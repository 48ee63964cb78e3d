"""A run of the stream engine, from captures and spools to final results. A restart neither loses nor repeats rows.

    folder/run.json      identity of the run
    folder/lock          locked by the process of the run
    folder/inputs        decompressed captures
    folder/checkpoint    written by Spark: planned offsets and committed micro-batches
    folder/state         the operators, by partition and batch id
    folder/totals        counters, by batch id
    folder/output        results, by query, date and batch id
    folder/staged        results of tasks whose micro-batch is not finished
    folder/quarantine    damaged segments of spools, and the places of all damages
    folder/watched       copies of watchlists and settings

A spool is also locked, by a file `.run.lock` in its folder, because one run would delete segments that another must
read.

Exactly once: Spark writes the offsets of micro-batch n to its log before a task runs, and commits n after all tasks.
Tasks depend only on these offsets, operators on the tasks and the state of n - 1. Every output file has n in its name.
So any repetition of n, after any interruption, gives the same files.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from capture.errors import InputError
from capture.files.blocks import BLOCK_RECORDS
from capture.metrics import Samples
from capture.open import open_finite
from capture.private_files import check_private_folder, make_private_folder, open_private
from highlevel.inline.engine import ALL_METRICS, Input, check_one_input
from highlevel.plan.measurement import Measurement, sum_measurements
from highlevel.plan.plan import Plan, leaves_of
from highlevel.results.row_limit import RowLimit
from highlevel.spark.checkpoint import check_checkpoint, newest_planned, offsets_checksum
from highlevel.spark.decompressed_inputs import Say, map_inputs
from highlevel.spark.errors import FolderError, RunError, make_report
from highlevel.spark.host import LevelTask
from highlevel.spark.input_assignment import InputAssignment
from highlevel.spark.kernel_compilation import compile_kernels
from highlevel.spark.packing import unpack
from highlevel.spark.preflight import check_executors
from highlevel.spark.quarantine import FOLDER as QUARANTINE
from highlevel.spark.quarantine import keep_damages
from highlevel.spark.query_figures import QueryFigures
from highlevel.spark.reading import COUNTERS
from highlevel.spark.restarts import Restarts
from highlevel.spark.result_files import (
    move_to_dates,
    remove_results,
    rename_results,
    set_aside_results,
    write_results,
)
from highlevel.spark.run_identity import (
    QueryChanges,
    RunIdentity,
    apply_identity,
    continue_identity,
    describe_run,
    read_identity,
    write_identity,
)
from highlevel.spark.session import JVM_END_SECONDS, convert_jvm_failures, make_jvm_error, read_jvm_end
from highlevel.spark.source import MAX_BYTES, StreamSpec, open_stream
from highlevel.spark.spool_planner import report_earlier_runs
from highlevel.spark.staged_results import (
    ResultWriter,
    commit_files,
    decode_written,
    remove_staged,
    stored_form,
)
from highlevel.spark.state_partitions import divide_state, finish_division
from highlevel.spark.totals import Totals, TotalsFiles
from highlevel.spark.watched_copies import FOLDER, WatchedCopies
from lowlevel.kinds import RECORD_KINDS, TABLE
from lowlevel.node.node import TABLE_SLOTS
from lowlevel.punctuation import BEGINNING


class Locks:
    """Locks of this process.

    The kernel releases them at the end of the process, also after a crash. Not thread safe.
    """

    def __init__(self) -> None:
        """Create an object without locks."""
        self._locked_files: dict[Path, IO[str]] = {}

    def lock(self, path: Path, message: str) -> None:
        """Lock a file, and create it if necessary.

        Repeated calls have no effect. Raise FolderError(otherwise) if another process has the lock.
        """
        if path in self._locked_files:
            return
        file = os.fdopen(open_private(path, os.O_RDWR), "r+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise FolderError(message) from None
        self._locked_files[path] = file

    def release(self) -> None:
        """Release all locks. Does nothing without locks."""
        for file in self._locked_files.values():
            file.close()
        self._locked_files.clear()


OnBatch = Callable[[int, dict[str, pa.Table], Samples], None]
"""Called with the batch ID, the new final rows of each query, and the sums of all counters.

After a crash it may be called again with the last batch ID and the same rows. Of a query with a RowLimit a partition
sends at most this number of rows; the rest is in `StreamRun.rests`.
"""

PACED_BLOCK_RECORDS = 1024
MAX_BLOCKS = 256


class StreamRun:
    """One run of any number of queries over captures and spools.

    Start it once. To continue, call `stop` and create a new object.

    Results are deleted `keep_results` ns after the end of their window, None for never. `partitions` is the number of
    operator partitions. `slots` is the size of each low-level table. `speed` is in capture seconds per wall second,
    None for maximum speed. A micro-batch reads up to `max_blocks` blocks of `block_records` records of each capture,
    and `max_bytes` bytes of each spool. Captures are finite. A spool ends when its node closes it; the run waits for a
    missing spool. Memory: the partials of one micro-batch and the open windows, by partition.
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
        max_blocks: int = MAX_BLOCKS,
        block_records: int | None = None,
        max_bytes: int = MAX_BYTES,
        keep_results: int | None = None,
        on_batch: OnBatch | None = None,
        row_limits: Mapping[str, RowLimit] | None = None,
        say: Say = print,
        on_restart: Callable[[], None] = lambda: None,
        measure: bool = False,
    ) -> None:
        """Check the options without opening an input.

        `spark` is a session, or a function that starts one after all other checks. `say` receives messages for the
        user: progress before a start, and warnings about spools, each once. `on_restart` is called before each restart.
        `row_limits`: by query, the result rows that `on_batch` needs; of other queries it receives all rows. Changes
        have no limit. By default every other query has one, if nothing receives rows.
        With `measure` the nodes of the only query are measured (`measurements`), and the counters of a leaf have its
        name in the plan in place of the query.
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
            if plan.low.remembers and any(input_.feeds(plan) and not input_.spool for input_ in used_inputs):
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
        """Of the last micro-batch: the rows that the driver has not received, added up by window, by query."""
        self.written_files: dict[str, list[Path]] = {}
        """Of the last micro-batch: the files that contain its rows, by query."""
        self._repeats_batch = True
        self.totals = Totals()
        self.changes = QueryChanges()
        """Differences between the queries of the folder and of this object; known after `prepare`."""
        self.continued_batch = -1
        """Last micro-batch with totals at the start. It may be repeated."""
        self.next_batch = 0
        """The micro-batch with which the run continues; known after `prepare`. An earlier process may have begun it."""
        self._totals_files = TotalsFiles(self.folder / "totals")
        self._query: StreamingQuery | None = None
        self._locks = Locks()
        self._printed_warnings: set[str] = set()
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._is_prepared = False
        self._batch_lock = threading.RLock()
        self._restarts = Restarts(say)
        self._measure = measure
        self._measured_batches: dict[int, tuple[list[Measurement], list[float]]] = {}
        self._figures = QueryFigures()
        self._copies = WatchedCopies(plans, self.folder, self.say)

    @property
    def samples(self) -> Samples:
        """All counters after the last micro-batch, and the restarts of this object."""
        return self._add_restarts(self.totals.samples)

    @property
    def measurements(self) -> list[Measurement]:
        """Figures of each node of the measured query, over the micro-batches of this object."""
        measurements = [Measurement() for _ in self.assignment.plans[0].nodes]
        for measured, _ in self._measured_batches.values():
            for measurement, later in zip(measurements, measured, strict=True):
                measurement.continue_with(later)
        return measurements

    @property
    def task_seconds(self) -> list[float]:
        """Seconds of each task of the low level in a measured run."""
        return [seconds for _, task_seconds in self._measured_batches.values() for seconds in task_seconds]

    @property
    def figures(self) -> Samples:
        """Figures of the query on Spark, which change between micro-batches too. `wait` reads them."""
        return self._figures.samples

    def _add_restarts(self, samples: Samples) -> Samples:
        merged = Samples(samples)
        merged.merge(self._restarts.samples, ALL_METRICS)
        return merged

    @property
    def spark(self) -> SparkSession | None:
        """Session, or None before it is started."""
        return self._session if isinstance(self._session, SparkSession) else None

    def prepare(self) -> None:
        """Check everything that can be wrong without Spark, and lock the folder and the spools.

        Raises InputError for an input, FolderError for a folder that is damaged, in use, or of another run.
        """
        for input_ in self.assignment.inputs:
            # Before the folder is created.
            if input_.table is not None:
                input_.table.check()
            elif not input_.spool:
                open_finite(input_.path, "the stream engine")
        make_private_folder(self.folder)
        self._check_subfolders()
        in_use = f"{self.folder} is in use by another run; take another folder, or stop that run"
        self._locks.lock(self.folder / "lock", in_use)
        try:
            self._lock_spools()
            self._check_folder()
            self._copies.open()
            self.assignment = replace(self.assignment, plans=self._copies.bind(self.assignment.plans))
        except BaseException:
            self._locks.release()
            raise
        self._is_prepared = True

    def _check_folder(self) -> None:
        inputs = map_inputs(self.assignment.inputs, self.folder, self.say)
        inputs = [input_.absolute() for input_ in inputs]
        self.assignment = InputAssignment.of(self.assignment.plans, inputs, self.partitions)
        new = describe_run(self.assignment, self.partitions, self.block_records, self.speed is not None)
        stored = read_identity(self.folder)
        known = new if stored is None else stored
        remove_temporary_files(self.folder)
        remove_staged(self.folder / "staged")
        move_to_dates(self.folder / "output", self.folder / "staged" / "undated")
        finish_division(self.folder, known.partitions)
        next_batch = check_checkpoint(self.folder, {input_.offset_key: input_.since for input_ in known.inputs})
        self.next_batch = next_batch
        self._totals_files.load(next_batch - 1)
        self.continued_batch = self._totals_files.last_batch_id()
        totals = self._totals_files.load(self.continued_batch)
        if stored is None:
            write_identity(self.folder, new)
        else:
            self._continue_run(stored, new, next_batch, totals)
        totals.rename_queries(self._query_names)
        self.totals = totals
        if self.totals.is_finished(self.assignment.input_ids):
            self._ended.set()

    def _continue_run(self, stored: RunIdentity, new: RunIdentity, next_batch: int, totals: Totals) -> None:
        """Continue the run of the folder with the queries of this object, and report how they differ."""
        next_offsets = newest_planned(self.folder) + 1
        identity, self.changes = continue_identity(self.folder, stored, new, next_batch, next_offsets)
        self.assignment = apply_identity(self.assignment, new, identity)
        is_divided = stored.partitions != self.partitions
        if is_divided:
            divide_state(self.folder, self.assignment, stored.partitions, next_batch - 1)
        if not (self.changes or is_divided or stored.settings != identity.settings):
            return
        # Before run.json is written: if this is interrupted, the next start does it again.
        if self.changes:
            self._set_results_aside(next_batch)
        write_identity(self.folder, identity)
        finish_division(self.folder, self.partitions)
        if is_divided:
            self.say(f"the state of open windows has {self.partitions} partitions now; it had {stored.partitions}")
        if not self.changes:
            return
        ended = [
            query.name for query in identity.queries if query.since == next_batch and totals.is_finished(query.inputs)
        ]
        for line in self.changes.lines(ended):
            self.say(line)

    def _set_results_aside(self, next_batch: int) -> None:
        """Remove results that are computed again. Rename or set aside the results of changed queries."""
        remove_results(self.folder / "output", next_batch)
        old_names = {new_name: old_name for old_name, new_name in self.changes.renamed}
        for plan in self.assignment.plans:
            if plan.has_changes and plan.name in old_names:  # a later change withdraws rows of an earlier one
                rename_results(self.folder / "output", old_names[plan.name], plan.name)
            is_other = plan.has_changes and plan.name in self.changes.changed
            old_folder = set_aside_results(self.folder / "output", plan, always=is_other)
            if old_folder is not None:
                reason = "its changes belong to another text" if is_other else "its columns have changed"
                self.say(f"query {plan.name}: {reason}; its results so far are now in {old_folder}")

    @property
    def _query_names(self) -> dict[int, str]:
        """The names of the queries by their IDs."""
        return {
            number: plan.name for plan, number in zip(self.assignment.plans, self.assignment.query_ids, strict=True)
        }

    def start(self) -> None:
        """Start or continue, after `prepare` if necessary. Raise RunError, or an error of `prepare`."""
        if not self._is_prepared:
            self.prepare()
        try:
            if callable(self._session):
                self._session = self._session()
            with convert_jvm_failures():
                self._check_executors(self._session)
                self._start(self._session)
        except BaseException:
            self.stop()
            raise

    def _check_executors(self, spark: SparkSession) -> None:
        kinds = {leaf.low.kind for leaf in leaves_of(self.assignment.plans)}
        paths = [path for input_ in self.assignment.inputs for path in input_.files]
        check_executors(spark.sparkContext, paths, kinds, self.say, self.folder)

    def _start(self, spark: SparkSession) -> None:
        if not (self.folder / "checkpoint").exists():
            for line in report_earlier_runs(self.assignment.inputs):
                self.say(f"warning: {line}")
        for leaf in leaves_of(self.assignment.plans):
            # The node that writes a spool compiles the kernels for its link.
            if any(input_.feeds(leaf) and input_.is_capture for input_ in self.assignment.inputs):
                compile_kernels(leaf.low.kind)
        spec = StreamSpec(
            assignment=self.assignment,
            slots=self.slots,
            block_records=self.block_records,
            max_blocks=self.max_blocks,
            speed=self.speed,
            task_count=spark.sparkContext.defaultParallelism,
            max_bytes=self.max_bytes,
            measure=self._measure,
        )
        make_private_folder(self.folder / "checkpoint")
        self._query = self._start_query(spark, spec)

    def _start_query(self, spark: SparkSession, spec: StreamSpec) -> StreamingQuery:
        """Start the query from its checkpoint. Try again if Spark fails to start a process."""
        self._repeats_batch = True
        while True:
            try:
                writer = open_stream(spark, spec).writeStream.foreachBatch(self._on_micro_batch)
                # With its scheme, because `spark.hadoop.fs.defaultFS` may name another file system than that of the
                # state. Spark does not decode %XX, so this is not `Path.as_uri`.
                return writer.option("checkpointLocation", f"file:{self.folder / 'checkpoint'}").start()
            except PySparkException as failure:
                self._wait_for_restart(make_report(failure))

    def _wait_for_restart(self, report: str) -> None:
        """Wait before a restart, or raise the reason of the failure if no restart is possible."""
        delay = self._restarts.next_delay(report)
        if delay is None:
            raise self._restarts.make_final_error(report) from None
        self._on_restart()
        time.sleep(delay)

    def _on_micro_batch(self, rows: DataFrame, batch_id: int) -> None:
        """Process one micro-batch. All its files have its ID."""
        with self._batch_lock:
            try:
                self._process_batch(rows, batch_id)
            except BaseException as failure:
                self._failure = failure
                raise
            self._restarts.reset_delay()
            self._figures.count_batch()

    def _process_batch(self, rows: DataFrame, batch_id: int) -> None:
        self._lock_spools()
        self._copies.refresh(batch_id)
        totals = self._totals_files.load(batch_id - 1)
        totals.rename_queries(self._query_names)
        spooled = [plan.name for query, plan in enumerate(self.assignment.plans) if self._reads_spool(query)]
        writer = ResultWriter(
            self.folder / "output",
            self.folder / "staged",
            batch_id,
            self._row_limits,
            {name: totals.sampled_ranges.get(name, []) for name in spooled},
        )
        for level in range(self.assignment.levels):
            host = LevelTask(
                self.assignment,
                self.folder / "state",
                batch_id,
                level,
                totals.ended_inputs,
                measure=self._measure,
                writer=writer,
            )
            rows = rows.repartitionById(self.partitions, "part").mapInArrow(host, host.schema)
        job_output = rows.toArrow()
        tables: dict[int, dict[int, pa.Table]] = {}  # by query and partition
        task_counters: list[bytes] = []
        host_counters: list[bytes] = []
        for part, query, payload in zip(*(job_output.column(name) for name in job_output.column_names), strict=True):
            if query.as_py() != COUNTERS:
                tables.setdefault(query.as_py(), {})[part.as_py()] = unpack(payload.as_buffer())
            else:
                (task_counters if part.as_py() == COUNTERS else host_counters).append(payload.as_py())
        written = decode_written(counts for counters in host_counters for counts in json.loads(counters))
        results, unwritten = {}, {}
        for query, plan in enumerate(self.assignment.plans):
            parts, empty = tables.get(query, {}), plan.schema.empty_table()
            own = written[query].parts if query in written else ()
            results[plan.name] = pa.concat_tables([*parts.values()]) if parts else empty
            remaining = [table for part, table in parts.items() if part not in own]
            unwritten[plan.name] = pa.concat_tables(remaining) if remaining else empty
        final_until = {
            plan.name: totals.watermarks.get(plan.name, BEGINNING) for plan in self.assignment.plans if plan.has_changes
        }
        totals.add(self.assignment, task_counters, host_counters, batch_id)
        for line in keep_damages(self.folder, totals.damages, batch_id):
            self.say(f"warning: {line}")
        if self._measure:
            self._add_measurements(batch_id, task_counters, host_counters)
        sampled = {name: totals.sampled_ranges.get(name, []) for name in spooled}
        stored = {
            plan.name: stored_form(plan, unwritten[plan.name], sampled.get(plan.name)) for plan in self.assignment.plans
        }
        names = [plan.name for plan in self.assignment.plans]
        files = {names[query]: one.files for query, one in written.items()}
        of_tasks = {name: [writer.output / file.path for file in staged] for name, staged in files.items()}
        repeated = of_tasks if self._repeats_batch else None
        of_driver = write_results(writer.output, batch_id, stored, self.keep_results, final_until, repeated)
        commit_files(writer, files, sampled, self.keep_results)
        self.written_files = {name: [*of_driver[name], *of_tasks.get(name, ())] for name in names}
        self._repeats_batch = False
        remove_staged(self.folder / "staged")
        self.rests = {names[query]: pa.concat_tables(one.rests) for query, one in written.items() if one.rests}
        totals.offsets = offsets_checksum(self.folder / "checkpoint", batch_id)
        self._totals_files.save(batch_id, totals)
        self.totals = totals
        for line in totals.warnings:
            if line not in self._printed_warnings:
                self._printed_warnings.add(line)
                self.say(f"warning: {line}")
        if self.on_batch is not None:
            self.on_batch(batch_id, results, self._add_restarts(totals.samples))
        if totals.is_finished(self.assignment.input_ids):
            self._ended.set()

    def _add_measurements(self, batch_id: int, task_counters: list[bytes], host_counters: list[bytes]) -> None:
        """Set the figures of a micro-batch. A repeated one replaces them."""
        tasks = [json.loads(counters) for counters in task_counters]
        fragments = [counts for counters in host_counters for counts in json.loads(counters)]
        measurements = sum_measurements(len(self.assignment.plans[0].nodes), (*tasks, *fragments))
        self._measured_batches[batch_id] = measurements, [counts["seconds"] for counts in tasks]

    def _reads_spool(self, query: int) -> bool:
        return any(self.assignment.inputs[number].spool for number in self.assignment.inputs_of(query))

    @property
    def finished(self) -> bool:
        """Return True if every input has been read to its end and all results are written."""
        return self._ended.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds for the end of all inputs. Return True if it is committed.

        Raise the reason of a failure: InputError, FolderError, RunError, or an error of `on_batch`.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with convert_jvm_failures():
            while not self._ended.wait(0.2):
                if self._is_running():
                    self._read_figures()
                else:
                    self._restart()
                if deadline is not None and time.monotonic() >= deadline:
                    return False
            while True:  # all rows are written: wait for the commit of the last micro-batch
                try:
                    self._running_query().processAllAvailable()
                except PySparkException:
                    if self._is_running():
                        raise
                if self._is_running():
                    self._read_figures(is_final=True)
                    return True
                self._restart()

    def _read_figures(self, *, is_final: bool = False) -> None:
        assert isinstance(self._session, SparkSession), "a started run has a session"
        query, progress = self._running_query(), self.totals.progress
        self._figures.read(self._session.sparkContext, query, self.assignment, progress, is_final=is_final)

    def _is_running(self) -> bool:
        """Return whether the query runs. Raises RunError if the JVM has ended."""
        jvm_end = read_jvm_end()
        if jvm_end is not None:
            raise make_jvm_error(jvm_end)
        return bool(self._running_query().isActive)

    def _restart(self) -> None:
        """Restart a query that has ended from its checkpoint, or raise the reason of the failure."""
        query = self._running_query()
        failure = query.exception()
        cause, self._failure = self._failure, None
        if isinstance(cause, OSError) and cause.filename is not None:  # such as a full disk
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
        """Stop after the running micro-batch. The folder can be continued. A second call has no effect.

        A JVM that has ended is no error. This method waits for the function of a running micro-batch, because an
        interpreter that ends while it reads from Spark aborts.
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

    def _check_subfolders(self) -> None:
        """Raise UnsafeFolderError if another user can write to a folder in the run's folder."""
        for name in ("inputs", "checkpoint", "state", "totals", "output", "staged", QUARANTINE, FOLDER):
            if (self.folder / name).exists():
                check_private_folder(self.folder / name)

    def _lock_spools(self) -> None:
        """Lock the spools whose folders exist. Raises UnsafeFolderError if another user can write to one."""
        for input_ in self.assignment.inputs:
            if input_.spool and input_.path.is_dir():
                check_private_folder(input_.path)
                message = f"{input_.path} is read by another run; stop that run, or let the node write another spool"
                self._locks.lock(input_.path.absolute() / ".run.lock", message)

    def _running_query(self) -> StreamingQuery:
        if self._query is None:
            raise RuntimeError("the run is not started")
        return self._query


def remove_temporary_files(folder: Path) -> None:
    """Remove temporary files of a killed process (names with a leading dot), except Spark's files."""
    for subfolder in ("inputs", "state", "totals", "output", QUARANTINE, FOLDER):
        for path in (folder / subfolder).rglob(".*"):
            if path.is_file():  # not the folder of a query with a leading dot in its name
                path.unlink(missing_ok=True)
