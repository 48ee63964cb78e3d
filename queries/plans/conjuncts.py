"""Parts of conditions: operands of AND and OR, equalities between two tables, and conditions that follow from an OR.

(S.flag = 2 AND A.flag = 18) OR (S.flag = 18 AND A.flag = 2)      a condition of a join
S.flag = 2 OR S.flag = 18                                         follows for S, so the low level drops other rows
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from lowlevel.expressions.tree import Binary, Expression, columns_of
from lowlevel.expressions.types import Op, same_values
from queries.plans.relations import conjunction


def conjuncts(expression: Expression) -> Iterator[Expression]:
    """Yield the operands of AND, from left to right."""
    if isinstance(expression, Binary) and expression.op is Op.AND:
        yield from conjuncts(expression.left)
        yield from conjuncts(expression.right)
    else:
        yield expression


def disjuncts(expression: Expression) -> Iterator[Expression]:
    """Yield the operands of OR, from left to right."""
    if isinstance(expression, Binary) and expression.op is Op.OR:
        yield from disjuncts(expression.left)
        yield from disjuncts(expression.right)
    else:
        yield expression


def implied_condition(expression: Expression, names: Collection[str]) -> Expression | None:
    """Return the condition that follows from an OR and reads only the columns `names`; None if nothing follows.

    The result is an OR of those parts of the operands that contain only these columns. If an operand has no such part,
    nothing follows.
    """
    parts = list(disjuncts(expression))
    if len(parts) < 2:
        return None
    whole: Expression | None = None
    for part in parts:
        about = [each for each in conjuncts(part) if (known := _names(each)) and known <= set(names)]
        said = conjunction(about)
        if said is None:
            return None
        whole = said if whole is None else Binary(Op.OR, whole, said)
    return whole


def equality_sides(
    expression: Expression, left: Collection[str], right: Collection[str]
) -> tuple[Expression, Expression] | None:
    """Return the two sides of an equality between columns of `left` and of `right`; None if there is no such equality.

    Both sides have the same type, or one is an integer and the other a time.
    """
    if not isinstance(expression, Binary) or expression.op is not Op.EQ:
        return None
    if not same_values(expression.left.type, expression.right.type):
        return None
    for one, other in ((expression.left, expression.right), (expression.right, expression.left)):
        of_one, of_other = _names(one), _names(other)
        if of_one and of_other and of_one <= set(left) and of_other <= set(right):
            return one, other
    return None


def _names(expression: Expression) -> set[str]:
    return {column.name for column in columns_of(expression)}
