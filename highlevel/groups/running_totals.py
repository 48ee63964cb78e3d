"""Running totals of a sliding window: add new panes and subtract old panes (differential panes).

    window 7     pane 5 + 6 + 7
    window 8              6 + 7 + 8   = window 7 - pane 5 + pane 8

Each pane needs one look-up and two merges, for any number of panes per window (Li 2008, §6.2.3). The group IDs of a
pane are stored for its subtraction. The totals are exact, because only integer sums and XOR are computed in this way. A
group without rows is removed, even if its sums are not 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from highlevel.groups.merging import MergeRule
from highlevel.groups.table import GroupTable

Key = tuple[int, int]
"""The half-open range of the IDs of the windows that contain a merge buffer."""

PURGE_GROUPS = 1024
"""Maximum number of groups without rows, in addition to the number of groups with rows."""


class RunningTotals:
    """The merged groups of the added buffers. Buffers are added in any order and removed in the order of their ends."""

    def __init__(self, schema: pa.Schema, groups: Sequence[str], merge_rules: Sequence[MergeRule]) -> None:
        """Create empty totals. `schema` is the schema of the merge buffers."""
        self.table = GroupTable(schema, groups, merge_rules, counts_rows=True)
        self.buffers: dict[Key, tuple[pa.RecordBatch, npt.NDArray[np.int32]]] = {}  # with the ids of their groups
        self._ends: list[tuple[int, Key]] = []  # a heap

    @property
    def bytes(self) -> int:
        """Bytes of the totals, without the merge buffers."""
        return self.table.bytes + sum(ids.nbytes for _, ids in self.buffers.values())

    def add(self, key: Key, batch: pa.RecordBatch) -> None:
        """Add a merge buffer."""
        self.buffers[key] = batch, self.table.merge(batch).astype(np.int32)
        heappush(self._ends, (key[1], key))

    def remove_before(self, wid: int) -> bool:
        """Subtract the buffers whose last window is before `wid`. Return True if there was such a buffer."""
        has_subtracted = False
        while self._ends and self._ends[0][0] <= wid:
            _, key = heappop(self._ends)
            batch, ids = self.buffers.pop(key)
            self.table.subtract(batch, ids.astype(np.int64))
            has_subtracted = True
        return has_subtracted

    def rows(self) -> pa.RecordBatch:
        """Return the groups that have rows."""
        rows = self.table.to_arrow()
        if self.table.count > 2 * rows.num_rows + PURGE_GROUPS:
            new_ids = self.table.purge().astype(np.int32)
            self.buffers = {key: (batch, new_ids[ids]) for key, (batch, ids) in self.buffers.items()}
        return rows
