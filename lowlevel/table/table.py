"""The fixed-size table that pre-aggregates packets (Gigascope's LFTA; Li 2008, §8.2): its memory and its counters.

A slot is a row of int64 words: `pane, key words…, sub-aggregates…`, and sometimes a word of padding (`entry_width`). A
packet updates the entry with its pane and key. If no such entry exists, a new entry fills an empty slot, or it
**evicts** another entry, which becomes a partial. No memory is allocated for a packet. A group may become several
partials, which the high level merges (`lowlevel.subaggregates`). So the size of the table, evictions and the order of
packets do not change results. They change only the number of partials.

`lowlevel.table.bucket_table` and `lowlevel.table.flushing_table` determine the slot of an entry and the time of a
flush.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields

import numpy as np
import numpy.typing as npt

from capture.column_matrix import CACHE_LINE, LINE_WORDS, column_matrix
from capture.lazy_dataclasses import dataclass
from capture.native import pointer
from lowlevel.subaggregates import INT_MAX, SubAggregate
from lowlevel.table.entries import BUCKET, CHUNK_ROWS, COUNT, SUM, TableMemory, TableRows, initial_word, opcode


@dataclass(frozen=True, slots=True)
class Tally:
    """Counters of one table, or sums over several tables.

    * `collisions`: packets whose home slot had another entry; in bucket tables only packets that began an entry.
    * `evicted`: entries replaced by another group, or by the same group in a later pane.
    * `flushed`: entries written because their pane was closed or the input ended.
    * `swept`: old entries written gradually, between packets. `forced`: old entries written together, because their
      pane was older than the bound or the policy keeps an order.
    * `direct`: packets that became partials without an entry, because they were too old or too far ahead.
    * `burst`: the largest number of entries written for one chunk of packets or one watermark. Flushes on empty polls
      and at the end are not included.
    * `resident`: entries in the table. `panes`: number of their panes.
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
    def partials(self) -> int:
        """Number of partials written."""
        return self.evicted + self.flushed + self.swept + self.forced + self.direct


def add_tallies(tallies: Iterable[Tally]) -> Tally:
    """Add the counters of tables. For `burst` and `panes`, return the maximum.

    >>> add_tallies([Tally(evicted=1, burst=3), Tally(evicted=2, burst=2)])
    Tally(collisions=0, evicted=3, flushed=0, swept=0, forced=0, direct=0, burst=3, resident=0, panes=0)
    """
    tallies = list(tallies)
    merged = {}
    for field in fields(Tally):
        values = [getattr(tally, field.name) for tally in tallies]
        merged[field.name] = max(values, default=0) if field.name in ("burst", "panes") else sum(values)
    return Tally(**merged)


SPARE_BATCHES = 3
"""Number of full batches whose evicted entries fit into the buffer before the caller must take them."""


