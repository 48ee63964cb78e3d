"""The changes of a query in its result files (`highlevel.spark.run_folder.result_files`)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from capture import arrow_compute as pc
from capture.errors import InputError
from highlevel.operators.window_operator import WINDOW_END
from highlevel.results.stored_columns import time_of
from highlevel.results.stored_files import first_batch, list_files, query_folder, stored_batches
from highlevel.spark.run_folder.result_files import deleted_until, largest_time
from lowlevel.punctuation import BEGINNING, END


class ChangeLog:
    """The changes of one query up to a micro-batch. A run may write the files again meanwhile."""

    def __init__(self, output: Path, query: str, last_batch_id: int) -> None:
        """`output`: the folder of all results.

        Micro-batches after `last_batch_id` are ignored, because they may be repeated.
        """
        self.query, self.last_batch_id = query, last_batch_id
        folder = query_folder(output, query)
        self.paths = [path for path in list_files(folder) if first_batch(path) <= last_batch_id]
        self.deleted_until = deleted_until(folder)
        """The changes of rows with times up to this time (ns) may be deleted."""

    @cached_property
    def time(self) -> str:
        """The time column of the changes: the end of the window, or the time of a row without a window."""
        try:
            return time_of(pq.read_schema(self.paths[-1])) if self.paths else WINDOW_END
        except (OSError, pa.ArrowException) as error:
            raise _error(self.paths[-1], error) from error

    def newest_time(self) -> int:
        """Return the newest time of a row in the last file with rows, in ns; BEGINNING without results."""
        for path in reversed(self.paths):
            times = self._times(self._read(path))
            if len(times):
                newest: int = pc.max(times).as_py()
                return newest
        return BEGINNING

    def tables(self, after: int = BEGINNING) -> Iterator[pa.Table]:
        """Yield, per file, the changes of rows with a time after `after` (ns) and after `deleted_until`.

        Raises InputError for a damaged file, and for a file that is deleted meanwhile.
        """
        after = max(after, self.deleted_until)
        for path in self.paths:
            try:
                is_older = largest_time(path, self.time) <= after
            except (OSError, pa.ArrowException) as error:
                raise _error(path, error) from error
            if not is_older:
                table = self._read(path)
                yield table.filter(pc.greater(self._times(table), after))

    def _times(self, table: pa.Table) -> pa.ChunkedArray:
        """Return the times of rows in ns. NULL is END, as for watermarks."""
        return pc.fill_null(table[self.time].cast(pa.int64()), END)

    def _read(self, path: Path) -> pa.Table:
        """Return the rows of a file up to the last micro-batch."""
        try:
            file = pq.ParquetFile(path, page_checksum_verification=True)
            batches = stored_batches(path, file.metadata)
            table = file.read()
        except (OSError, pa.ArrowException) as error:
            raise _error(path, error) from error
        return table.slice(0, sum(count for number, count in batches if number <= self.last_batch_id))


def _error(path: Path, error: Exception) -> InputError:
    return InputError(f"{path}: cannot be read as results: {str(error).splitlines()[0]}")
