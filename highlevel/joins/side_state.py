"""State of one side of a join: rows in one block of memory, accessible by key and pane, and by time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from highlevel.groups.key_words import Words
from highlevel.joins.cells import Cells
from highlevel.joins.hash_table import (
    FREE,
    LINK,
    MATCHED,
    NEXT,
    PREFETCH_ROWS,
    ROW,
    TIME,
    USED,
    WORDS,
    Pairs,
    ProbingRows,
    RowTable,
    all_rows,
    chain,
    gather,
    insert,
    mark,
    probe,
    remove,
)
from highlevel.joins.time_lists import TimeLists
from highlevel.joins.window import JoinWindow

MIN_ROWS = 64
LARGE_ROWS = 65_536
"""Initial capacity in rows. From LARGE_ROWS rows on the capacity grows by an eighth, before it doubles."""

MAX_PAIRS = 65_536
"""Maximum number of pairs in a batch, for any number of matches per key."""

MIN_INTERVALS = 4096
"""Minimum number of time lists per pane, so that a watermark reads only a small share of the pane's rows."""

MAX_UNUSED_STRING_BYTES = 2**20
"""Maximum bytes of long strings of removed rows, in addition to the size of all other strings."""

Flags = npt.NDArray[np.uint8]


class SideState:
    """Rows with their time, key words, columns of the types `kinds`, and a bit that marks rows that have had a match.

    If `matches_once`, a row has at most one match. After its match, probes skip the row until it expires. A probe
    copies no stored rows, and a new row uses the memory of a removed row.
    """

    def __init__(self, window: JoinWindow, keys: Cells, kinds: Sequence[pa.DataType], matches_once: bool) -> None:
        """Create an empty state."""
        self.window = window
        self.keys = keys
        self.cells = Cells(kinds)
        self.matches_once = matches_once
        self._lists = TimeLists(max(1, window.pane // MIN_INTERVALS))
        self._ahead = np.empty(2 * PREFETCH_ROWS, np.int64)
        self._bytes_after_layout = 0
        self._clear()

    def _clear(self) -> None:
        self.count = 0
        self.matched_count = 0
        self._stored = np.empty((MIN_ROWS, WORDS + self.keys.width + self.cells.width), np.int64)
        self._heads = np.zeros(MIN_ROWS, np.int64)
        self._counters = np.zeros(2, np.int64)
        self._free = np.empty(MIN_ROWS, np.int64)
        self._lists.clear()

    @property
    def held(self) -> int:
        """Number of rows that may still have a match."""
        return self.count - self.matched_count

    @property
    def bytes(self) -> int:
        """Bytes of rows, slots and long strings of columns. The strings of keys are counted by `keys`."""
        return int(self._stored.nbytes + self._heads.nbytes + self._free.nbytes) + self.cells.bytes

    @property
    def _table(self) -> RowTable:
        """The table for kernels. Its arrays are replaced when the table grows."""
        return RowTable(
            self._stored, self._stored.shape[1], self.keys.width, self._heads, self._mask, self.window.origin,
            self.window.pane, self._counters, self._free, self._ahead,
        )  # fmt: skip

    @property
    def _mask(self) -> int:
        return 2 * len(self._heads) - 1

    def probe(self, words: Words, earliest: Words, latest: Words, once: bool) -> Iterator[tuple[Words, Words]]:
        """Yield pairs of rows and stored rows with equal keys, up to MAX_PAIRS at a time.

        The time of a stored row is from `earliest` to `latest`. The arrays are valid until the next pair of arrays is
        requested. With `once` a row has at most one pair.
        """
        rows = len(earliest)
        if self.held == 0 or rows == 0:
            return
        position = np.array([0, 0, -1], np.int64)
        row_pairs = np.empty((2, MAX_PAIRS), np.int64)
        searching, pairs = ProbingRows(words, earliest, latest, rows), Pairs(row_pairs[0], row_pairs[1], MAX_PAIRS)
        while position[ROW] < rows:
            count = probe(self._table, searching, once, self.matches_once, position, pairs)
            if count:
                yield row_pairs[0, :count], row_pairs[1, :count]

    def mark(self, rows: Words) -> Words:
        """Mark stored rows as matched. Return the rows that were not marked before."""
        newly_marked = np.empty(len(rows), np.int64)
        count = mark(self._stored, self._stored.shape[1], np.ascontiguousarray(rows), len(rows), newly_marked)
        if self.matches_once:
            self.matched_count += count
        return newly_marked[:count]

    def add(self, words: Words, times: Words, matched: Flags, columns: Sequence[pa.Array]) -> None:
        """Store rows, with their key words (width x rows) and the other columns."""
        rows = len(times)
        if rows == 0:
            return
        grown = self.cells.extended_to(columns)
        if grown is not None:
            self.convert(self.keys, grown)
        if self.cells.bytes > 2 * self._bytes_after_layout + MAX_UNUSED_STRING_BYTES:
            self.convert(self.keys, self.cells.with_new_strings())
        packed = np.empty((self.keys.width + self.cells.width, rows), np.int64)
        packed[: self.keys.width] = words
        self.cells.pack(columns, packed[self.keys.width :])
        self._make_room(rows)
        slots = np.empty(rows, np.int64)
        insert(self._table, packed, times, matched, rows, slots)
        self.count += rows
        self._lists.add(self._stored, slots, times)
        length = self._lists.choose_length(self.count)
        if length != self._lists.interval_length:
            every = self._all()
            self._lists.rebuild(self._stored, every, self._stored[every, TIME], length)

    def _make_room(self, rows: int) -> None:
        """Allocate memory for `rows` more rows, and for as many slots as rows."""
        used, capacity = int(self._counters[USED]), len(self._stored)
        if self.count + rows >= NEXT:
            raise MemoryError(
                f"a side of a join would hold {self.count + rows:,} rows; no more than {NEXT:,} have numbers"
            )
        if self.count + rows > capacity:
            wider = np.empty(
                (max(self.count + rows, capacity + (capacity if capacity < LARGE_ROWS else capacity // 8)),
                 self._stored.shape[1]), np.int64,
            )  # fmt: skip
            wider[:used] = self._stored[:used]
            self._stored = wider
        if self.count + rows > self._mask + 1:
            every = self._all()
            self._heads = np.zeros(1 << (self.count + rows - 1).bit_length() - 1, np.int64)
            chain(self._table, every, len(every))

    def _all(self) -> Words:
        rows = np.empty(self.count, np.int64)
        all_rows(self._stored, self._stored.shape[1], self._heads, 2 * len(self._heads), rows)
        return rows

    def expire(self, watermark: int, yields_unmatched: bool) -> Iterator[Words]:
        """Remove the rows before `watermark`. With `yields_unmatched`, first yield the rows without a match.

        The arrays are valid until the next array is requested. The caller must exhaust the iterator.
        """
        expired = self._lists.take(self._stored, watermark)
        if len(expired) == 0:
            return
        if yields_unmatched or self.matches_once:
            unmatched = expired[self._stored[expired, LINK] & MATCHED == 0]
            for start in range(0, len(unmatched) if yields_unmatched else 0, MAX_PAIRS):
                yield unmatched[start : start + MAX_PAIRS]
            self.matched_count -= len(expired) - len(unmatched) if self.matches_once else 0
        free = int(self._counters[FREE])
        if free + len(expired) > len(self._free):
            self._free = np.append(self._free[:free], np.empty(free + len(expired), np.int64))
        remove(self._table, expired, len(expired))
        self.count -= len(expired)
        if self.count == 0:
            self.cells = self.cells.with_new_strings()
            self._bytes_after_layout = 0
            self._clear()
        elif len(self._stored) > max(LARGE_ROWS, 4 * self.count):
            self.convert(self.keys, self.cells.with_new_strings())

    def convert(self, keys: Cells, cells: Cells) -> None:
        """Convert the stored rows to the encodings `keys` and `cells`. The old memory is released first."""
        rows = self._all()
        words = self._gather_words(rows)
        matched = (words[LINK] & MATCHED != 0).view(np.uint8)
        key_columns, columns = self._key_columns(words), self._columns(words)
        self.keys, self.cells = keys, cells
        done, times = self.matched_count, words[TIME].copy()
        self._clear()
        key_words = np.empty((keys.width, len(rows)), np.int64)
        keys.pack(key_columns, key_words)
        self.add(key_words, times, matched, columns)
        self.matched_count = done
        self._bytes_after_layout = self.cells.bytes

    def _gather_words(self, rows: Words, chosen: Sequence[int] | None = None) -> Words:
        """Return the words of stored rows, width x rows. Only the `chosen` words are defined, by default all words."""
        width = self._stored.shape[1]
        words = np.empty((width, len(rows)), np.int64)
        indexes = np.array(range(width) if chosen is None else chosen, np.int64)
        gather(self._stored, width, np.ascontiguousarray(rows), len(rows), indexes, len(indexes), words)
        return words

    def _key_columns(self, words: Words, indexes: Sequence[int] | None = None) -> list[pa.Array]:
        key_words = words[WORDS : WORDS + self.keys.width]
        return self.keys.unpack(key_words, range(len(self.keys.kinds)) if indexes is None else indexes)

    def _columns(self, words: Words, indexes: Sequence[int] | None = None) -> list[pa.Array]:
        cell_words = words[WORDS + self.keys.width :]
        return self.cells.unpack(cell_words, range(len(self.cells.kinds)) if indexes is None else indexes)

    def read(
        self, rows: Words, keys: Sequence[int], columns: Sequence[int]
    ) -> tuple[Words, list[pa.Array], list[pa.Array]]:
        """Return the times of stored rows, and the key columns and other columns with the given indexes."""
        needed = [TIME, *(WORDS + word for word in self.keys.words_of(keys))]
        needed += [WORDS + self.keys.width + word for word in self.cells.words_of(columns)]
        words = self._gather_words(rows, needed)
        return words[TIME].copy(), self._key_columns(words, keys), self._columns(words, columns)

    def unexpired_rows(self) -> tuple[Words, Flags, list[pa.Array], list[pa.Array]]:
        """Return all rows that may still have a match: their times, match bits, key columns and other columns."""
        words = self._gather_words(self._all())
        matched = words[LINK] & MATCHED != 0
        if self.matches_once:
            words, matched = np.ascontiguousarray(words[:, ~matched]), matched[~matched]
        return words[TIME], matched.view(np.uint8), self._key_columns(words), self._columns(words)
