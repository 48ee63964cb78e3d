"""Tables of a SQL database: SQLite, which needs no server, and PostgreSQL with the package psycopg.

Each query has a table with its name. The primary key is `wiretide_key`, the text of the columns that identify a row,
because columns of a group may be NULL. A row with the key of a stored row replaces the stored row. A change with weight
-1 deletes the stored row. Rows of queries without a key are inserted.

The table `wiretide_batches` contains the last micro-batch of each query of a run. It changes in the same transaction as
the rows.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from capture.private_files import open_private
from dashboards.sinks.target import SinkError, StoredQuery, UnreachableError
from highlevel.speculation.consistency import WEIGHT

KEY = "wiretide_key"
BATCHES = "wiretide_batches"
CHUNK_ROWS = 10_000
"""Maximum number of rows of one call of the database."""


class SqlTables:
    """The tables of one database.

    `connect` opens a connection; `placeholder`: the text that marks a parameter in SQL.
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        placeholder: str,
        type_of: Callable[[pa.DataType], str],
        values_of: Callable[[pa.Array], list[Any]],
        error: type[Exception],
        is_unreachable: Callable[[BaseException], bool],
    ) -> None:
        """`error`: the base class of errors of the database.

        `is_unreachable`: True if the attempt may be repeated after an error.
        """
        self._connect, self._placeholder, self._type_of, self._values_of = connect, placeholder, type_of, values_of
        self._error, self._is_unreachable = error, is_unreachable
        self._connection: Any = None

    def prepare(self, query: StoredQuery) -> None:
        """Create the table of a query. Raises SinkError if it exists with other columns."""
        fields = [f"{_quote(field.name)} {self._type_of(field.type)}" for field in query.schema]
        key = [f"{KEY} TEXT PRIMARY KEY"] if query.key is not None else []
        batches = "run TEXT, query TEXT, id BIGINT, batch BIGINT, PRIMARY KEY (run, query, id)"

        def create(cursor: Any) -> list[str]:
            cursor.execute(f"CREATE TABLE IF NOT EXISTS {BATCHES} ({batches})")
            cursor.execute(f"CREATE TABLE IF NOT EXISTS {_quote(query.name)} ({', '.join([*key, *fields])})")
            cursor.execute(f"SELECT * FROM {_quote(query.name)} LIMIT 0")
            return [column[0] for column in cursor.description]

        found = self._run(create)
        expected = [*([KEY] if key else []), *query.schema.names]
        if found != expected:
            raise SinkError(
                f"table {query.name}: got the columns {', '.join(found)}, expected {', '.join(expected)}; rename the "
                "table or the query"
            )

    def last_batch(self, run: str, query: StoredQuery) -> int:
        """Return the last micro-batch of a run that is stored; -1 if there is none."""
        text = (
            f"SELECT batch FROM {BATCHES} WHERE run = {self._placeholder} AND query = {self._placeholder} AND id "
            f"= {self._placeholder}"
        )

        def read(cursor: Any) -> int:
            cursor.execute(text, (run, query.name, query.id))
            row = cursor.fetchone()
            return -1 if row is None else row[0]

        return int(self._run(read))

    def store(self, run: str, query: StoredQuery, batch: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Store the rows of a micro-batch and its ID in one transaction."""

        def write(cursor: Any) -> None:
            for chunk in _chunks(rows):
                self._write_rows(cursor, query, chunk)
            marks = ", ".join([self._placeholder] * 4)
            update = "ON CONFLICT (run, query, id) DO UPDATE SET batch = excluded.batch"
            cursor.execute(f"INSERT INTO {BATCHES} VALUES ({marks}) {update}", (run, query.name, query.id, batch))

        self._run(write)

    def _write_rows(self, cursor: Any, query: StoredQuery, rows: pa.RecordBatch) -> None:
        columns = [self._values_of(column) for column in rows.columns]
        names, table = query.schema.names, _quote(query.name)
        if query.key is None:
            marks = ", ".join([self._placeholder] * len(names))
            cursor.executemany(f"INSERT INTO {table} VALUES ({marks})", list(zip(*columns, strict=True)))
            return
        parts = [rows.column(name).cast(_key_type(rows, name)).to_pylist() for name in query.key]
        keys = [json.dumps(values) for values in zip(*parts, strict=True)] if parts else ["[]"] * rows.num_rows
        weights = rows.column(WEIGHT).to_pylist() if query.has_changes else [1] * rows.num_rows
        withdrawn = [(key,) for key, weight in zip(keys, weights, strict=True) if weight < 0]
        if withdrawn:
            cursor.executemany(f"DELETE FROM {table} WHERE {KEY} = {self._placeholder}", withdrawn)
        marks = ", ".join([self._placeholder] * (len(names) + 1))
        updates = ", ".join(f"{_quote(name)} = excluded.{_quote(name)}" for name in names)
        text = f"INSERT INTO {table} VALUES ({marks}) ON CONFLICT ({KEY}) DO UPDATE SET {updates}"
        entries = zip(keys, *columns, strict=True)
        cursor.executemany(text, [entry for entry, weight in zip(entries, weights, strict=True) if weight > 0])

    def _run(self, action: Callable[[Any], Any]) -> Any:
        """Run an action in a transaction. The connection is closed after an error."""
        try:
            if self._connection is None:
                self._connection = self._connect()
            cursor = self._connection.cursor()
            result = action(cursor)
            self._connection.commit()
        except BaseException as error:
            self.close()
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            if self._is_unreachable(error):
                raise UnreachableError(reason) from error
            if isinstance(error, self._error):
                raise SinkError(reason) from error
            raise
        return result

    def close(self) -> None:
        """Close the connection; a transaction that is not committed has no effect."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _chunks(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        for start in range(0, batch.num_rows, CHUNK_ROWS):
            yield batch.slice(start, CHUNK_ROWS)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _key_type(rows: pa.RecordBatch, name: str) -> pa.DataType:
    """Return the type of a column in keys. Times become integers in ns."""
    kind = rows.schema.field(name).type
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def _sqlite_type(arrow_type: pa.DataType) -> str:
    if pa.types.is_floating(arrow_type):
        return "REAL"
    return "INTEGER" if pa.types.is_integer(arrow_type) or pa.types.is_boolean(arrow_type) else "TEXT"


def _sqlite_values(column: pa.Array) -> list[Any]:
    """Return the values of a column. Times become ISO 8601 texts, whose order is the order of time."""
    if pa.types.is_timestamp(column.type):
        return [None if text is None else f"{text.removesuffix('Z')}Z" for text in column.cast(pa.string()).to_pylist()]
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    return column.to_pylist()


def open_sqlite(path: str) -> SqlTables:
    """Return the tables in a file. A missing file is created."""

    def connect() -> sqlite3.Connection:
        try:
            os.close(open_private(Path(path), os.O_RDWR))
        except OSError as error:
            raise SinkError(f"{path}: cannot be opened: {error.strerror}") from None
        return sqlite3.connect(path, timeout=5, check_same_thread=False)

    return SqlTables(connect, "?", _sqlite_type, _sqlite_values, sqlite3.Error, _is_sqlite_unreachable)


def _is_sqlite_unreachable(error: BaseException) -> bool:
    """Return True if the file is locked, or its disk is full or fails.

    The lowest byte of the error code is the basic code.
    """
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


def _postgresql_type(arrow_type: pa.DataType) -> str:
    if pa.types.is_timestamp(arrow_type):
        return "TIMESTAMPTZ"
    if pa.types.is_floating(arrow_type):
        return "DOUBLE PRECISION"
    if pa.types.is_boolean(arrow_type):
        return "BOOLEAN"
    return "BIGINT" if pa.types.is_integer(arrow_type) else "TEXT"


def _postgresql_values(column: pa.Array) -> list[Any]:
    """Return the values of a column. Times have microseconds.

    NUL is escaped, because PostgreSQL allows no NUL in a text.
    """
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", tz="UTC"), safe=False).to_pylist()
    if pa.types.is_string(column.type):
        return [None if text is None else text.replace("\0", "\\0") for text in column.to_pylist()]
    return column.to_pylist()


def open_postgresql(url: str, password: Path | None) -> SqlTables:
    """Return the tables of a database. Raises SinkError without the package psycopg."""
    try:
        import psycopg
    except ImportError:
        expected = "the package psycopg: pip install 'wiretide[postgresql]'"
        raise SinkError(f"a sink for PostgreSQL needs {expected}") from None

    def connect() -> Any:
        options: dict[str, Any] = {"connect_timeout": 10}
        if password is not None:
            try:
                options["password"] = password.read_text("utf-8").strip()
            except OSError as error:
                raise SinkError(f"{password}: cannot be read: {error.strerror}") from None
        return psycopg.connect(url, **options)

    def is_unreachable(error: BaseException) -> bool:
        return isinstance(error, psycopg.OperationalError)

    return SqlTables(connect, "%s", _postgresql_type, _postgresql_values, psycopg.Error, is_unreachable)


def open_tables(url: str, password: Path | None) -> SqlTables:
    """Return the tables of the database of a URL (`queries.pipeline.sink_settings`)."""
    scheme, _, path = url.partition(":///")
    return open_sqlite(path) if scheme == "sqlite" else open_postgresql(url, password)
