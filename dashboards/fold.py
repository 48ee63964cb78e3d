"""What the groups outside the top may be folded into: decided from the expression that made the column.

`other` must be what the query would have answered, had all folded groups been one group. The rows no longer hold the
sub-aggregates, only values computed from them, so this is possible for some expressions alone:

    count(*), count(x), sum(x)                  values add up
    min(x), max(x)                              the least, the greatest value stands
    -f, f + g, f - g, f * c, f / c (FLOAT)      add up where f and g do, c being a constant (they are linear)
    avg(x), sum(x) / count(*), count(*) + 1, …  no value of the whole follows from the values of its parts
    first(x), last(x), count(DISTINCT x), …     neither: rows hold no times, and not the values of a group
    bit_and(x), bit_or(x), bit_xor(x)           would follow; but Arrow has no such fold

A sum over no value is NULL, not 0. Alone it is skipped; in `f + g` it would hide the other operand, so that both
operands must be free of NULL.
"""

from __future__ import annotations

from collections.abc import Mapping

from lowlevel.expressions import Binary, Column, Expression, Literal, Unary
from lowlevel.finished_aggregates import Present
from lowlevel.operations import Op
from lowlevel.subaggregates import MERGE, Kind
from lowlevel.types import Type

SUM = "sum"
FOLDS = (SUM, "min", "max")
"""Arrow's aggregates that fold."""


def fold_of(expression: Expression, kinds: Mapping[str, Kind]) -> str | None:
    """Name the Arrow aggregate (`sum`, `min`, `max`) that folds values of `expression`; None where nothing can.

    `kinds` are the sub-aggregates of the plan by the name of their column.
    """
    match expression:
        case Column(name=name):
            merge = MERGE[kinds[name]] if name in kinds else None
            return merge if merge in FOLDS else None
        case Present(value=value):
            return fold_of(value, kinds)
        case Unary(op=Op.NEG, operand=operand):
            return SUM if fold_of(operand, kinds) == SUM else None
        case Binary(op=Op.ADD | Op.SUB, left=left, right=right):
            exact = not left.nullable and not right.nullable
            return SUM if exact and fold_of(left, kinds) == fold_of(right, kinds) == SUM else None
        case Binary(op=Op.MUL, left=Literal(value=int() | float()), right=factor):
            return SUM if fold_of(factor, kinds) == SUM else None
        case Binary(op=Op.MUL, left=factor, right=Literal(value=int() | float())):
            return SUM if fold_of(factor, kinds) == SUM else None
        case Binary(op=Op.DIV, left=dividend, right=Literal(value=int() | float() as divisor)) if divisor:
            return SUM if expression.type is Type.FLOAT and fold_of(dividend, kinds) == SUM else None
        case _:
            return None
