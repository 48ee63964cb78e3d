"""MatchParts: the parts of the lifetimes of rows with a match (SEMI), or without one (outer and ANTI joins).

    row              ├─────────────────────────┤
    pairs                 ├─────┤   ├──┤
                                     ├───────┤
    without a match  ├────┤     ├───┤        ├─┤
    with a match          ├─────┤   ├────────┤

If the pairs of a row change, all parts of this row are computed again. Pairs before the watermark are final: there a
row is replaced by its part that has not ended, and pairs that have ended are forgotten. One pair replaces those of a
part with a match. So the cost of a change does not grow with the number of pairs that a row has had.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from capture.arrow_compute import array_of
from highlevel.groups.keys import Keys
from highlevel.speculation.lifetimes.model import VE, VS, Words, net_lifetimes
from lowlevel.punctuation import BEGINNING, END

IDENTITIES, ROWS, PAIRS, PARTS = "identities", "rows", "pairs", "parts"
"""Tables of a snapshot: the different rows, the lifetimes of rows and of their pairs, and the parts."""

ID, START, STOP, WEIGHT_OF, RETURNED = range(5)
"""Words of a lifetime: the number of a row, the bounds, the sum of weights; of a part also whether it was returned."""

MIN_ROOM = 4_096


class MatchParts:
    """Parts of rows with or without a match. Rows and pairs may be withdrawn, in any order. Not thread safe."""

    def __init__(self, identity: pa.Schema, *, has_match: bool) -> None:
        """Store no rows yet. Rows with equal columns of `identity` have equal lifetimes.

        `has_match`: the parts are those with a match, and otherwise those without one.
        """
        self._identity = identity
        self._has_match = has_match
        self._forgotten = BEGINNING
        """The watermark below which rows and pairs have been forgotten."""
        self._keys = Keys(identity.types)
        self._rows = np.empty((0, 4), np.int64)
        self._pairs = np.empty((0, 4), np.int64)
        self._parts = np.empty((0, 5), np.int64)
        self._changed: list[Words] = []

    @property
    def num_rows(self) -> int:
        """Rows and pairs that can still change a part, and parts that can still change."""
        return len(self._rows) + len(self._pairs) + len(self._parts)

    @property
    def bytes(self) -> int:
        """Memory of these."""
        return self._keys.bytes + self._rows.nbytes + self._pairs.nbytes + self._parts.nbytes

    @property
    def least_start(self) -> int:
        """The earliest start of a part that can still change; END if there is none."""
        return int(self._parts[:, START].min(initial=END))

    def add_rows(self, rows: pa.RecordBatch, weights: Words) -> None:
        """Add rows, with the columns `vs`, `ve` and those of the identity."""
        self._rows = self._add(self._rows, rows, weights)

    def add_pairs(self, pairs: pa.RecordBatch, weights: Words) -> None:
        """Add the lifetimes `vs`, `ve` of pairs of rows."""
        self._pairs = self._add(self._pairs, pairs, weights)

    def _add(self, lifetimes: Words, rows: pa.RecordBatch, weights: Words) -> Words:
        columns = [rows.column(name) for name in self._identity.names]
        numbers = self._keys.find_or_insert(columns, rows.num_rows).astype(np.int64)
        self._changed.append(numbers)
        times = [rows.column(name).to_numpy() for name in (VS, VE)]
        return net_lifetimes(np.concatenate([lifetimes, np.stack([numbers, *times, weights], axis=1)]))

    def update(self, due: int = END) -> tuple[pa.RecordBatch, Words]:
        """Return the changes of the parts that end before `due`; END: of all parts.

        The result has `vs`, `ve` and the columns of the identity, and weights.
        """
        withdrawn = self._parts[:0]
        if self._changed:
            numbers = np.unique(np.concatenate(self._changed))
            self._changed = []
            is_changed = np.isin(self._parts[:, ID], numbers)
            withdrawn = self._parts[is_changed]
            self._parts = np.concatenate([self._parts[~is_changed], self._compute(numbers)])
        is_due = (self._parts[:, RETURNED] == 0) & ((self._parts[:, STOP] < due) | (due == END))
        self._parts[is_due, RETURNED] = 1
        old, new = withdrawn[withdrawn[:, RETURNED] == 1, :4], self._parts[is_due, :4]
        changes = net_lifetimes(np.concatenate([old * [1, 1, 1, -1], new]))
        columns = self._keys.columns(np.ascontiguousarray(changes[:, ID]))
        times = [array_of(np.ascontiguousarray(changes[:, word])) for word in (START, STOP)]
        rows = pa.RecordBatch.from_arrays([*times, *columns], [VS, VE, *self._identity.names])
        return rows, np.ascontiguousarray(changes[:, WEIGHT_OF])

    def _compute(self, numbers: Words) -> Words:
        """Return the parts of rows with these numbers."""
        rows, pairs = (
            lifetimes[np.isin(lifetimes[:, ID], numbers) & (lifetimes[:, WEIGHT_OF] > 0)]
            for lifetimes in (self._rows, self._pairs)
        )
        at = np.searchsorted(rows[:, ID], pairs[:, ID])
        known = at < len(rows)
        known[known] = rows[at[known], ID] == pairs[known, ID]
        pairs, at = pairs[known], at[known]
        first_starts = np.maximum(pairs[:, START], rows[at, START])
        order = np.lexsort((first_starts, at))
        at, starts, stops = at[order], first_starts[order], pairs[order, STOP]
        covered_until = _running_maximum(at, stops)
        of_row, begins, ends = (_matched if self._has_match else _unmatched)(rows, at, starts, covered_until)
        is_part = begins < ends
        words = (rows[of_row, ID], begins, ends, rows[of_row, WEIGHT_OF], np.zeros(len(begins), np.int64))
        return np.stack(words, axis=1)[is_part]

    def forget_before(self, watermark: int) -> None:
        """Forget what no change after a watermark can affect. No later row or pair begins before it."""
        if watermark == self._forgotten:
            return
        self._forgotten = watermark
        if watermark == END:
            self._rows, self._pairs, self._parts = self._rows[:0], self._pairs[:0], self._parts[:0]
            return
        self._parts = self._parts[self._parts[:, STOP] >= watermark]
        self._pairs = self._pairs[self._pairs[:, STOP] >= watermark + self._has_match]
        self._rows = self._rows[self._rows[:, STOP] >= watermark]
        open_parts = self._parts[self._parts[:, START] < watermark]
        starts = np.full(self._keys.count, watermark)
        starts[open_parts[:, ID]] = open_parts[:, START]
        if self._has_match:
            ended = np.full(len(open_parts), watermark)
            words = (open_parts[:, ID], open_parts[:, START], ended, np.ones(len(open_parts), np.int64))
            self._pairs = np.concatenate([self._pairs, np.stack(words, axis=1)])
        begun = self._rows[:, START] < watermark
        self._rows[begun, START] = starts[self._rows[begun, ID]]
        used = np.unique(np.concatenate([each[:, ID] for each in (self._rows, self._pairs, self._parts)]))
        if self._keys.count > 2 * len(used) + MIN_ROOM:
            self._keys = self._keys.only(used)
            for lifetimes in (self._rows, self._pairs, self._parts):
                lifetimes[:, ID] = np.searchsorted(used, lifetimes[:, ID])

    def snapshot(self) -> dict[str, pa.Table]:
        """Return rows, pairs and parts. The caller has called `update` after the last change."""
        tables = {IDENTITIES: pa.table(self._keys.columns(), schema=self._identity)}
        for name, words in ((ROWS, self._rows), (PAIRS, self._pairs), (PARTS, self._parts)):
            tables[name] = pa.table({"words": array_of(np.ascontiguousarray(words).reshape(-1))})
        return tables

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        for batch in tables[IDENTITIES].combine_chunks().to_batches():
            self._keys.find_or_insert(batch.columns, batch.num_rows)
        self._rows, self._pairs, self._parts = (
            tables[name]["words"].to_numpy().reshape(-1, width).copy()
            for name, width in ((ROWS, 4), (PAIRS, 4), (PARTS, 5))
        )


def _unmatched(rows: Words, at: Words, starts: Words, covered_until: Words) -> tuple[Words, Words, Words]:
    """Return the row number, start and end of the times without a match. Some are empty.

    `at`, `starts`: the row numbers and starts of pairs, in this order; `covered_until`: the greatest end up to each.
    """
    # From the start of a row, and from the time until which it is covered, until the next pair begins.
    begins = np.concatenate([rows[:, START], covered_until])
    of_row = np.concatenate([np.arange(len(rows)), at])
    in_row = np.argsort(of_row, kind="stable")
    begins, of_row = begins[in_row], of_row[in_row]
    is_last = np.append(of_row[1:] != of_row[:-1], True)[: len(of_row)]
    ends = np.empty(len(begins), np.int64)
    ends[is_last] = rows[:, STOP]
    ends[~is_last] = starts
    return of_row, begins, ends


def _matched(_: Words, at: Words, starts: Words, covered_until: Words) -> tuple[Words, Words, Words]:
    """Return the row number, start and end of the times with a match, as `_unmatched`."""
    if not len(at):
        return at, starts, covered_until
    is_first = np.append(True, (at[1:] != at[:-1]) | (starts[1:] > covered_until[:-1]))
    return at[is_first], starts[is_first], covered_until[np.append(is_first[1:], True)]


def _running_maximum(groups: Words, values: Words) -> Words:
    """Return for each value the greatest one of its group up to it. `groups` rise from 0 on."""
    if not len(values):
        return values
    different, ranks = np.unique(values, return_inverse=True)
    greatest = np.maximum.accumulate(groups * len(different) + ranks) - groups * len(different)
    return different[greatest]
