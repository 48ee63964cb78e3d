"""Rows in no order that leave in the order of their times: sorted runs, cut off at their beginnings.

A batch is a run of its own. Small neighbours are merged, so that a buffer of many tiny batches is a few runs; two runs
are merged by a stable sort that knows runs when it sees them. What leaves is merged of the runs that have any of it:
where rows come nearly in order that is one run or two, however many are held.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from highlevel.groups.key_words import Words

SMALL = 32_768
"""Rows of a run below which it is merged with a neighbour of its size."""


@dataclass(frozen=True)
class Run:
    """Rows in the order of their times, these times, and how many rows the memory has that they are a part of."""

    times: Words
    batch: pa.RecordBatch
    whole: int

    @cached_property
    def bytes(self) -> int:
        """Bytes of the rows."""
        return int(self.batch.nbytes)

    def rest(self, place: int) -> Run:
        """Return the rows from a place on. A slice holds on to all of its memory: half may lie idle, and no more."""
        rest = self.batch.slice(place)
        if 2 * rest.num_rows >= self.whole:
            return Run(self.times[place:], rest, self.whole)
        return Run(self.times[place:].copy(), rest.take(pa.array(np.arange(rest.num_rows))), rest.num_rows)


class SortBuffer:
    """Holds rows with the time column `time`; rows of equal times leave in the order in which they came."""

    def __init__(self, time: str) -> None:
        """Hold nothing."""
        self.time = time
        self.rows = 0
        self._runs: list[Run] = []  # none is empty

    @property
    def bytes(self) -> int:
        """Bytes of the rows held: their own, without what batches that they were cut from have beside them."""
        return sum(run.bytes for run in self._runs)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows in."""
        if batch.num_rows == 0:
            return
        self.rows += batch.num_rows
        self._runs.append(in_order([batch], self.time))
        while len(self._runs) > 1:
            before, last = (run.batch for run in self._runs[-2:])
            if before.num_rows > 2 * last.num_rows or before.num_rows > SMALL:
                break
            self._runs[-2:] = [in_order([before, last], self.time)]

    def take(self, bound: int) -> list[pa.RecordBatch]:
        """Take out the rows with times up to `bound`, in the order of their times: one batch, or none."""
        taken = self.cut(bound)
        return [in_order(taken, self.time).batch] if taken else []

    def cut(self, bound: int) -> list[pa.RecordBatch]:
        """Take out the rows with times up to `bound`: a batch in order of each run that has any."""
        taken: list[pa.RecordBatch] = []
        kept: list[Run] = []
        for run in self._runs:
            place = int(np.searchsorted(run.times, bound, "right"))
            if place:
                taken.append(run.batch.slice(0, place))
            if place < len(run.times):
                kept.append(run.rest(place) if place else run)
        if taken:
            self._runs = kept
            self.rows -= sum(batch.num_rows for batch in taken)
        return taken

    def runs(self) -> list[pa.RecordBatch]:
        """Return all rows as they lie; they stay. Of rows that came in order these are in order too."""
        return [run.batch for run in self._runs]

    def all(self) -> list[pa.RecordBatch]:
        """Return all rows in the order of their times, one batch or none; they stay."""
        return [in_order([run.batch for run in self._runs], self.time).batch] if self._runs else []


def in_order(parts: list[pa.RecordBatch], time: str) -> Run:
    """Return the rows of some batches, at least one, in the order of their times; equal ones stay as they stand."""
    rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
    times = rows.column(time).to_numpy()
    if (times[1:] >= times[:-1]).all():
        return Run(times, rows, rows.num_rows)
    order = np.argsort(times, kind="stable")
    return Run(times[order], rows.take(pa.array(order)), rows.num_rows)
