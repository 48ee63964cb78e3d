"""Parquet files in an object store with the protocol of S3, which cannot rename objects.

    PREFIX/QUERY/RUN-ID-000000000012.parquet    rows of micro-batch 12
    PREFIX/QUERY/_batches/RUN-ID                the last micro-batch that is stored, as text

Rows are stored exactly once without a rename, because the name of an object contains the micro-batch, and an object is
visible only when it is complete. So a repeated micro-batch replaces its object by the same rows. The object with the
number is written last; if it is missing after a crash, the micro-batch is written again. Readers such as Spark ignore
the folder `_batches` because of the underscore.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from dashboards.sinks.target import SinkError, StoredQuery, UnreachableError

PERMANENT_ERRORS = (
    "ACCESS_DENIED",
    "INVALID_ACCESS_KEY_ID",
    "INVALID_CLIENT_TOKEN_ID",
    "MISSING_AUTHENTICATION_TOKEN",
    "NO_SUCH_BUCKET",
    "SIGNATURE_DOES_NOT_MATCH",
)
"""Errors of the store for which another attempt is useless."""

CONNECT_SECONDS = 10.0
REQUEST_SECONDS = 60.0
"""Maximum time to wait for the answer to a request."""


class ObjectFiles:
    """The objects below a prefix of a bucket."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        """`url`: s3://BUCKET/PREFIX. `options`: `endpoint`, the URL of a server, and `region`; both may be missing.

        Credentials are those of the environment, as for other programs of AWS.
        """
        from pyarrow import fs  # few runs need it

        parts = urlsplit(url)
        self._fs: Any = fs
        self._bucket = parts.netloc
        self._base = f"{parts.netloc}{parts.path.rstrip('/')}"
        known = {"endpoint": "endpoint_override", "region": "region"}
        self._store: Any = fs.S3FileSystem(
            **{known[key]: value for key, value in options.items()},
            connect_timeout=CONNECT_SECONDS,
            request_timeout=REQUEST_SECONDS,
        )

    def prepare(self, query: StoredQuery) -> None:
        """Check that the bucket exists. The prefix need not exist."""
        with _ErrorConverter(self._base):
            if self._store.get_file_info(self._bucket).type == self._fs.FileType.NotFound:
                raise SinkError(f"s3://{self._bucket}: no such bucket")

    def last_batch(self, run: str, query: StoredQuery) -> int:
        """Return the last micro-batch of a run that is stored; -1 if there is none."""
        with _ErrorConverter(self._base):
            try:
                with self._store.open_input_stream(
                    self._path(query, "_batches", _run_id_of_query(run, query))
                ) as stream:
                    return int(stream.read())
            except FileNotFoundError:
                return -1

    def store(self, run: str, query: StoredQuery, batch: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Write the object of a micro-batch, and then its number."""
        with tempfile.TemporaryDirectory(prefix="wiretide-sink-") as folder:
            path = Path(folder, "rows.parquet")
            with pq.ParquetWriter(path, query.schema, write_page_checksum=True) as writer:
                for batch_rows in rows:
                    writer.write_batch(batch_rows)
            with pa.memory_map(str(path)) as file:
                self._write(
                    self._path(query, f"{_run_id_of_query(run, query)}-{batch:012}.parquet"), file.read_buffer()
                )
        self._write(self._path(query, "_batches", _run_id_of_query(run, query)), str(batch).encode())

    def close(self) -> None:
        """Do nothing: the store has no open connection."""

    def _write(self, path: str, content: Any) -> None:
        """Write an object in one call, because closing an interrupted stream would store an incomplete object."""
        with _ErrorConverter(self._base), self._store.open_output_stream(path) as stream:
            stream.write(content)

    def _path(self, query: StoredQuery, *names: str) -> str:
        return "/".join([self._base, quote(query.name, safe=" "), *names])


class _ErrorConverter:
    """Converts errors of the store."""

    def __init__(self, base: str) -> None:
        self._base = base

    def __enter__(self) -> None:
        """Convert errors from now on."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Raise SinkError or UnreachableError for an error of the store."""
        if isinstance(error, OSError):
            is_permanent = any(f"AWS Error {name} " in str(error) for name in PERMANENT_ERRORS)
            kind = SinkError if is_permanent else UnreachableError
            raise kind(f"s3://{self._base}: {str(error).splitlines()[0]}") from error


def _run_id_of_query(run: str, query: StoredQuery) -> str:
    return f"{run}-{query.id}"
