"""The rows of windows, computed from merge buffers by the cheapest method."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture.arrow_compute import array_of
from capture.lazy_dataclasses import dataclass
from highlevel.groups.merging import INVERTIBLE, MergeFunction, list_merge_rules
from highlevel.groups.running_totals import Key, RunningTotals
from highlevel.groups.table import join_batches, merge_batches
from highlevel.groups.two_stacks import TwoStacks
from highlevel.sliding.open_partials import WID, MergeBuffers, sort_runs, window_ids_of
from lowlevel.expressions.types import Type
from lowlevel.subaggregates import MERGE, SubAggregate

# Costs that determine how the next window is computed.
#
# The unit of cost is the merge of one row. A merge of P buffers with R rows costs `R + P * BUFFER_COST`. Totals cost
# `TOTALS_COST` per window, and up to `3 * R / P`: a buffer is merged once when it is added to the totals, and once or
# twice before it is removed. So a merge is cheaper for tumbling windows and for small windows of few panes.


BUFFER_COST = 200
"""Cost of one merge buffer of a window in addition to its rows: a batch takes some µs of Python."""

TOTALS_COST = 8_000
"""Cost of a window from totals in addition to its rows: some kernel calls, and a batch of results."""


class Strategy(StrEnum):
    """Methods to compute a window from its merge buffers."""

    MERGE = "each window is merged from its panes"
    RUNNING_TOTALS = "running totals: panes that come in are added, panes that go out subtracted"
    TWO_STACKS = "two stacks of panes: the older panes are merged in advance"


def incremental_strategy(subaggregates: Sequence[SubAggregate]) -> Strategy:
    """Return the strategy for windows of many panes: two stacks if a merge cannot be reversed exactly."""
    are_invertible = all(MergeFunction(MERGE[sub.kind]) in INVERTIBLE and sub.type is Type.INT for sub in subaggregates)
    return Strategy.RUNNING_TOTALS if are_invertible else Strategy.TWO_STACKS


def strategy_of(subaggregates: Sequence[SubAggregate], buffers: int, rows: int) -> Strategy:
    """Return the cheapest strategy for windows of `buffers` merge buffers with `rows` rows together.

    >>> from lowlevel.subaggregates import Kind
    >>> count, least = SubAggregate("packets", Kind.COUNT), SubAggregate("least", Kind.MIN)
    >>> [strategy_of([count], buffers, 100_000).name for buffers in (1, 60)]
    ['MERGE', 'RUNNING_TOTALS']
    >>> strategy_of([count, least], 60, 100_000).name
    'TWO_STACKS'
    """
    if rows + buffers * BUFFER_COST <= TOTALS_COST + 3 * rows // max(1, buffers):
        return Strategy.MERGE
    return incremental_strategy(subaggregates)


CLOSE_ROWS = 65_536
"""Number of rows of small windows that are merged, or emitted, in one batch. A batch costs the same as some thousands
of rows."""

MIN_SEPARATE_ROWS = 4096
"""Minimum number of rows of a single merge buffer that is merged separately."""


class WindowRows:
    """Computes windows in order, and stores the totals of long windows for the next window.

    Totals are not part of snapshots, because they can be computed from the merge buffers after a restart.
    """

    def __init__(self, groups: Sequence[str], subaggregates: Sequence[SubAggregate]) -> None:
        """Merge by `groups`."""
        self.groups = list(groups)
        self.subaggregates = list(subaggregates)
        self.merge_rules = list_merge_rules(subaggregates)
        self.strategy = Strategy.MERGE
        """The strategy of the last window."""
        self.totals: RunningTotals | TwoStacks | None = None
        self._last: pa.RecordBatch | None = None  # rows of the last window, if the next window may be equal

    @property
    def bytes(self) -> int:
        """Bytes of the totals."""
        return 0 if self.totals is None else self.totals.bytes

    def make(self, buffers: MergeBuffers, first: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the windows `[first, end)` in the order of their IDs, several small windows per batch."""
        run: list[Window] = []
        size = 0
        for wid, reached in buffers.windows(first, end):
            self.strategy = strategy_of(self.subaggregates, buffers.current_count, buffers.current_rows)
            if self.strategy is Strategy.MERGE:
                self.totals = self._last = None
                window = self._merge_buffers(wid, buffers)
            else:
                window = Window(wid, [self._update_totals(wid, reached, buffers)], True)
            if run and (window.is_merged != run[0].is_merged or size + window.rows > CLOSE_ROWS):
                yield self._rows(run)
                run, size = [], 0
            run.append(window)
            size += window.rows
        if run:
            yield self._rows(run)

    def make_with_scattered(
        self, scattered: Sequence[pa.RecordBatch], buffers: MergeBuffers, first: int, end: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the windows `[first, end)`, from scattered partials and from merge buffers."""
        self.totals = self._last = None
        self.strategy = Strategy.MERGE
        batches = [*scattered]
        for wid, _ in buffers.windows(first, end):
            for key in buffers.current:
                batches += [with_ids(np.full(batch.num_rows, wid), batch) for batch in buffers.buffers[key].batches()]
        rows = sort_runs(batches)
        ids = window_ids_of(rows)
        start = 0
        while start < len(ids):
            # A batch contains whole windows: it also contains the other rows of its last window.
            stop = int(np.searchsorted(ids, ids[min(start + CLOSE_ROWS, len(ids)) - 1], side="right"))
            yield merge_batches([rows.slice(start, stop - start)], [WID, *self.groups], self.merge_rules)
            start = stop

    def remove_before(self, wid: int, buffers: MergeBuffers) -> None:
        """Remove the merge buffers and totals of windows before `wid`."""
        buffers.remove_before(wid)
        if buffers.current_count == 0:
            self.totals = self._last = None
        elif self.totals is not None and self.totals.remove_before(wid):
            self._last = None

    def _merge_buffers(self, wid: int, buffers: MergeBuffers) -> Window:
        """Return the rows of a window from its merge buffers. A large single buffer is merged here."""
        current = [buffers.buffers[key] for key in buffers.current]
        if len(current) == 1 and buffers.current_rows >= MIN_SEPARATE_ROWS:
            return Window(wid, current[0].merged_batches(), True)
        return Window(wid, [batch for buffer in current for batch in buffer.batches()], False)

    def _update_totals(self, wid: int, new_keys: list[Key], buffers: MergeBuffers) -> pa.RecordBatch:
        """Update the totals for a window, and return its rows."""
        has_changed = self.totals is None or self.totals.remove_before(wid) or bool(new_keys)
        if self.totals is None:
            new_keys = sorted(buffers.current)
            schema = buffers.buffers[new_keys[0]].merged_batches()[0].schema
            kind = RunningTotals if self.strategy is Strategy.RUNNING_TOTALS else TwoStacks
            self.totals = kind(schema, self.groups, self.merge_rules)
        for key in new_keys:
            self.totals.add(key, join_batches(buffers.buffers[key].merged_batches()))
        if has_changed or self._last is None:
            self._last = self.totals.rows()
        return self._last

    def _rows(self, run: list[Window]) -> pa.RecordBatch:
        """Return the rows of windows, of which either all or none are already merged."""
        batches = [batch for window in run for batch in window.batches]
        if len(run) == 1:
            rows = join_batches(batches) if run[0].is_merged else merge_batches(batches, self.groups, self.merge_rules)
            return with_ids(np.full(rows.num_rows, run[0].wid), rows)
        ids = np.repeat([window.wid for window in run], [window.rows for window in run])
        rows = with_ids(ids, join_batches(batches))
        return rows if run[0].is_merged else merge_batches([rows], [WID, *self.groups], self.merge_rules)


@dataclass(frozen=True)
class Window:
    """A window to be emitted. `is_merged`: each group has one row."""

    wid: int
    batches: list[pa.RecordBatch]
    is_merged: bool

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(batch.num_rows for batch in self.batches)


def with_ids(ids: npt.NDArray[np.int64], rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with an additional first column of window IDs."""
    return pa.RecordBatch.from_arrays([array_of(ids), *rows.columns], [WID, *rows.schema.names])
