"""The fixed-size table that pre-aggregates packets (Gigascope's LFTA; Li 2008, §8.2): its memory and its counters.

A slot is a row of int64 words: `pane, key words…, sub-aggregates…`, and sometimes a word of padding (`entry_width`). A
packet updates the entry with its pane and key. Otherwise it takes an empty slot, or it **evicts** an entry, which
becomes a partial. No memory is allocated for a packet. A group may become several partials, which merge
(`lowlevel.subaggregates`). So results do not depend on the size of the table, on evictions or on the order of packets;
only the traffic between the levels does.

`lowlevel.table.bucket_table` and `lowlevel.table.flushing_table` define the slot of an entry, and when it is flushed.
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
from lowlevel.table.entries import AHEAD, BUCKET, COUNT, SUM, TableMemory, TableRows, opcode, start


@dataclass(frozen=True, slots=True)
class Tally:
    """Counters of one table, or of several together.

    * `collisions`: packets whose home slot had another entry; in bucket tables only packets that began an entry.
    * `evicted`: entries replaced by another group, or by the same group in a later pane.
    * `flushed`: entries written because their pane was closed or the input ended.
    * `swept`: entries written one by one between packets. `forced`: entries written together, because their pane was
      older than the bound or the policy keeps an order.
    * `direct`: packets that became partials themselves, because they were too old or too far ahead.
    * `burst`: the largest number of entries written for up to AHEAD packets or one watermark, without those on empty
      polls and at the end.
    * `resident`: entries in the table, of `panes` panes.
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
        """Number of partials written."""
        return self.evicted + self.flushed + self.swept + self.forced + self.direct


def together(tallies: Iterable[Tally]) -> Tally:
    """Add the counters of tables; `burst` and `panes` are the largest.

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
"""Number of full batches whose evicted entries fit into the buffer."""


def aligned(rows: int, columns: int) -> npt.NDArray[np.int64]:
    """Return an uninitialised matrix that begins at a cache line, so that no entry of 32 bytes is in two lines."""
    words = np.empty(rows * columns + CACHE_LINE // 8, np.int64)
    skipped = -words.__array_interface__["data"][0] % CACHE_LINE // 8
    return words[skipped : skipped + rows * columns].reshape(rows, columns)


def entry_width(key_words: int, subaggregates: Sequence[SubAggregate]) -> int:
    """Return the words of an entry. It has a word of padding if that makes it exactly one cache line."""
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

        At most `at_once` entries are written for one batch or watermark. Raises ValueError for less than `fewest`
        slots.
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
        self.word_at = (
            np.arange(self.words.shape[0]) * self.stride
        )  # offset of each column from the beginning of `words`
        self.arg_at = np.arange(self.args.shape[0]) * self.stride
        self._everyone = np.ones(1, np.uint8)
        self._homes = np.zeros(3 * AHEAD, np.int64)
        self._hashes = np.zeros(AHEAD, np.uint64)
        # Addresses are computed once: numpy takes as long for them as hundreds of packets.
        slots_at = pointer(self.slots, "i64")
        self.record = TableMemory(
            slots=slots_at,
            slots_float=slots_at,
            tags=pointer(self.tags, "u64"),
            slot_count=slots,
            width=self.width,
            key_words=key_words,
            ops=pointer(self.ops, "i64"),
            starts=pointer(self.starts, "i64"),
            op_count=len(self.ops),
            hashes=pointer(self._hashes, "u64"),
            homes=pointer(self._homes, "i64"),
            out=pointer(self.evicted, "i64"),
        )
        self._words = pointer(self.words, "i64")
        self._args = pointer(self.args, "i64")
        self._word_at = pointer(self.word_at, "i64")
        self._arg_at = pointer(self.arg_at, "i64")
        self._all = pointer(self._everyone, "u8")

    @property
    def bytes(self) -> int:
        """Memory of the table and its buffers."""
        return sum(each.nbytes for each in (self.memory, self.tags, self.evicted, self.words, self.args))

    def rows(
        self, times: npt.NDArray[np.int64], chosen: npt.NDArray[np.uint8] | None, pane: int, origin: int
    ) -> TableRows:
        """Return the record of a batch: the packets in the columns `words` and `args`."""
        return TableRows(
            words=self._words,
            word_at=self._word_at,
            args=self._args,
            args_float=self._args,
            arg_at=self._arg_at,
            times=pointer(times, "i64"),
            chosen=self._all if chosen is None else pointer(chosen, "u8"),
            choose=chosen is not None,
            row_count=len(times),
            pane_length=pane,
            origin=origin,
        )

    @abstractmethod
    def update(
        self,
        times: npt.NDArray[np.int64],
        chosen: npt.NDArray[np.uint8] | None,
        pane: int,
        origin: int,
        limit: int = INT_MAX,
    ) -> None:
        """Add the packets in the columns `words` and `args`. Call `evictions_due` before.

        Panes are `pane` ns long from `origin` on. In tables that are flushed gradually, no packet opens a pane above
        `limit`.
        """

    @abstractmethod
    def flush(self, before: int) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the entries of all panes below `before`, some at a time. Call `take_evicted` before.

        Each array is valid until the next is requested.
        """

    @property
    @abstractmethod
    def residents(self) -> npt.NDArray[np.int64]:
        """Return a copy of the entries in the table."""

    @property
    @abstractmethod
    def tally(self) -> Tally:
        """Return the counters."""

    def take_entries(self) -> None:
        """Accept entries of another table as rows, instead of packets: counts are added, not incremented."""
        self.ops = np.where(self.ops == COUNT, SUM, self.ops)
        self.record = self.record._replace(ops=pointer(self.ops, "i64"))

    @property
    def evictions_due(self) -> bool:
        """Return whether evicted entries must be taken before the next full batch or watermark."""
        return self.evicted_rows + self.at_once > len(self.evicted)

    def take_evicted(self) -> npt.NDArray[np.int64]:
        """Return the evicted entries, a row of words each; valid until the next update or flush."""
        rows, self.evicted_rows = self.evicted_rows, 0
        return self.evicted[:rows]
