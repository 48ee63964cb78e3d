"""Results that tasks write themselves, so that the memory of the driver does not depend on their number.

    task of a partition                                       driver
    rows of a query ──► up to `rows`: sent to the driver  ──► file of the driver
                    └─► more: written to staged/<batch>/  ──► renamed into the folder of results
                        the largest `rows` are sent,
                        the rest is added up by window

A task that was given up may still write. Its files stay in `staged/<batch>` and are removed, because only the driver
renames, once for each file, after all tasks of the micro-batch have ended. A file of a partition continues the newest
file of this partition, as the driver continues its own (`highlevel.spark.result_files`). So the path of a file, and its
content up to this micro-batch, do not depend on the number of attempts.
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
from highlevel.spark.estimates import ESTIMATED, mark_estimates, overlap_mask
from highlevel.spark.packing import pack, unpack
from highlevel.spark.result_files import appended_files, delete_old, kept_by, largest_time
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.integer_ranges import Ranges
from lowlevel.punctuation import END


def stored_form(plan: Plan, results: pa.Table, sampled: Ranges | None) -> pa.Table:
    """Return results in the form of their file.

    `sampled`: the times whose windows contain estimates; None if the query reads no spool.
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
    """A file in the folder of a micro-batch that replaces `path`. Its rows from `start` belong to the micro-batch."""

    name: str
    path: str
    start: int
    rows: int


@dataclass(frozen=True)
class ResultWriter:
    """Writes the results of one micro-batch in tasks. Picklable.

    `limits`: by query; other queries send all rows. `sampled`: the known times of estimates, by query with spools.
    """

    output: Path
    staged: Path
    batch_id: int
    limits: Mapping[str, RowLimit]
    sampled: Mapping[str, Ranges]

    def write(self, plan: Plan, part: int, rows: pa.Table) -> tuple[pa.Table, pa.Table | None, list[StagedFile]]:
        """Write the rows of a query in a partition if they are many.

        Return the rows for the driver, the others added up by window, and the files. Without files the driver writes.
        """
        limit = self.limits.get(plan.name)
        if limit is None or rows.num_rows <= limit.rows:
            return rows, None, []
        stored = stored_form(plan, rows, self.sampled.get(plan.name))
        folder = self.staged / str(self.batch_id)
        make_private_folder(folder)
        files = []
        for path, all_rows, batches in appended_files(
            query_folder(self.output, plan.name), self.batch_id, stored, part
        ):
            name = uuid.uuid4().hex
            write_file(folder / name, all_rows, batches)
            count = batches[-1][1]
            relative = path.relative_to(self.output).as_posix()
            files.append(StagedFile(name, relative, all_rows.num_rows - count, count))
        sent, rest = select_rows(rows, limit)
        return sent, rest, files


def commit_files(
    writer: ResultWriter,
    files: Mapping[str, Sequence[StagedFile]],
    sampled: Mapping[str, Ranges],
    keep: int | None = None,
) -> None:
    """Rename the staged files of all queries into the folder of results. Raises FolderError for a missing file.

    `files` and `sampled`, the times of estimates after the micro-batch, are by query. If a query has new times, its
    windows are marked first, because the tasks did not know these times. With `keep` (ns) old files are deleted, as
    `write_results` does.
    """
    for query, staged in files.items():
        for file in staged:
            source, target = writer.staged / str(writer.batch_id) / file.name, writer.output / file.path
            if not source.exists():
                raise FolderError(f"{source}: missing, but a task has written it; nothing else may use {writer.staged}")
            if query in writer.sampled and sampled.get(query, []) != writer.sampled[query]:
                _mark_again(source, file.start, sampled[query])
            make_private_folder(target.parent)
            source.replace(target)
            time = None if keep is None else kept_by(pq.read_schema(target))
            if keep is not None and time is not None and (newest := largest_time(target, time)) != END:
                delete_old(query_folder(writer.output, query), time, newest - keep, writer.batch_id)


def _mark_again(path: Path, start: int, sampled: Ranges) -> None:
    """Mark the windows of rows from `start` that contain estimates. Only a row group is in memory."""
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
    """Remove the staged files of all micro-batches, also of tasks that were given up."""
    for folder in staged.glob("[0-9]*"):
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class WrittenResults:
    """The results of a query that tasks have written: their partitions, files, and rows that were not sent."""

    parts: set[int]
    files: list[StagedFile]
    rests: list[pa.Table]


def encode_written(part: int, files: Sequence[StagedFile], rest: pa.Table | None) -> dict[str, Any]:
    """Return what a task has written as JSON, a part of its counters. The table of the rest has a row per window."""
    packed = None if rest is None else base64.b64encode(pack(rest)).decode()
    return {"part": part, "files": [[file.name, file.path, file.start, file.rows] for file in files], "rest": packed}


def decode_written(task_counts: Iterable[Mapping[str, Any]]) -> dict[int, WrittenResults]:
    """Return what tasks have written from their counters, by the number of the query."""
    written: dict[int, WrittenResults] = {}
    for counts in task_counts:
        if "written" in counts:
            one = written.setdefault(counts["query"], WrittenResults(set(), [], []))
            one.parts.add(counts["written"]["part"])
            one.files.extend(StagedFile(*file) for file in counts["written"]["files"])
            if counts["written"]["rest"] is not None:
                one.rests.append(unpack(base64.b64decode(counts["written"]["rest"])))
    return written
