"""PairGroups: groups that hold progressing columns themselves, plain or by intervals; no window has to be asked for.

A group leaves as soon as no later row can be of it. It holds all rows whose time is in `[k·n, (k+1)·n)` for each of the
progressing columns that it is grouped by; a promise with the bound `low` covers those with `k < low // n`. So a pair
of the times of a join leaves when a box covers it, which is never later than a promise of one of them would have it (Li
2008, §7.2). Groups of the same times leave together: what compares the groups of a window compares them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from highlevel.groups.merging import accumulated
from highlevel.groups.table import GroupTable, batch_of
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.plan.nodes import PairGroups, width_of
from highlevel.plan.operators.operator import (
    GraphItem,
    Lows,
    Mark,
    Times,
    covered,
    low_of_one,
    lows_of,
    mark_of,
    times_of,
)
from highlevel.plan.operators.row_partials import RowPartials
from highlevel.results.sketched_windows import FoldedPane
from highlevel.results.stages import behind_windows, through
from lowlevel.punctuation import BEGINNING, END

GROUPS, LOWS = "groups", "lows"
"""Tables of a snapshot: the open groups, and what was promised of their numbers."""

LEFT_IN_PLACE = 4
"""Groups that have left stay in the table until they are one in so many: making a new one costs as much as the rest."""


class PairGroupsOperator:
    """Merges rows by group. A row of a group that has left is late: it is dropped and counted.

    A NULL in place of a time is below no bound, so a group with one leaves when that column is at its end.
    """

    def __init__(self, node: PairGroups) -> None:
        """Group the rows of `node`."""
        self.aggregation = node.aggregation
        self.partials = RowPartials(node.input, node.aggregation.low, node.times[0][0], paned=False)
        by_column = {column: (length, name) for column, length, name in node.times}
        self.intervals = [by_column.get(column, (1, None)) for column in node.input.progress]
        self.shown = [node.input.progress.index(column) for column, _, _ in node.times]
        self.promises = bool(node.progress)
        self.width = width_of(node.input)
        self.what = accumulated(node.aggregation.low.subaggregates)
        self.promised: Lows = (BEGINNING,) * self.width
        self.stages, self.finish = behind_windows(node.aggregation)
        self.late = 0
        self._forget()

    def _forget(self) -> None:
        self._table = GroupTable(self.aggregation.low.schema, self.aggregation.carried, self.what)
        self._times: list[Times | None] = [
            None if name is None else np.empty(0, np.int64) for _, name in self.intervals
        ]
        self._left = np.empty(0, np.bool_)

    @property
    def received(self) -> int:
        """Rows that came."""
        return self.partials.received

    @property
    def results(self) -> int:
        """Groups that left, after HAVING."""
        return self.finish.results

    @property
    def rows_held(self) -> int:
        """Groups that have not left."""
        return int(np.count_nonzero(~self._left))

    @property
    def bytes(self) -> int:
        """Bytes of the groups."""
        return self._table.bytes + self._left.nbytes + sum(each.nbytes for each in self._times if each is not None)

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Merge rows into their groups."""
        for partials in self.partials.of(batch):
            self._merge(partials)
        return iter(())

    def _merge(self, partials: pa.RecordBatch) -> None:
        times = self._times_in(partials)
        late = np.broadcast_to(covered(times, self.promised), partials.num_rows)
        if late.any():
            self.late += int(np.count_nonzero(late))
            partials = partials.filter(pa.array(~late))
            times = self._times_in(partials)
        known = self._table.count
        ids = self._table.merge(partials)
        seen, firsts = np.unique(ids, return_index=True)
        firsts = firsts[seen >= known]  # of the new groups in the order of their ids
        self._times = [
            None if before is None or added is None else np.append(before, added[firsts])
            for before, added in zip(self._times, times, strict=True)
        ]
        self._left = np.append(self._left, np.zeros(len(firsts), np.bool_))

    def _times_in(self, partials: pa.RecordBatch) -> list[Times | None]:
        return [None if name is None else times_of(partials.column(name)) for _, name in self.intervals]

    def punctuate(self, port: int, mark: Mark) -> Iterator[GraphItem]:
        """Let the groups leave that the mark covers, then promise what it says of their numbers."""
        told = lows_of(mark, self.width)
        numbers = tuple(
            low if low in (BEGINNING, END) else low // length
            for low, (length, _) in zip(told, self.intervals, strict=True)
        )
        before = self.promised
        self.promised = tuple(max(each) for each in zip(before, numbers, strict=True))
        if self.promised == before:
            return
        leaving = ~self._left & covered(self._times, self.promised)
        if leaving.any():
            ids = np.flatnonzero(leaving)
            yield from through(self.stages, self._leaving(ids))
            self._left |= leaving
            self._purge()
        lows = self._shown(self.promised)
        if BEGINNING not in lows and lows != self._shown(before):
            yield mark_of(mark.link, lows)

    def _shown(self, lows: Lows) -> Lows:
        """Return what is promised of the numbers that results show."""
        if set(lows) == {END}:
            return (END,) * max(1, len(self.shown) if self.promises else 1)
        if not self.promises:
            return (BEGINNING,)
        if len(self.shown) == 1:
            return (low_of_one(lows, self.shown[0]),)
        return tuple(lows[place] for place in self.shown)

    def _groups(self, ids: np.ndarray) -> pa.RecordBatch:
        table = self._table
        return batch_of(table.schema, [*table.keys.columns(ids), *table.layer.columns(ids, table.count)])

    def _leaving(self, ids: np.ndarray) -> pa.RecordBatch:
        """Return some groups as the stages behind windows take them: of windows, one for each of their times."""
        groups = self._groups(ids)
        if self.aggregation.foldings:  # all values were kept until now: such groups are short
            made = {folding.column for folding in self.aggregation.foldings}
            names = [name for name in self.aggregation.grain if name not in made]
            folded = FoldedPane(groups.schema, names, self.what, self.aggregation.foldings)
            folded.add(groups)
            groups = folded.to_arrow(0)
        times = [pa.array(times_of(groups.column(name))) for _, name in self.intervals if name is not None]
        names = [WINDOW_START, WINDOW_END, *groups.schema.names]
        return pa.RecordBatch.from_arrays([times[0], times[-1], *groups.columns], names=names)

    def _purge(self) -> None:
        """Take the groups that have left out of the table, once they are many."""
        if self._left.all():
            self._forget()
            return
        if np.count_nonzero(self._left) * LEFT_IN_PLACE < len(self._left):
            return
        kept = np.flatnonzero(~self._left)
        self._table.keys = self._table.keys.only(kept)
        self._table.layer.keep(kept)
        self._times = [None if each is None else each[kept] for each in self._times]
        self._left = np.zeros(len(kept), np.bool_)

    def snapshot(self) -> dict[str, pa.Table]:
        """The groups that have not left, and what was promised."""
        groups = self._groups(np.flatnonzero(~self._left))
        return {GROUPS: pa.Table.from_batches([groups]), LOWS: pa.table({LOWS: list(self.promised)})}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Take over the groups."""
        for batch in tables[GROUPS].to_batches():
            if batch.num_rows:
                self._merge(batch)
        self.promised = tuple(tables[LOWS][LOWS].to_pylist())
