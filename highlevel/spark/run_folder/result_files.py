"""Results as Parquet files, each row exactly once. A file contains rows of one query, of several micro-batches.

`highlevel.results.stored_files` describes the names of files. To append the rows of a micro-batch to the newest file of
their date, the whole file is written again, under a temporary name, and then renamed. So readers of the folder never
see a row twice, and no later job has to merge small files. A file is complete, and is not appended to any more, when it
has the rows of MAX_BATCHES micro-batches, or MAX_BYTES. Its metadata contain the ID and the number of rows of each
micro-batch. The columns are the same as for `wiretide query --format parquet`: addresses are text, times `timestamp[ns,
UTC]`.

If a micro-batch is repeated, its new rows replace its old ones in these files. If an earlier attempt with other
settings has written its rows into other files, they are removed first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate, chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from capture.private_files import make_private_folder, open_replacement, replace_file
from highlevel.operators.window_operator import WINDOW_END
from highlevel.plan.plan import Plan
from highlevel.results.stored_columns import COLUMNS_KEY, decode_columns, time_of
from highlevel.results.stored_files import (
    Batches,
    batch_ids,
    date_column,
    file_name,
    first_batch,
    list_files,
    merge_counts,
    newest_file,
    newest_files,
    positions_by_date,
    query_folder,
    stored_batches,
    write_file,
)
from highlevel.results.user_types import to_internal
from highlevel.spark.errors import FolderError
from highlevel.spark.run_folder.checked_files import REMEDY
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.punctuation import BEGINNING, END

MAX_BATCHES = 64
"""Maximum number of micro-batches in a file. So a day of windows of 10 s has 136 files."""

MAX_BYTES = 8 << 20
"""Size from which a file is complete. So an append writes less than this size again."""

DELETED_UNTIL_NAME = "_deleted-until"
"""Name of a file that contains the time of the newest row that was deleted. Changes up to this time are incomplete."""

OLD_DELETED_UNTIL_NAME = "deleted-until"
"""The name of this file in folders of earlier versions. Programs such as Spark would read it as results."""


def batches_of(path: Path) -> Batches:
    """Return the micro-batches of a result file. Raises FolderError for a damaged file."""
    with convert_damage(path):
        return stored_batches(path, pq.read_metadata(path))


def read_rows(path: Path) -> pa.Table:
    """Return all rows of a file, after verifying it. Raises FolderError for a damaged file.

    One thread reads, because each thread of Arrow keeps the memory that it has used.
    """
    with convert_damage(path):
        return pq.ParquetFile(path, page_checksum_verification=True).read(use_threads=False)


def read_part(path: Path, start: int, count: int) -> Iterator[pa.Table]:
    """Yield `count` rows of a file from row `start` on, row group by row group, so that few rows are in memory.

    The row groups with these rows are verified. Raises FolderError if they are damaged or missing.
    """
    with convert_damage(path):
        file = pq.ParquetFile(path, page_checksum_verification=True)
        if file.metadata.num_rows < start + count:
            raise OSError(f"got {file.metadata.num_rows} rows, expected {start + count}")
        skipped, missing = start, count
        for number in range(file.num_row_groups):
            size = file.metadata.row_group(number).num_rows
            if missing and skipped < size:
                rows = file.read_row_group(number, use_threads=False).slice(skipped, missing)
                missing -= rows.num_rows
                yield rows
            skipped = max(0, skipped - size)


@contextmanager
def convert_damage(path: Path) -> Iterator[None]:
    """Raise a FolderError for an exception that reading `path` raises."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise FolderError(f"{path}: damaged: {str(error).splitlines()[0]}; {REMEDY}") from None


def write_results(
    output: Path,
    batch_id: int,
    results: Mapping[str, pa.Table],
    keep: int | None = None,
    final_until: Mapping[str, int] | None = None,
    repeated: Mapping[str, Collection[Path]] | None = None,
) -> dict[str, list[Path]]:
    """Write the results of a micro-batch, whose columns have the types that users see. Return the files by query.

    `repeated`: None if the micro-batch is new. If an earlier attempt may have written the micro-batch, it contains for
    each query the files that tasks write again. Rows of the micro-batch in other files are replaced or removed.

    With `keep`, complete files are deleted when all their rows are more than `keep` ns older than the newest row. The
    age of a row is measured from the end of its window, or from its time if it has no window. Files with rows of this
    micro-batch are deleted by the next one at the earliest. A file of changes is deleted only when its rows are final:
    `final_until` contains, for each query with changes, the time (ns) up to which rows were final before the
    micro-batch.
    """
    written: dict[str, list[Path]] = {}
    for query, table in results.items():
        folder = query_folder(output, query)
        files = [*appended_files(folder, batch_id, table)] if table.num_rows else []
        if repeated is not None:
            discard_batches(folder, batch_id, {*repeated.get(query, ()), *(path for path, _, _ in files)})
        for path, rows, batches in files:
            make_private_folder(path.parent)
            with open_replacement(path) as (_, temporary):
                write_file(temporary, table.schema, rows, batches)
        written[query] = [path for path, _, _ in files]
        if table.num_rows and keep is not None:
            time = retention_column(table.schema)
            newest = None if time is None else pc.max(table[time].cast(pa.int64())).as_py()
            if time is not None and newest is not None:  # `newest` is None if all lifetimes have no end
                delete_old(folder, time, newest - keep, batch_id, (final_until or {}).get(query, END))
    return written


