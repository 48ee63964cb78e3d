"""The buffering window aggregate. It stores the tuples of the last RANGE, and scans them again for each window.

Systems without an explicit definition of windows work in this way (Li 2008, §6.1.4). All tuples of a window are
available, so any aggregate is possible, but each tuple is scanned RANGE/SLIDE times. The first tuple after the end of a
window closes it. Tuples must arrive in order. Tuples that are not in order are dropped and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from highlevel.baselines.adaptive.aggregate import OPERATIONS
from highlevel.baselines.buffer_kernels import scan_windows
from highlevel.groups.key_words import Words
from highlevel.groups.keys import Keys
from highlevel.windows.kind import SlidingWindow
from lowlevel.expressions.types import Type
from lowlevel.punctuation import BEGINNING, END, Item, Punctuation
from lowlevel.subaggregates import MERGE, SubAggregate

MIN_ROWS = 1024
"""Initial capacity in tuples."""

OUT_ROWS = 16_384
"""Maximum result rows of a batch. One window may have more."""


class BufferingAggregate:
    """Process ordered rows with the time column `time`. The results are those of `Aggregate`.

    `scanned`: number of accesses to tuples. `disordered`: number of dropped tuples.
    """

    def __init__(
        self, groups: Sequence[str], subaggregates: Sequence[SubAggregate], window: SlidingWindow, time: str = "ts"
    ) -> None:
        """Group by the columns `groups`."""
        self.groups, self.subaggregates, self.window, self.time = list(groups), list(subaggregates), window, time
        self.operations = np.array([OPERATIONS[MERGE[sub.kind], sub.type] for sub in subaggregates], np.int64)
        self.keys: Keys | None = None  # created with the first batch, which determines the types
        self.times: Words = np.empty(MIN_ROWS, np.int64)
        self.group_ids: Words = np.empty(MIN_ROWS, np.int64)
        self.values: Words = np.empty((len(subaggregates), MIN_ROWS), np.int64)
        self.head = self.tail = 0
        self.newest = BEGINNING
        self.closed = 0
        self.received = self.disordered = self.scanned = self.windows_closed = 0
        self._rows_by_group = np.empty(0, np.int64)
        self._written = 0

    @property
    def tuples(self) -> int:
        """Tuples in the buffer."""
        return self.tail - self.head

    @property
    def bytes(self) -> int:
        """Bytes of the tuples in the buffer, and of their groups."""
        words = len(self.subaggregates) + (2 if self.groups else 1)
        return 8 * words * self.tuples + (self.keys.bytes if self.keys is not None and self.groups else 0)

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Store tuples and emit the windows that end before the last of them."""
        if batch.num_rows == 0:
            return
        self.received += batch.num_rows
        times = batch.column(self.time).to_numpy()
        newest = np.maximum.accumulate(np.maximum(times, self.newest))
        ordered = times >= newest
        if not ordered.all():
            self.disordered += int(np.count_nonzero(~ordered))
            batch = batch.filter(pa.array(ordered))
            times = times[ordered]
        self._append(times, batch)
        self.newest = int(newest[-1])
        yield from self._close(self.window.first_open_window(self.newest))

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Close the windows that no later tuple can belong to."""
        yield from self._close(
            punctuation.watermark
            if punctuation.watermark == END
            else self.window.first_open_window(punctuation.watermark)
        )

    def _append(self, times: Words, batch: pa.RecordBatch) -> None:
        rows = len(times)
        if self.tail + rows > len(self.times):
            self._make_room(rows)
        new = slice(self.tail, self.tail + rows)
        self.times[new] = times
        columns = [batch.column(name) for name in self.groups]
        if self.keys is None:
            self.keys = Keys([column.type for column in columns])
        if self.groups:
            self.group_ids[new] = self.keys.find_or_insert(columns, rows)
        for values, sub in zip(self.values, self.subaggregates, strict=True):
            values[new] = batch.column(sub.name).to_numpy().view(np.int64)
        self.tail += rows

    def _make_room(self, rows: int) -> None:
        """Move the tuples to the front, and remove groups without tuples. If half of the buffer is full, enlarge it."""
        stored = slice(self.head, self.tail)
        capacity = len(self.times)
        while 2 * (self.tuples + rows) > capacity:
            capacity *= 2
        group_ids = self.group_ids[stored]
        if self.groups and self.keys is not None:
            used, group_ids = np.unique(group_ids, return_inverse=True)
            columns = self.keys.columns(used)
            self.keys = Keys(self.keys.kinds)
            self.keys.find_or_insert(columns, len(used))
            self._rows_by_group = np.empty(0, np.int64)
        parts = [
            (self.times, self.times[stored]),
            (self.group_ids, group_ids),
            (self.values, self.values[:, stored]),
        ]
        moved = []
        for whole, part in parts:
            room = np.empty((*whole.shape[:-1], capacity), np.int64)
            room[..., : self.tuples] = part
            moved.append(room)
        self.times, self.group_ids, self.values = moved
        self.head, self.tail = 0, self.tuples

    def _close(self, low: int) -> Iterator[Item]:
        if low <= self.closed:
            return
        count = self.keys.count if self.keys is not None and self.groups else 1
        if count > len(self._rows_by_group):
            self._rows_by_group = np.full(2 * count, -1, np.int64)
        state = np.array([self.closed, self.head, 0], np.int64)
        window = self.window
        while state[0] < low and state[1] < self.tail:
            out = np.empty((max(OUT_ROWS, count), 2 + len(self.operations)), np.int64)
            flat, values = out.reshape(-1), self.values.reshape(-1)
            rows = scan_windows(
                self.times, self.group_ids, values, values.view(np.float64), self.values.shape[1], self.tail,
                window.origin, window.range, window.slide, low, bool(self.groups), self.operations,
                len(self.operations), count, self._rows_by_group, self._written, flat, flat.view(np.float64), len(out),
                state,
            )  # fmt: skip
            self._written += rows
            if rows:
                yield self._result(out[:rows])
        self.closed, self.head = low, int(state[1])
        self.scanned += int(state[2])
        self._expire()
        yield Punctuation("*", low)

    def _expire(self) -> None:
        """Drop the tuples that no later window contains."""
        start = END if self.closed == END else self.window.start(self.closed)
        self.head += int(np.searchsorted(self.times[self.head : self.tail], start))

    def _result(self, rows: Words) -> pa.RecordBatch:
        self.windows_closed += 1 + int(np.count_nonzero(np.diff(rows[:, 0])))
        columns = [pa.array(np.ascontiguousarray(rows[:, 0]))]
        if self.groups and self.keys is not None:
            columns += self.keys.columns(rows[:, 1])
        for number, sub in enumerate(self.subaggregates, 2):
            values = np.ascontiguousarray(rows[:, number])
            columns.append(pa.array(values.view(np.float64) if sub.type is Type.FLOAT else values))
        return pa.RecordBatch.from_arrays(columns, ["wid", *self.groups, *(sub.name for sub in self.subaggregates)])

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the tuples in the buffer, and the progress of the operator."""
        stored = slice(self.head, self.tail)
        keys = self.keys.columns(self.group_ids[stored]) if self.keys is not None and self.groups else []
        values = [pa.array(value[stored]) for value in self.values]
        names = [".time", *(sub.name for sub in self.subaggregates), *(self.groups if keys else [])]
        return {
            "progress": pa.table({"closed": [self.closed], "newest": [self.newest]}),
            "tuples": pa.table([pa.array(self.times[stored]), *values, *keys], names),
        }

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        ((self.closed, self.newest),) = (tuple(row.values()) for row in tables["progress"].to_pylist())
        for batch in tables["tuples"].combine_chunks().to_batches():
            floats = [pa.float64() if sub.type is Type.FLOAT else pa.int64() for sub in self.subaggregates]
            columns = {
                sub.name: batch.column(sub.name).view(kind)
                for sub, kind in zip(self.subaggregates, floats, strict=True)
            }
            columns |= {name: batch.column(name) for name in self.groups}
            self._append(batch.column(".time").to_numpy(), pa.RecordBatch.from_pydict(columns))
