"""The sinks of a run. Each sink stores each micro-batch of its queries exactly once.

    output/QUERY: rows of micro-batch n ──► chunks ──► transaction of the other system: rows and n

The rows are read from the result files after the files are complete, so a sink needs memory only for READ_ROWS rows. A
micro-batch ends when all sinks have stored it. If a system does not answer, the run waits, and loses nothing. After the
waits of RETRY_SECONDS the run ends with the reason. If the user stops the run meanwhile, it does not wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from capture.metrics import Samples
from dashboards.sinks.delta_tables import DeltaTables
from dashboards.sinks.kafka_topics import KafkaTopics
from dashboards.sinks.metrics import SINK_RETRIES, SINK_ROWS
from dashboards.sinks.object_files import ObjectFiles
from dashboards.sinks.sql_tables import open_tables
from dashboards.sinks.target import SinkError, StoredQuery, Target, UnreachableError
from highlevel.plan.plan import Plan
from highlevel.results.stored_files import first_batch, list_files, query_folder
from highlevel.spark.run_folder.result_files import parts_of_batch
from highlevel.spark.run_folder.staged_results import stored_form
from queries.pipeline.sink_settings import SinkSettings
from queries.pipeline.sinks import key_of_sink

READ_ROWS = 65_536
"""Maximum number of rows that are read at once."""

RETRY_SECONDS = (1, 2, 4, 8, 16, 32, 60, 60)
"""Seconds to wait after each failed attempt."""


def open_target(settings: SinkSettings) -> Target:
    """Return the other system of a sink, without a connection. Raises SinkError if its package is missing."""
    if settings.kind == "sql":
        return open_tables(settings.target, settings.password)
    if settings.kind == "delta":
        return DeltaTables(Path(settings.target))
    if settings.kind == "s3":
        return ObjectFiles(settings.target, settings.conf)
    return KafkaTopics(settings.target, settings.prefix, settings.conf)


def stored_query(plan: Plan, *, reads_spool: bool, query_id: int = 0) -> StoredQuery:
    """Return the description of the stored results of a query. `query_id`: the ID of the query in the run."""
    schema = stored_form(plan, plan.schema.empty_table(), [] if reads_spool else None).schema
    schema = schema.remove_metadata()
    return StoredQuery(plan.name, plan.root.columns, schema, key_of_sink(plan), plan.has_changes, query_id)


def rows_of_batch(files: Sequence[Path], query: StoredQuery, batch: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a micro-batch in the result files of a query, at most READ_ROWS at a time."""
    for path, start, count in parts_of_batch(files, batch):
        position, end = 0, start + count
        for rows in pq.ParquetFile(path).iter_batches(READ_ROWS, columns=query.schema.names):
            first, last = max(start, position), min(end, position + rows.num_rows)
            if first < last:
                yield rows.slice(first - position, last - first).cast(query.schema)
            position += rows.num_rows


def _check_changes(target: Target, run: str, query: StoredQuery, output: Path, next_batch: int) -> None:
    """Raise SinkError if a sink contains changes of an earlier text of a query, or lacks changes of the query."""
    if any(target.last_batch(run, replace(query, id=earlier)) >= 0 for earlier in range(query.id)):
        raise SinkError(
            f"query {query.name}: the sink contains changes of another text, which are not withdrawn; give the query "
            "another name, or its earlier text and the run another folder"
        )
    files = list_files(query_folder(output, query.name))
    if target.last_batch(run, query) < 0 and any(first_batch(path) < next_batch for path in files):
        raise SinkError(
            f"query {query.name}: the sink lacks its earlier changes, which later ones withdraw; give the query its "
            "earlier name, leave it out with `queries`, or begin the run in another folder"
        )


class Sinks:
    """All sinks of a run. Not thread safe, except `stop`."""

    def __init__(
        self,
        settings: Sequence[SinkSettings],
        queries: Sequence[StoredQuery],
        print_line: Callable[[str], None],
        wait: Callable[[float], object] | None = None,
    ) -> None:
        """`wait`: waits for a number of seconds, or until `stop`. Raises SinkError if a package is missing."""
        self._targets = {one.name: open_target(one) for one in settings}
        self._queries = {one.name: [query for query in queries if one.receives(query.name)] for one in settings}
        self._stopped = threading.Event()
        self._print_line, self._wait = print_line, wait or self._stopped.wait
        self._last_batches: dict[tuple[str, str], int] = {}
        self._samples = Samples()
        for one in settings:
            self._samples.add(SINK_RETRIES, 0, one.name)

    def prepare(self, run: str | None, output: Path, next_batch: int) -> None:
        """Check all sinks before the run starts with `next_batch`. `run`: the ID of the run; None if it is new.

        Raises SinkError.
        """
        for name, target in self._targets.items():
            for query in self._queries[name]:
                try:
                    target.prepare(query)
                    if run is not None and query.has_changes:
                        _check_changes(target, run, query, output, next_batch)
                except SinkError as error:
                    raise SinkError(f"sinks.{name}: {error}") from error

    def write(self, run: str, batch: int, files: Mapping[str, Sequence[Path]]) -> None:
        """Store a micro-batch in all sinks that have not stored it. Raises SinkError after the last attempt.

        `files`: by query, the result files that contain rows of the micro-batch. Other files are not read, so the cost
        does not grow with the age of the run.
        """
        for name, target in self._targets.items():
            for query in self._queries[name]:
                own = files.get(query.name, ())
                self._repeat(name, target, lambda: self._write_query(run, batch, own, name, target, query))  # noqa: B023

    def _write_query(
        self, run: str, batch: int, files: Sequence[Path], name: str, target: Target, query: StoredQuery
    ) -> None:
        key = name, query.name
        if key not in self._last_batches:
            self._last_batches[key] = target.last_batch(run, query)
        if batch <= self._last_batches[key]:
            return
        count = sum(rows for _, _, rows in parts_of_batch(files, batch))
        if count:
            target.store(run, query, batch, rows_of_batch(files, query, batch))
            self._samples.add(SINK_ROWS, count, name, query.name)
        self._last_batches[key] = batch

    def _repeat(self, name: str, target: Target, action: Callable[[], None]) -> None:
        for seconds in (*RETRY_SECONDS, None):
            try:
                action()
            except UnreachableError as error:
                target.close()
                for key in [key for key in self._last_batches if key[0] == name]:
                    del self._last_batches[key]  # the attempt may have been stored
                if seconds is None:
                    raise SinkError(f"sinks.{name}: {error}; the last of {len(RETRY_SECONDS) + 1} attempts") from error
                self._samples.add(SINK_RETRIES, 1, name)
                self._print_line(f"warning: sinks.{name}: {error}; next attempt in {seconds} s")
                self._wait(seconds)
                if self._stopped.is_set():
                    raise SinkError(f"sinks.{name}: {error}; the run was stopped before the next attempt") from error
            except SinkError as error:
                raise SinkError(f"sinks.{name}: {error}") from error
            else:
                return

    def stop(self) -> None:
        """Make `write` raise SinkError before its next attempt. Another thread may call this."""
        self._stopped.set()

    def add_samples(self, samples: Samples) -> None:
        """Set the metrics of the sinks."""
        samples.update(self._samples)

    def close(self) -> None:
        """Close all connections."""
        for target in self._targets.values():
            target.close()
