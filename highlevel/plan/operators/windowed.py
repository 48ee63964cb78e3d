"""Windowed: everything that is made of windows, over what any node gives."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from highlevel.aggregation import QueryPlan
from highlevel.operators.landmark import LandmarkAggregate
from highlevel.operators.operator import Operator
from highlevel.operators.partitioned import PartitionedAggregate
from highlevel.operators.session import SessionAggregate
from highlevel.operators.state import restore_to, snapshot_of
from highlevel.operators.tuples import LONG, TupleAggregate
from highlevel.operators.window_operator import WindowOperator, beyond_cap
from highlevel.plan.nodes import Windowed, width_of
from highlevel.plan.operators.operator import GraphItem, Mark, low_of_one, lows_of
from highlevel.plan.operators.row_partials import AsPartials
from highlevel.results.sketched_windows import FoldingWindows
from highlevel.results.stages import behind_windows
from highlevel.slide_by_tuple.operator import SlideByTupleAggregate
from highlevel.sliding.operator import SlidingAggregate
from highlevel.sliding.wid_ranges import Ranges
from highlevel.windows.kind import LandmarkWindow, SessionWindow, SlideByTuple, SlidingWindow, TupleWindow
from lowlevel.punctuation import BEGINNING, END, Item, Punctuation


def make_window_operator(plan: QueryPlan) -> WindowOperator:
    """Make the operator that a plan's window asks for."""
    window, groups, subaggregates = plan.window, plan.grain, plan.low.subaggregates
    match window:
        case SlidingWindow():
            sliding = SlidingAggregate(window, plan.low.pane, groups, subaggregates, plan.emit_late)
            return FoldingWindows(plan, sliding) if plan.foldings else sliding
        case LandmarkWindow():
            return LandmarkAggregate(window, groups, subaggregates)
        case SessionWindow():
            return SessionAggregate(window, groups, subaggregates)
        case SlideByTuple():
            return SlideByTupleAggregate(window, groups, subaggregates)
        case TupleWindow() if window.partitioned or window.range < LONG:
            return PartitionedAggregate(window, plan.partition, groups, subaggregates)
        case TupleWindow():
            return TupleAggregate(window, groups, subaggregates)


class WindowedOperator:
    """Partials, the operator of the windows, and the stages behind it. Promises are of `window_end`, strictly.

    What the windows promise of themselves is that none ends *at* or below; so one more is what no row is below.
    """

    def __init__(self, node: Windowed) -> None:
        """Make the windows of `node`."""
        self.plan = node.plan
        self.partials = (
            None if node.takes_partials else AsPartials(node.input, node.plan.low, node.time, paned=node.plan.windowed)
        )
        self.width = width_of(node.input)
        self.place = node.input.progress.index(node.time) if node.time in node.input.progress else None
        self.windows = make_window_operator(node.plan)
        stages, self.finish = behind_windows(node.plan)
        self.stages: list[Operator] = [self.windows, *stages]

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Take rows, or partials of a leaf."""
        for partials in [batch] if self.partials is None else self.partials.of(batch):
            yield from self._pass_on(0, partials)

    def punctuate(self, port: int, mark: Mark) -> Iterator[GraphItem]:
        """Take a promise as far as it is about the time of the windows: a box is only when the other bound is END."""
        lows = lows_of(mark, self.width)
        if set(lows) == {END}:
            yield from self._pass_on(0, Punctuation(mark.link, END))
        elif self.place is not None and (low := low_of_one(lows, self.place)) != BEGINNING:
            yield from self._pass_on(0, Punctuation(mark.link, low))

    def _pass_on(self, stage: int, item: Item) -> Iterator[Item]:
        if stage == len(self.stages):
            yield from self._promised(item) if isinstance(item, Punctuation) else [item]
            return
        operator = self.stages[stage]
        items = operator.punctuate(0, item) if isinstance(item, Punctuation) else operator.rows(0, item)
        for following in items:
            yield from self._pass_on(stage + 1, following)

    def _promised(self, mark: Punctuation) -> Iterator[Item]:
        if mark.low == END:
            yield mark
        elif self.plan.windowed:
            yield Punctuation(mark.link, mark.low + 1)

    @property
    def received(self) -> int:
        """Rows or partials that came."""
        return self.windows.received if self.partials is None else self.partials.received

    @property
    def results(self) -> int:
        """Rows that left, after HAVING."""
        return self.finish.results

    @property
    def late(self) -> int:
        """Times a row or partial was left out of a window because that was final."""
        return self.windows.late

    @property
    def late_rows(self) -> int:
        """Rows behind such, each once, where a sub-aggregate counts rows."""
        return self.windows.late_rows

    @property
    def outside(self) -> int:
        """Rows or partials that are in no window, those without a time among them."""
        return self.windows.outside + (0 if self.partials is None else self.partials.outside)

    @property
    def beyond_cap(self) -> tuple[int, int]:
        """Partials of groups that are not kept, and rows behind them."""
        return beyond_cap(self.windows)

    @property
    def bytes(self) -> int:
        """Bytes of the state held."""
        return self.windows.bytes

    def open_windows(self) -> Ranges | int:
        """Windows that hold rows and are not final."""
        return self.windows.open_windows()

    def take_closed(self) -> Ranges | int:
        """Windows with rows that became final since this was last asked."""
        return self.windows.take_closed()

    def snapshot(self) -> dict[str, pa.Table]:
        """State of the windows and the stages."""
        return snapshot_of(self.stages)

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Take over the state of all of them."""
        restore_to(self.stages, tables)
