"""Merge buffers: each stores the partials of one range of window IDs, and merges them if there are many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

import pyarrow as pa

from highlevel.groups.merging import MergeRule
from highlevel.groups.running_totals import Key
from highlevel.groups.table import GroupTable, join_small

MERGE_ROWS = 16_384
"""Partials of a buffer that wait for a merge. A merge of fewer partials would cost more for calls than for rows."""


class MergeBuffer:
    """Partials of one range of window IDs.

    Few partials are stored as received, and many partials in a table of groups. `merged_batches` replaces both by
    merged batches. Until the next `add` it returns the same batches, so that snapshots contain the same objects.
    """

    def __init__(
        self, groups: Sequence[str], merge_rules: Sequence[MergeRule], rest: Sequence[pa.RecordBatch] = ()
    ) -> None:
        """Merge by `groups`, beginning with the merged rows `rest`."""
        self.groups = groups
        self.merge_rules = merge_rules
        self.waiting: list[pa.RecordBatch] = []
        self.waiting_rows = 0
        self.rest = list(rest)
        self.table: GroupTable | None = None

    @property
    def rows(self) -> int:
        """Number of rows that a merge processes."""
        merged = sum(batch.num_rows for batch in self.rest) if self.table is None else self.table.count
        return self.waiting_rows + int(merged)

    @property
    def bytes(self) -> int:
        """Memory of the buffer."""
        table = 0 if self.table is None else self.table.bytes
        return table + sum(int(batch.nbytes) for batch in (*self.waiting, *self.rest))

    def add(self, batch: pa.RecordBatch) -> None:
        """Add partials, with the columns `groups` and the columns of the sub-aggregates."""
        self.waiting.append(batch)
        self.waiting_rows += batch.num_rows
        if self.waiting_rows > MERGE_ROWS:
            self._merge()

    def _merge(self) -> GroupTable:
        """Merge everything into the table."""
        if self.table is None:
            schema = (self.waiting or self.rest)[0].schema
            self.table = GroupTable(schema, self.groups, self.merge_rules)
            self.waiting[:0] = self.rest
        for batch in join_small(self.waiting):
            self.table.merge(batch)
        self.waiting, self.waiting_rows, self.rest = [], 0, []
        return self.table

    def merged_batches(self) -> list[pa.RecordBatch]:
        """Merge all rows by group, store only the result, and return it."""
        if self.waiting or self.table is not None:
            self.rest = [self._merge().to_arrow()]
            self.table = None
        return self.rest

    def batches(self) -> list[pa.RecordBatch]:
        """Return the rows: merged if they are many, otherwise as received."""
        return self.merged_batches() if self.table is not None else [*self.rest, *self.waiting]


class MergeBuffers:
    """A map of merge buffers. Gaps between them cost neither memory nor time.

    A buffer is `coming` before its first window is reached, and then `current` until its last window is final. Current
    buffers do not grow, because partials for windows that were reached are late.
    """

    def __init__(self, groups: Sequence[str], merge_rules: Sequence[MergeRule]) -> None:
        """Create an empty map."""
        self.groups = list(groups)
        self.merge_rules = list(merge_rules)
        self.buffers: dict[Key, MergeBuffer] = {}
        self.current_rows = 0
        self._coming: list[Key] = []  # a heap
        self._current: list[tuple[int, Key]] = []  # a heap by ends

    @property
    def bytes(self) -> int:
        """Memory of the buffers."""
        return sum(buffer.bytes for buffer in self.buffers.values())

    @property
    def current(self) -> list[Key]:
        """The ranges of the current buffers."""
        return [key for _, key in self._current]

    @property
    def current_count(self) -> int:
        """Number of current buffers."""
        return len(self._current)

    def store(self, key: Key, batch: pa.RecordBatch) -> None:
        """Add partials of windows that have not been reached. Ignore an empty range."""
        if key[0] < key[1] and batch.num_rows:
            if key not in self.buffers:
                self.put(key, MergeBuffer(self.groups, self.merge_rules))
            self.buffers[key].add(batch)

    def put(self, key: Key, buffer: MergeBuffer) -> None:
        """Add a buffer for a new range."""
        self.buffers[key] = buffer
        heappush(self._coming, key)

    def windows(self, first: int, low: int) -> Iterator[tuple[int, list[Key]]]:
        """Yield the windows `[first, low)` with partials in order, each with the buffers whose range begins with it."""
        wid = first
        while True:
            self.leave(wid)
            if not self._current:
                if not self._coming:
                    return
                wid = max(wid, self._coming[0][0])
            if wid >= low:
                return
            reached = []
            while self._coming and self._coming[0][0] <= wid:
                key = heappop(self._coming)
                heappush(self._current, (key[1], key))
                self.current_rows += self.buffers[key].rows
                reached.append(key)
            yield wid, reached
            wid += 1

    def leave(self, wid: int) -> None:
        """Drop the current buffers that end by window `wid`."""
        while self._current and self._current[0][0] <= wid:
            _, key = heappop(self._current)
            self.current_rows -= self.buffers.pop(key).rows
