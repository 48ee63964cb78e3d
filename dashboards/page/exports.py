"""Stored windows of a query as a file: CSV, JSON lines, Parquet or Arrow, as `wiretide query` writes them.

    thread:  windows ──► writer of the format ──► pipe ──► response

The pipe is the only buffer, so a slow browser delays the thread. If the browser disconnects, the thread ends. One
window is in memory at a time. Texts in CSV are escaped, because they may come from packets.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from threading import Thread

from dashboards.output.formats import Format
from dashboards.output.writers import write_results
from dashboards.page.history import History

CHUNK_BYTES = 1 << 16

TYPES = {
    Format.CSV: ("csv", "text/csv; charset=utf-8"),
    Format.JSON: ("jsonl", "application/x-ndjson"),
    Format.PARQUET: ("parquet", "application/vnd.apache.parquet"),
    Format.ARROW: ("arrows", "application/vnd.apache.arrow.stream"),
}
"""The suffix of a file and the type of its content, by format."""


class Export:
    """A file with stored windows of a query, the oldest window first.

    `duration_ns`: only windows that end less than `duration_ns` ns before the newest window; None for all windows.
    Iterating yields the bytes of the file. `close` ends the export. Raises OSError if the process has no free file
    descriptor, or if the history cannot be read.
    """

    def __init__(self, history: History, query: str, duration_ns: int | None, file_format: Format) -> None:
        self._history, self._query, self._duration_ns, self._file_format = history, query, duration_ns, file_format
        self._error: sqlite3.Error | None = None
        self.is_complete = False
        self._source, target = os.pipe()
        self._thread = Thread(target=self._write, args=(target,), name="export", daemon=True)
        self._thread.start()

    def _write(self, target: int) -> None:
        plan = self._history.plans[self._query]
        windows = self._history.stored.in_order(self._query, self._duration_ns)
        batches = (batch for window in windows for batch in window.rows.cast(plan.schema).to_batches())
        try:
            with open(target, "wb", buffering=CHUNK_BYTES) as sink:
                write_results(batches, plan.schema, self._file_format, sink, times=plan.times)
        except BrokenPipeError:
            pass  # the browser has disconnected
        except sqlite3.Error as error:
            self._error = error

    def __iter__(self) -> Iterator[bytes]:
        while chunk := os.read(self._source, CHUNK_BYTES):
            yield chunk
        self._thread.join()
        if self._error is not None:
            raise OSError(f"{self._history.path}: cannot be read: {self._error}")
        self.is_complete = True

    def close(self) -> None:
        """End the export. May be called once."""
        os.close(self._source)
        self._thread.join()
