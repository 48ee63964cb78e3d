"""The store of closed windows: writes an SQLite file with the rows of each window (`stored_windows` reads it).

    window ──► rows sorted by the rank column ──► head: the first HEAD_ROWS rows    (charts, events)
                                              └─► rows: at most KEPT_ROWS rows      (tables, queries)

The IDs of windows rise in the order of arrival and are never used again. So a reader that remembers the last ID misses
no window, also after a restart. A restarted run deletes the windows of micro-batches that Spark repeats.

Only the newest windows are kept: windows that end at most `retention_ns` before the newest window of their query. If
the file has more than `max_bytes`, the oldest windows are deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from threading import Condition, Lock

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.metrics import Samples
from capture.private_files import open_private
from dashboards.page.metrics import HISTORY_BYTES, HISTORY_DELETED, HISTORY_LOST, HISTORY_ROWS_CUT, HISTORY_WINDOWS
from dashboards.page.stored_windows import HEAD_ROWS, KEPT_ROWS, TABLES, VERSION, StoredWindows, pack
from dashboards.prometheus.query_series import SUM, QuerySeries
from highlevel.aggregation import LATE
from highlevel.plan.plan import Plan
from highlevel.results.row_limit import REST_ROWS
from highlevel.results.stored_columns import encode_columns
from highlevel.windows.kind import LifetimeWindow, SessionWindow, TupleWindow
from lowlevel.punctuation import END

CHECKED_WINDOWS = 64
"""Number of new windows after which old windows are deleted."""

_Stored = tuple[int, str, int | None, int | None, int, int, str, bytes, bytes | None]
"""A row of the table `windows` without its ID. `rows` is NULL if the head has all rows."""


class History:
    """The store of one run. Thread safe: one thread adds windows while others read.

    An error of the store, such as a full disk, is reported once to `print_line` and counted; it never stops the run.
    """

    def __init__(
        self,
        path: Path,
        plans: Sequence[Plan],
        series: Sequence[QuerySeries],
        retention_ns: int,
        max_bytes: int,
        print_line: Callable[[str], None],
    ) -> None:
        """Open or create the file `path`.

        Windows of a query whose result has other columns now are deleted. Raises OSError if the file cannot be used.
        """
        self.path = path
        self.plans = {plan.name: plan for plan in plans}
        self.series = {query_series.plan.name: query_series for query_series in series}
        self.added = Condition()
        """Notified after windows were added."""
        self.newest = 0
        """The ID of the newest window; 0 before the first window."""
        self.final_until: dict[str, int] = {}
        """For queries with changes: windows that end by this time (ns) are final."""
        self._retention_ns, self._max_bytes, self._print_line = retention_ns, max_bytes, print_line
        self._continued = -1
        self._lost = self._omitted_rows = self._deleted = self._since_check = self._windows = self._bytes = 0
        os.close(open_private(path, os.O_RDWR | os.O_CREAT))
        try:
            self._writer = self._connect()
            self._prepare()
            self.stored = StoredWindows(self._connect())
            """Reads the windows."""
        except sqlite3.Error as error:
            raise OSError(f"{path}: cannot be used as the history of the page: {error}; delete the file") from error
        self._writing = Lock()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=5, check_same_thread=False, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    def _prepare(self) -> None:
        if self._writer.execute("PRAGMA user_version").fetchone()[0] != VERSION:
            self._writer.executescript("DROP TABLE IF EXISTS windows; DROP TABLE IF EXISTS queries;")
        self._writer.executescript(f"{TABLES} PRAGMA user_version = {VERSION};")
        for name, plan in self.plans.items():
            signature = hashlib.sha256(f"{plan.sql}\n{plan.schema}".encode()).hexdigest()
            row = self._writer.execute("SELECT signature FROM queries WHERE query = ?", (name,)).fetchone()
            if row is None or row[0] != signature:
                self._writer.execute("DELETE FROM windows WHERE query = ?", (name,))
                stored = (name, signature, plan.sql, encode_columns(plan.root.columns))
                self._writer.execute("INSERT OR REPLACE INTO queries VALUES (?, ?, ?, ?)", stored)
        names = list(self.plans)
        marks = ", ".join("?" * len(names))
        for table in ("windows", "queries"):
            self._writer.execute(f"DELETE FROM {table} WHERE query NOT IN ({marks})", names)
        self.newest = self._writer.execute("SELECT coalesce(max(id), 0) FROM windows").fetchone()[0]
        self._count()

    def close(self) -> None:
        """Close the file, and wake readers."""
        with self._writing:
            self._writer.close()
        self.stored.close()
        with self.added:
            self.added.notify_all()

    def has_windows(self, query: str) -> bool:
        """Return True if the result has time windows with equal bounds for all groups: no sessions or row windows."""
        plan = self.plans[query]
        return plan.windowed and not isinstance(plan.window, SessionWindow | TupleWindow | LifetimeWindow)

    def is_final(self, query: str, end: int | None) -> bool:
        """Return True if the window of a query with this end (ns) cannot change any more."""
        watermark = self.final_until.get(query)
        return watermark is None or end is None or watermark == END or end <= watermark

    def values_of(self, query: str) -> tuple[str, ...]:
        """Return the value columns of a query: numbers that are not group columns."""
        series = self.series.get(query)
        return tuple(value.column for value in series.values) if series is not None else ()

    def continue_after(self, batch: int) -> None:
        """Delete the windows of micro-batches after `batch`, which Spark repeats, and ignore the earlier ones."""
        self._continued = batch
        with self._count_lost_windows(), self._writing:
            self._writer.execute("DELETE FROM windows WHERE batch > ?", (batch,))
            self._count()

    def add(self, batch: int, query: str, table: pa.Table, rest: pa.Table | None = None) -> None:
        """Add the rows of windows that the micro-batch `batch` closed. Must be called once per micro-batch.

        `rest`: the sums of further rows of these windows, which are added to the totals of the windows.
        """
        self._store(query, list(self._encode_windows(batch, query, table, rest)) if batch > self._continued else [])

    def replace(self, batch: int, query: str, windows: Mapping[tuple[int, int], pa.Table]) -> None:
        """Replace windows of a query with changes.

        `windows`: all rows of each window by its bounds in ns. A window without rows is deleted. Micro-batches may be
        repeated. A new ID tells readers that a window has changed.
        """
        tables = [rows for rows in windows.values() if rows.num_rows]
        stored = list(self._encode_windows(batch, query, pa.concat_tables(tables))) if tables else []
        self._store(query, stored, [end for _, end in windows])

    def _store(self, query: str, stored: list[_Stored], replaced: Sequence[int] = ()) -> None:
        """Delete the windows with the ends `replaced`, and add windows, in one transaction."""
        if not stored and not replaced:
            return
        with self._count_lost_windows(len(stored)), self._writing:
            self._writer.execute("BEGIN")
            try:
                for end in replaced:
                    self._delete("query = ? AND last = ?", (query, end), counted=False)
                insert = "INSERT INTO windows VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
                self._writer.executemany(insert, stored)
                self._windows += len(stored)
                self._bytes += sum(size for _, _, _, _, _, size, *_ in stored)
                newest = max(
                    self.newest, self._writer.execute("SELECT coalesce(max(id), 0) FROM windows").fetchone()[0]
                )
                self._since_check += len(stored)
                if self._since_check >= CHECKED_WINDOWS:
                    self._delete_old()
                    self._since_check = 0
                self._writer.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._writer.execute("ROLLBACK")
                    self._count()
                raise
            with self.added:
                self.newest = newest
                self.added.notify_all()

    def _encode_windows(
        self, batch: int, query: str, table: pa.Table, rest: pa.Table | None = None
    ) -> Iterator[_Stored]:
        """Yield a row of the table `windows` for each window.

        Windows that are older than `retention_ns` are omitted.
        """
        plan, series = self.plans[query], self.series.get(query)
        table = table.select(plan.schema.names).cast(plan.schema)
        if LATE in plan.schema.names and plan.aggregation is not None and plan.aggregation.emit_late:
            table = table.filter(pc.invert(table[LATE]))
        if not table.num_rows:
            return
        if not self.has_windows(query):
            kept = table.slice(max(0, table.num_rows - KEPT_ROWS))
            yield self._encode_window(batch, query, None, None, kept, table, rest)
            return
        keys = [("window_end", "ascending")]
        keys += [(series.rank, "descending")] if series is not None and series.rank is not None else []
        table = table.take(pc.sort_indices(table, sort_keys=keys)).combine_chunks()
        ends = table["window_end"].to_numpy()
        first = int(np.searchsorted(ends, ends[-1] - self._retention_ns))
        self._deleted += len(np.unique(ends[:first]))
        starts = np.append(first + np.flatnonzero(np.diff(ends[first:], prepend=ends[first] - 1)), len(ends))
        for begin, end in pairwise(starts.tolist()):
            window = table.slice(begin, end - begin)
            bounds = window["window_start"][0].as_py(), window["window_end"][0].as_py()
            own_rest = None if rest is None else rest.filter(pc.equal(rest["window_end"], bounds[1]))
            yield self._encode_window(batch, query, *bounds, window.slice(0, KEPT_ROWS), window, own_rest)

    def _encode_window(
        self,
        batch: int,
        query: str,
        start: int | None,
        end: int | None,
        kept: pa.Table,
        window: pa.Table,
        rest: pa.Table | None = None,
    ) -> _Stored:
        row_count = window.num_rows + (0 if rest is None else pc.sum(rest[REST_ROWS], min_count=0).as_py())
        self._omitted_rows += row_count - kept.num_rows
        series = self.series.get(query)
        totals = {}
        for value in series.values if series is not None else ():
            if value.fold == SUM:
                numbers = [window[value.column], *([] if rest is None else [rest[value.column]])]
                total = pc.sum(pa.chunked_array([chunk for column in numbers for chunk in column.chunks])).as_py()
                totals[value.column] = None if total is None else float(total)
        head = pack(kept.slice(0, HEAD_ROWS))
        rows = pack(kept) if kept.num_rows > HEAD_ROWS else None
        size = len(head) + len(rows or b"")
        return batch, query, start, end, row_count, size, json.dumps(totals), head, rows

    def _delete_old(self) -> None:
        """Delete windows that are older than `retention_ns`, then the oldest windows until the file has `max_bytes`."""
        for query in self.plans:
            row = self._writer.execute("SELECT max(last) FROM windows WHERE query = ?", (query,)).fetchone()
            if row[0] is not None:
                self._delete("query = ? AND last < ?", (query, row[0] - self._retention_ns))
        if self._bytes <= self._max_bytes:
            return
        excess, last_id = self._bytes - self._max_bytes, 0
        for id_, size in self._writer.execute("SELECT id, bytes FROM windows ORDER BY id"):
            if excess <= 0:
                break
            last_id, excess = id_, excess - size
        self._delete("id <= ?", (last_id,))

    def _delete(self, where: str, parameters: Sequence[object], *, counted: bool = True) -> None:
        query = f"SELECT count(*), coalesce(sum(bytes), 0) FROM windows WHERE {where}"
        windows, size = self._writer.execute(query, parameters).fetchone()
        self._writer.execute(f"DELETE FROM windows WHERE {where}", parameters)
        self._deleted += windows if counted else 0
        self._windows -= windows
        self._bytes -= size

    def _count(self) -> None:
        """Count windows and bytes in the file."""
        query = "SELECT count(*), coalesce(sum(bytes), 0) FROM windows"
        self._windows, self._bytes = self._writer.execute(query).fetchone()

    @contextlib.contextmanager
    def _count_lost_windows(self, windows: int = 0) -> Iterator[None]:
        """Count the windows of a write that fails, and report the first failure."""
        try:
            yield
        except sqlite3.Error as error:
            if not self._lost:
                self._print_line(f"warning: {self.path}: windows are missing on the page: {error}")
            self._lost += max(windows, 1)

    def count_samples(self, samples: Samples) -> None:
        """Set the metrics of the store."""
        samples.set(HISTORY_WINDOWS, self._windows)
        samples.set(HISTORY_BYTES, self._bytes)
        samples.set(HISTORY_DELETED, self._deleted)
        samples.set(HISTORY_ROWS_CUT, self._omitted_rows)
        samples.set(HISTORY_LOST, self._lost)
