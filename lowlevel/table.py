"""The fixed-size table next to the packets (Gigascope's LFTA; Li 2008, §8.2).

A slot is a row of int64 words: `pane, key words…, sub-aggregates…`; an empty slot has pane EMPTY. A packet looks at
up to PROBES neighbouring slots: it updates the entry with its pane and key, else fills an empty slot, else **evicts**
the entry in its home slot, which leaves as a partial. No memory is ever allocated for a packet. The same group may
leave several times; partials merge (`lowlevel.subaggregates`), so results do not depend on the table's size, on
evictions or on the order of packets. Only traffic between the levels does.

Here all entries of a pane leave together, when it is asked for; in `lowlevel.flushing_table` bit by bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from capture.column_matrix import CACHE_LINE, column_matrix
from capture.native import pointer
from lowlevel.opcodes import COUNT, SUM, opcode, start
from lowlevel.subaggregates import INT_MAX, SubAggregate
from lowlevel.table_entries import AHEAD, EMPTY, PROBES
from lowlevel.table_kernels import flush_table, update_table
from lowlevel.tally import Tally


def aligned(rows: int, columns: int) -> npt.NDArray[np.int64]:
    """Make an uninitialised matrix that begins at a cache line, so that entries of 32 bytes never straddle two."""
    words = np.empty(rows * columns + CACHE_LINE // 8, np.int64)
    skipped = -words.__array_interface__["data"][0] % CACHE_LINE // 8
    return words[skipped : skipped + rows * columns].reshape(rows, columns)


class Table:
    """One table: fixed slots, an eviction buffer, no clock and no I/O. Not thread safe.

    Memory is `slots * width * 8` bytes, twice (what leaves together must have room), plus room for what is evicted.
    """

    def __init__(
        self,
        key_words: int,
        subaggregates: Sequence[SubAggregate],
        slots: int,
        capacity: int,
        probes: int = PROBES,
    ) -> None:
        """Make a table of `slots` (a power of two) for batches of up to `capacity` packets."""
        if slots < probes or slots & (slots - 1):
            raise ValueError(f"a table needs a power of two of at least {probes} slots, got {slots}")
        self.probes = probes
        self.key_words = key_words
        self.width = 1 + key_words + len(subaggregates)
        self.ops = np.array([opcode(sub) for sub in subaggregates], np.int64)
        self.starts = np.array([start(kind) for kind in self.ops.tolist()], np.int64)
        self.capacity = capacity
        self.memory = aligned(slots + 1, self.width)  # one row of scratch
        self.slots = self.memory[:slots]
        self.slots[:] = EMPTY
        self.evicted = np.empty((slots + 4 * capacity, self.width), np.int64)
        self.evicted_rows = 0
        self.evicted_before = 0  # entries that were evicted and have been taken
        self.flushed = 0
        self.burst = 0
        self.counted = np.zeros(2, np.int64)  # collisions, and entries that filled an empty slot
        self.oldest = np.array([INT_MAX], np.int64)
        self.words = column_matrix(max(1, key_words), capacity)
        self.args = column_matrix(max(1, len(subaggregates)), capacity)
        self.stride = self.words.shape[1]
        self._everyone = np.ones(1, np.uint8)
        self._homes = np.empty(3 * AHEAD, np.int64)
        # Addresses are taken once: asking numpy for them at every call costs as much as hundreds of packets.
        self._slots = pointer(self.slots, "i64")
        self._ops = pointer(self.ops, "i64")
        self._starts = pointer(self.starts, "i64")
        self._words = pointer(self.words, "i64")
        self._args = pointer(self.args, "i64")
        self._evicted = pointer(self.evicted, "i64")
        self._counted = pointer(self.counted, "i64")

    @property
    def bytes(self) -> int:
        """Memory of the table and its buffers."""
        return sum(each.nbytes for each in (self.memory, self.evicted, self.words, self.args))

    def update(
        self,
        times: npt.NDArray[np.int64],
        chosen: npt.NDArray[np.uint8] | None,
        pane: int,
        origin: int,
        limit: int = INT_MAX,  # here no packet says which pane is current
    ) -> None:
        """Add the packets whose key words and arguments stand in `words` and `args`. `evictions_due` first."""
        self.evicted_rows = update_table(
            self._slots, self._slots, len(self.slots), self.width, self.key_words, self._ops, self._starts,
            len(self.ops), self._words, self.stride, self._args, self._args, times,
            self._everyone if chosen is None else chosen, chosen is not None,
            len(times), pane, origin, self.probes, self._homes, self._evicted, self.evicted_rows, self._counted,
        )  # fmt: skip

    def take_entries(self) -> None:
        """Say that rows will be entries of another table, not packets: what these counted is added up."""
        self.ops = np.where(self.ops == COUNT, SUM, self.ops)
        self._ops = pointer(self.ops, "i64")

    @property
    def evictions_due(self) -> bool:
        """Whether what was evicted must be taken before the next full batch, or the next flush."""
        return self.evicted_rows + self.capacity + len(self.slots) > len(self.evicted)

    def take_evicted(self) -> npt.NDArray[np.int64]:
        """Hand out the evicted entries, rows of the table's words; valid until the next update or flush."""
        rows, self.evicted_rows = self.evicted_rows, 0
        self.evicted_before += rows
        return self.evicted[:rows]

    def flush(self, before: int) -> npt.NDArray[np.int64]:
        """Hand out every entry of a pane below `before`; valid until the next update or flush."""
        begin = self.evicted_rows
        out = self.evicted[begin:].reshape(-1)
        rows = flush_table(self._slots, len(self.slots), self.width, before, out, self.oldest)
        self.flushed += rows
        self.burst = max(self.burst, rows)
        return self.evicted[begin : begin + rows]

    @property
    def tally(self) -> Tally:
        """The counters so far; it looks at all slots, to tell the panes that they are of."""
        collisions, inserted = self.counted.tolist()
        panes = self.slots[:, 0]
        panes = panes[panes != EMPTY]
        several = len(panes) > 0 and panes.min() != panes.max()
        return Tally(
            collisions=collisions,
            evicted=self.evicted_before + self.evicted_rows,
            flushed=self.flushed,
            burst=self.burst,
            resident=inserted - self.flushed,
            panes=len(np.unique(panes)) if several else min(1, len(panes)),
        )
