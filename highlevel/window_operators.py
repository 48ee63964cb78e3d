"""The operator of each kind of window."""

from __future__ import annotations

from highlevel.operators.landmark import LandmarkAggregate
from highlevel.operators.partitioned import PartitionedAggregate
from highlevel.operators.session import SessionAggregate
from highlevel.operators.tuples import LONG, TupleAggregate
from highlevel.operators.window_operator import WindowOperator
from highlevel.plan import QueryPlan
from highlevel.results.sketched_windows import FoldingWindows
from highlevel.slide_by_tuple.operator import SlideByTupleAggregate
from highlevel.sliding.operator import SlidingAggregate
from highlevel.windows.kind import LandmarkWindow, SessionWindow, SlideByTuple, SlidingWindow, TupleWindow


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
