"""Merge buffers by their ranges of window IDs, in the order in which windows reach and leave them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

import pyarrow as pa

from highlevel.groups.merge_buffer import MergeBuffer
from highlevel.groups.merging import MergeRule
from highlevel.groups.running_totals import Key


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

    def windows(self, first: int, end: int) -> Iterator[tuple[int, list[Key]]]:
        """Yield the windows `[first, end)` with partials in order, each with the buffers whose range begins with it."""
        wid = first
        while True:
            self.remove_before(wid)
            if not self._current:
                if not self._coming:
                    return
                wid = max(wid, self._coming[0][0])
            if wid >= end:
                return
            reached = []
            while self._coming and self._coming[0][0] <= wid:
                key = heappop(self._coming)
                heappush(self._current, (key[1], key))
                self.current_rows += self.buffers[key].rows
                reached.append(key)
            yield wid, reached
            wid += 1

    def remove_before(self, wid: int) -> None:
        """Drop the current buffers that end by window `wid`."""
        while self._current and self._current[0][0] <= wid:
            _, key = heappop(self._current)
            self.current_rows -= self.buffers.pop(key).rows
