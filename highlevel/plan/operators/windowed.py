"""Windowed: groups of windows of any kind over any node, and the steps from window groups to results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from highlevel.aggregation import Aggregation
from highlevel.operators.state import restore_to, snapshot_of
from highlevel.operators.window_operator import WindowOperator, beyond_cap
from highlevel.plan.nodes import Windowed, bound_count
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, bounds_of, single_bound
from highlevel.plan.operators.row_partials import RowPartials
from highlevel.results.stages import make_stages
from highlevel.sliding.aggregate import SlidingAggregate
from highlevel.windows.kind import (
    LandmarkWindow,
    LifetimeWindow,
    SessionWindow,
    SlideByTuple,
    SlidingWindow,
    TupleWindow,
)
from lowlevel.integer_ranges import Ranges
from lowlevel.punctuation import BEGINNING, END, Item, Punctuation


def make_window_operator(aggregation: Aggregation, *, is_finite: bool = False) -> WindowOperator:
    """Make the operator of windows. `is_finite`: all rows arrive before the first watermark."""
    window, groups, subaggregates = aggregation.window, aggregation.merge_columns, aggregation.low.subaggregates
    # A query has one kind of windows, so the operators and kernels of the other kinds are not imported.
    match window:
        case SlidingWindow() if aggregation.foldings:
            from highlevel.results.sketched_windows import FoldingWindows

            return FoldingWindows(aggregation, _make_sliding(aggregation, window))
        case SlidingWindow() if is_finite:
            from highlevel.operators.finite import FiniteWindows

            return FiniteWindows(aggregation, window)
        case SlidingWindow():
            return _make_sliding(aggregation, window)
        case LandmarkWindow():
            from highlevel.operators.landmark import LandmarkAggregate

            return LandmarkAggregate(window, groups, subaggregates)
        case SessionWindow():
            from highlevel.operators.session import SessionAggregate

            return SessionAggregate(window, groups, subaggregates)
        case SlideByTuple():
            from highlevel.slide_by_tuple.operator import SlideByTupleAggregate

            return SlideByTupleAggregate(window, groups, subaggregates)
        case TupleWindow():
            from highlevel.operators.partitioned import PartitionedAggregate
            from highlevel.operators.row_number_windows import MIN_LONG_RANGE, TupleAggregate

            if window.partitioned or window.range < MIN_LONG_RANGE:
                return PartitionedAggregate(window, aggregation.partition, groups, subaggregates)
            return TupleAggregate(window, groups, subaggregates)
        case LifetimeWindow():
            raise TypeError("got windows over lifetimes, expected the node Snapshots for them")


def _make_sliding(aggregation: Aggregation, window: SlidingWindow) -> SlidingAggregate:
    low = aggregation.low
    return SlidingAggregate(window, low.pane, aggregation.merge_columns, low.subaggregates, aggregation.emit_late)


class WindowCounters:
    """The counters of a window operator: those of the windows, and those of the conversion of rows to partials."""

    windows: Any
    _partials: RowPartials | None

    @property
    def received(self) -> int:
        """Rows or partials received."""
        return self.windows.received if self._partials is None else self._partials.received

    @property
    def late(self) -> int:
        """Number of times that a row or partial missed a window because the window was final."""
        return self.windows.late

    @property
    def late_rows(self) -> int:
        """Rows of the partials in `late`, each once, if a sub-aggregate counts rows."""
        return self.windows.late_rows

    @property
    def outside(self) -> int:
        """Rows or partials that are in no window, including rows without a time."""
        return self.windows.outside + (0 if self._partials is None else self._partials.outside)

    @property
    def bytes(self) -> int:
        """Bytes of the state."""
        return self.windows.bytes

    def open_windows(self) -> Ranges | int:
        """Windows that contain rows and are not final: their ids or their number."""
        return self.windows.open_windows()

    def take_closed_windows(self) -> Ranges | int:
        """Return the windows with rows that became final since the last call: their ids or their number."""
        return self.windows.take_closed_windows()


class WindowedOperator(WindowCounters):
    """Converts rows to partials, groups the partials in windows, and runs the later steps (HAVING, the select list).

    A watermark t of a window operator means that no later window ends at t or before. A watermark t of a node means
    that no later row has a time below t. So the watermark of this operator is larger by 1.
    """

    def __init__(self, node: Windowed, *, is_finite: bool = False) -> None:
        """Make the windows of `node`; `is_finite` if all rows arrive before the first watermark."""
        low = node.aggregation.low
        self._windowed = node.aggregation.windowed
        self._partials = (
            None if node.merges_partials else RowPartials(node.input, low, node.time, has_panes=self._windowed)
        )
        self._bound_count = bound_count(node.input)
        time_columns = node.input.time_columns
        self._time = time_columns.index(node.time) if node.time in time_columns else None
        self.windows: WindowOperator = make_window_operator(
            node.aggregation, is_finite=is_finite and node.merges_partials
        )
        self._steps, self.finish = make_stages(node.aggregation)

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Process rows, or partials of a leaf. Only late rows have results at once."""
        for partials in (batch,) if self._partials is None else self._partials.compute(batch):
            for item in self.windows.process_rows(0, partials):
                yield from self._run_steps(0, item)

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Process a watermark of the windows' time. A joint watermark is used only if its other bound is END."""
        if self._bound_count > 1 or not isinstance(punctuation, Punctuation):
            bounds = bounds_of(punctuation, self._bound_count)
            ended = set(bounds) == {END}
            low = END if ended else BEGINNING if self._time is None else single_bound(bounds, self._time)
            punctuation = Punctuation(punctuation.link, low)
        if punctuation.watermark == END or (self._time is not None and punctuation.watermark != BEGINNING):
            for item in self.windows.punctuate(0, punctuation):
                yield from self._run_steps(0, item)

    def _run_steps(self, step: int, item: Item) -> Iterator[Item]:
        """Process an item of the windows with the steps from `step` on."""
        if step < len(self._steps):
            operator = self._steps[step]
            items = operator.punctuate(0, item) if isinstance(item, Punctuation) else operator.process_rows(0, item)
            for following in items:
                yield from self._run_steps(step + 1, following)
        elif not isinstance(item, Punctuation) or item.watermark == END:
            yield item
        elif self._windowed:
            yield Punctuation(item.link, item.watermark + 1)

    @property
    def results(self) -> int:
        """Rows returned, after HAVING."""
        return self.finish.results

    @property
    def overflowed_sums(self) -> int:
        """Sums in results that are NULL, because they exceed 64 bits."""
        return self.finish.overflowed_sums

    @property
    def beyond_cap(self) -> tuple[int, int]:
        """Number of partials of groups that are not stored, and number of their rows."""
        return beyond_cap(self.windows)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the state of the windows and the steps."""
        return snapshot_of([self.windows, *self._steps])

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of the windows and the steps."""
        restore_to([self.windows, *self._steps], tables)
