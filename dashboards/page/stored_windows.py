"""Reads the file of stored windows, which `dashboards.page.history` writes.

    queries   name, text and columns of each query
    windows   a row for each window: its bounds, the sums of its values, its rows as Arrow IPC

`head` contains the HEAD_ROWS rows of a window with the largest values, and `rows` contains all stored rows. If `head`
contains all stored rows, `rows` is NULL. So charts and events read little, and tables and queries read everything.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from urllib.parse import quote

import pyarrow as pa

from capture.errors import InputError
from capture.lazy_dataclasses import dataclass
from highlevel.results.stored_columns import decode_columns
from lowlevel.expressions.tree import Column

HEAD_ROWS = 100
"""Number of rows of a window that charts and events use."""

KEPT_ROWS = 10_000
"""Maximum number of stored rows of a window."""

FILE = "history.sqlite"
"""Name of the file in the folder of a run."""

VERSION = 2
"""Version of the tables, `user_version` of the file."""

TABLES = """
CREATE TABLE IF NOT EXISTS queries (
    query TEXT PRIMARY KEY, signature TEXT NOT NULL, sql TEXT NOT NULL, columns TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS windows (
    id INTEGER PRIMARY KEY AUTOINCREMENT, batch INTEGER NOT NULL, query TEXT NOT NULL, first INTEGER, last INTEGER,
    groups INTEGER NOT NULL, bytes INTEGER NOT NULL, totals TEXT NOT NULL, head BLOB NOT NULL, rows BLOB
);
CREATE INDEX IF NOT EXISTS windows_by_end ON windows (query, last);
"""

_HEAD, _ALL_ROWS = "head", "coalesce(rows, head)"


@dataclass(frozen=True, slots=True)
class Window:
    """One stored window `[start, end)` in ns.

    For a query without windows, it contains the rows of one micro-batch, and both bounds are None.

    `groups`: the number of rows of the result, of which at most KEPT_ROWS are stored. `totals`: the sums of the value
    columns that can be added, over all rows. A sum without values is None. `rows` has the internal types of the result:
    the first HEAD_ROWS rows, or all.
    """

    id: int
    query: str
    start: int | None
    end: int | None
    groups: int
    totals: Mapping[str, float | None]
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """A query whose windows are stored."""

    name: str
    sql: str
    columns: tuple[Column, ...]


class StoredWindows:
    """Reads a file of stored windows. Thread safe, also while another thread or process writes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Read with `connection`, which no other thread may use."""
        self._connection = connection
        self._lock = Lock()

    @classmethod
    def open(cls, path: Path) -> StoredWindows:
        """Open a file without the right to change it. Raises InputError if it has no stored windows."""
        try:
            uri = f"file:{quote(str(path.resolve()))}?mode=ro"
            connection = sqlite3.connect(uri, uri=True, timeout=5, check_same_thread=False, isolation_level=None)
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            connection.execute("SELECT 1 FROM windows LIMIT 1").fetchone()
        except sqlite3.Error as error:
            raise InputError(f"{path}: cannot be read as stored windows of `wiretide run`: {error}") from error
        if version != VERSION:
            connection.close()
            expected = f"{VERSION}; call `wiretide run` again, which begins a new file"
            raise InputError(f"{path}: got stored windows of version {version}, expected {expected}")
        return cls(connection)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def queries(self) -> list[StoredQuery]:
        """Return the queries, in the order of their first run. Raises InputError for damaged columns."""
        with self._lock:
            rows = self._connection.execute("SELECT query, sql, columns FROM queries ORDER BY rowid").fetchall()
        try:
            return [StoredQuery(name, sql, decode_columns(columns)) for name, sql, columns in rows]
        except ValueError as error:
            raise InputError(f"damaged columns of a stored query: {error}") from error

    def since(self, last_id: int, limit: int) -> list[Window]:
        """Return at most `limit` windows after the ID `last_id`, in the order of their IDs, with their first rows."""
        return self._read(_HEAD, "WHERE id > ? ORDER BY id LIMIT ?", (last_id, limit))

    def window(self, id_: int) -> Window | None:
        """Return a window with all of its stored rows; None if it does not exist any more."""
        return next(iter(self._read(_ALL_ROWS, "WHERE id = ?", (id_,))), None)

    def newest_of(self, query: str) -> Window | None:
        """Return the newest window of a query, with its first rows."""
        rows = self._read(_HEAD, "WHERE query = ? ORDER BY last DESC, id DESC LIMIT 1", (query,))
        return rows[0] if rows else None

    def range(self, query: str, duration_ns: int, limit: int) -> list[Window]:
        """Return the windows of a query that end less than `duration_ns` before its newest window, the oldest first.

        If there are more than `limit`, only the newest `limit` windows are returned. They have their first rows.
        """
        where = (
            "WHERE query = ? AND last > (SELECT max(last) FROM windows WHERE query = ?) - ? "
            "ORDER BY last DESC, id DESC LIMIT ?"
        )
        return self._read(_HEAD, where, (query, query, duration_ns, limit))[::-1]

    def newest_windows(self, query: str, max_rows: int) -> list[Window]:
        """Return the newest windows of a query, the oldest first. Their stored rows are at most `max_rows` in total."""
        windows: list[Window] = []
        where = "WHERE query = ? AND id < ? ORDER BY id DESC LIMIT 256"
        last_id, rows = 2**63 - 1, 0
        while page := self._read(_ALL_ROWS, where, (query, last_id)):
            for window in page:
                rows += window.rows.num_rows
                if rows > max_rows and windows:
                    return windows[::-1]
                windows.append(window)
            last_id = page[-1].id
        return windows[::-1]

    def in_order(self, query: str, duration_ns: int | None = None) -> Iterator[Window]:
        """Yield the windows of a query in the order of their ends, with all stored rows.

        One window is in memory at a time.

        `duration_ns`: only windows that end less than `duration_ns` ns before the newest window. All windows if it is
        None, or if the query has no windows of time. A window that is deleted meanwhile is omitted.
        """
        where = "WHERE query = ?"
        if duration_ns is not None:
            where += " AND (last IS NULL OR last > (SELECT max(last) FROM windows WHERE query = ?) - ?)"
        bounds: tuple[object, ...] = (query,) if duration_ns is None else (query, query, duration_ns)
        with self._lock:
            ids = self._connection.execute(f"SELECT id FROM windows {where} ORDER BY last, id", bounds).fetchall()
        for (id_,) in ids:
            window = self.window(id_)
            if window is not None:
                yield window

    def _read(self, column: str, where: str, parameters: Sequence[object]) -> list[Window]:
        with self._lock:
            rows = self._connection.execute(
                f"SELECT id, query, first, last, groups, totals, {column} FROM windows {where}", parameters
            ).fetchall()
        return [
            Window(id_, query, start, end, groups, json.loads(totals), unpack(data))
            for id_, query, start, end, groups, totals, data in rows
        ]


def pack(table: pa.Table) -> bytes:
    """Return rows as an Arrow IPC stream; many rows are compressed."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4" if table.num_rows > HEAD_ROWS else None)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue().to_pybytes()


def unpack(data: bytes) -> pa.Table:
    """Return the rows of an Arrow IPC stream."""
    return pa.ipc.open_stream(data).read_all()
