"""MatchParts: the parts of the lifetimes of rows with a match (SEMI), or without one (outer and ANTI joins).

    row              ├─────────────────────────┤
    pairs                 ├─────┤   ├──┤
                                     ├───────┤
    without a match  ├────┤     ├───┤        ├─┤
    with a match          ├─────┤   ├────────┤

If the pairs of a row change, all parts of this row are computed again. Pairs before the watermark are final. So a row
is replaced by its part that has not ended, pairs that have ended are removed, and one pair replaces all pairs of a part
with a match. So the cost of a change does not grow with the number of pairs that a row has had.

A batch reads the lifetimes of its rows, and all recently changed lifetimes. After `num_rows / STALE` changes, all
lifetimes are ordered again, and ended lifetimes are removed. So the cost of a batch hardly grows with the number of
stored rows.
"""

from __future__ import annotations

from math import isqrt

import numpy as np
import pyarrow as pa

from capture.arrow_compute import array_of
from highlevel.groups.keys import Keys
from highlevel.speculation.lifetimes.model import VE, VS, Words, net_lifetimes
from lowlevel.punctuation import BEGINNING, END

IDENTITIES, ROWS, PAIRS, PARTS = "identities", "rows", "pairs", "parts"
"""Tables of a snapshot: the different rows, the lifetimes of rows and of their pairs, and the parts."""

ID, START, STOP, WEIGHT_OF, RETURNED = range(5)
"""Words of a lifetime: the number of a row, the bounds, the sum of weights; for a part also 1 if it was returned."""

MIN_ROOM = 4_096

STALE = 4
"""After `num_rows / STALE` changes and watermarks, ended rows, pairs and parts are removed."""


