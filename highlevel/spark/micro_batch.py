"""Process one micro-batch: run the levels of the plans as one Spark job, then write result files and counters.

The output depends only on the planned offsets, and on the state and the counters after the previous micro-batch. So a
micro-batch that is repeated after any interruption writes the same files. The counters are written last. So if the file
of counters exists, all other files of the micro-batch are complete. Then a repetition runs no job, and returns what is
in the files. So alerts and sinks, which read a micro-batch after its counters are written, always have the same rows,
even if an input such as a topic has lost its data in the meantime.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from capture.lazy_dataclasses import dataclass
from highlevel.plan.measurement import Measurement, sum_measurements
from highlevel.results.row_limit import RowLimit, select_rows
from highlevel.results.stored_files import newest_files, query_folder
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.decompressed_inputs import Say
from highlevel.spark.inputs.quarantine import keep_damages
from highlevel.spark.inputs.reading import COUNTERS
from highlevel.spark.inputs.topic_reading import find_newest_times
from highlevel.spark.remote.file_entries import FileEntry
from highlevel.spark.remote.task_files import TaskFiles
from highlevel.spark.run_folder.checkpoint import offsets_checksum
from highlevel.spark.run_folder.result_files import parts_of_batch, tables_of_batch, write_results
from highlevel.spark.run_folder.staged_results import (
    ResultWriter,
    commit_files,
    decode_written,
    remove_staged,
    stage_objects,
    stored_form,
)
from highlevel.spark.run_folder.totals import Totals, TotalsFiles
from highlevel.spark.tasks.host import STORED_STATE, LevelTask
from highlevel.spark.tasks.packing import unpack
from lowlevel.punctuation import BEGINNING


@dataclass(frozen=True)
class BatchResults:
    """The results of one micro-batch, by the names of queries, and all counters after it.

    `tables`: the final rows. For a query with a RowLimit, each partition sends at most this number of rows to the
    driver; `rests` contains the other rows, added up by window. `files`: the files that contain all rows. `figures`: in
    a measured run, the figures of each node, and the seconds of each task of the low level. `task_state`: the files of
    the state that tasks have stored as objects; None if it is in the folder of the run.
    """

    tables: dict[str, pa.Table]
    rests: dict[str, pa.Table]
    files: dict[str, list[Path]]
    totals: Totals
    figures: tuple[list[Measurement], list[float]] | None
    task_state: dict[str, FileEntry] | None


@dataclass(frozen=True)
class JobOutput:
    """The rows that the tasks of a job send to the driver, and the counters of the tasks as JSON.

    `tables`: rows by query and partition. `task_counters`: counters of the low level. `host_counters`: of the
    operators. `state`: files of the state that tasks have stored as objects.
    """

    tables: dict[int, dict[int, pa.Table]]
    task_counters: list[bytes]
    host_counters: list[bytes]
    state: dict[str, FileEntry]

    @classmethod
    def collect(cls, rows: DataFrame) -> JobOutput:
        """Run the job that computes `rows`."""
        table = rows.toArrow()
        output = cls({}, [], [], {})
        for part, query, payload in zip(*(table.column(name) for name in table.column_names), strict=True):
            if query.as_py() == STORED_STATE:
                output.state.update(json.loads(payload.as_py()))
            elif query.as_py() != COUNTERS:
                output.tables.setdefault(query.as_py(), {})[part.as_py()] = unpack(payload.as_buffer())
            else:
                of_task = part.as_py() == COUNTERS
                (output.task_counters if of_task else output.host_counters).append(payload.as_py())
        return output

    def sum_figures(self, nodes: int) -> tuple[list[Measurement], list[float]]:
        """Return the figures of each of the `nodes` of the measured query, and the seconds of each task."""
        tasks = [json.loads(counters) for counters in self.task_counters]
        fragments = [counts for counters in self.host_counters for counts in json.loads(counters)]
        return sum_measurements(nodes, (*tasks, *fragments)), [counts["seconds"] for counts in tasks]


class BatchProcessor:
    """Processes the micro-batches of one run."""

    def __init__(
        self,
        folder: Path,
        assignment: InputAssignment,
        *,
        row_limits: Mapping[str, RowLimit],
        keep_results: int | None,
        measure: bool,
        say: Say,
    ) -> None:
        """The arguments are those of `highlevel.spark.stream.StreamRun`."""
        self.folder = folder
        self.assignment = assignment
        self.row_limits = row_limits
        self.keep_results = keep_results
        self.measure = measure
        self.say = say
        self._totals_files = TotalsFiles(folder / "totals")
        self._spooled = [plan.name for query, plan in enumerate(assignment.plans) if self._reads_spool(query)]

    def process(
        self, rows: DataFrame, batch_id: int, *, is_repeated: bool, task_files: TaskFiles | None = None
    ) -> BatchResults:
        """Process the rows of one micro-batch, and write its files.

        `is_repeated`: an earlier attempt may already have written files of this micro-batch. If it has written all of
        them, they are read. `task_files`: the objects for tasks that do not see the folder of the run. Then the tasks
        always run, because no file names the objects of their state.
        """
        if is_repeated and not self.measure and task_files is None and self._totals_files.has(batch_id):
            return self._read_results(batch_id)
        totals = self._totals_files.load(batch_id - 1)
        totals.rename_queries(self.assignment.query_names)
        final_until = {
            plan.name: totals.watermarks.get(plan.name, BEGINNING) for plan in self.assignment.plans if plan.has_changes
        }
        writer = ResultWriter(
            self.folder / "output",
            self.folder / "staged",
            batch_id,
            self.row_limits,
            self._sampled_ranges(totals),
            task_files,
        )
        output = JobOutput.collect(self._add_levels(rows, writer, totals))
        totals.add(self.assignment, output.task_counters, output.host_counters, batch_id)
        for line in keep_damages(self.folder, totals.damages, batch_id):
            self.say(f"warning: {line}")
        figures = output.sum_figures(len(self.assignment.plans[0].nodes)) if self.measure else None
        tables, rests, files = self._write(writer, output, totals, final_until, is_repeated=is_repeated)
        totals.offsets = offsets_checksum(self.folder / "checkpoint", batch_id)
        self._totals_files.save(batch_id, totals)
        pa.default_memory_pool().release_unused()  # otherwise the driver keeps the memory of its largest micro-batch
        return BatchResults(tables, rests, files, totals, figures, None if task_files is None else output.state)

    def _read_results(self, batch_id: int) -> BatchResults:
        """Return the results of a micro-batch whose files are complete."""
        totals = self._totals_files.load(batch_id)
        totals.rename_queries(self.assignment.query_names)
        output = self.folder / "output"
        tables: dict[str, pa.Table] = {}
        rests: dict[str, pa.Table] = {}
        files: dict[str, list[Path]] = {}
        for plan in self.assignment.plans:
            own = newest_files(query_folder(output, plan.name), until=batch_id)
            files[plan.name] = [path for path, _, _ in parts_of_batch(own, batch_id)]
            limit = self.row_limits.get(plan.name)
            selected = [
                (rows, None) if limit is None else select_rows(rows, limit)
                for rows in tables_of_batch(output, plan, batch_id)
            ]
            tables[plan.name] = pa.concat_tables([plan.schema.empty_table(), *(rows for rows, _ in selected)])
            others = [rest for _, rest in selected if rest is not None]
            if others:
                rests[plan.name] = pa.concat_tables(others)
        return BatchResults(tables, rests, files, totals, None, None)

    def _add_levels(self, rows: DataFrame, writer: ResultWriter, totals: Totals) -> DataFrame:
        """Return the job: for each level of the plans, partition the rows and run the operators of the level.

        `totals`: those after the previous micro-batch.
        """
        newest_times = find_newest_times(self.assignment, totals)
        for level in range(self.assignment.levels):
            host = LevelTask(
                self.assignment,
                self.folder / "state",
                writer.batch_id,
                level,
                totals.ended_inputs,
                newest_times,
                measure=self.measure,
                writer=writer,
                files=writer.files,
            )
            rows = rows.repartitionById(self.assignment.partitions, "part").mapInArrow(host, host.schema)
        return rows

    def _write(
        self,
        writer: ResultWriter,
        output: JobOutput,
        totals: Totals,
        final_until: Mapping[str, int],
        *,
        is_repeated: bool,
    ) -> tuple[dict[str, pa.Table], dict[str, pa.Table], dict[str, list[Path]]]:
        """Write the rows that the driver has received, and rename the files that tasks have written.

        Return, by query, the rows, the other rows added up by window, and the files.
        """
        plans = self.assignment.plans
        names = [plan.name for plan in plans]
        written = decode_written(counts for counters in output.host_counters for counts in json.loads(counters))
        for query, one in written.items():
            stage_objects(writer, names[query], one)
        sampled = self._sampled_ranges(totals)
        tables, stored = {}, {}
        for query, plan in enumerate(plans):
            parts, empty = output.tables.get(query, {}), plan.schema.empty_table()
            own = written[query].parts if query in written else ()
            tables[plan.name] = pa.concat_tables([*parts.values()]) if parts else empty
            remaining = [table for part, table in parts.items() if part not in own]
            unwritten = pa.concat_tables(remaining) if remaining else empty
            stored[plan.name] = stored_form(plan, unwritten, sampled.get(plan.name))
        files = {names[query]: one.files for query, one in written.items()}
        of_tasks = {name: [writer.output / file.path for file in staged] for name, staged in files.items()}
        of_driver = write_results(
            writer.output, writer.batch_id, stored, self.keep_results, final_until, of_tasks if is_repeated else None
        )
        commit_files(writer, files, sampled, self.keep_results)
        remove_staged(self.folder / "staged")
        rests = {names[query]: pa.concat_tables(one.rests) for query, one in written.items() if one.rests}
        return tables, rests, {name: [*of_driver[name], *of_tasks.get(name, ())] for name in names}

    def _sampled_ranges(self, totals: Totals) -> dict[str, list[tuple[int, int]]]:
        return {name: totals.sampled_ranges.get(name, []) for name in self._spooled}

    def _reads_spool(self, query: int) -> bool:
        return any(self.assignment.inputs[number].spool for number in self.assignment.inputs_of(query))
