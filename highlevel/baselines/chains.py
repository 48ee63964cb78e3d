"""One side of an in-order join: rows in the order of their time column, the clock.

The rows of a key form a chain, oldest first.

The order makes removal cheap: only `first`, the position of the oldest stored row, is increased. A chain may contain
removed rows until the next walk of this chain. A walk reads the chain of a key from its oldest stored row to the first
row that is too new.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from capture.native import kernel
from highlevel.baselines.sort_buffer import SortBuffer
from highlevel.groups.ids import NO_GROUP
from highlevel.groups.key_words import Words

INITIAL_CAPACITY = 1024
"""Number of rows for which the arrays have room at the beginning."""

MAX_PAIRS = 65_536
"""Maximum number of pairs that one call of the kernel `walk` writes."""

NOT_STARTED = -2
"""Value instead of a position: the walk for this row has not started."""


@kernel("i64(i64*, i64, i64, i64, i64, i64*, i64*)")
def chain(key_ids, begin, end, base, first, tails, next_positions):  # type: ignore[no-untyped-def]
    """Append the rows `[begin, end)` to their chains. Row i has the position base + i. Return their number.

    A chain is a ring: its last row links to its first row. A chain whose last row is before position `first` is empty.
    """
    for position in range(begin, end):
        tail = tails[key_ids[position]]
        next_positions[position] = base + position
        if tail >= first:
            next_positions[position] = next_positions[tail - base]
            next_positions[tail - base] = base + position
        tails[key_ids[position]] = base + position
    return end - begin


@kernel("i64(i64*, i64*, i64*, i64, i64*, i64*, i64*, i64, i64, i64, i64*, i64*, i64*)")
def walk(  # type: ignore[no-untyped-def]
    key_ids, lows, highs, probe_count, tails, next_positions, clocks, base, first, room, out_rows, out_positions, state
):  # fmt: skip
    """Write a pair (row, position) for each stored row that matches a probing row. Return the number of pairs.

    Probing row i matches the stored rows of its key with clocks in `[lows[i], highs[i]]`. Rows before position `first`
    are removed from the chains that are read. The walk stops after `room` pairs. `state` is the current row and
    position, from which the next call continues.
    """
    pair_count = 0
    at = state[1]
    for row in range(state[0], probe_count):
        tail = tails[key_ids[row]]
        if tail < first:
            continue
        if at == NOT_STARTED:
            at = next_positions[tail - base]
            while at < first:
                at = next_positions[at - base]
            next_positions[tail - base] = at
        while clocks[at - base] <= highs[row]:
            if clocks[at - base] >= lows[row]:
                if pair_count == room:
                    state[0] = row
                    state[1] = at
                    return pair_count
                out_rows[pair_count] = row
                out_positions[pair_count] = at
                pair_count += 1
            if at == tail:
                break
            at = next_positions[at - base]
        at = NOT_STARTED
    state[0] = probe_count
    state[1] = NOT_STARTED
    return pair_count


class Chains:
    """Stores rows in the order of their column `clock_column`, with the number of each row's key."""

    def __init__(self, clock_column: str) -> None:
        """Create an empty side."""
        self.buffer = SortBuffer(clock_column)
        self.clocks: Words = np.empty(INITIAL_CAPACITY, np.int64)
        self.key_ids: Words = np.empty(INITIAL_CAPACITY, np.int64)
        self.next_positions: Words = np.empty(INITIAL_CAPACITY, np.int64)
        self.tails: Words = np.empty(0, np.int64)
        self.base = 0  # the position of index 0 of the arrays
        self.first = self.end = 0  # range of the stored positions

    @property
    def rows(self) -> int:
        """Number of stored rows."""
        return self.end - self.first

    @property
    def bytes(self) -> int:
        """Bytes of the stored rows and of their index: clock, key and link per row, and the end of each chain."""
        return self.buffer.bytes + 8 * (3 * self.rows + len(self.tails))

    def add(self, batch: pa.RecordBatch, clocks: Words, key_ids: Words, key_count: int) -> None:
        """Store rows that are not older than the stored rows. `key_ids`: numbers of their keys, below `key_count`."""
        count = len(clocks)
        if count == 0:
            return
        if self.end - self.base + count > len(self.clocks):
            self._make_room(count)
        new = slice(self.end - self.base, self.end - self.base + count)
        self.clocks[new], self.key_ids[new] = clocks, key_ids
        self.buffer.add(batch)
        self.reserve_keys(key_count)
        self._chain(new)
        self.end += count

    def reserve_keys(self, key_count: int) -> None:
        """Allocate memory for the ends of `key_count` chains."""
        if key_count > len(self.tails):
            capacity = max(key_count, len(self.tails) * 5 // 4)
            self.tails = np.append(self.tails, np.full(capacity - len(self.tails), NO_GROUP))

    def probe(self, key_ids: Words, lows: Words, highs: Words) -> tuple[Words, Words]:
        """Return the matching pairs as two arrays: indexes of rows in `key_ids`, and indexes of stored rows.

        Row i matches the stored rows of its key with clocks in `[lows[i], highs[i]]`.
        """
        pairs = []
        state = np.array([0, NOT_STARTED], np.int64)
        while state[0] < len(key_ids):
            rows, positions = np.empty((2, MAX_PAIRS), np.int64)
            pair_count = walk(
                key_ids, lows, highs, len(key_ids), self.tails, self.next_positions, self.clocks, self.base, self.first,
                MAX_PAIRS, rows, positions, state,
            )  # fmt: skip
            pairs.append((rows[:pair_count], positions[:pair_count] - self.first))
        rows, places = (np.concatenate(each) for each in zip(*pairs, strict=True)) if pairs else np.empty((2, 0), int)
        return rows, places

    def expire(self, bound: int) -> None:
        """Remove the rows whose clock is below `bound`."""
        clocks = self.clocks[self.first - self.base : self.end - self.base]
        if len(clocks) and clocks[0] < bound:
            self.first += int(np.searchsorted(clocks, bound))
            self.buffer.take_by_run(bound - 1)

    def take(self, indexes: Words, names: list[str]) -> list[pa.Array]:
        """Return the columns `names` of the stored rows at `indexes`."""
        rows = pa.Table.from_batches(self.buffer.runs()).select(names).take(pa.array(indexes)).combine_chunks()
        return [column.chunk(0) for column in rows.columns]

    def stored_key_ids(self) -> Words:
        """Return the key numbers of the stored rows, in the order of the rows."""
        return self.key_ids[self.first - self.base : self.end - self.base]

    def renumber_keys(self, new_ids: Words, key_count: int) -> None:
        """Replace each key number by `new_ids[number]`. New numbers are below `key_count`."""
        stored = slice(self.first - self.base, self.end - self.base)
        self.key_ids[stored] = new_ids[self.key_ids[stored]]
        self._chain_all(key_count)

    def _chain(self, new_rows: slice) -> None:
        chain(self.key_ids, new_rows.start, new_rows.stop, self.base, self.first, self.tails, self.next_positions)

    def _chain_all(self, key_count: int) -> None:
        self.tails = np.full(key_count, NO_GROUP)
        self._chain(slice(self.first - self.base, self.end - self.base))

    def _make_room(self, rows: int) -> None:
        """Move the rows to the front of the arrays. If they fill more than half of the arrays, enlarge the arrays."""
        stored = slice(self.first - self.base, self.end - self.base)
        capacity = len(self.clocks)
        while 2 * (self.rows + rows) > capacity:
            capacity *= 2
        for name in ("clocks", "key_ids"):
            room = np.empty(capacity, np.int64)
            room[: self.rows] = getattr(self, name)[stored]
            setattr(self, name, room)
        self.next_positions = np.empty(capacity, np.int64)
        self.base = self.first
        self._chain_all(len(self.tails))  # the chains contain positions that are no longer valid
