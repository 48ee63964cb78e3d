"""Running totals of a sliding window: what comes in is added, what goes out is taken out again (differential panes).

    window 7     pane 5 + 6 + 7
    window 8              6 + 7 + 8   = window 7 - pane 5 + pane 8

A look-up and two merges for each pane, however many a window has (Li 2008, §6.2.3): the ids of its groups are kept for
the way out. Exact, since only what integers undo is kept so: sums and exclusive or. A group leaves when none of its
rows are left, whatever its sums are.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from highlevel.groups.merging import Accumulated
from highlevel.groups.table import GroupTable

Key = tuple[int, int]
"""The half-open range of ids of the windows that a pile of partials is in."""

PURGE_GROUPS = 1024
"""Groups of which nothing is left that may stay beyond as many as there are others."""


class RunningTotals:
    """The merged groups of the piles that are in, added in any order and taken out in the order of their ends."""

    def __init__(self, schema: pa.Schema, groups: Sequence[str], what: Sequence[Accumulated]) -> None:
        """Hold nothing; `schema` is that of the piles."""
        self.table = GroupTable(schema, groups, what, held=True)
        self.piles: dict[Key, tuple[pa.RecordBatch, npt.NDArray[np.int32]]] = {}  # with the ids of their groups
        self._ends: list[tuple[int, Key]] = []  # a heap

    @property
    def bytes(self) -> int:
        """Memory of the totals; the piles are their owner's."""
        return self.table.bytes + sum(ids.nbytes for _, ids in self.piles.values())

    def add(self, key: Key, batch: pa.RecordBatch) -> None:
        """Add a pile."""
        self.piles[key] = batch, self.table.merge(batch).astype(np.int32)
        heappush(self._ends, (key[1], key))

    def pass_on(self, wid: int) -> bool:
        """Take out the piles that end by window `wid`; say whether there were any."""
        gone = False
        while self._ends and self._ends[0][0] <= wid:
            _, key = heappop(self._ends)
            batch, ids = self.piles.pop(key)
            self.table.undo(batch, ids.astype(np.int64))
            gone = True
        return gone

    def rows(self) -> pa.RecordBatch:
        """Return the groups that are there."""
        rows = self.table.to_arrow()
        if self.table.count > 2 * rows.num_rows + PURGE_GROUPS:
            became = self.table.purge().astype(np.int32)
            self.piles = {key: (batch, became[ids]) for key, (batch, ids) in self.piles.items()}
        return rows
