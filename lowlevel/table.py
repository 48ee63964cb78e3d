"""The fixed-size table next to the packets (Gigascope's LFTA; Li 2008, §8.2): its memory, and what leaves it.

A slot is a row of int64 words: `pane, key words…, sub-aggregates…`, and one that says nothing where `entry_width` has
it. A packet updates the entry with its pane and key, else fills an empty slot, else **evicts** an entry, which leaves
as a partial. No memory is ever allocated for a packet. The same group may leave several times; partials merge
(`lowlevel.subaggregates`), so results do not depend on the table's size, on evictions or on the order of packets. Only
traffic between the levels does.

Where an entry may stand, and when old ones leave: `lowlevel.tagged_table` and `lowlevel.flushing_table`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from capture.column_matrix import CACHE_LINE, LINE_WORDS, column_matrix
from capture.native import pointer
from lowlevel.opcodes import COUNT, SUM, opcode, start
from lowlevel.subaggregates import INT_MAX, SubAggregate
from lowlevel.table_entries import AHEAD
from lowlevel.tags import BUCKET
from lowlevel.tally import Tally

SPARE = 3
"""Full batches all of whose packets evict, before what was evicted must be taken."""


def aligned(rows: int, columns: int) -> npt.NDArray[np.int64]:
    """Make an uninitialised matrix that begins at a cache line, so that entries of 32 bytes never straddle two."""
    words = np.empty(rows * columns + CACHE_LINE // 8, np.int64)
    skipped = -words.__array_interface__["data"][0] % CACHE_LINE // 8
    return words[skipped : skipped + rows * columns].reshape(rows, columns)


def entry_width(key_words: int, subaggregates: Sequence[SubAggregate]) -> int:
    """Return the words of an entry. Where one more makes it a cache line it has that one, instead of parts of two."""
    used = 1 + key_words + len(subaggregates)
    return LINE_WORDS if used == LINE_WORDS - 1 else used


class Table(ABC):
    """One table: fixed slots, an eviction buffer, no clock and no I/O. Not thread safe."""

    def __init__(
        self,
        key_words: int,
        subaggregates: Sequence[SubAggregate],
        slots: int,
        capacity: int,
        fewest: int,
        at_once: int,
    ) -> None:
        """Make a table of `slots`, a power of two, for batches of up to `capacity` packets.

        `at_once` entries at most leave for one batch or one promise. ValueError where there are not `fewest` slots.
        """
        if slots < fewest or slots & (slots - 1):
            raise ValueError(f"a table needs a power of two of at least {fewest} slots, got {slots}")
        self.key_words = key_words
        self.width = entry_width(key_words, subaggregates)
        self.ops = np.array([opcode(sub) for sub in subaggregates], np.int64)
        self.starts = np.array([start(kind) for kind in self.ops.tolist()], np.int64)
        self.capacity = capacity
        self.at_once = at_once
        self.memory = aligned(slots + 1, self.width)  # one row of scratch
        self.slots = self.memory[:slots]
        self.tags = np.zeros(max(1, slots // BUCKET), np.uint64)
        self.evicted = np.empty((at_once + SPARE * capacity, self.width), np.int64)
        self.evicted_rows = 0
        self.words = column_matrix(max(1, key_words), capacity)
        self.args = column_matrix(max(1, len(subaggregates)), capacity)
        self.stride = self.words.shape[1]
        self.word_at = np.arange(self.words.shape[0]) * self.stride  # where each column begins, from that of `words` on
        self.arg_at = np.arange(self.args.shape[0]) * self.stride
        self._everyone = np.ones(1, np.uint8)
        self._homes = np.zeros(3 * AHEAD, np.int64)
        self._hashes = np.zeros(AHEAD, np.uint64)
        # Addresses are taken once: asking numpy for them at every call costs as much as hundreds of packets.
        self._slots = pointer(self.slots, "i64")
        self._tags = pointer(self.tags, "u64")
        self._hashes_at = pointer(self._hashes, "u64")
        self._ops = pointer(self.ops, "i64")
        self._starts = pointer(self.starts, "i64")
        self._words = pointer(self.words, "i64")
        self._args = pointer(self.args, "i64")
        self._word_at = pointer(self.word_at, "i64")
        self._arg_at = pointer(self.arg_at, "i64")
        self._homes_at = pointer(self._homes, "i64")
        self._all = pointer(self._everyone, "u8")
        self._evicted = pointer(self.evicted, "i64")

    @property
    def bytes(self) -> int:
        """Memory of the table and its buffers."""
        return sum(each.nbytes for each in (self.memory, self.tags, self.evicted, self.words, self.args))

    @abstractmethod
    def update(
        self,
        times: npt.NDArray[np.int64],
        chosen: npt.NDArray[np.uint8] | None,
        pane: int,
        origin: int,
        limit: int = INT_MAX,
    ) -> None:
        """Add the packets whose key words and arguments stand in `words` and `args`. `evictions_due` first.

        Panes are `pane` ns long from `origin` on; where entries leave bit by bit, no packet opens one above `limit`.
        """

    @abstractmethod
    def flush(self, before: int) -> Iterator[npt.NDArray[np.int64]]:
        """Hand out every entry of a pane below `before`, some at a time; each valid until the next is asked for.

        `take_evicted` first.
        """

    @property
    @abstractmethod
    def residents(self) -> npt.NDArray[np.int64]:
        """A copy of the entries that are in the table."""

    @property
    @abstractmethod
    def tally(self) -> Tally:
        """The counters so far."""

    def take_entries(self) -> None:
        """Say that rows will be entries of another table, not packets: what these counted is added up."""
        self.ops = np.where(self.ops == COUNT, SUM, self.ops)
        self._ops = pointer(self.ops, "i64")

    @property
    def evictions_due(self) -> bool:
        """Whether what was evicted must be taken before the next full batch, or the next promise."""
        return self.evicted_rows + self.at_once > len(self.evicted)

    def take_evicted(self) -> npt.NDArray[np.int64]:
        """Hand out the evicted entries, rows of the table's words; valid until the next update or flush."""
        rows, self.evicted_rows = self.evicted_rows, 0
        return self.evicted[:rows]
