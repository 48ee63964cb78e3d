"""InstantRanking: the ranks of the rows that are true at each instant, or only the first rows (LIMIT).

    rows     a  5 ├──────────────┤              limit 1     a ├────┤         ├─┤
             b  7      ├──────────┤                         b      ├─────────┤
             time 0    4          15 17                       0    4         15 17

A result is a row, for a period in which its rank is constant. Equal rows that begin at the same time are copies of one
row: a period also ends when the number of copies within the limit changes. So results do not depend on the order of
arrival.

A change of the rows affects no result before the first instant at which other rows are true than before. So periods
that end before this instant remain. All later starts and ends are processed again (`kernels.rank_sweep`), each in O(log
n). For rows in order, only new starts and ends are processed; for a late row, also all starts and ends after its start.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from capture.arrow_compute import array_of
from highlevel.groups.keys import Keys
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.plan.answer_nodes import RowFunctionKind, SortKey
from highlevel.plan.lifetime_nodes import Ranks
from highlevel.plan.operators.group_numbers import number_groups
from highlevel.plan.operators.operator import times_of
from highlevel.plan.operators.sort import sorted_positions
from highlevel.speculation.lifetimes.kernels.rank_sweep import (
    COPIES,
    DENSE_RANK,
    NO_RANK,
    PERIOD_WORDS,
    POSITION,
    RANK,
    RANK_OF,
    ROW_NUMBER,
    SINCE,
    UNCHANGED,
    UNTIL,
    Instants,
    Periods,
    RankedRows,
    RankLimits,
    sweep_instants,
)
from highlevel.speculation.lifetimes.model import Words, net_lifetimes
from lowlevel.punctuation import BEGINNING, END

FUNCTIONS = {
    RowFunctionKind.ROW_NUMBER: ROW_NUMBER,
    RowFunctionKind.RANK: RANK,
    RowFunctionKind.DENSE_RANK: DENSE_RANK,
}
"""The kernel's codes of rank functions."""

NO_LIMIT = 2**62

MIN_CAPACITY = 4_096

IDENTITIES, LIFETIMES, PERIODS, TIME = "identities", "lifetimes", "periods", "ranked until"
"""Names of tables in a snapshot: the different rows, their ends, the periods of results, and the time before which ends
and periods are final.
"""