def appended_files(
    folder: Path, batch_id: int, table: pa.Table, partition: int | None = None
) -> Iterator[tuple[Path, Iterable[pa.Table], Batches]]:
    """Yield each file that will contain rows of a micro-batch: its path, tables of all its rows, its micro-batches.

    The tables are read from the file when the caller iterates over them, which is possible once, and only before the
    file is replaced.

    `partition`: the Spark partition that writes the rows, or None. The rows are appended to the newest file of this
    partition. If that file is complete or has other columns, they begin a new file. They replace rows of the same
    micro-batch.
    """
    for date, positions in positions_by_date(table):
        target = folder / date
        rows = table if len(positions) == table.num_rows else table.take(array_of(positions))
        path, new = newest_file(target, partition), [(batch_id, rows.num_rows)]
        if path is not None and path.stat().st_size < MAX_BYTES:
            batches = [entry for entry in batches_of(path) if entry[0] < batch_id]
            if 0 < len(batches) < MAX_BATCHES and _columns(pq.read_schema(path)) == _columns(rows.schema):
                stored = read_part(path, 0, count_rows(batches))
                yield path, chain(stored, [rows]), [*batches, *new]
                continue
        yield target / file_name(batch_id, partition), [rows], new


def count_rows(batches: Batches) -> int:
    """Return the number of rows of micro-batches."""
    return sum(count for _, count in batches)


def _columns(schema: pa.Schema) -> tuple[pa.Schema, bytes | None]:
    return schema.remove_metadata(), (schema.metadata or {}).get(COLUMNS_KEY)


def discard_batches(folder: Path, batch_id: int, kept_files: Collection[Path] = ()) -> None:
    """Remove the rows of a micro-batch and of all later ones from the files of a query, except from `kept_files`."""
    paths = [path for path in list_files(folder) if path not in kept_files]
    for path in paths:
        if first_batch(path) >= batch_id:
            path.unlink(missing_ok=True)
    for path in newest_files(folder):
        if path in kept_files:
            continue
        batches = batches_of(path)
        kept = [entry for entry in batches if entry[0] < batch_id]
        if len(kept) < len(batches):
            with open_replacement(path) as (_, temporary):
                write_file(temporary, pq.read_schema(path), read_part(path, 0, count_rows(kept)), kept)


def retention_column(schema: pa.Schema) -> str | None:
    """Return the time column that decides when stored rows are deleted; None if they are never deleted."""
    time = date_column(schema) or time_of(schema)
    is_time = time in schema.names and (time == WINDOW_END or pa.types.is_timestamp(schema.field(time).type))
    return time if is_time else None  # otherwise the column contains the number of an interval


def delete_old(folder: Path, time: str, bound: int, batch_id: int, final_until: int = END) -> None:
    """Delete the oldest files in which all rows are final and have a time before `bound` (ns) in the column `time`.

    The newest file is never deleted. Files with rows of micro-batch `batch_id` are not deleted either, because sinks
    and alerts still read them.
    """
    for path in list_files(folder)[:-1]:
        end = largest_time(path, time)
        if end >= bound or end > final_until:
            return
        if batches_of(path)[-1][0] >= batch_id:
            continue
        replace_file(folder / DELETED_UNTIL_NAME, str(max(end, deleted_until(folder))).encode())
        path.unlink(missing_ok=True)
        if path.parent != folder and not any(path.parent.iterdir()):
            path.parent.rmdir()


def is_expired(folder: Path, path: Path) -> bool:
    """Return whether `delete_old` has deleted all rows of a file from a folder. `path` may be a copy of the file."""
    with convert_damage(path):
        time = retention_column(pq.read_schema(path))
        return time is not None and largest_time(path, time) <= deleted_until(folder)


def deleted_until(folder: Path) -> int:
    """Return the time (ns) of the newest row that was deleted; BEGINNING if no rows were deleted."""
    try:
        return int((folder / DELETED_UNTIL_NAME).read_text("ascii"))
    except FileNotFoundError:
        return BEGINNING


