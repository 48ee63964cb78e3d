"""TimeGroups: groups whose key contains time columns, exact or rounded to intervals; the query needs no window.

A group with key `k` for a time column with intervals of length n contains the rows whose time is in `[k·n, (k+1)·n)`.
The watermark `t` covers this group if `k < t // n`: then no later row belongs to the group, so it is final. A group by
both times of a join is final when a joint watermark covers it (Li 2008, §7.2). All final groups with equal times are
returned in one batch, so that conditions such as `top()` can compare them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from highlevel.groups.merging import list_merge_rules
from highlevel.groups.table import GroupTable, batch_of
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.plan.nodes import TimeGroups, bound_count
from highlevel.plan.operators.operator import (
    AnyPunctuation,
    Bounds,
    GraphItem,
    Times,
    bounds_of,
    make_punctuation,
    mask_covered,
    single_bound,
    times_of,
)
from highlevel.plan.operators.row_partials import RowPartials
from highlevel.results.sketched_windows import FoldedPane
from highlevel.results.stages import make_stages, run_stages
from lowlevel.punctuation import BEGINNING, END

GROUPS, WATERMARKS = "groups", "lows"
"""Tables of a snapshot: the groups that are not final, and the watermark as interval numbers."""

FINAL_SHARE = 4
"""Final groups are deleted when they are 1/FINAL_SHARE of all groups."""


class TimeGroupsOperator:
    """Merges rows by group. A row of a final group is late: it is dropped and counted.

    A group with NULL as a time is final when the watermark of this time column is END.
    """

    def __init__(self, node: TimeGroups) -> None:
        """Prepare an empty table of groups for `node`."""
        self.aggregation = node.aggregation
        self._partials = RowPartials(node.input, node.aggregation.low, node.times[0][0], has_panes=False)
        by_column = {column: (length, name) for column, length, name in node.times}
        self.intervals = [by_column.get(column, (1, None)) for column in node.input.time_columns]
        self._output_times = [node.input.time_columns.index(column) for column, _, _ in node.times]
        self._has_watermarks = bool(node.time_columns)
        self.bound_count = bound_count(node.input)
        self._merge_rules = list_merge_rules(node.aggregation.low.subaggregates)
        self.watermark: Bounds = (BEGINNING,) * self.bound_count
        self.stages, self.finish = make_stages(node.aggregation)
        self.late = 0
        self._clear()

    def _clear(self) -> None:
        self._table = GroupTable(self.aggregation.low.schema, self.aggregation.partial_columns, self._merge_rules)
        self._times: list[Times | None] = [
            None if name is None else np.empty(0, np.int64) for _, name in self.intervals
        ]
        self._is_final = np.empty(0, np.bool_)

    @property
    def received(self) -> int:
        """Rows received."""
        return self._partials.received

    @property
    def overflowed_sums(self) -> int:
        """Sums in results that are NULL, because they exceed 64 bits."""
        return self.finish.overflowed_sums

    @property
    def results(self) -> int:
        """Groups returned, after HAVING."""
        return self.finish.results

    @property
    def rows_held(self) -> int:
        """Groups that are not final."""
        return int(np.count_nonzero(~self._is_final))

    @property
    def bytes(self) -> int:
        """Bytes of the groups."""
        return (
            self._table.bytes + self._is_final.nbytes + sum(times.nbytes for times in self._times if times is not None)
        )

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Merge rows into their groups."""
        for partials in self._partials.compute(batch):
            self._merge(partials)
        return iter(())

    def _merge(self, partials: pa.RecordBatch) -> None:
        times = self._times_in(partials)
        late = np.broadcast_to(mask_covered(times, self.watermark), partials.num_rows)
        if late.any():
            self.late += int(np.count_nonzero(late))
            partials = partials.filter(pa.array(~late))
            times = self._times_in(partials)
        old_count = self._table.count
        ids = self._table.merge(partials)
        seen, firsts = np.unique(ids, return_index=True)
        firsts = firsts[seen >= old_count]  # the new groups, in the order of their ids
        self._times = [
            None if before is None or added is None else np.append(before, added[firsts])
            for before, added in zip(self._times, times, strict=True)
        ]
        self._is_final = np.append(self._is_final, np.zeros(len(firsts), np.bool_))

    def _times_in(self, partials: pa.RecordBatch) -> list[Times | None]:
        return [None if name is None else times_of(partials.column(name)) for _, name in self.intervals]

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Return the groups that the watermark covers, then the watermark of the interval numbers."""
        bounds = bounds_of(punctuation, self.bound_count)
        numbers = tuple(
            low if low in (BEGINNING, END) else low // length
            for low, (length, _) in zip(bounds, self.intervals, strict=True)
        )
        old_watermark = self.watermark
        self.watermark = tuple(map(max, old_watermark, numbers))
        if self.watermark == old_watermark:
            return
        final = ~self._is_final & mask_covered(self._times, self.watermark)
        if final.any():
            ids = np.flatnonzero(final)
            yield from run_stages(self.stages, self._add_window_bounds(ids))
            self._is_final |= final
            self._delete_final_groups()
        bounds = self._output_watermark(self.watermark)
        if BEGINNING not in bounds and bounds != self._output_watermark(old_watermark):
            yield make_punctuation(punctuation.link, bounds)

    def _output_watermark(self, bounds: Bounds) -> Bounds:
        """Return the watermark of the interval numbers in the output."""
        if set(bounds) == {END}:
            return (END,) * max(1, len(self._output_times) if self._has_watermarks else 1)
        if not self._has_watermarks:
            return (BEGINNING,)
        if len(self._output_times) == 1:
            return (single_bound(bounds, self._output_times[0]),)
        return tuple(bounds[position] for position in self._output_times)

    def _groups(self, ids: np.ndarray) -> pa.RecordBatch:
        table = self._table
        return batch_of(table.schema, [*table.keys.columns(ids), *table.layer.columns(ids, table.count)])

    def _add_window_bounds(self, ids: np.ndarray) -> pa.RecordBatch:
        """Return groups as rows of final windows, with one window for each of their times."""
        groups = self._groups(ids)
        if self.aggregation.foldings:  # values are stored until the group is final: such groups are small
            made = {folding.column for folding in self.aggregation.foldings}
            names = [name for name in self.aggregation.merge_columns if name not in made]
            folded = FoldedPane(groups.schema, names, self._merge_rules, self.aggregation.foldings)
            folded.add(groups)
            groups = folded.to_arrow(0)
        times = [pa.array(times_of(groups.column(name))) for _, name in self.intervals if name is not None]
        names = [WINDOW_START, WINDOW_END, *groups.schema.names]
        return pa.RecordBatch.from_arrays([times[0], times[-1], *groups.columns], names=names)

    def _delete_final_groups(self) -> None:
        """Delete final groups from the table if there are many."""
        if self._is_final.all():
            self._clear()
            return
        if np.count_nonzero(self._is_final) * FINAL_SHARE < len(self._is_final):
            return
        kept = np.flatnonzero(~self._is_final)
        self._table.keys = self._table.keys.copy_of(kept)
        self._table.layer.keep(kept)
        self._times = [None if times is None else times[kept] for times in self._times]
        self._is_final = np.zeros(len(kept), np.bool_)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the groups that are not final, and the watermark."""
        groups = self._groups(np.flatnonzero(~self._is_final))
        return {GROUPS: pa.Table.from_batches([groups]), WATERMARKS: pa.table({WATERMARKS: list(self.watermark)})}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the groups and the watermark."""
        for batch in tables[GROUPS].to_batches():
            if batch.num_rows:
                self._merge(batch)
        self.watermark = tuple(tables[WATERMARKS][WATERMARKS].to_pylist())
