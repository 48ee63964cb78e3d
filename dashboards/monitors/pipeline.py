"""The monitoring pipeline: links and queries on Spark, results to Prometheus, files and the console."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from capture import arrow_compute as pc
from capture.files.capture import Capture
from capture.interrupts import uninterrupted
from capture.metrics import (
    BYTES_READ,
    FILES_DAMAGED,
    PACKETS_DECODED,
    RECORDS_READ,
    RECORDS_SKIPPED,
    LabelledName,
    Samples,
)
from capture.metrics import METRICS as CAPTURE_METRICS
from capture.open import open_finite
from capture.private_files import open_private
from dashboards.alerts.alerts import Alerts
from dashboards.alerts.evaluation import Evaluation
from dashboards.alerts.messages import FINAL
from dashboards.alerts.store import FILE as ALERTS_FILE
from dashboards.changes.metrics import METRICS as CHANGES_METRICS
from dashboards.changes.results_so_far import ResultsSoFar, Update
from dashboards.monitors.spool_lines import spool_lines, spool_table
from dashboards.monitors.window_lines import change_lines, row_change_lines, window_lines
from dashboards.output.run_warnings import count, plan_warnings
from dashboards.output.table import align_table
from dashboards.page.history import History
from dashboards.page.site import Site
from dashboards.page.stored_windows import FILE as HISTORY_FILE
from dashboards.page.views import Views
from dashboards.prometheus.access import read_access
from dashboards.prometheus.exporter import Exporter
from dashboards.prometheus.health import Health
from dashboards.prometheus.query_counters import values_with_counters
from dashboards.prometheus.server import OPTION, Server, serve
from dashboards.prometheus.stable_groups import StableGroups
from dashboards.sinks.metrics import METRICS as SINK_METRICS
from dashboards.wire_text import escape
from highlevel.aggregation import LATE
from highlevel.metrics import LATE_PARTIALS, RESULT_ROWS, WINDOWS_CLOSED
from highlevel.metrics import METRICS as HIGH_METRICS
from highlevel.plan.plan import Plan
from highlevel.results.row_limit import WINDOW_ROWS, RowLimit, select_rows
from highlevel.spark.run_folder.watched_copies import FOLDER as WATCHED_FOLDER
from highlevel.spark.run_folder.watched_copies import name_of_copy
from lowlevel.integer_ranges import Ranges
from lowlevel.metrics import METRICS as LOW_METRICS
from lowlevel.node.node_watchlists import find_watched_files
from lowlevel.punctuation import BEGINNING
from queries.binding.watchlists import copies_allowed
from queries.pipeline.file import PipelineFile
from queries.pipeline.sections import PipelineError

if TYPE_CHECKING:
    from dashboards.sinks.sinks import Sinks
    from highlevel.spark.remote.run_copy import RunCopy
    from highlevel.spark.stream import StreamRun

PrintLine = Callable[[str], None]

ALERT_LINES = 10
"""Maximum number of lines about alerts after a micro-batch."""

SPOOL_LINE_SECONDS = 60.0
"""Seconds between two lines about each spool."""


class Monitor:
    """Runs a pipeline file. A context manager: its end stops Spark and the metrics server."""

    def __init__(self, pipeline: PipelineFile, print_line: PrintLine = print, *, port_option: str = OPTION) -> None:
        """Check the configuration, without starting a JVM. `print_line` receives lines for the user.

        `port_option`: the option or setting of the metrics port, for messages.
        """
        self._port_option = port_option
        self.pipeline = pipeline
        self.print_line = print_line
        with copies_allowed(lambda path: pipeline.folder / WATCHED_FOLDER / name_of_copy(path)):
            self.plans = pipeline.plans()
        files = pipeline.inputs(self.plans)
        self.inputs = [*files, *pipeline.spools]
        for file in files:
            if file.table is not None:
                file.table.check()
            elif file.is_capture:
                open_finite(file.path, "the stream engine")
        if pipeline.folder_uri:
            self._check_files_of_tasks()
        try:
            metrics = (*CAPTURE_METRICS, *LOW_METRICS, *HIGH_METRICS, *CHANGES_METRICS, *SINK_METRICS)
            self.exporter = Exporter(
                self.plans, metrics, pipeline.top, pipeline.ranks, pipeline.counters, pipeline.histograms
            )
        except ValueError as error:  # equal names, a rank that is no column
            raise PipelineError(str(error)) from error
        self._evaluation = Evaluation(pipeline.alerts, self.plans, self.exporter.series)
        self._spooled_links = list(pipeline.spooled)
        self._spools_printed = time.monotonic()
        self.plans_by_name = {plan.name: plan for plan in self.plans}
        output = pipeline.folder / "output"
        self._changes = {
            plan.name: ResultsSoFar(plan, output, pipeline.final_results.get(plan.name), pipeline.keep_results)
            for plan in self.plans
            if plan.has_changes
        }
        self._unseen_windows: dict[str, dict[tuple[int, int], pa.Table]] = {}
        """By query: windows that the last micro-batches before a restart changed. The page may not contain these
        changes."""
        self.samples = Samples()
        self._row_limits: Mapping[str, RowLimit] = {}
        self._shown_figures: dict[LabelledName, float] = {}
        self.last_shown_batch = -1  # the last micro-batch whose results were shown
        self._show_lock = threading.Lock()
        self.server: Server | None = None
        self.history: History | None = None
        self.alerts: Alerts | None = None
        self.sinks: Sinks | None = None
        self.run: StreamRun | None = None
        self.copy: RunCopy | None = None
        self.health = Health()
        self._stop = threading.Event()

    def _check_files_of_tasks(self) -> None:
        """Raise PipelineError if tasks on other machines need files of the run's copy, which is on this machine."""
        from highlevel.spark.cluster.executors import is_on_this_machine

        pipeline = self.pipeline
        if is_on_this_machine(pipeline.master):
            return
        problems = [f"the {file.noun} {file.path}" for file in find_watched_files(tuple(self.plans))]
        problems += [
            f"the compressed capture {input_.path}"
            for input_ in self.inputs
            if input_.is_capture and not isinstance(open_finite(input_.path, "the stream engine"), Capture)
        ]
        if problems:
            raise PipelineError(
                f"folder: got {pipeline.folder_uri} with the master {pipeline.master} and {problems[0]}, expected "
                "queries without watchlists and settings in files, and uncompressed captures: the run copies these "
                "files into its folder, which the tasks of a cluster do not see; use a folder that all machines share, "
                "or a master on this machine, such as local[*]"
            )

    def __enter__(self) -> Monitor:
        """Check Java and the folder, serve metrics, then start Spark and the stream."""
        try:
            access = read_access(self.pipeline.web_config, self.pipeline.token_file)
            self._prepare()
            self._open_sinks()
            self._open_alerts()
            site = self._open_page()
            self._continue_changes()
            self.server = serve(
                self.exporter,
                self.pipeline.host,
                self.pipeline.port,
                self._port_option,
                site=site,
                access=access,
                health=self.health,
            )
            if site is not None:
                self.print_line(f"live page at {self.server.url}")
            self.print_line(f"metrics at {self.server.url}metrics")
            for warning in [text for plan in self.plans for text in plan_warnings(plan)]:
                self.print_line(f"warning: {warning}")
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def _prepare(self) -> None:
        from highlevel.spark.session.java import require_java

        require_java()

        from highlevel.spark.session.session import start_session
        from highlevel.spark.stream import StreamRun

        pipeline = self.pipeline
        self._row_limits = limits = self._choose_row_limits()
        if pipeline.folder_uri:
            self._open_copy()
        partitions = pipeline.partitions or self._choose_partitions()
        self.run = StreamRun(
            lambda: start_session(
                pipeline.master,
                partitions=partitions,
                log=pipeline.folder / "spark.log",
                chosen=pipeline.spark_conf,
                say=self.print_line,
            ),
            self.plans,
            self.inputs,
            pipeline.folder,
            partitions=partitions,
            speed=pipeline.speed,
            keep_results=pipeline.keep_results,
            on_batch=self._on_batch,
            row_limits=limits,
            say=self.print_line,
            on_restart=lambda: self.health.set_obstacle("Spark restarts after a failure"),
            copy=self.copy,
        )
        self.run.prepare()

    def _open_copy(self) -> None:
        """Copy the folder of the run from an object store. Raises FolderError, MissingPackageError."""
        from highlevel.spark.remote.object_store import ObjectStore
        from highlevel.spark.remote.run_copy import RunCopy

        store = ObjectStore(self.pipeline.folder_uri)
        self.copy = RunCopy(store, self.pipeline.folder.parent, self.print_line, (ALERTS_FILE,))
        self.copy.open()

    def _choose_row_limits(self) -> dict[str, RowLimit]:
        """Return by query a limit for the rows that gauges, counters and the page need.

        Queries without a limit need all rows.
        """
        needs_all_rows = {*self.pipeline.histograms, *(rule.plan.name for rule in self._evaluation.rules)}
        limits = {plan.name: RowLimit() for plan in self.plans if plan.name not in needs_all_rows}
        for series in self.exporter.series:
            if series.plan.name in limits:
                counters = values_with_counters(series) if series.has_counters else ()
                ranks = [series.rank, *(value.column for value in counters[:1])]
                limits[series.plan.name] = RowLimit(
                    ranks=tuple(dict.fromkeys(rank for rank in ranks if rank is not None)),
                    folds={value.column: value.fold for value in series.values if value.fold is not None},
                    ignored=LATE if series.aggregation.emit_late else None,
                    window_rows=max(WINDOW_ROWS, StableGroups(series.top).candidates),
                )
        return limits

    def _open_sinks(self) -> None:
        """Check all sinks. Raises SinkError."""
        if not self.pipeline.sinks:
            return
        from dashboards.sinks.sinks import Sinks, stored_query
        from highlevel.spark.run_folder.checkpoint import read_run_id

        assert self.run is not None, "call _prepare() before"
        folder, assignment = self.pipeline.folder, self.run.assignment
        spools = [input_ for input_ in self.inputs if input_.spool]
        queries = [
            stored_query(
                plan, reads_spool=any(spool.feeds(leaf) for leaf in plan.leaves for spool in spools), query_id=query_id
            )
            for plan, query_id in zip(self.plans, assignment.query_ids, strict=True)
        ]
        self.sinks = Sinks(self.pipeline.sinks, queries, self.print_line)
        is_new = not (folder / "checkpoint" / "metadata").exists()
        self.sinks.prepare(None if is_new else read_run_id(folder), folder / "output", self.run.next_batch)

    def _choose_partitions(self) -> int:
        """Return the number of partitions of the run in the folder, or for a new run the cores of the master."""
        from highlevel.spark.cluster.executors import plan_cores
        from highlevel.spark.run_folder.identity import read_identity
        from highlevel.spark.session.settings import read_spark_defaults

        stored = read_identity(self.pipeline.folder)
        if stored is not None:
            return stored.partitions
        return plan_cores(self.pipeline.master, {**read_spark_defaults(), **self.pipeline.spark_conf})

    def _open_page(self) -> Site | None:
        """Open the history in the folder of the run, and return the live page; None if the pipeline has none."""
        page = self.pipeline.page
        if not page.enabled:
            return None
        path = self.pipeline.folder / HISTORY_FILE
        plans = [plan.with_final_rows() for plan in self.plans]
        self.history = History(path, plans, self.exporter.series, page.keep, page.size, self.print_line)
        assert self.run is not None, "call _prepare() before"
        self.history.continue_after(self.run.continued_batch)
        links = self.pipeline.link_names
        return Site(self.history, Views(self.history, lambda: self.exporter.current_samples, self.alerts, links))

    def _open_alerts(self) -> None:
        """Open the alerts, and evaluate the micro-batches whose results were stored before a crash, but not evaluated.

        If there are no rules any more, all alerts end. The changes of all queries are read too.
        """
        assert self.run is not None, "call _prepare() before"
        pipeline, last = self.pipeline, self.run.continued_batch
        totals, first = self.run.totals, last
        if self._evaluation.rules or (pipeline.folder / ALERTS_FILE).exists():
            self.alerts = Alerts(pipeline.alerts, self._evaluation, pipeline.folder, self.print_line)
            self.exporter.registry.register(self.alerts)
            first = self.alerts.continue_after(last)
        # The last micro-batch may not have reached the page, so its changes are added separately.
        following = range(min(first, last - 1) + 1, last + 1) if self._changes else range(first + 1, last + 1)
        batches = {batch: read_results_of(pipeline.folder / "output", self.plans, batch) for batch in following}
        for name, changes in self._changes.items():
            times = [one.states.time for one in self._evaluation.rules if one.plan.name == name and first < last]
            firsts = [changes.first_time(results[name]) - 1 for results in batches.values() if name in results]
            after = min([totals.watermarks.get(name, BEGINNING), *(time or BEGINNING for time in times), *firsts])
            changes.continue_after(min(first, last - 1), after)
        for batch, results in batches.items():
            watermarks = totals.watermarks if batch == last else {}
            updates = self._add_changes(batch, results, watermarks)
            for name, update in updates.items():
                self._unseen_windows.setdefault(name, {}).update(update.changed)
            if batch > first:
                self._evaluate(batch, results, updates, watermarks)

    def _continue_changes(self) -> None:
        """Show the current results of queries with changes, and write final rows that a crash left unwritten."""
        assert self.run is not None, "call _prepare() before"
        totals, last = self.run.totals, self.run.continued_batch
        if last < 0:
            return
        for name, changes in self._changes.items():
            if changes.newest is not None:
                start, end, rows = changes.newest
                self.exporter.correct(name, {(start, end): rows})
            changes.add(last, changes.empty, totals.watermarks.get(name, BEGINNING), self._sampled_ranges(name))
            if self.history is not None:
                windows = {**self._unseen_windows.pop(name, {}), **changes.provisional_windows()}
                self.history.replace(last, name, windows)
            if self.alerts is not None:
                self.alerts.continue_provisional({name: changes.provisional_rows()}, self._newest_packet_time())
        self._publish_samples()

    def _newest_packet_time(self) -> int | None:
        """Return the time of the newest packet in ns."""
        assert self.run is not None, "call _prepare() before"
        return max(self.run.totals.newest_times.values(), default=None)

    def _add_changes(
        self, batch_id: int, results: Mapping[str, pa.Table], watermarks: Mapping[str, int]
    ) -> dict[str, Update]:
        """Add the results of a micro-batch to the results so far of each query with changes."""
        return {
            name: changes.add(
                batch_id, results.get(name, changes.empty), watermarks.get(name, BEGINNING), self._sampled_ranges(name)
            )
            for name, changes in self._changes.items()
        }

    def _sampled_ranges(self, query: str) -> Ranges | None:
        """Return the times at which nodes sampled the packets of a query; None if the pipeline has no spool."""
        assert self.run is not None, "call _prepare() before"
        return self.run.totals.sampled_ranges.get(query, []) if self._spooled_links else None

    def _publish_samples(self) -> None:
        """Serve the samples of the run, of its query on Spark, and of queries with changes.

        Inform the page which windows are final.
        """
        assert self.run is not None, "call _prepare() before"
        self._shown_figures = dict(self.run.figures)
        samples = Samples({**self.samples, **self._shown_figures})
        if self.sinks is not None:
            self.sinks.add_samples(samples)
        for name, changes in self._changes.items():
            changes.add_samples(samples, self._newest_packet_time())
            if self.history is not None:
                self.history.final_until[name] = changes.watermark
        self.exporter.set_samples(samples)

    def _evaluate(
        self,
        batch_id: int,
        results: Mapping[str, pa.Table],
        updates: Mapping[str, Update],
        watermarks: Mapping[str, int],
    ) -> None:
        assert self.alerts is not None, "call _open_alerts() before"
        final = {**results, **{name: update.closed for name, update in updates.items()}}
        read = {rule.plan.name for rule in self._evaluation.rules}
        provisional = {name: changes.provisional_rows() for name, changes in self._changes.items() if name in read}
        messages = self.alerts.evaluate(batch_id, final, watermarks, self._newest_packet_time(), provisional)
        for message in messages[:ALERT_LINES]:
            time, mark = message["ended"] or message["began"], "" if message["state"] == FINAL else ", provisional"
            status = f"alert {message['status']} ({message['severity']}{mark})"
            self.print_line(f"{time}  {status}: {escape(message['summary'])}")
        if len(messages) > ALERT_LINES:
            self.print_line(f"{'':20}  and {len(messages) - ALERT_LINES:,} more alerts")

    def _start(self) -> None:
        assert self.run is not None, "call _prepare() before"
        os.close(open_private(self.pipeline.folder / "spark.log", os.O_WRONLY))
        self.print_line("starting Spark (takes some seconds) …")
        self.run.start()
        self.health.beat()
        if self.run.spark is not None and (address := self.run.spark.sparkContext.uiWebUrl):
            self.print_line(f"page of Spark at {address}")
        self._show_previous_run()
        self.print_line(f"{self._describe_activity()}; state and results in {self.pipeline.folder_name}")

    def _describe_activity(self) -> str:
        pace = f"at {self.pipeline.speed:g} times its speed" if self.pipeline.speed else "as fast as possible"
        captures = sum(source.is_capture for source in self.inputs)
        table_names = [f"the table {source.link}" for source in self.inputs if source.table is not None]
        topics = dict.fromkeys(f"the topic of {source.link}" for source in self.inputs if source.topic is not None)
        spools = [f"the spool of {source.link}" for source in self.inputs if source.spool]
        replaying = [f"replaying {count(captures, 'capture')} {pace}"] if captures else []
        read = [*table_names, *topics, *spools]
        return ", ".join([*replaying, *([f"reading {', '.join(read)}"] if read else [])])

    def _show_previous_run(self) -> None:
        """After a restart, show the counters and the last windows of the previous run."""
        from highlevel.spark.run_folder.result_files import read_newest_batch

        assert self.run is not None, "call _prepare() before"
        with self._show_lock:
            totals, last = self.run.totals, self.run.continued_batch
            if self.last_shown_batch >= 0 or not totals.samples:
                return
            self.last_shown_batch = last  # Spark may repeat this micro-batch, but its rows are already shown
            self.samples = totals.samples
            self._publish_samples()
            for plan in self.plans:
                if plan.name not in totals.watermarks:  # a query that begins now
                    continue
                if plan.windowed and not plan.has_changes:
                    limit = self._row_limits.get(plan.name, RowLimit(rows=sys.maxsize))
                    tables = read_newest_batch(self.pipeline.folder / "output", plan, last)
                    self._show_newest_window(plan.name, [select_rows(rows, limit) for rows in tables])
                self.exporter.set_watermark(plan.name, totals.watermarks[plan.name])

    def _show_newest_window(self, query: str, selected: Sequence[tuple[pa.Table, pa.Table | None]]) -> None:
        """Show the newest window of a previous run. `selected`: pairs of rows and the sums of the other rows."""
        if selected:
            rows = pa.concat_tables([rows for rows, _ in selected])
            rests = [rest for _, rest in selected if rest is not None]
            newest = pc.max(rows["window_end"])
            rows = rows.filter(pc.equal(rows["window_end"], newest))
            rest = pa.concat_tables(rests) if rests else None
            if rest is not None:
                rest = rest.filter(pc.equal(rest["window_end"], newest))
            self.exporter.add_results(query, rows, rest)

    def _on_batch(self, batch_id: int, results: dict[str, pa.Table], samples: Samples) -> None:
        """Show the windows that a micro-batch closed. A repeated call with the same ID, after a failure, is ignored."""
        with self._show_lock:
            assert self.run is not None, "batches come from a started run"
            watermarks = self.run.totals.watermarks
            updates = self._add_changes(batch_id, results, watermarks)
            if self.alerts is not None:
                self._evaluate(batch_id, results, updates, watermarks)
            if batch_id > self.last_shown_batch:
                self._show(batch_id, results, updates, samples)
        if self.sinks is not None:  # after the alerts, because a sink may not answer
            from highlevel.spark.run_folder.checkpoint import read_run_id

            self.sinks.write(read_run_id(self.pipeline.folder), batch_id, self.run.written_files)
            with self._show_lock:
                self._publish_samples()  # the rows that the sinks have stored

    def _show(
        self, batch_id: int, results: Mapping[str, pa.Table], updates: Mapping[str, Update], samples: Samples
    ) -> None:
        assert self.run is not None, "batches come from a started run"
        self.last_shown_batch = batch_id
        self.samples = samples
        rests = self.run.rests
        self._publish_samples()
        for name, table in results.items():
            if name in updates:
                self._show_changes(batch_id, name, updates[name])
            elif table.num_rows:
                rest = rests.get(name)
                self.exporter.add_results(name, table, rest)
                if self.history is not None:
                    self.history.add(batch_id, name, table, rest)
                for line in window_lines(self.plans_by_name[name], table, other_sums=rest):
                    self.print_line(line)
            # A window without rows may have closed. Then the window shown so far is no longer the last one.
            self.exporter.set_watermark(name, self.run.totals.watermarks[name])

    def _show_changes(self, batch_id: int, name: str, update: Update) -> None:
        plan, watermark = self._changes[name].plan, self._changes[name].watermark
        self.exporter.correct(name, update.changed)
        self.exporter.count(name, update.closed)
        if self.history is not None and plan.has_window_key:
            self.history.replace(batch_id, name, update.changed)
        elif self.history is not None:  # the page shows rows without windows when they are final
            self.history.add(batch_id, name, update.closed)
        if plan.has_window_key:
            lines = change_lines(plan, update.changed, watermark)
        else:
            lines = row_change_lines(plan, update.returned, update.withdrawn, update.closed)
        for line in lines:
            self.print_line(line)

    def _print_spools(self) -> None:
        """Print the progress of the spools, at most once per SPOOL_LINE_SECONDS seconds."""
        now = time.monotonic()
        if now - self._spools_printed >= SPOOL_LINE_SECONDS:
            self._spools_printed = now
            for line in spool_lines(self.samples, self._spooled_links, time.time_ns()):
                self.print_line(line)

    def wait(self) -> None:
        """Return when the inputs have ended and all results are written. Raises the error of a failed run."""
        assert self.run is not None, "enter the context before"
        while not self.run.wait(0.2):
            self.health.beat()
            self._print_spools()
            self._show_figures()
        self._show_figures()
        self.health.end()

    def _show_figures(self) -> None:
        """Export the figures of the query on Spark, if they have changed."""
        assert self.run is not None, "enter the context before"
        with self._show_lock:
            if self.run.figures != self._shown_figures:
                self._publish_samples()

    def serve_until_stopped(self) -> None:
        """Continue to serve the last windows, until Ctrl-C (KeyboardInterrupt)."""
        self._stop.wait()

    def summary(self) -> str:
        """Return the summary of inputs, spools and queries as tables."""
        links = [
            [link, *(f"{self.samples.total(metric, link=link):,.0f}" for metric in _LINK_COLUMNS.values())]
            for link in self.pipeline.links
        ]
        queries = [
            [name, *(f"{self.samples.total(metric, query=name):,.0f}" for metric in _QUERY_COLUMNS.values())]
            for name in self.plans_by_name
        ]
        tables = [align_table(["link", *_LINK_COLUMNS], links)] if links else []
        if self._spooled_links:
            tables.append(spool_table(self.samples, self._spooled_links, time.time_ns()))
        return "\n\n".join([*tables, align_table(["query", *_QUERY_COLUMNS], queries)])

    def close(self) -> None:
        """Stop Spark and the server. May be called twice. Ctrl-C takes effect afterwards."""
        with uninterrupted(), ExitStack() as stack:
            if self.sinks is not None:
                self.sinks.stop()
            if self.copy is not None:
                copy, self.copy = self.copy, None
                copy.stop()
                stack.callback(copy.close)
            if self.run is not None:
                from highlevel.spark.session.session import close_session

                run, self.run = self.run, None
                try:
                    run.stop()
                finally:
                    if run.spark is not None:
                        close_session(run.spark)
            if self.server is not None:
                self.server.close()
                self.server = None
            if self.sinks is not None:
                self.sinks.close()
                self.sinks = None
            if self.alerts is not None:
                self.alerts.close()
                self.alerts = None
            if self.history is not None:
                self.history.close()
                self.history = None

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.close()


def read_results_of(output: Path, plans: Sequence[Plan], batch: int) -> dict[str, pa.Table]:
    """Return the rows of a micro-batch of each query that has results in it."""
    from highlevel.spark.run_folder.result_files import read_batch

    found = {plan.name: read_batch(output, plan, batch) for plan in plans}
    return {name: rows for name, rows in found.items() if rows is not None}


_LINK_COLUMNS = {
    "records": RECORDS_READ,
    "IP packets": PACKETS_DECODED,
    "others": RECORDS_SKIPPED,
    "bytes": BYTES_READ,
    "damaged files": FILES_DAMAGED,
}
_QUERY_COLUMNS = {"windows": WINDOWS_CLOSED, "rows": RESULT_ROWS, "late": LATE_PARTIALS}
