"""The paths of result files: a folder for each query and date, and the micro-batches that each file contains.

    output/<query>/date=2026-11-28/part-<first batch id>.parquet               written by the driver
    output/<query>/date=2026-11-28/part-<first batch id>-<partition>.parquet   written by the task of a partition
    output/<query>/part-<first batch id>.parquet                               rows without a time

The date of a row is the UTC date of its time column: of the end of its window, or of its first time column. Spark,
DuckDB and pandas read such folders as one table with a column `date`. A query that has a column of this name has
folders `day_of_results=…`. These programs ignore names with a leading underscore or dot.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from capture import arrow_compute as pc
from highlevel.operators.window_operator import WINDOW_END
from highlevel.results.stored_columns import COLUMNS_KEY, TIME_KEY, decode_columns, time_of, times_of

BATCHES = b"wiretide.batches"
"""The key of the micro-batches in the metadata of a file: a JSON list of (ID, number of rows), in their order."""

DATE, OTHER_DATE = "date", "day_of_results"
"""The names of the column that the folders add to results. The second one is for queries with a column `date`."""

NO_DATE = "__HIVE_DEFAULT_PARTITION__"
"""The date of rows whose time is NULL: lifetimes without an end."""

MAX_BATCH = 2**63 - 1
"""The maximum ID of a micro-batch."""

NS_PER_DAY = 86_400_000_000_000
"""Nanoseconds of a day."""

Batches = list[tuple[int, int]]


ROW_GROUP_ROWS = 1 << 14
"""Maximum rows of a row group. A writer keeps a row group and the distinct values of its columns in memory: 330 bytes
for each row of two addresses.
"""


def query_folder(output: Path, query: str) -> Path:
    """Return the folder of one query's results. Characters that are not allowed in file names become %XX."""
    return output / quote(query, safe=" ")


def has_folder_name(query: str) -> bool:
    """Return True if a query name can be a folder name, and does not name a folder above its results."""
    return query not in ("", ".", "..")


def first_batch(path: Path) -> int:
    """Return the ID in the name of a result file.

    >>> first_batch(Path("part-00000012-3.parquet"))
    12
    """
    return int(path.stem.split("-")[1])


def file_name(batch_id: int, partition: int | None = None) -> str:
    """Return the name of a file that begins with a micro-batch. `partition`: the partition that writes it."""
    return f"part-{batch_id:08d}.parquet" if partition is None else f"part-{batch_id:08d}-{partition}.parquet"


def _partition_of(path: Path) -> int | None:
    """Return the number of the partition that wrote a file; None for the driver."""
    _, _, *part = path.stem.split("-")
    return int(part[0]) if part else None


def list_files(folder: Path) -> list[Path]:
    """Return the result files in the folder of a query, sorted by date and then by their first batch."""
    paths = [*folder.glob("part-*.parquet"), *folder.glob("*=*/part-*.parquet")]
    return sorted(paths, key=lambda path: (_date_of(path), first_batch(path), path.name))


def newest_file(folder: Path, partition: int | None) -> Path | None:
    """Return the file of a folder of one date that `partition` continues; None if there is none."""
    own = (path for path in folder.glob("part-*.parquet") if _partition_of(path) == partition)
    return max(own, key=first_batch, default=None)


def newest_files(folder: Path, until: int = MAX_BATCH) -> list[Path]:
    """Return the newest file of each date and writer in the folder of a query that begins by micro-batch `until`."""
    begun = (path for path in list_files(folder) if first_batch(path) <= until)
    newest = {(path.parent, _partition_of(path)): path for path in begun}
    return list(newest.values())


def _date_of(path: Path) -> str:
    """Return the date of a file; the empty text for rows without a time."""
    _, _, date = path.parent.name.partition("=")
    return date if path.parent.name.startswith((f"{DATE}=", f"{OTHER_DATE}=")) else ""


def stored_batches(path: Path, metadata: pq.FileMetaData) -> Batches:
    """Return the micro-batches in the metadata of a result file."""
    stored = (metadata.metadata or {}).get(BATCHES)
    return (
        [(first_batch(path), metadata.num_rows)] if stored is None else [tuple(entry) for entry in json.loads(stored)]
    )


def write_file(path: Path, schema: pa.Schema, tables: Iterable[pa.Table], batches: Batches) -> None:
    """Write the rows of tables with their micro-batches. The file must not be visible to readers yet.

    The rows of a few row groups are in memory. If an error occurs, the file is removed.
    """
    schema = schema.with_metadata({**(schema.metadata or {}), BATCHES: json.dumps(batches).encode()})
    try:
        with pq.ParquetWriter(path, schema, write_page_checksum=True) as file:
            for rows in _row_groups(tables):
                file.write_table(rows.replace_schema_metadata(schema.metadata))
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows of tables in parts of ROW_GROUP_ROWS. The last part may have fewer rows."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        count = sum(part.num_rows for part in waiting)
        if count >= ROW_GROUP_ROWS:
            rows, complete = pa.concat_tables(waiting), count - count % ROW_GROUP_ROWS
            yield from (rows.slice(start, ROW_GROUP_ROWS) for start in range(0, complete, ROW_GROUP_ROWS))
            waiting = [rows.slice(complete)]
    if any(part.num_rows for part in waiting):
        yield pa.concat_tables(waiting)


def date_column(schema: pa.Schema) -> str | None:
    """Return the name of the column that determines the date of stored rows; None without such a column.

    >>> date_column(pa.schema({"window_end": pa.timestamp("ns", tz="UTC"), "n": pa.int64()}))
    'window_end'
    """
    metadata = schema.metadata or {}
    stored = [*times_of(decode_columns(metadata[COLUMNS_KEY]))] if COLUMNS_KEY in metadata else []
    names = [time_of(schema)] if TIME_KEY in metadata else [WINDOW_END, *stored]
    return next(
        (name for name in names if name in schema.names and pa.types.is_timestamp(schema.field(name).type)), None
    )


def positions_by_date(rows: pa.Table) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    """Yield for each date, in order, the name of its folder and the positions of its rows."""
    time = date_column(rows.schema)
    if time is None:
        yield "", np.arange(rows.num_rows)
        return
    name = OTHER_DATE if DATE in {column.lower() for column in rows.column_names} else DATE
    times = rows[time].cast(pa.int64()).combine_chunks()
    days = np.asarray(pc.fill_null(times, np.iinfo(np.int64).max).to_numpy()) // NS_PER_DAY
    for day in np.unique(days).tolist():
        date = NO_DATE if day == np.iinfo(np.int64).max // NS_PER_DAY else str(np.datetime64(day, "D"))
        yield f"{name}={date}", np.flatnonzero(days == day)


def merge_counts(numbers: Iterable[int]) -> Batches:
    """Return the micro-batches of rows, given the ID of each row. IDs are in ascending order.

    >>> merge_counts([4, 4, 7])
    [(4, 2), (7, 1)]
    """
    ids, counts = np.unique(np.fromiter(numbers, np.int64), return_counts=True)
    return list(zip(ids.tolist(), counts.tolist(), strict=True))


def batch_ids(batches: Sequence[tuple[int, int]]) -> npt.NDArray[np.int64]:
    """Return the micro-batch of each row of a file."""
    return np.repeat(np.array([number for number, _ in batches], np.int64), [count for _, count in batches])
