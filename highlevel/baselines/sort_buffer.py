"""A buffer that sorts rows by time. It consists of sorted runs. Rows are removed from the beginnings of runs.

Each batch is a run. Small neighbouring runs are merged, so that many tiny batches become few runs. Two runs are merged
by a stable sort, which is fast for sorted parts. Removed rows are merged in the same way. If rows arrive almost in
order, the buffer has one or two runs, for any number of rows.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa

from capture.lazy_dataclasses import dataclass
from highlevel.groups.key_words import Words

SMALL_RUN = 32_768
"""Maximum number of rows of a run that is merged with a new run of similar size."""


@dataclass(frozen=True)
class Run:
    """Rows in the order of time, and their times. `shared_rows`: number of rows in the memory that the batch uses."""

    times: Words
    batch: pa.RecordBatch
    shared_rows: int

    @cached_property
    def bytes(self) -> int:
        """Bytes of the rows."""
        return int(self.batch.nbytes)

    def rest(self, index: int) -> Run:
        """Return the rows from `index` on.

        A slice keeps the memory of its batch. If more than half of this memory would be unused, the rows are copied.
        """
        rest = self.batch.slice(index)
        if 2 * rest.num_rows >= self.shared_rows:
            return Run(self.times[index:], rest, self.shared_rows)
        return Run(self.times[index:].copy(), rest.take(pa.array(np.arange(rest.num_rows))), rest.num_rows)


class SortBuffer:
    """Store rows with the time column `time`. Rows with equal times keep their arrival order."""

    def __init__(self, time: str) -> None:
        """Create an empty buffer."""
        self.time = time
        self.rows = 0
        self._runs: list[Run] = []  # never empty

    @property
    def bytes(self) -> int:
        """Bytes of the stored rows, without other rows of the same original batches."""
        return sum(run.bytes for run in self._runs)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        if batch.num_rows == 0:
            return
        self.rows += batch.num_rows
        self._runs.append(sort_by_time([batch], self.time))
        while len(self._runs) > 1:
            before, last = (run.batch for run in self._runs[-2:])
            if before.num_rows > 2 * last.num_rows or before.num_rows > SMALL_RUN:
                break
            self._runs[-2:] = [sort_by_time([before, last], self.time)]

    def take(self, bound: int) -> list[pa.RecordBatch]:
        """Remove the rows with times up to `bound`. Return them in time order, as one batch or none."""
        taken = self.take_by_run(bound)
        return [sort_by_time(taken, self.time).batch] if taken else []

    def take_by_run(self, bound: int) -> list[pa.RecordBatch]:
        """Remove the rows with times up to `bound`. Return one sorted batch for each run that contains such rows."""
        taken: list[pa.RecordBatch] = []
        kept: list[Run] = []
        for run in self._runs:
            position = int(np.searchsorted(run.times, bound, "right"))
            if position:
                taken.append(run.batch.slice(0, position))
            if position < len(run.times):
                kept.append(run.rest(position) if position else run)
        if taken:
            self._runs = kept
            self.rows -= sum(batch.num_rows for batch in taken)
        return taken

    def runs(self) -> list[pa.RecordBatch]:
        """Return all rows in the order of storage. This is the order of time only if the rows arrived in it."""
        return [run.batch for run in self._runs]

    def all(self) -> list[pa.RecordBatch]:
        """Return all rows in time order, as one batch or none."""
        return [sort_by_time([run.batch for run in self._runs], self.time).batch] if self._runs else []


def sort_by_time(batches: list[pa.RecordBatch], time: str) -> Run:
    """Return the rows of at least one batch in time order. Equal times keep their order."""
    rows = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    times = rows.column(time).to_numpy()
    if (times[1:] >= times[:-1]).all():
        return Run(times, rows, rows.num_rows)
    order = np.argsort(times, kind="stable")
    return Run(times[order], rows.take(pa.array(order)), rows.num_rows)
