"""The current results of a query of a pipeline after each micro-batch. Writes its final rows to files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from capture.lazy_dataclasses import dataclass
from capture.metrics import Samples
from capture.units import SECOND
from dashboards.changes.change_log import ChangeLog
from dashboards.changes.metrics import FINAL_WATERMARK, PROVISIONAL_AGE, PROVISIONAL_BYTES
from highlevel.plan.keys import stored_key
from highlevel.plan.operators.operator import times_of
from highlevel.plan.plan import Plan
from highlevel.results.stored_columns import with_columns
from highlevel.results.user_types import readable, to_internal
from highlevel.spark.inputs.estimates import ESTIMATED, mark_estimates
from highlevel.spark.run_folder.result_files import write_results
from highlevel.speculation.consistency import WEIGHT
from highlevel.speculation.current_results import CurrentResults
from highlevel.windows.kind import SlidingWindow
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.integer_ranges import Ranges
from lowlevel.punctuation import BEGINNING, END


@dataclass(frozen=True, slots=True)
class Update:
    """The effect of a micro-batch on the results of a query. Rows have the columns of the final results.

    `changed`: for each window with a changed row, by its bounds in ns, all rows of the window. Empty for rows without
    windows. `closed`: the rows that became final. `returned`, `withdrawn`: numbers of rows.
    """

    changed: Mapping[tuple[int, int], pa.Table]
    closed: pa.Table
    returned: int = 0
    withdrawn: int = 0


class ResultsSoFar:
    """The results so far of a query with changes. Not thread safe."""

    def __init__(
        self, plan: Plan, output: Path, final_name: str | None = None, retention_ns: int | None = None
    ) -> None:
        """`output`: the folder of all results.

        With `final_name` the final rows are also written as results of this name, and their files are deleted after
        `retention_ns` (None: never).
        """
        assert plan.time_column is not None, "the results of a pipeline have one time (`queries.pipeline.sinks`)"
        self.plan = plan.with_final_rows()
        """The plan of the final results."""
        self.time: str = plan.time_column
        """The time column of the results. Sinks find the rows of a correction by it."""
        self.watermark = BEGINNING
        """Rows up to this time (ns) are final."""
        self.empty = plan.schema.empty_table()
        """Changes without rows."""
        self.newest: tuple[int, int, pa.Table] | None = None
        """Start, end (ns) and rows of the newest window, also if it is final; None before the first window."""
        self.batch = -1
        """The last micro-batch that was added."""
        self._changing = plan
        self._has_windows = plan.has_window_key
        self._output, self._final_name, self._retention_ns = output, final_name, retention_ns
        self._repeats_batch = True
        self._written_until = BEGINNING
        self._current = CurrentResults(plan.name, self.plan.schema, self.time)

    def continue_after(self, batch: int, min_time: int) -> None:
        """Read the changes of rows with a time after `min_time` (ns) again, up to micro-batch `batch`.

        The newest window and all windows that are not yet in the files of final rows are always read. Raises InputError
        for damaged files.
        """
        log = ChangeLog(self._output, self._changing.name, batch)
        min_time = min(min_time, log.newest_time() - 1) if log.paths else min_time
        if self._final_name is not None:
            self._written_until = ChangeLog(self._output, self._final_name, batch).newest_time()
            min_time = min(min_time, self._written_until)
        for table in log.tables(min_time):
            self._current.add(to_internal(table, self._changing.schema))
        self.batch = batch
        self._set_newest()

    def add(self, batch: int, changes: pa.Table, watermark: int, sampled: Ranges | None = None) -> Update:
        """Add the changes of a micro-batch, and close the rows up to the watermark (ns).

        `sampled`: the times at which a node sampled the packets of a spool; None for other inputs. A micro-batch that
        was added before has no effect, so after a crash no final row is lost or written twice.
        """
        is_new = batch > self.batch
        times = self._current.add(changes) if is_new else []
        changed = {(self._start(end), end): self._current.rows(end) for end in times} if self._has_windows else {}
        self.batch = max(self.batch, batch)
        self.watermark = max(self.watermark, watermark)
        self._set_newest()
        closed = self._current.close(self.watermark)
        self._write(batch, closed, sampled)
        weights = changes[WEIGHT].to_numpy() if is_new else np.zeros(0, np.int64)
        return Update(changed, closed, int(weights[weights > 0].sum()), -int(weights[weights < 0].sum()))

    def first_time(self, changes: pa.Table) -> int:
        """Return the smallest time (ns) of changes; END without changes."""
        return int(times_of(changes[self.time].combine_chunks()).min(initial=END))

    def _set_newest(self) -> None:
        if self._has_windows and self._current.times:
            end = self._current.times[-1]
            self.newest = self._start(end), end, self._current.rows(end)

    def provisional_rows(self) -> pa.Table:
        """Return all rows that are not final."""
        return self._current.all_rows()

    def provisional_windows(self) -> dict[tuple[int, int], pa.Table]:
        """Return the rows of the windows that are not final, by their bounds in ns; empty without windows."""
        ends = self._current.times if self._has_windows else ()
        return {(self._start(end), end): self._current.rows(end) for end in ends}

    def add_samples(self, samples: Samples, newest: int | None) -> None:
        """Set the metrics of the query. `newest`: the time of the newest packet in ns."""
        name, oldest = self.plan.name, self._current.oldest_time
        samples.set(PROVISIONAL_BYTES, self._current.bytes if self._current.num_rows else 0, name)
        if self.time not in self.plan.times:
            return  # the values are numbers of intervals, not times
        age = 0 if oldest is None or newest is None else max(0, newest - oldest)
        samples.set(PROVISIONAL_AGE, age / SECOND, name)
        if self.watermark not in (BEGINNING, END):
            samples.set(FINAL_WATERMARK, self.watermark / SECOND, name)

    def _start(self, end: int) -> int:
        window = self.plan.window
        assert isinstance(window, SlidingWindow), "changes have sliding windows of time"
        return end - window.range

    def _write(self, batch: int, closed: pa.Table, sampled: Ranges | None) -> None:
        """Write final rows. A file contains only later times than earlier files, so no row is in two files."""
        if self._final_name is None:
            return
        times = times_of(closed[self.time].combine_chunks())
        new = closed.filter(pa.array(times > self._written_until))
        if not new.num_rows:
            return
        self._written_until = int(times.max())
        columns = self.plan.root.columns
        if sampled is not None:
            new = mark_estimates(new, sampled)
            columns = (*columns, Column(ESTIMATED, Type.BOOL)) if new.num_columns > len(columns) else columns
        stored = with_columns(readable(new, self.plan.times), columns, self.time, stored_key(self.plan.root))
        # After a start, the last micro-batch is added again. A file that is now complete may already contain its rows.
        repeated: dict[str, list[Path]] | None = {} if self._repeats_batch else None
        write_results(self._output, batch, {self._final_name: stored}, self._retention_ns, repeated=repeated)
        self._repeats_batch = False
