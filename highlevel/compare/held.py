"""What operators hold: rows and partials, bytes, and rows that came too late for them."""

from __future__ import annotations

from highlevel.baselines.buffering import BufferingAggregate
from highlevel.baselines.slack import SlackAggregate
from highlevel.compare.ordered import OfParts
from highlevel.plan.operators.windowed import WindowedOperator
from highlevel.sliding.aggregate import Aggregate
from highlevel.sliding.operator import SlidingAggregate


def held(operator: object) -> int:
    """Count what an operator holds: rows, or partials."""
    match operator:
        case Aggregate():
            return operator.rows_held
        case BufferingAggregate():
            return operator.tuples
        case SlackAggregate() | SlidingAggregate():
            return held(operator.aggregate)
        case WindowedOperator():
            return held(operator.windows)
        case OfParts():
            return sum(map(held, operator.parts))
    return int(getattr(operator, "rows_held", 0))


def held_bytes(operator: object) -> int:
    """Count the bytes of the state of an operator."""
    match operator:
        case SlackAggregate():
            return operator.aggregate.bytes
        case OfParts():
            return sum(map(held_bytes, operator.parts))
    return int(getattr(operator, "bytes", 0))


def late(operator: object) -> int:
    """Count the rows that an operator left out, of its answer or of a part of that, since they came too late."""
    match operator:
        case BufferingAggregate():
            return operator.disordered
        case WindowedOperator():
            return operator.late_rows
        case OfParts():
            return sum(map(late, operator.parts))
    return int(getattr(operator, "late", 0))
