"""State of operators: number of rows and partials, bytes, and late rows."""

from __future__ import annotations

from highlevel.baselines.buffering import BufferingAggregate
from highlevel.baselines.slack import SlackAggregate
from highlevel.compare.ordered import CompositeOperator
from highlevel.plan.operators.windowed import WindowedOperator
from highlevel.sliding.aggregate import Aggregate
from highlevel.sliding.operator import SlidingAggregate


def held(operator: object) -> int:
    """Return the number of stored rows or partials of an operator."""
    match operator:
        case Aggregate():
            return operator.rows_held
        case BufferingAggregate():
            return operator.tuples
        case SlackAggregate() | SlidingAggregate():
            return held(operator.aggregate)
        case WindowedOperator():
            return held(operator.windows)
        case CompositeOperator():
            return sum(map(held, operator.parts))
    return int(getattr(operator, "rows_held", 0))


def held_bytes(operator: object) -> int:
    """Count the bytes of the state of an operator."""
    match operator:
        case SlackAggregate():
            return operator.aggregate.bytes
        case CompositeOperator():
            return sum(map(held_bytes, operator.parts))
    return int(getattr(operator, "bytes", 0))


def late(operator: object) -> int:
    """Return the number of rows that an operator left out of (a part of) its answer because they were late."""
    match operator:
        case BufferingAggregate():
            return operator.disordered
        case WindowedOperator():
            return operator.late_rows
        case CompositeOperator():
            return sum(map(late, operator.parts))
    return int(getattr(operator, "late", 0))
