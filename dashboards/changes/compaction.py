"""Makes one table from the change log of a query.

A change has a weight, which is positive if the change adds a row and negative if it withdraws a row. The table contains
a row if the sum of the weights of its changes is positive.

    output/talkers/date=*/*         columns, weight, final   ──►   compact/talkers.parquet   columns, final

A run writes the totals of a micro-batch (counters and watermarks) after its changes. Only changes of micro-batches with
totals are read, so the run may continue meanwhile. The table depends only on these changes, so a second call
gives the same table. It is written in the order of time: only rows that are not final are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq

from capture import arrow_compute as pc
from capture.errors import InputError
from capture.lazy_dataclasses import dataclass
from capture.private_files import make_private_folder, open_replacement
from dashboards.changes.change_log import ChangeLog
from highlevel.operators.window_operator import WINDOW_END
from highlevel.results.stored_columns import COLUMNS_KEY, decode_columns, time_of, with_columns
from highlevel.spark.errors import FolderError
from highlevel.spark.inputs.estimates import ESTIMATED
from highlevel.spark.run_folder.inspection import read_run
from highlevel.spark.run_folder.totals import Totals, TotalsFiles
from highlevel.speculation.consistency import FINAL, WEIGHT
from highlevel.speculation.current_results import CurrentResults, final_time
from lowlevel.punctuation import BEGINNING, END

COMPACT = "compact"
"""The folder of the tables in the folder of a run."""

ATTEMPTS = 3
"""Number of attempts to read the totals. An attempt fails if a run deletes the version that is read."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """A table that was written. `rows`: number of rows. `provisional`: number of rows that are not final.

    `changes`: number of changes read.
    """

    path: Path
    rows: int
    provisional: int
    changes: int


def compact(
    folder: Path, queries: Sequence[str] = (), target: Path | None = None, *, only_final: bool = False
) -> Iterator[Compaction]:
    """Write a table for each query with changes in the folder of a run, or only for `queries`. Yield each table.

    `target`: the folder of the tables, by default `compact` in the folder of the run. With `only_final` the tables
    contain only final rows. Raises FolderError if `folder` is not the folder of a run, InputError for a query without
    changes and for damaged files of changes.
    """
    read_run(folder)
    last_batch_id, totals = _read_totals(folder)
    logs = {log.query: log for log in _change_logs(folder / "output", last_batch_id)}
    if not logs:
        expected = "a run that has returned changes of a query with EMIT CHANGES"
        raise InputError(f"{folder}: got a run without changes, expected {expected}")
    for query in queries:
        if query not in logs:
            raise InputError(f"got the query {query!r}, expected a query with changes: {', '.join(logs)}")
    for query in queries or logs:
        path = (target or folder / COMPACT) / f"{quote(query, safe=' ')}.parquet"
        make_private_folder(path.parent)
        yield _compact(logs[query], path, totals.watermarks.get(query, BEGINNING), only_final=only_final)


def _read_totals(folder: Path) -> tuple[int, Totals]:
    files = TotalsFiles(folder / "totals")
    for attempt in range(ATTEMPTS):
        last_batch_id = files.last_batch_id()
        try:
            return last_batch_id, files.load(last_batch_id)
        except FolderError:
            if attempt == ATTEMPTS - 1 or files.last_batch_id() == last_batch_id:
                raise
    raise AssertionError("the last attempt returns or raises")


def _change_logs(output: Path, last_batch_id: int) -> Iterator[ChangeLog]:
    for path in sorted(output.glob("*/")):
        log = ChangeLog(output, unquote(path.name), last_batch_id)
        if log.paths and {WEIGHT, FINAL} <= set(pq.read_schema(log.paths[-1]).names):
            yield log


class _RowFormat:
    """Converts the rows of a change log to rows of the table."""

    def __init__(self, file_schema: pa.Schema) -> None:
        self._schema = file_schema
        self._columns = [
            column for column in decode_columns(file_schema.metadata[COLUMNS_KEY]) if column.name != WEIGHT
        ]
        self._estimated_window_ends: set[int] = set()
        self.time = time_of(file_schema)
        fields = [field for field in file_schema if field.name not in (WEIGHT, FINAL, ESTIMATED)]
        self._timestamps = [field.name for field in fields if pa.types.is_timestamp(field.type)]
        self.schema = pa.schema(
            [pa.field(each.name, pa.int64()) if each.name in self._timestamps else each for each in fields]
        )
        """The columns that identify a row. `estimated` is not one of them, because it may change while a window is
        open."""

    def from_changes(self, changes: pa.Table) -> pa.Table:
        """Return changes of the log with times in ns."""
        for name in self._timestamps:
            changes = changes.set_column(changes.schema.get_field_index(name), name, changes[name].cast(pa.int64()))
        if ESTIMATED in changes.column_names:
            self._estimated_window_ends.update(changes.filter(changes[ESTIMATED])[WINDOW_END].to_pylist())
        return changes

    def to_file_rows(self, rows: pa.Table, *, final: bool) -> pa.Table:
        """Return rows of the table, with the column `final`, and the column `estimated` if the changes have it."""
        if ESTIMATED in self._schema.names:
            marks = pc.is_in(rows[WINDOW_END], value_set=pa.array(sorted(self._estimated_window_ends), pa.int64()))
            rows = rows.append_column(ESTIMATED, marks)
        rows = rows.append_column(FINAL, pa.repeat(pa.scalar(final), rows.num_rows))
        names = [column.name for column in self._columns]
        arrays = [rows[name].cast(self._schema.field(name).type) for name in names]
        return with_columns(pa.table(arrays, names), self._columns)


def _compact(log: ChangeLog, path: Path, watermark: int, *, only_final: bool) -> Compaction:
    row_format = _RowFormat(pq.read_schema(log.paths[-1]))
    current = CurrentResults(log.query, row_format.schema, row_format.time)
    changes, rows = 0, {True: 0, False: 0}
    empty = row_format.to_file_rows(row_format.schema.empty_table(), final=True)
    with open_replacement(path) as (_, part), pq.ParquetWriter(part, empty.schema, write_page_checksum=True) as writer:

        def write(closed: pa.Table, *, final: bool) -> None:
            rows[final] += closed.num_rows
            if closed.num_rows:
                writer.write_table(row_format.to_file_rows(closed, final=final))

        for table in log.tables():
            changes += table.num_rows
            table = row_format.from_changes(table)
            current.add(table)
            write(current.close(final_time(table, row_format.time) or BEGINNING), final=True)
        write(current.close(watermark), final=True)
        if not only_final:
            write(current.close(END), final=False)
    return Compaction(path, rows[True] + rows[False], rows[False], changes)
