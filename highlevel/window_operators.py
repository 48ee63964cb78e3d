"""The operator of each kind of window."""

from __future__ import annotations

from highlevel.folding_windows import FoldingWindows
from highlevel.landmark_aggregate import LandmarkAggregate
from highlevel.partitioned_aggregate import PartitionedAggregate
from highlevel.plan import QueryPlan
from highlevel.session_aggregate import SessionAggregate
from highlevel.slide_by_tuple.operator import SlideByTupleAggregate
from highlevel.sliding_aggregate import SlidingAggregate
from highlevel.tuple_aggregate import LONG, TupleAggregate
from highlevel.window_operator import WindowOperator
from highlevel.windows.landmark import LandmarkWindow
from highlevel.windows.session import SessionWindow
from highlevel.windows.slide_by_tuple import SlideByTuple
from highlevel.windows.sliding import SlidingWindow
from highlevel.windows.tuples import TupleWindow


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