def largest_time(path: Path, time: str = WINDOW_END) -> int:
    """Return the largest value of a time column in a file, in ns, from the statistics of the file.

    A NULL counts as END.
    """
    file = pq.read_metadata(path)
    index = file.schema.names.index(time)
    groups = [file.row_group(number).column(index).statistics for number in range(file.num_row_groups)]
    return max(END if group.null_count else int(group.max_raw) for group in groups)


def read_batch(output: Path, plan: Plan, batch_id: int) -> pa.Table | None:
    """Return the rows of a micro-batch in the plan's schema; None if it has no rows."""
    tables = list(tables_of_batch(output, plan, batch_id))
    return pa.concat_tables(tables) if tables else None


def read_newest_batch(output: Path, plan: Plan, last_batch_id: int) -> Iterator[pa.Table]:
    """Yield, file by file, the rows of the newest micro-batch that has results and is not after `last_batch_id`."""
    files = newest_files(query_folder(output, plan.name), until=last_batch_id)
    numbers = [number for path in files for number, _ in batches_of(path) if number <= last_batch_id]
    if numbers:
        yield from tables_of_batch(output, plan, max(numbers))


def tables_of_batch(output: Path, plan: Plan, batch_id: int) -> Iterator[pa.Table]:
    """Yield the rows of a micro-batch in the plan's schema, file by file."""
    files = newest_files(query_folder(output, plan.name), until=batch_id)
    for path, start, count in parts_of_batch(files, batch_id):
        if count:
            yield to_internal(pa.concat_tables(read_part(path, start, count)), plan.schema)


def parts_of_batch(files: Iterable[Path], batch_id: int) -> Iterator[tuple[Path, int, int]]:
    """Yield each file with rows of a micro-batch: its path, the position of the first of these rows, their number."""
    for path in files:
        batches = batches_of(path)
        starts = accumulate((count for _, count in batches), initial=0)
        for start, (number, count) in zip(starts, batches, strict=False):
            if number == batch_id:
                yield path, start, count


def remove_results(output: Path, batch_id: int) -> None:
    """Remove the results of a micro-batch that will be repeated with other queries."""
    for folder in output.glob("*/"):
        discard_batches(folder, batch_id)


def set_aside_results(output: Path, plan: Plan, *, always: bool = False) -> Path | None:
    """Rename the folder of a query's results if its columns are not those of the plan, or if `always`.

    Return the new path, or None if nothing was renamed. If the folder were not renamed, its readers would find files
    with different columns, or changes of two different queries, whose sums have no meaning.
    """
    folder = query_folder(output, plan.name)
    numbers = {path: batches_of(path)[-1][0] for path in newest_files(folder)}
    if not numbers:
        return None
    newest = max(numbers, key=lambda path: numbers[path])
    stored = (pq.read_schema(newest).metadata or {}).get(COLUMNS_KEY)
    columns = plan.root.columns
    is_equal = stored is not None and stored_types(decode_columns(stored))[: len(columns)] == stored_types(columns)
    if is_equal and not always:
        return None
    target = query_folder(output, f"{plan.name} until {numbers[newest]}")
    folder.rename(target)
    return target


def rename_results(output: Path, old: str, new: str) -> None:
    """Rename the folder of a query's results. Do nothing if it has already been renamed."""
    if query_folder(output, old).exists() and not query_folder(output, new).exists():
        query_folder(output, old).rename(query_folder(output, new))


def stored_types(columns: Iterable[Column]) -> list[tuple[str, Type]]:
    """Return names and types of columns."""
    return [(column.name, column.type) for column in columns]


def read_results(output: Path, plan: Plan) -> pa.Table:
    """Return the rows of all result files of a query in the plan's schema."""
    files = list_files(query_folder(output, plan.name))
    tables = [to_internal(read_rows(path), plan.schema) for path in files]
    return pa.concat_tables([plan.schema.empty_table(), *tables])


def move_to_dates(output: Path, aside: Path) -> None:
    """Move the result files of an earlier version, whose paths contain no date, to the folders of their dates.

    The files are first moved to `aside`, so that readers see no row twice. If this is interrupted, the next call
    continues.
    """
    for folder in output.glob("*/"):
        if (folder / OLD_DELETED_UNTIL_NAME).exists():
            (folder / OLD_DELETED_UNTIL_NAME).rename(folder / DELETED_UNTIL_NAME)
        for path in folder.glob("part-*.parquet"):
            if date_column(pq.read_schema(path)) is not None:
                make_private_folder(aside / folder.name)
                path.rename(aside / folder.name / path.name)
    for path in aside.glob("*/part-*.parquet"):
        rows, numbers = read_rows(path), batch_ids(batches_of(path))
        for date, positions in positions_by_date(rows):
            target = output / path.parent.name / date
            make_private_folder(target)
            batches = merge_counts(numbers[positions])
            with open_replacement(target / file_name(batches[0][0])) as (_, temporary):
                write_file(temporary, rows.schema, [rows.take(array_of(positions))], batches)
        path.unlink()