def allocate_aligned(rows: int, columns: int) -> npt.NDArray[np.int64]:
    """Return an uninitialised matrix that begins at a cache line. So no entry of 32 bytes spans two lines."""
    words = np.empty(rows * columns + CACHE_LINE // 8, np.int64)
    skipped = -words.__array_interface__["data"][0] % CACHE_LINE // 8
    return words[skipped : skipped + rows * columns].reshape(rows, columns)


def entry_width(key_words: int, subaggregates: Sequence[SubAggregate]) -> int:
    """Return the number of words of an entry, with a word of padding if this makes the entry one cache line."""
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
        min_slots: int,
        max_written: int,
    ) -> None:
        """Make a table of `slots` slots, a power of two, for batches of up to `capacity` packets.

        At most `max_written` entries are written for one batch or watermark. Raises ValueError if `slots` is less than
        `min_slots`.
        """
        if slots < min_slots or slots & (slots - 1):
            raise ValueError(f"a table needs a power of two of at least {min_slots} slots, got {slots}")
        self.key_words = key_words
        self.width = entry_width(key_words, subaggregates)
        self.ops = np.array([opcode(sub) for sub in subaggregates], np.int64)
        self.initial_words = np.array([initial_word(code) for code in self.ops.tolist()], np.int64)
        self.capacity = capacity
        self.max_written = max_written
        self.memory = allocate_aligned(slots + 1, self.width)  # one more row, for packets without an entry
        self.slots = self.memory[:slots]
        self.tags = np.zeros(max(1, slots // BUCKET), np.uint64)
        self.evicted = np.empty((max_written + SPARE_BATCHES * capacity, self.width), np.int64)
        self.evicted_rows = 0
        self.words = column_matrix(max(1, key_words), capacity)
        self.args = column_matrix(max(1, len(subaggregates)), capacity)
        self.stride = self.words.shape[1]
        # Offsets of the columns in words, from the beginning of `words` and of `args`.
        self.key_offsets = np.arange(self.words.shape[0]) * self.stride
        self.arg_offsets = np.arange(self.args.shape[0]) * self.stride
        self._any_mask = np.ones(1, np.uint8)  # a valid address; kernels do not read it
        self._chunk = np.zeros(3 * CHUNK_ROWS, np.int64)
        self._hashes = np.zeros(CHUNK_ROWS, np.uint64)
        # Memory addresses are computed once, because numpy needs the time of hundreds of packets for them.
        slots_address = pointer(self.slots, "i64")
        self.record = TableMemory(
            slots=slots_address,
            slots_float=slots_address,
            tags=pointer(self.tags, "u64"),
            slot_count=slots,
            width=self.width,
            key_words=key_words,
            ops=pointer(self.ops, "i64"),
            initial_words=pointer(self.initial_words, "i64"),
            op_count=len(self.ops),
            hashes=pointer(self._hashes, "u64"),
            chunk=pointer(self._chunk, "i64"),
            out=pointer(self.evicted, "i64"),
        )
        self._words = pointer(self.words, "i64")
        self._args = pointer(self.args, "i64")
        self._key_offsets = pointer(self.key_offsets, "i64")
        self._arg_offsets = pointer(self.arg_offsets, "i64")
        self._any_mask_address = pointer(self._any_mask, "u8")

    @property
    def bytes(self) -> int:
        """Memory of the table and its buffers in bytes."""
        return sum(array.nbytes for array in (self.memory, self.tags, self.evicted, self.words, self.args))

    def rows(
        self, times: npt.NDArray[np.int64], chosen: npt.NDArray[np.uint8] | None, pane: int, origin: int
    ) -> TableRows:
        """Return the kernels' record of a batch: the packets in the columns `words` and `args`."""
        return TableRows(
            words=self._words,
            key_offsets=self._key_offsets,
            args=self._args,
            args_float=self._args,
            arg_offsets=self._arg_offsets,
            times=pointer(times, "i64"),
            chosen=self._any_mask_address if chosen is None else pointer(chosen, "u8"),
            uses_chosen=chosen is not None,
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

        Panes are `pane` ns long and counted from `origin`. In tables that are flushed gradually, no packet opens a
        pane above `limit`.
        """

    @abstractmethod
    def flush(self, end_pane: int) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the entries of all panes below `end_pane`, in several arrays. Call `take_evicted` before.

        An array is valid until the next array is requested.
        """

    @property
    @abstractmethod
    def residents(self) -> npt.NDArray[np.int64]:
        """Return a copy of the entries in the table."""

    @property
    @abstractmethod
    def tally(self) -> Tally:
        """Return the counters."""

    def accept_entries(self) -> None:
        """Prepare for entries of another table as input instead of packets. Counts of entries are added up."""
        self.ops = np.where(self.ops == COUNT, SUM, self.ops)
        self.record = self.record._replace(ops=pointer(self.ops, "i64"))

    @property
    def evictions_due(self) -> bool:
        """True if the caller must take the evicted entries before the next full batch or watermark."""
        return self.evicted_rows + self.max_written > len(self.evicted)

    def take_evicted(self) -> npt.NDArray[np.int64]:
        """Return the evicted entries, one row of words per entry. They are valid until the next update or flush."""
        rows, self.evicted_rows = self.evicted_rows, 0
        return self.evicted[:rows]
