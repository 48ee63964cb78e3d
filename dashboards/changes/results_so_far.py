"""The results so far of a query of a pipeline, after each micro-batch, and its final rows as files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from capture import arrow_compute as pc
from capture.lazy_dataclasses import dataclass
from capture.metrics import Samples
from capture.units import SECOND
from dashboards.changes.change_log import ChangeLog
from dashboards.changes.metrics import FINAL_WATERMARK, PROVISIONAL_AGE, PROVISIONAL_BYTES
from highlevel.operators.window_operator import WINDOW_END
from highlevel.plan.plan import Plan
from highlevel.results.stored_columns import with_columns
from highlevel.results.user_types import internal, readable
from highlevel.spark.estimates import ESTIMATED, mark_estimates
from highlevel.spark.result_files import write_results
from highlevel.speculation.current_results import CurrentResults
from highlevel.windows.kind import SlidingWindow
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.integer_ranges import Ranges
from lowlevel.punctuation import BEGINNING, END


@dataclass(frozen=True, slots=True)
class Update:
    """The effect of a micro-batch on the results of a query. Rows have the columns of the final results.

    `changed`: all rows of each window whose rows are different now, by its bounds in ns. `closed`: the rows of the
    windows that became final. `provisional`: the rows of all windows that are not final.
    """

    changed: Mapping[tuple[int, int], pa.Table]
    closed: pa.Table
    provisional: pa.Table


class ResultsSoFar:
    """The results so far of a query with changes. Not thread safe."""

    def __init__(self, plan: Plan, output: Path, final_name: str | None = None, keep: int | None = None) -> None:
        """`output`: the folder of all results. With `final_name` the final rows are also results of this name.

        `keep`: the time (ns) for which their files stay; None for ever.
        """
        self.plan = plan.with_final_rows()
        """The plan of the final results."""
        self.watermark = BEGINNING
        """Windows that end by this time (ns) are final."""
        self.empty = plan.schema.empty_table()
        """Changes without rows."""
        self.newest: tuple[int, int, pa.Table] | None = None
        """Start, end (ns) and rows of the newest window, also if it is final; None before the first window."""
        self.batch = -1
        """The last micro-batch that was added."""
        self._changing = plan
        self._output, self._final_name, self._keep = output, final_name, keep
        self._written_until = BEGINNING
        self._current = CurrentResults(plan.name, self.plan.schema)

    def continue_after(self, batch: int, after: int) -> None:
        """Read the changes up to micro-batch `batch`: those of windows that end after `after` (ns).

        The newest window is always read, and all windows that the files of final rows lack. Raises InputError for
        damaged files.
        """
        log = ChangeLog(self._output, self._changing.name, batch)
        after = min(after, log.newest_end() - 1) if log.paths else after
        if self._final_name is not None:
            self._written_until = ChangeLog(self._output, self._final_name, batch).newest_end()
            after = min(after, self._written_until)
        for table in log.tables(after):
            self._current.add(internal(table, self._changing.schema))
        self.batch = batch
        self._set_newest()

    def add(self, batch: int, changes: pa.Table, watermark: int, sampled: Ranges | None = None) -> Update:
        """Add the changes of a micro-batch, and close the windows that end by the watermark (ns).

        `sampled`: the times at which a node sampled the packets of a spool; None for other inputs. A micro-batch that
        was added before changes nothing. So a crash after it loses and repeats no final row.
        """
        ends = self._current.add(changes) if batch > self.batch else []
        changed = {(self._start(end), end): self._current.rows(end) for end in ends}
        self.batch = max(self.batch, batch)
        self.watermark = max(self.watermark, watermark)
        self._set_newest()
        closed = self._current.close(self.watermark)
        self._write(batch, closed, sampled)
        return Update(changed, closed, self.provisional())

    def _set_newest(self) -> None:
        windows = self._current.windows
        if windows:
            end = max(windows)
            self.newest = self._start(end), end, windows[end]

    def provisional(self) -> pa.Table:
        """Return the rows of all windows that are not final."""
        return pa.concat_tables([self.plan.schema.empty_table(), *self._current.windows.values()])

    def provisional_windows(self) -> dict[tuple[int, int], pa.Table]:
        """Return the rows of the windows that are not final, by their bounds in ns."""
        return {(self._start(end), end): rows for end, rows in self._current.windows.items()}

    def add_samples(self, samples: Samples, newest: int | None) -> None:
        """Set the metrics of the query. `newest`: the time of the newest packet in ns."""
        name, oldest = self.plan.name, self._current.oldest
        age = 0 if oldest is None or newest is None else max(0, newest - oldest)
        samples.set(PROVISIONAL_AGE, age / SECOND, name)
        samples.set(PROVISIONAL_BYTES, self._current.bytes, name)
        if self.watermark not in (BEGINNING, END):
            samples.set(FINAL_WATERMARK, self.watermark / SECOND, name)

    def _start(self, end: int) -> int:
        window = self.plan.window
        assert isinstance(window, SlidingWindow), "changes have sliding windows of time"
        return end - window.range

    def _write(self, batch: int, closed: pa.Table, sampled: Ranges | None) -> None:
        """Write final rows. A file contains the windows after those of earlier files, so no row is in two files."""
        if self._final_name is None:
            return
        new = closed.filter(pc.greater(closed[WINDOW_END], self._written_until))
        if not new.num_rows:
            return
        self._written_until = pc.max(new[WINDOW_END]).as_py()
        columns = self.plan.root.columns
        if sampled is not None:
            new = mark_estimates(new, sampled)
            columns = (*columns, Column(ESTIMATED, Type.BOOL)) if new.num_columns > len(columns) else columns
        stored = with_columns(readable(new, self.plan.times), columns)
        write_results(self._output, batch, {self._final_name: stored}, self._keep)
