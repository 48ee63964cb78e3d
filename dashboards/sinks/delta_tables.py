"""Delta tables, written with the package deltalake, which needs neither Spark nor Java.

Each query has a table in a folder with its name. The commit of a micro-batch contains its ID as an application
transaction (`txn` of the Delta protocol), so either both the rows and the ID are stored, or neither. Rows and changes
are appended. Readers of changes sum `weight`, or use `FROM … CHANGES BY`. Times have microseconds, because the protocol
has no other unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from dashboards.sinks.target import SinkError, StoredQuery, UnreachableError

MICROSECONDS = pa.timestamp("us", tz="UTC")


class DeltaTables:
    """The tables in a folder."""

    def __init__(self, folder: Path) -> None:
        """Raises SinkError without the package deltalake."""
        try:
            import deltalake
        except ImportError:
            raise SinkError("a sink for Delta needs the package deltalake: pip install 'wiretide[delta]'") from None
        self._deltalake: Any = deltalake
        self._folder = folder

    def prepare(self, query: StoredQuery) -> None:
        """Check the columns of the table, if it exists."""
        table = self._open(query)
        if table is None:
            return
        found = [field.name for field in table.schema().fields]
        if found != query.schema.names:
            expected = ", ".join(query.schema.names)
            path = self._path(query)
            raise SinkError(f"{path}: got the columns {', '.join(found)}, expected {expected}; rename one of them")

    def last_batch(self, run: str, query: StoredQuery) -> int:
        """Return the last micro-batch of a run that is stored; -1 if there is none."""
        table = self._open(query)
        version = None if table is None else table.transaction_version(_application_id(run, query))
        return -1 if version is None else int(version)

    def store(self, run: str, query: StoredQuery, batch: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Append the rows of a micro-batch and its ID in one commit."""
        schema = pa.schema(
            [field.with_type(MICROSECONDS) if pa.types.is_timestamp(field.type) else field for field in query.schema]
        )
        batches = (rows_.cast(schema, safe=False) for rows_ in rows)
        transaction = self._deltalake.Transaction(_application_id(run, query), batch)
        properties = self._deltalake.CommitProperties(app_transactions=[transaction])
        try:
            self._deltalake.write_deltalake(
                str(self._path(query)),
                pa.RecordBatchReader.from_batches(schema, batches),
                mode="append",
                commit_properties=properties,
            )
        except OSError as error:
            raise UnreachableError(f"{self._path(query)}: {_first_line(error)}") from error
        except self._deltalake.exceptions.DeltaError as error:
            raise SinkError(f"{self._path(query)}: {_first_line(error)}") from error

    def close(self) -> None:
        """Do nothing: tables have no connection."""

    def _path(self, query: StoredQuery) -> Path:
        return self._folder / quote(query.name, safe=" ")

    def _open(self, query: StoredQuery) -> Any | None:
        path = self._path(query)
        try:
            return self._deltalake.DeltaTable(str(path)) if (path / "_delta_log").is_dir() else None
        except OSError as error:
            raise UnreachableError(f"{path}: {_first_line(error)}") from error
        except self._deltalake.exceptions.DeltaError as error:
            raise SinkError(f"{path}: {_first_line(error)}") from error


def _application_id(run: str, query: StoredQuery) -> str:
    return f"wiretide-{run}-{query.id}-{query.name}"


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
