"""Aggregate: rolls partials up per window and group; punctuation closes each window once (WID; Li 2008, §6.1.2).

The window id is one more grouping column, so arrival order is of no concern. State is kept per *range of window ids*:
partials with the same `[first_wid, end_wid)` share one table, and window w is the merge of the tables whose range
holds w. For tumbling windows that is a table per window; for sliding ones a table per pane, and a partial is stored
once however many windows it is in. Tables live in a map, so a gap of years between two of them costs nothing.

A table is compacted (its partials merged by group) whenever it has doubled: amortised constant work, and memory in
proportion to groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from highlevel.bucket import END_WID, FIRST_WID
from highlevel.wid_ranges import Ranges, unite
from lowlevel.punctuation import Item, Punctuation
from lowlevel.subaggregates import MERGE, Kind, SubAggregate

WID = "wid"
COMPACT_ROWS = 65_536
"""Partials a table may hold beyond twice its groups, or twice its largest batch, before they are merged."""

CLOSE_ROWS = 65_536
"""Partials of small windows that are merged at a time: a merge costs as much as some thousands of rows."""


@dataclass(slots=True)
class Pile:
    """Partials of one range of window ids: how many, what the last compaction left, and the most of one batch."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    merged: int = 0
    largest: int = 0


class Aggregate:
    """Merges partials; closes windows at punctuation. Rows of the result: `wid`, the groups, the merged sub-aggregates.

    A partial for a window that is already final is left out of that window and counted in `late`; it still reaches
    its open windows. The rows behind it are counted in `late_rows` where a sub-aggregate counts rows. A window without
    a partial is not emitted.
    """

    def __init__(self, groups: Sequence[str], subaggregates: Sequence[SubAggregate]) -> None:
        """Group by the columns `groups`; merge each sub-aggregate by its rule in MERGE."""
        self.groups = list(groups)
        self.subaggregates = list(subaggregates)
        self.columns = self.groups + [sub.name for sub in subaggregates]
        self.piles: dict[tuple[int, int], Pile] = {}
        self.closed = 0  # every window with a smaller id is final
        self.received = 0
        self.late = 0
        self.late_rows = 0
        self.windows_closed = 0
        counts = (sub.name for sub in subaggregates if sub.kind is Kind.COUNT and sub.argument is None)
        self.count_of_rows = next(counts, None)

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Store partials with their range of open windows."""
        if batch.num_rows == 0:
            return iter(())
        self.received += batch.num_rows
        first = batch.column(FIRST_WID).to_numpy()
        end = batch.column(END_WID).to_numpy()
        late = np.clip(np.minimum(end, self.closed) - first, 0, None)
        if late.any():
            self.late += int(late.sum())
            if self.count_of_rows is not None:
                self.late_rows += int(batch.column(self.count_of_rows).to_numpy()[late > 0].sum())
        first = np.maximum(first, self.closed)
        batch = batch.select(self.columns)
        if first[0] == first[-1] and end[0] == end[-1] and (first == first[0]).all() and (end == end[0]).all():
            self._store(int(first[0]), int(end[0]), batch)
            return iter(())
        order = np.lexsort((end, first))  # of this batch alone, to cut it into ranges
        first, end = first[order], end[order]
        cuts = np.flatnonzero((np.diff(first) != 0) | (np.diff(end) != 0)) + 1
        for start, stop in zip([0, *cuts.tolist()], [*cuts.tolist(), len(first)], strict=True):
            # A copy: a slice would keep all of the batch in memory for as long as its slowest window is open.
            self._store(int(first[start]), int(end[start]), batch.take(pa.array(order[start:stop])))
        return iter(())

    def _store(self, first: int, end: int, batch: pa.RecordBatch) -> None:
        if first >= end:
            return  # late for all its windows, and counted
        pile = self.piles.setdefault((first, end), Pile())
        pile.batches.append(batch)
        pile.rows += batch.num_rows
        # What leaves a table at once has each group once, or nearly: merging it alone would gain nothing.
        pile.largest = max(pile.largest, batch.num_rows)
        if pile.rows > 2 * max(pile.merged, pile.largest) + COMPACT_ROWS:
            self._compact(pile)

    def _compact(self, pile: Pile) -> None:
        pile.batches = self._merge(self.groups, pile.batches).to_batches()
        pile.rows = pile.merged = sum(batch.num_rows for batch in pile.batches)

    def _merge(self, groups: list[str], batches: list[pa.RecordBatch]) -> pa.Table:
        merges = [(sub.name, MERGE[sub.kind]) for sub in self.subaggregates]
        table = pa.Table.from_batches(batches)
        merged = table.group_by(groups, use_threads=False).aggregate(merges)
        named = merged.select(groups + [f"{name}_{merge}" for name, merge in merges]).rename_columns(
            groups + [name for name, _ in merges]
        )
        return named.cast(table.schema) if named.schema != table.schema else named

    def punctuate(self, port: int, mark: Punctuation) -> Iterator[Item]:
        """Emit every window with an id below the mark, in order of their ids, then pass the mark on if it has grown."""
        if mark.low <= self.closed:
            return
        for due in _runs(self._due(mark.low)):
            yield self._close(due)
        self.closed = mark.low
        yield mark

    def _due(self, low: int) -> Iterator[tuple[int, list[Pile]]]:
        """Yield the windows below `low` that hold partials, in the order of their ids, each with its piles."""
        waiting = sorted(self.piles.items(), key=lambda entry: entry[0], reverse=True)
        open_piles: list[tuple[int, Pile]] = []  # (end, pile) of the piles whose range holds the window at hand
        wid = self.closed
        while waiting or open_piles:
            if not open_piles:
                wid = max(wid, waiting[-1][0][0])
            while waiting and waiting[-1][0][0] <= wid:
                (_, end), pile = waiting.pop()
                open_piles.append((end, pile))
            open_piles = [(end, pile) for end, pile in open_piles if end > wid]
            if wid >= low:
                return
            if open_piles:
                yield wid, [pile for _, pile in open_piles]
                wid += 1

    def _close(self, due: list[tuple[int, list[Pile]]]) -> pa.RecordBatch:
        """Merge the piles of some windows in one go, the id of the window a grouping column like the others."""
        if len(due) == 1:
            ((wid, piles),) = due
            rows = self._merge(self.groups, [batch for pile in piles for batch in pile.batches])
            merged = rows.add_column(0, WID, pa.repeat(wid, rows.num_rows)).combine_chunks().to_batches()[0]
        else:
            tagged = [
                pa.RecordBatch.from_arrays([pa.repeat(wid, batch.num_rows), *batch.columns], [WID, *self.columns])
                for wid, piles in due
                for pile in piles
                for batch in pile.batches
            ]
            merged = self._merge([WID, *self.groups], tagged).combine_chunks().to_batches()[0]
        self.windows_closed += len(due)
        self.closed = due[-1][0] + 1
        for spent in [key for key in self.piles if key[1] <= self.closed]:
            del self.piles[spent]
        return merged

    def open_windows(self) -> Ranges:
        """The ids of the windows that hold partials and are not final."""
        return unite((max(first, self.closed), end) for first, end in self.piles)

    @property
    def bytes(self) -> int:
        """Bytes of the partials held."""
        return sum(batch.nbytes for pile in self.piles.values() for batch in pile.batches)

    def snapshot(self) -> dict[str, pa.Table]:
        """One compacted table per range of window ids, named `first-end`, and the last id closed."""
        tables = {"closed": pa.table({"closed": [self.closed]})}
        for (first, end), pile in self.piles.items():
            if pile.rows > pile.merged:
                self._compact(pile)
            tables[f"{first}-{end}"] = pa.Table.from_batches(pile.batches)
        return tables

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Take over the piles of a snapshot."""
        for name, table in tables.items():
            if name == "closed":
                self.closed = table["closed"][0].as_py()
                continue
            first, end = (int(number) for number in name.split("-"))
            self.piles[first, end] = Pile(table.to_batches(), table.num_rows, table.num_rows)


def _runs(due: Iterator[tuple[int, list[Pile]]]) -> Iterator[list[tuple[int, list[Pile]]]]:
    """Cut windows to close into runs of up to CLOSE_ROWS partials, a window at least."""
    run: list[tuple[int, list[Pile]]] = []
    rows = 0
    for wid, piles in due:
        size = sum(pile.rows for pile in piles)
        if run and rows + size > CLOSE_ROWS:
            yield run
            run, rows = [], 0
        run.append((wid, piles))
        rows += size
    if run:
        yield run
