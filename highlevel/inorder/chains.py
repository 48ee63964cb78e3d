"""One side of an in-order join: rows in the order of their clock, chained by key, the newest first.

Order makes this cheap. The rows that a probe can match are the newest of its chain, so the walk ends at the first that
is too old; and old rows are forgotten by moving one number, since chains end where it points.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from capture.native import kernel
from highlevel.groups.ids import NOBODY
from highlevel.groups.key_words import Words
from highlevel.inorder.sort_buffer import SortBuffer

LEAST = 1024
"""Rows there is room for at first."""

PAIRS = 65_536
"""Pairs that a call of the kernel finds at most."""

NEXT = -2
"""In place of a position: the walk of a row has not begun."""


@kernel("i64(i64*, i64, i64, i64, i64*, i64*)")
def chain(named, begin, end, base, heads, before):  # type: ignore[no-untyped-def]
    """Put the rows `[begin, end)` at the heads of their chains; row i is at position base + i. Returns their number."""
    for place in range(begin, end):
        key = named[place]
        before[place] = heads[key]
        heads[key] = base + place
    return end - begin


@kernel("i64(i64*, i64*, i64*, i64, i64*, i64*, i64*, i64, i64, i64, i64*, i64*, i64*)")
def walk(  # type: ignore[no-untyped-def]
    named, lows, highs, rows, heads, before, clocks, base, first, room, out_rows, out_positions, state
):  # fmt: skip
    """Write pairs (row, position) of clocks in `[lows[row], highs[row]]`, positions from `first` on; return how many.

    `state` holds the row and the position that the walk is at; it ends where there is no room for more.
    """
    found = 0
    at = state[1]
    for row in range(state[0], rows):
        if at == NEXT:
            at = heads[named[row]]
        while at >= first and clocks[at - base] >= lows[row]:
            if clocks[at - base] <= highs[row]:
                if found == room:
                    state[0] = row
                    state[1] = at
                    return found
                out_rows[found] = row
                out_positions[found] = at
                found += 1
            at = before[at - base]
        at = NEXT
    state[0] = rows
    state[1] = NEXT
    return found


class Chains:
    """Rows with the column `clock`, which never goes back, and a number for the key of each."""

    def __init__(self, clock: str) -> None:
        """Hold nothing."""
        self.buffer = SortBuffer(clock)
        self.clocks: Words = np.empty(LEAST, np.int64)
        self.named: Words = np.empty(LEAST, np.int64)
        self.before: Words = np.empty(LEAST, np.int64)
        self.heads: Words = np.empty(0, np.int64)
        self.base = 0  # the position of the first place in the arrays
        self.first = self.end = 0  # positions held

    @property
    def rows(self) -> int:
        """Rows held."""
        return self.end - self.first

    @property
    def bytes(self) -> int:
        """Bytes of the rows held, and of what finds them: clock, key and neighbour of each, and a head for each key."""
        return self.buffer.bytes + 8 * (3 * self.rows + len(self.heads))

    def add(self, batch: pa.RecordBatch, clocks: Words, named: Words, keys: int) -> None:
        """Take rows in, none older than those held; `named` are the numbers of their keys, all below `keys`."""
        count = len(clocks)
        if count == 0:
            return
        if self.end - self.base + count > len(self.clocks):
            self._make_room(count)
        new = slice(self.end - self.base, self.end - self.base + count)
        self.clocks[new], self.named[new] = clocks, named
        self.buffer.add(batch)
        self.know(keys)
        chain(self.named, new.start, new.stop, self.base, self.heads, self.before)
        self.end += count

    def know(self, keys: int) -> None:
        """Have a head for each of so many keys."""
        if keys > len(self.heads):
            self.heads = np.append(self.heads, np.full(max(keys, 2 * len(self.heads)) - len(self.heads), NOBODY))

    def probe(self, named: Words, lows: Words, highs: Words) -> tuple[Words, Words]:
        """Return the pairs of rows by their places in `named` and rows held by their places among those.

        The clocks of the rows held are within `[lows, highs]`.
        """
        pairs = []
        state = np.array([0, NEXT], np.int64)
        while state[0] < len(named):
            rows, positions = np.empty((2, PAIRS), np.int64)
            found = walk(
                named, lows, highs, len(named), self.heads, self.before, self.clocks, self.base, self.first, PAIRS,
                rows, positions, state,
            )  # fmt: skip
            pairs.append((rows[:found], positions[:found] - self.first))
        rows, places = (np.concatenate(each) for each in zip(*pairs, strict=True)) if pairs else np.empty((2, 0), int)
        return rows, places

    def expire(self, bound: int) -> None:
        """Forget the rows whose clock is below `bound`."""
        held = self.clocks[self.first - self.base : self.end - self.base]
        if len(held) and held[0] < bound:
            self.first += int(np.searchsorted(held, bound))
            self.buffer.cut(bound - 1)

    def take(self, places: Words, names: list[str]) -> list[pa.Array]:
        """Return columns of rows held."""
        rows = pa.Table.from_batches(self.buffer.runs()).select(names).take(pa.array(places)).combine_chunks()
        return [column.chunk(0) for column in rows.columns]

    def keys_held(self) -> Words:
        """Return the numbers of the keys of the rows held, in the order of the rows."""
        return self.named[self.first - self.base : self.end - self.base]

    def rename(self, became: Words, keys: int) -> None:
        """Give keys other numbers, all below `keys`."""
        held = slice(self.first - self.base, self.end - self.base)
        self.named[held] = became[self.named[held]]
        self.heads = np.full(keys, NOBODY)
        chain(self.named, held.start, held.stop, self.base, self.heads, self.before)

    def _make_room(self, rows: int) -> None:
        """Move the rows to the front, of larger arrays where they fill half of them."""
        held = slice(self.first - self.base, self.end - self.base)
        capacity = len(self.clocks)
        while 2 * (self.rows + rows) > capacity:
            capacity *= 2
        for name in ("clocks", "named", "before"):
            room = np.empty(capacity, np.int64)
            room[: self.rows] = getattr(self, name)[held]
            setattr(self, name, room)
        self.base = self.first
