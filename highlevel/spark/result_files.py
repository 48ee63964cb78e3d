"""Results as files, exactly once: Parquet files of each query, each with the rows of several micro-batches.

    output/<query>/part-<first batch id>.parquet

The rows of a micro-batch are appended to the newest file: the file is written again, under a temporary name that is
then renamed. So a reader of the folder sees every row once, at any time, and no later job has to merge small files. A
file is complete when it has the rows of MAX_BATCHES micro-batches, or MAX_BYTES. Its metadata contain the ID and the
number of rows of each micro-batch. A repeated micro-batch replaces its own rows. The columns are the same as for
`wiretide query --format parquet`: addresses are text, times `timestamp[ns, UTC]`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from capture import arrow_compute as pc
from capture.private_files import make_private_folder, replace_file, replacing
from highlevel.operators.window_operator import WINDOW_END
from highlevel.plan.plan import Plan
from highlevel.results.stored_columns import COLUMNS_KEY, decode_columns, time_of
from highlevel.results.user_types import internal
from highlevel.spark.checked_files import REMEDY
from highlevel.spark.errors import FolderError
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.punctuation import BEGINNING, END

MAX_BATCHES = 64
"""Maximum number of micro-batches in a file: a day of windows of 10 s has 135 files."""

MAX_BYTES = 8 << 20
"""Size from which a file is complete. Each micro-batch with results writes less than this again."""

BATCHES = b"wiretide.batches"
"""The key of the micro-batches in the metadata of a file: a JSON list of (ID, number of rows), in their order."""

DELETED = "deleted-until"
"""The file with the time of the newest row of which a file was deleted. Changes up to this time are incomplete."""

Batches = list[tuple[int, int]]


def query_folder(output: Path, query: str) -> Path:
    """Return the folder of one query's results. Characters that are not allowed in file names become %XX."""
    return output / quote(query, safe=" ")


def first_batch(path: Path) -> int:
    """Return the ID in the name of a result file."""
    return int(path.stem.removeprefix("part-"))


def list_files(folder: Path) -> list[Path]:
    """Return the result files in the folder of a query, in the order of their micro-batches."""
    return sorted(folder.glob("part-*.parquet"), key=first_batch)


def batches_of(path: Path) -> Batches:
    """Return the micro-batches of a result file. Raises FolderError for a damaged file."""
    with _convert_damage(path):
        return stored_batches(path, pq.read_metadata(path))


def stored_batches(path: Path, metadata: pq.FileMetaData) -> Batches:
    """Return the micro-batches in the metadata of a result file."""
    stored = (metadata.metadata or {}).get(BATCHES)
    return (
        [(first_batch(path), metadata.num_rows)] if stored is None else [tuple(entry) for entry in json.loads(stored)]
    )


def _read_rows(path: Path) -> pa.Table:
    """Return all rows of a file, verified. Raises FolderError for a damaged file."""
    with _convert_damage(path):
        return pq.ParquetFile(path, page_checksum_verification=True).read()


@contextmanager
def _convert_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise FolderError(f"{path}: damaged: {str(error).splitlines()[0]}; {REMEDY}") from None


def write_results(
    output: Path,
    batch_id: int,
    results: dict[str, pa.Table],
    keep: int | None = None,
    final_until: Mapping[str, int] | None = None,
) -> None:
    """Write the readable results of a micro-batch in place of those that an earlier attempt wrote.

    With `keep`, complete files are deleted when all their rows are more than `keep` ns older than the newest one, by
    the end of the window or the time column of changes. A file of changes stays until its rows cannot change any more:
    `final_until` contains for each query with changes the time (ns) up to which rows were final before the micro-batch.
    """
    for query, table in results.items():
        folder = query_folder(output, query)
        discard_batches(folder, batch_id)
        if table.num_rows:
            make_private_folder(folder)
            _append(folder, batch_id, table)
            if keep is not None:
                _delete_old(folder, table, keep, (final_until or {}).get(query, END))


def discard_batches(folder: Path, batch_id: int) -> None:
    """Remove the rows of a micro-batch and of all later ones from the files of a query."""
    for path in reversed(list_files(folder)):
        if first_batch(path) >= batch_id:
            path.unlink(missing_ok=True)
            continue
        batches = batches_of(path)
        kept = [entry for entry in batches if entry[0] < batch_id]
        if len(kept) < len(batches):
            _write(path, _read_rows(path).slice(0, sum(count for _, count in kept)), kept)
        return


def _append(folder: Path, batch_id: int, table: pa.Table) -> None:
    """Append rows to the newest file, or begin a new file if it is complete or has other columns."""
    path = max(folder.glob("part-*.parquet"), key=first_batch, default=None)
    if path is not None and path.stat().st_size < MAX_BYTES:
        batches = batches_of(path)
        if len(batches) < MAX_BATCHES and _columns(pq.read_schema(path)) == _columns(table.schema):
            stored = _read_rows(path)
            rows = pa.concat_tables([stored.replace_schema_metadata(table.schema.metadata), table])
            _write(path, rows, [*batches, (batch_id, table.num_rows)])
            return
    _write(folder / f"part-{batch_id:08d}.parquet", table, [(batch_id, table.num_rows)])


