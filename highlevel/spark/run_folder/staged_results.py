"""Large results are written by the tasks, so that the memory of the driver does not depend on the number of rows.

    task of a partition                                          driver
    rows of a query ──► at most `rows`: sent to the driver   ──► file of the driver
                    └─► more: written to staged/<batch>/     ──► renamed into the folder of results
                        the largest `rows` are sent,
                        the others are added up by window

If Spark has given up an attempt of a task, this attempt may still write. This does no harm: attempts only write into
`staged/<batch>`. After the last task of the micro-batch has ended, the driver renames the files of the successful
attempts, and the others are removed. Each partition appends to its own newest file, and so does the driver
(`spark.run_folder.result_files`). So the path of a file and its content do not depend on the number of attempts.

Tasks that do not see the folder of the run store their rows as objects (`highlevel.spark.remote.task_files`). Then the
driver appends them to the files of their partitions, one object after the other.
"""

from __future__ import annotations

import base64
import shutil
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from capture.arrow_compute import array_of
from capture.lazy_dataclasses import dataclass
from capture.private_files import make_private_folder
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.plan.keys import stored_key
from highlevel.plan.plan import Plan
from highlevel.results.row_limit import RowLimit, select_rows
from highlevel.results.stored_columns import with_columns
from highlevel.results.stored_files import query_folder, write_file
from highlevel.results.user_types import readable
from highlevel.spark.errors import FolderError
from highlevel.spark.inputs.estimates import ESTIMATED, mark_estimates, overlap_mask
from highlevel.spark.remote.file_entries import FileEntry
from highlevel.spark.remote.task_files import TaskFiles
from highlevel.spark.run_folder.result_files import (
    appended_files,
    count_rows,
    delete_old,
    largest_time,
    retention_column,
)
from highlevel.spark.tasks.packing import pack, unpack
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.integer_ranges import Ranges
from lowlevel.punctuation import END


