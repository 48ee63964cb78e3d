"""Conditions on the distance between the two times of a join. They narrow its window, so that pairs need not be tested.

B.ts - A.ts >= 10 * 1000000000      the distance d = B.ts - A.ts is at least 10 s
A.ts < B.ts                         d is at least 1 ns
B.ts <= A.ts + 60000000000          d is at most 60 s

So for each row only the stored rows in the narrower window are searched, and rows are removed earlier.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from highlevel.joins.window import MAX_RANGE, Band
from lowlevel.expressions.tree import Binary, Column, Expression, Literal
from lowlevel.expressions.types import Op

SWAPPED = {Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE, Op.EQ: Op.EQ}
"""The equivalent comparison after the operands are exchanged. Other comparisons do not limit a distance."""


def narrow(band: Band, conditions: Iterable[Expression], left: str, right: str) -> tuple[Band, list[Expression]]:
    """Narrow `band` by conditions on the times `left` and `right`.

    Return the narrower band and the other conditions.
    """
    least, greatest = band.least, band.greatest
    others = []
    for condition in conditions:
        limits = _limits(condition, left, right)
        if limits is None:
            others.append(condition)
            continue
        low, high = limits
        least = max((limit for limit in (least, low) if limit is not None), default=None)
        greatest = min((limit for limit in (greatest, high) if limit is not None), default=None)
    return replace(band, least=least, greatest=greatest), others


def _limits(condition: Expression, left: str, right: str) -> tuple[int | None, int | None] | None:
    """Return the smallest and the largest `right - left` that a condition allows. Return None for other conditions."""
    if not isinstance(condition, Binary) or condition.op not in SWAPPED:
        return None
    one, other = _linear_form(condition.left), _linear_form(condition.right)
    if one is None or other is None:
        return None
    factors = {name: one[0].get(name, 0) - other[0].get(name, 0) for name in one[0] | other[0]}
    factors = {name: factor for name, factor in factors.items() if factor}
    constant = other[1] - one[1]
    op = condition.op
    if factors == {left: 1, right: -1}:
        constant, op = -constant, SWAPPED[op]
    elif factors != {left: -1, right: 1}:
        return None
    if abs(constant) >= MAX_RANGE:
        return None
    return {
        Op.LT: (None, constant - 1),
        Op.LE: (None, constant),
        Op.EQ: (constant, constant),
        Op.GE: (constant, None),
        Op.GT: (constant + 1, None),
    }[op]


def _linear_form(expression: Expression) -> tuple[dict[str, int], int] | None:
    """Return the factors of the columns in a sum, and the constant. Return None for other expressions."""
    match expression:
        case Literal(value=bool()):
            return None
        case Literal(value=int() as value):
            return {}, value
        case Column(nullable=False):
            return {expression.name: 1}, 0
        case Binary(op=Op.ADD | Op.SUB | Op.MUL):
            one, other = _linear_form(expression.left), _linear_form(expression.right)
            if one is None or other is None:
                return None
            if expression.op is Op.MUL:
                return None if one[0] or other[0] else ({}, one[1] * other[1])
            sign = 1 if expression.op is Op.ADD else -1
            factors = {name: one[0].get(name, 0) + sign * other[0].get(name, 0) for name in one[0] | other[0]}
            return factors, one[1] + sign * other[1]
    return None