class StoredLifetimes:
    """Lifetimes by the number of their row: most are in order (`_ordered`), and a few are recent."""

    def __init__(self, width: int) -> None:
        """Store no lifetimes yet; each has `width` words."""
        self._recent = np.empty((0, width), np.int64)
        self.replace(self._recent)

    def __len__(self) -> int:
        return self._num_ordered + len(self._recent)

    @property
    def nbytes(self) -> int:
        """Bytes of the lifetimes."""
        return self._ordered.nbytes + self._numbers.nbytes + self._is_gone.nbytes + self._recent.nbytes

    def replace(self, lifetimes: Words) -> None:
        """Store these lifetimes in place of all others."""
        order = np.argsort(lifetimes[:, ID], kind="stable")
        self._ordered = lifetimes[order]
        self._numbers = np.ascontiguousarray(self._ordered[:, ID])
        self._is_gone = np.zeros(len(lifetimes), np.bool_)
        self._num_ordered = len(lifetimes)
        self._recent = self._recent[:0]

    def all_lifetimes(self) -> Words:
        """Return all lifetimes."""
        return np.concatenate([self._ordered[~self._is_gone], self._recent])

    def add(self, lifetimes: Words) -> None:
        """Add lifetimes."""
        self._recent = np.concatenate([self._recent, lifetimes])
        if len(self._recent) > MIN_ROOM // 8 + 4 * isqrt(len(self._ordered)):
            self.replace(self.all_lifetimes())

    def take(self, numbers: Words) -> Words:
        """Remove and return the lifetimes of the rows with these numbers, which are in ascending order."""
        firsts, ends = (np.searchsorted(self._numbers, numbers, side) for side in ("left", "right"))
        counts = ends - firsts
        at = np.repeat(firsts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        at = at[~self._is_gone[at]]
        self._is_gone[at] = True
        self._num_ordered -= len(at)
        is_taken = np.isin(self._recent[:, ID], numbers)
        taken = np.concatenate([self._ordered[at], self._recent[is_taken]])
        self._recent = self._recent[~is_taken]
        return taken


class StoredParts(StoredLifetimes):
    """Parts, also in the order of their ends and of their starts."""

    def replace(self, lifetimes: Words) -> None:
        """Store these parts in place of all others."""
        super().replace(lifetimes)
        self._by_stop, self._by_start = (np.argsort(self._ordered[:, word]) for word in (STOP, START))
        self._stops = self._ordered[self._by_stop, STOP]
        self._num_due, self._num_ended = 0, 0

    def take_due(self, due: int) -> Words:
        """Return the parts that end before `due` and were not returned yet; END: all parts."""
        until = len(self._stops) if due == END else int(np.searchsorted(self._stops, due))
        at = self._by_stop[self._num_due : until]
        at = at[~self._is_gone[at] & (self._ordered[at, RETURNED] == 0)]
        self._num_due = max(self._num_due, until)
        is_due = (self._recent[:, RETURNED] == 0) & ((self._recent[:, STOP] < due) | (due == END))
        self._ordered[at, RETURNED] = 1
        self._recent[is_due, RETURNED] = 1
        return np.concatenate([self._ordered[at], self._recent[is_due]])

    def least_start(self, watermark: int) -> int:
        """Return the earliest start of a part that ends at `watermark` or later. Watermarks must not decrease."""
        while self._num_ended < len(self._by_start):
            at = self._by_start[self._num_ended]
            if not self._is_gone[at] and self._ordered[at, STOP] >= watermark:
                break
            self._num_ended += 1
        resting = self._ordered[self._by_start[self._num_ended : self._num_ended + 1], START]
        recent = self._recent[self._recent[:, STOP] >= watermark, START]
        return int(min(resting.min(initial=END), recent.min(initial=END)))


class MatchParts:
    """Parts of rows with or without a match. Rows and pairs may be withdrawn, in any order. Not thread safe."""

    def __init__(self, identity: pa.Schema, *, has_match: bool) -> None:
        """Store no rows yet. Rows with equal columns of `identity` have equal lifetimes.

        `has_match`: the parts have a match; otherwise they have no match.
        """
        self._identity = identity
        self._has_match = has_match
        self._watermark = BEGINNING
        self._num_stale = 0
        """Number of changes and watermarks since ended rows and pairs were removed."""
        self._keys = Keys(identity.types)
        self._rows, self._pairs, self._parts = StoredLifetimes(4), StoredLifetimes(4), StoredParts(5)
        self._new_rows: list[Words] = []
        self._new_pairs: list[Words] = []

    @property
    def num_rows(self) -> int:
        """Number of rows, pairs and parts, including ended ones that are not removed yet."""
        return len(self._rows) + len(self._pairs) + len(self._parts)

    @property
    def bytes(self) -> int:
        """Bytes of the rows, pairs and parts."""
        return self._keys.bytes + self._rows.nbytes + self._pairs.nbytes + self._parts.nbytes

    @property
    def least_start(self) -> int:
        """The earliest start of a part that can still change, in ns; END without such a part."""
        return self._parts.least_start(self._watermark)

    def add_rows(self, rows: pa.RecordBatch, weights: Words) -> None:
        """Add rows, with the columns `vs`, `ve` and those of the identity."""
        self._new_rows.append(self._numbered(rows, weights))

    def add_pairs(self, pairs: pa.RecordBatch, weights: Words) -> None:
        """Add the lifetimes `vs`, `ve` of pairs of rows."""
        self._new_pairs.append(self._numbered(pairs, weights))

    def _numbered(self, rows: pa.RecordBatch, weights: Words) -> Words:
        columns = [rows.column(name) for name in self._identity.names]
        numbers = self._keys.find_or_insert(columns, rows.num_rows).astype(np.int64)
        times = [rows.column(name).to_numpy() for name in (VS, VE)]
        return np.stack([numbers, *times, weights], axis=1)

    def update(self, due: int = END) -> tuple[pa.RecordBatch, Words]:
        """Return the changes of the parts that end before `due`; END: of all parts.

        The result has `vs`, `ve` and the columns of the identity, and weights.
        """
        withdrawn = np.empty((0, 5), np.int64)
        if self._new_rows or self._new_pairs:
            numbers = np.unique(np.concatenate([each[:, ID] for each in (*self._new_rows, *self._new_pairs)]))
            rows = net_lifetimes(np.concatenate([self._rows.take(numbers), *self._new_rows]))
            pairs = net_lifetimes(np.concatenate([self._pairs.take(numbers), *self._new_pairs]))
            self._new_rows, self._new_pairs = [], []
            withdrawn = self._parts.take(numbers)
            self._rows.add(rows)
            self._pairs.add(pairs)
            self._parts.add(self._compute(rows, pairs))
            self._num_stale += len(rows) + len(pairs)
        old, new = withdrawn[withdrawn[:, RETURNED] == 1, :4], self._parts.take_due(due)[:, :4]
        changes = net_lifetimes(np.concatenate([old * [1, 1, 1, -1], new]))
        columns = self._keys.columns(np.ascontiguousarray(changes[:, ID]))
        times = [array_of(np.ascontiguousarray(changes[:, word])) for word in (START, STOP)]
        rows = pa.RecordBatch.from_arrays([*times, *columns], [VS, VE, *self._identity.names])
        return rows, np.ascontiguousarray(changes[:, WEIGHT_OF])

    def _compute(self, rows: Words, pairs: Words) -> Words:
        """Return the parts of rows. Both inputs are in order."""
        rows, pairs = (lifetimes[lifetimes[:, WEIGHT_OF] > 0] for lifetimes in (rows, pairs))
        at = np.searchsorted(rows[:, ID], pairs[:, ID])
        known = at < len(rows)
        known[known] = rows[at[known], ID] == pairs[known, ID]
        pairs, at = pairs[known], at[known]
        first_starts = np.maximum(pairs[:, START], rows[at, START])
        order = np.lexsort((first_starts, at))
        at, starts, stops = at[order], first_starts[order], pairs[order, STOP]
        covered_until = _running_maximum(at, stops)
        of_row, begins, ends = (_times_with_match if self._has_match else _times_without_match)(
            rows, at, starts, covered_until
        )
        is_part = begins < ends
        words = (rows[of_row, ID], begins, ends, rows[of_row, WEIGHT_OF], np.zeros(len(begins), np.int64))
        return np.stack(words, axis=1)[is_part]

    def advance(self, watermark: int) -> None:
        """Remove what no change after a watermark can affect. No later row or pair begins before the watermark."""
        if watermark == self._watermark:
            return
        self._watermark = watermark
        self._num_stale += 1
        if watermark == END:
            for stored in (self._rows, self._pairs, self._parts):
                stored.replace(stored.all_lifetimes()[:0])
        elif STALE * self._num_stale >= self.num_rows:
            self._remove_ended()

    def _remove_ended(self) -> None:
        """Remove what ended before the watermark. Other rows then begin at their open part, or at the watermark."""
        self._num_stale = 0
        watermark = self._watermark
        rows, pairs, parts = (stored.all_lifetimes() for stored in (self._rows, self._pairs, self._parts))
        parts = parts[parts[:, STOP] >= watermark]
        pairs = pairs[pairs[:, STOP] >= watermark + self._has_match]
        rows = rows[rows[:, STOP] >= watermark]
        open_parts = parts[parts[:, START] < watermark]
        starts = np.full(self._keys.count, watermark)
        starts[open_parts[:, ID]] = open_parts[:, START]
        if self._has_match:
            ended = np.full(len(open_parts), watermark)
            words = (open_parts[:, ID], open_parts[:, START], ended, np.ones(len(open_parts), np.int64))
            pairs = np.concatenate([pairs, np.stack(words, axis=1)])
        begun = rows[:, START] < watermark
        rows[begun, START] = starts[rows[begun, ID]]
        used = np.unique(np.concatenate([each[:, ID] for each in (rows, pairs, parts)]))
        if self._keys.count > 2 * len(used) + MIN_ROOM:
            self._keys = self._keys.copy_of(used)
            for lifetimes in (rows, pairs, parts):
                lifetimes[:, ID] = np.searchsorted(used, lifetimes[:, ID])
        for stored, lifetimes in ((self._rows, rows), (self._pairs, pairs), (self._parts, parts)):
            stored.replace(lifetimes)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return rows, pairs and parts. The caller has called `update` after the last change."""
        tables = {IDENTITIES: pa.table(self._keys.columns(), schema=self._identity)}
        for name, stored in ((ROWS, self._rows), (PAIRS, self._pairs), (PARTS, self._parts)):
            tables[name] = pa.table({"words": array_of(stored.all_lifetimes().reshape(-1))})
        return tables

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        for batch in tables[IDENTITIES].combine_chunks().to_batches():
            self._keys.find_or_insert(batch.columns, batch.num_rows)
        for name, stored, width in ((ROWS, self._rows, 4), (PAIRS, self._pairs, 4), (PARTS, self._parts, 5)):
            stored.replace(tables[name]["words"].to_numpy().reshape(-1, width))


def _times_without_match(
    rows: Words, row_numbers: Words, starts: Words, covered_until: Words
) -> tuple[Words, Words, Words]:
    """Return the row number, start and end of the times without a match. Some of these times are empty.

    `row_numbers`, `starts`: the row numbers and starts of pairs, in this order; `covered_until`: for each pair the
    greatest end so far.
    """
    # A part begins at the start of a row, or where a pair ends, and ends where the next pair begins.
    begins = np.concatenate([rows[:, START], covered_until])
    of_row = np.concatenate([np.arange(len(rows)), row_numbers])
    in_row = np.argsort(of_row, kind="stable")
    begins, of_row = begins[in_row], of_row[in_row]
    is_last = np.append(of_row[1:] != of_row[:-1], True)[: len(of_row)]
    ends = np.empty(len(begins), np.int64)
    ends[is_last] = rows[:, STOP]
    ends[~is_last] = starts
    return of_row, begins, ends


def _times_with_match(_: Words, row_numbers: Words, starts: Words, covered_until: Words) -> tuple[Words, Words, Words]:
    """Return the row number, start and end of the times with a match. Parameters: see `_times_without_match`."""
    if not len(row_numbers):
        return row_numbers, starts, covered_until
    is_first = np.append(True, (row_numbers[1:] != row_numbers[:-1]) | (starts[1:] > covered_until[:-1]))
    return row_numbers[is_first], starts[is_first], covered_until[np.append(is_first[1:], True)]


def _running_maximum(groups: Words, values: Words) -> Words:
    """Return for each value the maximum of its group so far. `groups` are in ascending order."""
    if not len(values):
        return values
    different, ranks = np.unique(values, return_inverse=True)
    greatest = np.maximum.accumulate(groups * len(different) + ranks) - groups * len(different)
    return different[greatest]
