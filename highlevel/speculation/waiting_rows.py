"""WaitingRows: rows that wait until their time is due, in the order of their times.

    run 1   times 3 5 8 9 9      the rows of several batches, ordered
    run 2   times 4 9            later batches
    due before 6: the first rows of each run, 3 4 5

Each run is at most half as large as the run before it, otherwise both are merged. So a row is copied O(log n) times,
and taking the due rows costs these rows and a binary search in each of O(log n) runs. Rows that wait cost nothing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from lowlevel.punctuation import END

Times = npt.NDArray[np.int64]

Run = tuple[pa.Table, Times]
"""Rows and their times, which rise."""


class WaitingRows:
    """Rows with a time in ns (NULL: END). Rows with equal times keep the order in which they were added."""

    def __init__(self, schema: pa.Schema, time: str) -> None:
        """Store no rows yet. `time` is the column with the times."""
        self.schema = schema
        self._time = time
        self._runs: list[Run] = []

    @property
    def num_rows(self) -> int:
        """Number of waiting rows."""
        return sum(len(times) for _, times in self._runs)

    @property
    def nbytes(self) -> int:
        """Bytes of the waiting rows and their times."""
        return sum(int(rows.nbytes + times.nbytes) for rows, times in self._runs)

    @property
    def times(self) -> Times:
        """The times of all waiting rows, in no order."""
        return np.concatenate([np.zeros(0, np.int64), *(times for _, times in self._runs)])

    def add(self, rows: pa.Table) -> None:
        """Add rows."""
        if not rows.num_rows:
            return
        column = rows.column(self._time)
        times = (pc.fill_null(column, END) if column.null_count else column).to_numpy()
        self._runs.append(_ordered(rows, times))
        while len(self._runs) > 1 and 2 * len(self._runs[-1][1]) > len(self._runs[-2][1]):
            self._runs[-2:] = [_merged(self._runs[-2:])]

    def take_before(self, time: int) -> pa.Table:
        """Remove and return the rows with a time below `time`, in the order of their times; all rows for END."""
        due: list[Run] = []
        runs: list[Run] = []
        for rows, times in self._runs:
            count = len(times) if time == END else int(np.searchsorted(times, time))
            if count:
                due.append((rows.slice(0, count), times[:count]))
                # A slice keeps the memory of all rows, so the remaining rows are copied when they are at most half.
                is_small = len(times) <= 2 * count
                rows = (
                    pa.concat_tables([rows.slice(count)]).take(_range(len(times) - count))
                    if is_small
                    else rows.slice(count)
                )
                times = times[count:].copy() if is_small else times[count:]
            if len(times):
                runs.append((rows, times))
        self._runs = runs
        return _merged(due)[0] if due else self.schema.empty_table()

    def snapshot(self) -> pa.Table:
        """Return all rows, those with equal times in the order in which they were added."""
        return pa.concat_tables([self.schema.empty_table(), *(rows for rows, _ in self._runs)]).combine_chunks()

    def restore(self, rows: pa.Table) -> None:
        """Load the rows of a snapshot."""
        self._runs = []
        self.add(rows.cast(self.schema).combine_chunks())


def _merged(runs: list[Run]) -> Run:
    tables, times = zip(*runs, strict=True)
    if len(runs) == 1:
        return runs[0]
    return _ordered(pa.concat_tables(tables).combine_chunks(), np.concatenate(times))


def _ordered(rows: pa.Table, times: Times) -> Run:
    if (times[1:] >= times[:-1]).all():
        return rows, times
    order = np.argsort(times, kind="stable")
    return pc.take(rows, array_of(order)), times[order]


def _range(count: int) -> pa.Array:
    return array_of(np.arange(count))