class InstantRanking:
    """Ranks rows with the columns `window_start` and `window_end` (NULL: no end). Not thread safe."""

    def __init__(self, schema: pa.Schema, ranks: Ranks) -> None:
        """Create a ranking without rows."""
        self._schema = schema
        self._ranks = ranks
        identity = [field for field in schema if field.name not in (WINDOW_START, WINDOW_END)]
        self._identity = pa.schema([pa.field(WINDOW_START, pa.int64()), *identity])
        first, last = ranks.offset, NO_LIMIT if ranks.limit is None else ranks.offset + ranks.limit
        self._limits = (NO_RANK if ranks.function is None else FUNCTIONS[ranks.function], first, last)
        self._keys = Keys(self._identity.types)
        self._lifetimes = np.empty((0, 3), np.int64)
        """Words: number of the row, end, number of copies."""
        self._periods = np.empty((0, 6), np.int64)
        """Words: number of the row, start, end, rank, number of copies, and 1 if the period has been returned."""
        self._final_before = BEGINNING
        self.results_schema = schema if ranks.function is None else schema.append(pa.field(ranks.name, pa.int64()))

    @property
    def num_rows(self) -> int:
        """Number of rows and results that can still change."""
        return len(self._lifetimes) + len(self._periods)

    @property
    def bytes(self) -> int:
        """Bytes of rows and results."""
        return self._keys.bytes + self._lifetimes.nbytes + self._periods.nbytes

    def update(self, rows: pa.Table, weights: Words, due: int = END) -> tuple[pa.Table, Words]:
        """Add changes of rows. Return the changes of the results that end before `due` (ns); END: of all results.

        The sum of the weights of a row is its number of copies. A row may be withdrawn before it is added.
        """
        since = self._add(rows, weights)
        withdrawn = self._periods[:0]
        if since is not None:
            is_old = self._periods[:, 2] >= since
            withdrawn, kept = self._periods[is_old], self._periods[~is_old]
            self._periods = np.concatenate([kept, self._sweep(since, withdrawn[withdrawn[:, 1] < since])])
        is_due = (self._periods[:, 5] == 0) & ((self._periods[:, 2] < due) | (due == END))
        self._periods[is_due, 5] = 1
        return self._results(withdrawn[withdrawn[:, 5] == 1], self._periods[is_due])

    def _add(self, rows: pa.Table, weights: Words) -> int | None:
        """Add changes of rows.

        Return the first instant, in ns, at which other rows are true than before; None without such an instant.
        """
        if not rows.num_rows:
            return None
        columns = [rows.column(name).combine_chunks() for name in self._identity.names]
        numbers = self._keys.find_or_insert(columns, rows.num_rows).astype(np.int64)
        ends = times_of(rows.column(WINDOW_END).combine_chunks())
        changes = net_lifetimes(np.stack([numbers, ends, weights], axis=1))
        if not len(changes):
            return None
        self._lifetimes = net_lifetimes(np.concatenate([self._lifetimes, changes]))
        firsts = np.flatnonzero(np.append(True, changes[1:, 0] != changes[:-1, 0]))
        starts = self._keys.columns(changes[firsts, 0])[0].to_numpy()
        balanced = np.add.reduceat(changes[:, 2], firsts) == 0
        since = int(np.where(balanced, changes[firsts, 1], starts).min())
        return max(since, self._final_before)

    def _sweep(self, since: int, open_periods: Words) -> Words:
        """Return the periods that end at `since` or later. The periods in `open_periods` begin before `since`."""
        lifetimes = self._lifetimes[(self._lifetimes[:, 1] >= since) & (self._lifetimes[:, 2] > 0)]
        numbers = np.unique(np.append(lifetimes[:, 0], open_periods[:, 0]))
        if not len(numbers):
            return np.empty((0, 6), np.int64)
        rows = pa.table(self._keys.columns(numbers), schema=self._identity)
        ranked, order = self._prepare_ranked_rows(rows)
        size = len(order)
        position_of = np.empty(size, np.int64)
        position_of[order] = np.arange(size)
        starts = rows.column(WINDOW_START).to_numpy()
        row_of_lifetime = np.searchsorted(numbers, lifetimes[:, 0])
        begins_later = starts[row_of_lifetime] >= since
        np.add.at(ranked.count, position_of[row_of_lifetime[~begins_later]], lifetimes[~begins_later, 2])
        sums = np.append(0, np.cumsum(ranked.count))
        nodes = np.arange(1, size + 1)
        ranked.tree[1:] = sums[nodes] - sums[nodes - (nodes & -nodes)]
        missing = self._restore_members(
            ranked, position_of[np.searchsorted(numbers, open_periods[:, 0])], open_periods, since
        )
        has_end = lifetimes[:, 1] != END
        times = np.concatenate(
            [starts[row_of_lifetime[begins_later]], lifetimes[has_end, 1], np.full(len(missing), since)]
        )
        positions = np.concatenate(
            [position_of[row_of_lifetime[begins_later]], position_of[row_of_lifetime[has_end]], missing]
        )
        deltas = np.concatenate([lifetimes[begins_later, 2], -lifetimes[has_end, 2], np.zeros(len(missing), np.int64)])
        in_order = np.argsort(times, kind="stable")
        instants = Instants(times[in_order], positions[in_order], deltas[in_order])
        limits = RankLimits(size, *self._limits)
        parts, done, room = [], 0, 2 * size + MIN_CAPACITY
        words, count = np.empty((room, PERIOD_WORDS), np.int64), np.zeros(2, np.int64)
        while done < len(times):
            output = Periods(words.reshape(-1), room, count)
            done = sweep_instants(ranked, limits, instants, done, len(times), output)
            parts.append(words[: count[0]].copy())
            count[0] = 0
        open_positions = np.flatnonzero(ranked.shown)
        endless = [
            open_positions,
            ranked.since[open_positions],
            np.full(len(open_positions), END),
            ranked.ranks[open_positions],
            ranked.shown[open_positions],
        ]
        periods = np.concatenate([*parts, np.stack(endless, axis=1)])
        columns = (POSITION, SINCE, UNTIL, RANK_OF, COPIES)
        of_rows = [
            numbers[order[periods[:, column]]] if column == POSITION else periods[:, column] for column in columns
        ]
        later = self._split_copies(np.stack([*of_rows, np.zeros(len(periods), np.int64)], axis=1))
        earlier = open_periods.copy()
        earlier[:, 2], earlier[:, 5] = since, 0
        return _join_periods(np.concatenate([earlier, later[later[:, 2] > later[:, 1]]]))

    def _split_copies(self, periods: Words) -> Words:
        """Return one period for each copy, if the function gives copies different numbers."""
        if self._ranks.function is not RowFunctionKind.ROW_NUMBER:
            return periods
        copies = periods[:, 4]
        source = np.repeat(np.arange(len(periods)), copies)
        single = periods[source]
        single[:, 3] += np.arange(len(source)) - np.repeat(np.cumsum(copies) - copies, copies)
        single[:, 4] = 1
        return single

    def _prepare_ranked_rows(self, rows: pa.Table) -> tuple[RankedRows, Words]:
        """Return the memory of the kernel, in which no row is true, and the row index at each position."""
        ranks, size = self._ranks, rows.num_rows
        named = {*ranks.partition, *(key.column for key in ranks.keys)}
        others = [SortKey(name) for name in self._identity.names[1:] if name not in named]
        keys = [*map(SortKey, ranks.partition), *ranks.keys, *others, SortKey(WINDOW_START)]
        order = sorted_positions(rows, keys).astype(np.int64)
        of_partitions = number_groups(rows, ranks.partition)[order]
        compared = tuple(key.column for key in ranks.keys)
        of_peers = number_groups(rows, (*ranks.partition, *compared))[order]
        is_first = np.append(True, of_partitions[1:] != of_partitions[:-1])
        bounds = np.append(np.flatnonzero(is_first), size)
        is_first_peer = np.append(True, of_peers[1:] != of_peers[:-1])
        peers = np.maximum.accumulate(np.where(is_first_peer, np.arange(size), 0))
        partitions = len(bounds) - 1
        count, shown, since, of_ranks, members, old, stamps = np.zeros((7, size), np.int64)
        sizes, totals, changed = np.zeros((3, partitions), np.int64)
        memory = (count, peers, np.cumsum(is_first) - 1, shown, since, of_ranks, np.zeros(size + 1, np.int64))
        least = np.full(partitions, UNCHANGED, np.int64)
        return RankedRows(*memory, members, old, stamps, bounds, sizes, totals, least, changed), order

    def _restore_members(self, ranked: RankedRows, positions: Words, periods: Words, since: int) -> Words:
        """Set the members to the rows that are members immediately before `since`.

        Return the positions of rows that are not members any more.
        """
        ranked.since[positions] = since
        np.add.at(ranked.shown, positions, periods[:, 4])
        ranked.ranks[:] = NO_LIMIT
        np.minimum.at(ranked.ranks, positions, periods[:, 3])
        members = np.flatnonzero(ranked.shown)
        of_partitions = ranked.partitions[members]
        np.add.at(ranked.sizes, of_partitions, 1)
        np.add.at(ranked.totals, of_partitions, ranked.shown[members])
        within = np.arange(len(members)) - np.append(0, np.cumsum(ranked.sizes))[of_partitions]
        ranked.members[ranked.bounds[of_partitions] + within] = members
        gone: Words = members[ranked.count[members] == 0]
        return gone

    def _results(self, withdrawn: Words, added: Words) -> tuple[pa.Table, Words]:
        """Return the difference of periods as results with weights, in the order of ends, withdrawn results first."""
        parts = [
            np.concatenate([part[:, :4], sign * part[:, 4:5]], axis=1) for sign, part in ((-1, withdrawn), (1, added))
        ]
        changes = net_lifetimes(np.concatenate(parts))
        _, start, end, rank, copies = changes.T
        changes = changes[np.lexsort((rank, start, end, copies > 0))]
        columns = dict(zip(self._identity.names, self._keys.columns(changes[:, 0]), strict=True))
        ends = np.ascontiguousarray(changes[:, 2])
        columns[WINDOW_START] = array_of(np.ascontiguousarray(changes[:, 1]))
        columns[WINDOW_END] = pa.array(ends, mask=ends == END)
        columns[self._ranks.name] = array_of(np.ascontiguousarray(changes[:, 3]))
        table = pa.table([columns[name] for name in self.results_schema.names], schema=self.results_schema)
        return table, np.ascontiguousarray(changes[:, 4])

    def remove_before(self, time: int) -> None:
        """Remove rows and periods that end before `time` (ns), because no later change affects an earlier instant."""
        self._final_before = max(self._final_before, time)
        self._lifetimes, self._periods = (
            words[:0] if time == END else words[words[:, column] >= time]
            for words, column in ((self._lifetimes, 1), (self._periods, 2))
        )
        known = self._keys.count
        if known < MIN_CAPACITY:
            return
        used = np.unique(np.append(self._lifetimes[:, 0], self._periods[:, 0]))
        if 2 * len(used) < known:
            self._keys = self._keys.copy_of(used)
            for numbered in (self._lifetimes, self._periods):
                numbered[:, 0] = np.searchsorted(used, numbered[:, 0])

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the rows, the periods, and the time before which they are final."""
        used = np.unique(np.append(self._lifetimes[:, 0], self._periods[:, 0]))
        tables = {IDENTITIES: pa.table(self._keys.columns(used), schema=self._identity)}
        for name, words in ((LIFETIMES, self._lifetimes), (PERIODS, self._periods)):
            numbered = words.copy()
            numbered[:, 0] = np.searchsorted(used, words[:, 0])
            tables[name] = pa.table({"words": array_of(numbered.reshape(-1))})
        return {**tables, TIME: pa.table({"time": pa.array([self._final_before], pa.int64())})}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        for batch in tables[IDENTITIES].combine_chunks().to_batches():
            self._keys.find_or_insert(batch.columns, batch.num_rows)
        self._lifetimes = tables[LIFETIMES]["words"].to_numpy().reshape(-1, 3).copy()
        self._periods = tables[PERIODS]["words"].to_numpy().reshape(-1, 6).copy()
        (self._final_before,) = tables[TIME]["time"].to_pylist()


def _join_periods(periods: Words) -> Words:
    """Merge successive periods of a row that have equal values."""
    order = np.lexsort(periods[:, [1, 4, 3, 0]].T)
    ordered = periods[order]
    equal = (ordered[1:, [0, 3, 4]] == ordered[:-1, [0, 3, 4]]).all(axis=1) & (ordered[1:, 1] == ordered[:-1, 2])
    firsts = np.flatnonzero(np.append(True, ~equal)[: len(ordered)])
    joined = ordered[firsts]
    joined[:, 2] = ordered[np.append(firsts[1:], len(ordered)) - 1, 2] if len(firsts) else 0
    return joined