def _columns(schema: pa.Schema) -> tuple[pa.Schema, bytes | None]:
    return schema.remove_metadata(), (schema.metadata or {}).get(COLUMNS_KEY)


def _write(path: Path, rows: pa.Table, batches: Batches) -> None:
    metadata = {**(rows.schema.metadata or {}), BATCHES: json.dumps(batches).encode()}
    with replacing(path) as (_, temporary):
        pq.write_table(rows.replace_schema_metadata(metadata), temporary, write_page_checksum=True)


def _delete_old(folder: Path, newest_rows: pa.Table, keep: int, final_until: int) -> None:
    """Delete the oldest files whose rows are all final and more than `keep` ns older than the newest one.

    The newest file is never deleted.
    """
    time = time_of(newest_rows.schema)
    if time not in newest_rows.column_names:
        return
    if time != WINDOW_END and not pa.types.is_timestamp(newest_rows.schema.field(time).type):
        return  # a number of an interval
    newest = pc.max(newest_rows[time].cast(pa.int64())).as_py()
    if newest is None:
        return  # lifetimes without an end
    bound = newest - keep
    for path in list_files(folder)[:-1]:
        end = largest_time(path, time)
        if end >= bound or end > final_until:
            return
        replace_file(folder / DELETED, str(max(end, deleted_until(folder))).encode())
        path.unlink(missing_ok=True)


def deleted_until(folder: Path) -> int:
    """Return the time (ns) of the newest row of which results were deleted; BEGINNING if none were."""
    try:
        return int((folder / DELETED).read_text("ascii"))
    except FileNotFoundError:
        return BEGINNING


def largest_time(path: Path, time: str = WINDOW_END) -> int:
    """Return the largest value of a time column in a file, in ns, from its statistics. NULL is END."""
    file = pq.read_metadata(path)
    index = file.schema.names.index(time)
    groups = [file.row_group(number).column(index).statistics for number in range(file.num_row_groups)]
    return max(END if group.null_count else int(group.max_raw) for group in groups)


def read_batch(output: Path, plan: Plan, batch_id: int) -> pa.Table | None:
    """Return the rows of a micro-batch in the plan's schema, None if it has no results."""
    return _read(output, plan, batch_id, batch_id)


def read_newest_batch(output: Path, plan: Plan, last: int) -> pa.Table | None:
    """Return the rows of the newest micro-batch with results, up to `last`; None if there is none."""
    return _read(output, plan, 0, last)


def _read(output: Path, plan: Plan, first: int, last: int) -> pa.Table | None:
    """Return the rows of the newest micro-batch from `first` to `last`."""
    files = [path for path in list_files(query_folder(output, plan.name)) if first_batch(path) <= last]
    if not files:
        return None
    batches = batches_of(files[-1])
    starts = accumulate((count for _, count in batches), initial=0)
    found = [(start, count) for start, (number, count) in zip(starts, batches, strict=False) if first <= number <= last]
    if not found:
        return None
    return internal(_read_rows(files[-1]).slice(*found[-1]), plan.schema)


def remove_results(output: Path, batch_id: int) -> None:
    """Remove the results of a micro-batch that is repeated with other queries."""
    for folder in output.glob("*/"):
        discard_batches(folder, batch_id)


def set_aside_results(output: Path, plan: Plan, *, always: bool = False) -> Path | None:
    """Rename the folder of a query's results if they have other columns than the plan now, or `always`.

    Return the new folder, otherwise None. Without this, readers of the folder would find files with different columns,
    or changes of two queries, whose sums have no meaning.
    """
    folder = query_folder(output, plan.name)
    files = list_files(folder)
    if not files:
        return None
    stored = (pq.read_schema(files[-1]).metadata or {}).get(COLUMNS_KEY)
    columns = plan.root.columns
    is_equal = stored is not None and stored_types(decode_columns(stored))[: len(columns)] == stored_types(columns)
    if is_equal and not always:
        return None
    newest, _ = batches_of(files[-1])[-1]
    target = query_folder(output, f"{plan.name} until {newest}")
    folder.rename(target)
    return target


def rename_results(output: Path, old: str, new: str) -> None:
    """Rename the folder of a query's results, unless this was done before."""
    if query_folder(output, old).exists() and not query_folder(output, new).exists():
        query_folder(output, old).rename(query_folder(output, new))


def stored_types(columns: Iterable[Column]) -> list[tuple[str, Type]]:
    """Return names and types of columns."""
    return [(column.name, column.type) for column in columns]


def read_results(output: Path, plan: Plan) -> pa.Table:
    """Return the rows of all result files of a query in the plan's schema."""
    files = list_files(query_folder(output, plan.name))
    tables = [internal(_read_rows(path), plan.schema) for path in files]
    return pa.concat_tables([plan.schema.empty_table(), *tables])
