"""WaitingRows: rows that wait until their time is due, in the order of their times.

    run 1   times 3 5 8 9 9      the rows of several batches, ordered
    run 2   times 4 9            later batches
    due before 6: the first rows of each run, 3 4 5

Each run is at most half as large as the run before it, otherwise both are merged. So a row is copied O(log n) times.
Removing k due rows costs O(k), and a binary search in each of O(log n) runs. The other rows are not read.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from capture.lazy_dataclasses import dataclass
from lowlevel.punctuation import END

Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Run:
    """Rows and their times, in ascending order.

    `allocated_rows`: number of rows that use memory, including removed rows.
    """

    rows: pa.Table
    times: Times
    allocated_rows: int


class WaitingRows:
    """Rows with a time in ns. A NULL time is END, the maximum time.

    Rows with equal times keep the order in which they were added.
    """

    def __init__(self, schema: pa.Schema, time: str) -> None:
        """Store no rows yet. `time` is the column with the times."""
        self.schema = schema
        self._time = time
        self._runs: list[Run] = []

    @property
    def num_rows(self) -> int:
        """Number of waiting rows."""
        return sum(len(run.times) for run in self._runs)

    @property
    def nbytes(self) -> int:
        """Bytes of the waiting rows and their times, and of removed rows whose memory is not freed yet."""
        return sum((run.rows.nbytes + run.times.nbytes) * run.allocated_rows // len(run.times) for run in self._runs)

    @property
    def times(self) -> Times:
        """The times of all waiting rows, in any order."""
        return np.concatenate([np.zeros(0, np.int64), *(run.times for run in self._runs)])

    def add(self, rows: pa.Table) -> None:
        """Add rows."""
        if not rows.num_rows:
            return
        column = rows.column(self._time)
        times = (pc.fill_null(column, END) if column.null_count else column).to_numpy()
        self._runs.append(_order_rows(rows, times))
        while len(self._runs) > 1 and 2 * len(self._runs[-1].times) > len(self._runs[-2].times):
            self._runs[-2:] = [_merge_runs(self._runs[-2:])]

    def take_before(self, time: int) -> pa.Table:
        """Remove and return the rows with a time below `time`, in the order of their times. END removes all rows."""
        due: list[Run] = []
        runs: list[Run] = []
        for run in self._runs:
            count = len(run.times) if time == END else int(np.searchsorted(run.times, time))
            if count:
                due.append(Run(run.rows.slice(0, count), run.times[:count], count))
            if count < len(run.times):
                runs.append(_without_first(run, count))
        self._runs = runs
        return _merge_runs(due).rows if due else self.schema.empty_table()

    def snapshot(self) -> pa.Table:
        """Return all rows. Rows with equal times are in the order in which they were added."""
        return pa.concat_tables([self.schema.empty_table(), *(run.rows for run in self._runs)]).combine_chunks()

    def restore(self, rows: pa.Table) -> None:
        """Load the rows of a snapshot."""
        self._runs = []
        self.add(rows.cast(self.schema).combine_chunks())


def _without_first(run: Run, count: int) -> Run:
    """Return a run without its first rows.

    A slice keeps all memory, so the other rows are copied when they are at most half of it.
    """
    rows, times = run.rows.slice(count), run.times[count:]
    if 2 * len(times) > run.allocated_rows:
        return Run(rows, times, run.allocated_rows)
    return Run(rows.take(_range(len(times))), times.copy(), len(times))


def _merge_runs(runs: list[Run]) -> Run:
    if len(runs) == 1:
        return runs[0]
    return _order_rows(
        pa.concat_tables([run.rows for run in runs]).combine_chunks(), np.concatenate([run.times for run in runs])
    )


def _order_rows(rows: pa.Table, times: Times) -> Run:
    if (times[1:] >= times[:-1]).all():
        return Run(rows, times, len(times))
    order = np.argsort(times, kind="stable")
    return Run(pc.take(rows, array_of(order)), times[order], len(times))


def _range(count: int) -> pa.Array:
    return array_of(np.arange(count))