def stored_form(plan: Plan, results: pa.Table, sampled: Ranges | None) -> pa.Table:
    """Return results in the schema of their file.

    `sampled`: the times in which the node has sampled its input (`estimates.py`), so results are estimates; None if the
    query reads no spool.
    """
    columns = plan.root.columns
    if sampled is not None:
        results = mark_estimates(results, sampled)
        if results.num_columns > len(columns):
            columns = (*columns, Column(ESTIMATED, Type.BOOL))
    time_column = plan.time_column if plan.has_changes else None
    return with_columns(readable(results, plan.times), columns, time_column, stored_key(plan.root))


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file in `staged/<batch>` that will replace `path`. Its rows from `start` on belong to the micro-batch."""

    name: str
    path: str
    start: int
    rows: int


@dataclass(frozen=True)
class ResultWriter:
    """Writes the results of one micro-batch in its tasks. Picklable.

    `limits`: the limits of queries; queries without a limit send all rows to the driver. `sampled`: for queries that
    read spools, the estimated times that are known before the micro-batch. `files`: the objects of the micro-batch;
    None if its tasks see the folders.
    """

    output: Path
    staged: Path
    batch_id: int
    limits: Mapping[str, RowLimit]
    sampled: Mapping[str, Ranges]
    files: TaskFiles | None = None

    def write(
        self, plan: Plan, part: int, rows: pa.Table
    ) -> tuple[pa.Table, pa.Table | None, Sequence[StagedFile | FileEntry]]:
        """Write the rows of a query in a partition, if there are more than its limit.

        Return the rows for the driver, the other rows added up by window, and the files or the entry of an object. If
        there are none, the driver writes the rows.
        """
        limit = self.limits.get(plan.name)
        if limit is None or rows.num_rows <= limit.rows:
            return rows, None, []
        sent, rest = select_rows(rows, limit)
        stored = stored_form(plan, rows, self.sampled.get(plan.name))
        if self.files is not None:
            return sent, rest, [self.files.store_rows(part, stored)]
        return sent, rest, self.stage(plan.name, part, stored)

    def stage(self, query: str, part: int, stored: pa.Table) -> list[StagedFile]:
        """Append rows, in the schema of their file, to copies of the newest files of a partition."""
        folder = self.staged / str(self.batch_id)
        make_private_folder(folder)
        files = []
        for path, tables, batches in appended_files(query_folder(self.output, query), self.batch_id, stored, part):
            name = uuid.uuid4().hex
            write_file(folder / name, stored.schema, tables, batches)
            *earlier, (_, count) = batches
            relative = path.relative_to(self.output).as_posix()
            files.append(StagedFile(name, relative, count_rows(earlier), count))
        return files


def commit_files(
    writer: ResultWriter,
    files: Mapping[str, Sequence[StagedFile]],
    sampled: Mapping[str, Ranges],
    keep: int | None = None,
) -> None:
    """Move the staged files of all queries into the folder of results. Raises FolderError for a missing file.

    `files`: the files of each query. `sampled`: the estimated times of each query after the micro-batch. If the
    micro-batch has added such times, the windows of the files are marked as estimates again, because the tasks did not
    know these times. With `keep` (ns) old files are deleted, as in `write_results`.
    """
    for query, staged in files.items():
        for file in staged:
            source, target = writer.staged / str(writer.batch_id) / file.name, writer.output / file.path
            if not source.exists():
                raise FolderError(f"{source}: missing, but a task has written it; nothing else may use {writer.staged}")
            if query in writer.sampled and sampled.get(query, []) != writer.sampled[query]:
                _mark_estimates(source, file.start, sampled[query])
            make_private_folder(target.parent)
            source.replace(target)
            time = None if keep is None else retention_column(pq.read_schema(target))
            if keep is not None and time is not None and (newest := largest_time(target, time)) != END:
                delete_old(query_folder(writer.output, query), time, newest - keep, writer.batch_id)


def _mark_estimates(path: Path, start: int, sampled: Ranges) -> None:
    """Mark the windows that contain estimates, in the rows from `start` on.

    Only one row group at a time is in memory.
    """
    file = pq.ParquetFile(path)
    if ESTIMATED not in file.schema_arrow.names:
        return
    marked, position = path.with_name(f"{path.name}-marked"), 0
    with pq.ParquetWriter(marked, file.schema_arrow, write_page_checksum=True) as target:
        for number in range(file.num_row_groups):
            rows = file.read_row_group(number)
            starts, ends = (rows[name].cast(pa.int64()).to_numpy() for name in (WINDOW_START, WINDOW_END))
            is_new = np.arange(position, position + rows.num_rows) >= start
            marks = np.where(is_new, overlap_mask(starts, ends, sampled), rows[ESTIMATED].to_numpy())
            rows = rows.set_column(rows.schema.get_field_index(ESTIMATED), ESTIMATED, array_of(marks))
            target.write_table(rows.cast(file.schema_arrow))
            position += file.metadata.row_group(number).num_rows
    marked.replace(path)


def remove_staged(staged: Path) -> None:
    """Remove the staged files of all micro-batches, including those of attempts that Spark has given up."""
    for folder in staged.glob("[0-9]*"):
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class WrittenResults:
    """The files, objects and sums that tasks have written for one query.

    `parts`: the partitions. `files`: the staged files. `rests`: for each window, sums over the rows that were written
    and not sent to the driver. `objects`: partitions and entries of objects, until `stage_objects` appends their rows
    to files.
    """

    parts: set[int]
    files: list[StagedFile]
    rests: list[pa.Table]
    objects: list[tuple[int, FileEntry]]


def encode_written(part: int, files: Sequence[StagedFile | FileEntry], rest: pa.Table | None) -> dict[str, Any]:
    """Return what a task has written, as JSON for its counters. `rest` is a table with a row for each window."""
    packed = None if rest is None else base64.b64encode(pack(rest)).decode()
    staged = [[file.name, file.path, file.start, file.rows] for file in files if isinstance(file, StagedFile)]
    return {
        "part": part,
        "files": staged,
        "objects": [file for file in files if isinstance(file, dict)],
        "rest": packed,
    }


def decode_written(task_counts: Iterable[Mapping[str, Any]]) -> dict[int, WrittenResults]:
    """Return, by the number of the query, what tasks have written. The tasks send it as part of their counters."""
    written: dict[int, WrittenResults] = {}
    for counts in task_counts:
        if "written" in counts:
            one = written.setdefault(counts["query"], WrittenResults(set(), [], [], []))
            part = counts["written"]["part"]
            one.parts.add(part)
            one.objects.extend((part, entry) for entry in counts["written"]["objects"])
            one.files.extend(StagedFile(*file) for file in counts["written"]["files"])
            if counts["written"]["rest"] is not None:
                one.rests.append(unpack(base64.b64decode(counts["written"]["rest"])))
    return written


def stage_objects(writer: ResultWriter, query: str, written: WrittenResults) -> None:
    """Append the rows of all objects of a query to staged files. Only the rows of one object are in memory."""
    for part, entry in written.objects:
        assert writer.files is not None, "tasks store objects only with it"
        written.files.extend(writer.stage(query, part, writer.files.read_rows(entry)))
    written.objects.clear()
