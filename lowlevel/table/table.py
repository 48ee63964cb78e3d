"""The fixed-size table next to the packets (Gigascope's LFTA; Li 2008, §8.2): its memory, and what leaves it.

A slot is a row of int64 words: `pane, key words…, sub-aggregates…`, and one that says nothing where `entry_width` has
it. A packet updates the entry with its pane and key, else fills an empty slot, else **evicts** an entry, which leaves
as a partial. No memory is ever allocated for a packet. The same group may leave several times; partials merge
(`lowlevel.subaggregates`), so results do not depend on the table's size, on evictions or on the order of packets. Only
traffic between the levels does.

Where an entry may stand, and when old ones leave: `lowlevel.table.bucket_table` and `lowlevel.table.flushing_table`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from capture.column_matrix import CACHE_LINE, LINE_WORDS, column_matrix
from capture.native import pointer
from lowlevel.subaggregates import INT_MAX, SubAggregate
from lowlevel.table.entries import AHEAD, BUCKET, COUNT, SUM, opcode, start


@dataclass(frozen=True, slots=True)
class Tally:
    """Counters of one table, or of several together.

    Packets that found their home slot taken by another entry (`collisions`), in a table with tags only those that began
    one. Entries that left: for another group, or
    for the same one in a later pane (`evicted`), because their pane was complete or the input ended (`flushed`), one by
    one beside the packets (`swept`), because their pane was too old or an order asked for it (`forced`). Packets that
    left as partials of their own, being too old or too far ahead (`direct`). `burst` is the most entries that left for
    up to AHEAD packets or for one promise; on an empty poll and at the end nothing waits for them. `resident` entries
    are in the table, of `panes` panes.
    """

    collisions: int = 0
    evicted: int = 0
    flushed: int = 0
    swept: int = 0
    forced: int = 0
    direct: int = 0
    burst: int = 0
    resident: int = 0
    panes: int = 0

    @property
    def left(self) -> int:
        """Partials that have left, in whatever way."""
        return self.evicted + self.flushed + self.swept + self.forced + self.direct


def together(tallies: Iterable[Tally]) -> Tally:
    """Sum up tables; of bursts and of panes the largest counts.

    >>> together([Tally(evicted=1, burst=3), Tally(evicted=2, burst=2)])
    Tally(collisions=0, evicted=3, flushed=0, swept=0, forced=0, direct=0, burst=3, resident=0, panes=0)
    """
    each = list(tallies)
    merged = {}
    for field in fields(Tally):
        values = [getattr(tally, field.name) for tally in each]
        merged[field.name] = max(values, default=0) if field.name in ("burst", "panes") else sum(values)
    return Tally(**merged)


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
