"""The table whose entries of a pane leave together, when it is asked for: buckets of eight slots with tags.

An entry stands in any of the eight slots of its group's bucket. Another one that finds them full evicts the entry in
its own home slot. Which slot it is, a word of tags says (`lowlevel.tags`): of the table, which is larger than the
processor's own caches, a packet needs the one line of its entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from capture.native import pointer
from lowlevel.subaggregates import INT_MAX, SubAggregate
from lowlevel.table import Table
from lowlevel.table_kernels import flush_table, update_table
from lowlevel.tags import BUCKET
from lowlevel.tally import Tally


class TaggedTable(Table):
    """As its base. Memory is `slots * (width * 8 + 1)` bytes, plus room for what is evicted or leaves at a time."""

    def __init__(self, key_words: int, subaggregates: Sequence[SubAggregate], slots: int, capacity: int) -> None:
        """Make a table of `slots` (a power of two, at least BUCKET) for batches of up to `capacity` packets."""
        super().__init__(key_words, subaggregates, slots, capacity, BUCKET, max(capacity, BUCKET))
        self.evicted_before = 0  # entries that were evicted and have been taken
        self.flushed = 0
        self.burst = 0
        self.oldest = INT_MAX  # no entry that the last flush left has a smaller pane
        self.counted = np.zeros(2, np.int64)  # collisions, and entries that filled an empty slot
        self.hand = np.zeros(2, np.int64)  # of a flush: the next bucket, the smallest pane that stayed
        self._counted = pointer(self.counted, "i64")

    def update(
        self,
        times: npt.NDArray[np.int64],
        chosen: npt.NDArray[np.uint8] | None,
        pane: int,
        origin: int,
        limit: int = INT_MAX,
    ) -> None:
        """Add the packets whose key words and arguments stand in `words` and `args`. `evictions_due` first.

        No packet says which pane is current: `limit` is for others.
        """
        self.evicted_rows = update_table.at(
            self._slots, self._slots, self._tags, len(self.slots), self.width, self.key_words, self._ops, self._starts,
            len(self.ops), self._words, self._word_at, self._args, self._args, self._arg_at, pointer(times, "i64"),
            self._all if chosen is None else pointer(chosen, "u8"), chosen is not None,
            len(times), pane, origin, self._hashes_at, self._homes_at, self._evicted, self.evicted_rows, self._counted,
        )  # fmt: skip

    def take_evicted(self) -> npt.NDArray[np.int64]:
        """Hand out the evicted entries, rows of the table's words; valid until the next update or flush."""
        taken = super().take_evicted()
        self.evicted_before += len(taken)
        return taken

    def flush(self, before: int) -> Iterator[npt.NDArray[np.int64]]:
        """Hand out every entry of a pane below `before`, some at a time; each valid until the next is asked for.

        `take_evicted` first. When the last one has been asked for, `oldest` is the smallest pane that stays.
        """
        self.hand[:] = 0, INT_MAX
        left = 0
        while self.hand[0] < len(self.tags):
            rows = flush_table(
                self._slots, self._tags, len(self.slots), self.width, before, self._evicted, len(self.evicted),
                self.hand,
            )  # fmt: skip
            left += rows
            self.flushed += rows
            if rows:
                yield self.evicted[:rows]
        self.oldest = int(self.hand[1])
        self.burst = max(self.burst, left)

    @property
    def residents(self) -> npt.NDArray[np.int64]:
        """A copy of the entries that are in the table."""
        return self.slots[self.tags.view(np.uint8) != 0]

    @property
    def tally(self) -> Tally:
        """The counters so far; it looks at all slots, to tell the panes that they are of."""
        collisions, inserted = self.counted.tolist()
        panes = self.slots[:, 0][self.tags.view(np.uint8) != 0]
        several = len(panes) > 0 and panes.min() != panes.max()
        return Tally(
            collisions=collisions,
            evicted=self.evicted_before + self.evicted_rows,
            flushed=self.flushed,
            burst=self.burst,
            resident=inserted - self.flushed,
            panes=len(np.unique(panes)) if several else min(1, len(panes)),
        )
