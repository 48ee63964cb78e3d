"""Texts that a query computes from values, as keys of groups. Groups by such a text are often groups by its values.

`10.0.0.1 -> 10.0.0.2`, made of two addresses, is an example: a table stores the addresses, and the text is made once
for each group of the result.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from lowlevel.expressions.tree import (
    Call,
    Conditional,
    Expression,
    InPrefix,
    JoinedText,
    Literal,
    ScalarCall,
    TextOf,
)
from lowlevel.expressions.types import BYTE_TEXT_FUNCTIONS, Scalar, Type


def find_computed_text(expression: Expression) -> Expression | None:
    """Return the part of a text that an expression computes from values; None if there is none.

    Such texts have other IDs in each batch.
    """
    match expression:
        case Call(function=function) if function in BYTE_TEXT_FUNCTIONS:
            return expression
        case TextOf() | JoinedText():
            return expression
        case ScalarCall(operand=operand) if operand.type is Type.TEXT:
            return find_computed_text(operand)
        case Conditional(value=value, otherwise=otherwise) if expression.type is Type.TEXT:
            return find_computed_text(value) or find_computed_text(otherwise)
    return None


SEPARATING = re.compile(r"[^0-9A-Za-z.:+/-]")
"""A character that no text of a number, an address, a MAC or a time contains."""


def spelled_values(expression: Expression) -> tuple[Expression, ...] | None:
    """Return the values of which a text is made, if different values always have different texts; otherwise None.

    Groups by such a text are the same as groups by its values, and the values of a group determine its text. A text is
    NULL if one value is NULL, so only one value may be NULL, or both values of a pair.
    """
    match expression:
        case Conditional(InPrefix(tested), value, otherwise) if expression.type is Type.TEXT:
            of_value = spelled_values(value)
            return of_value if of_value == spelled_values(otherwise) == (tested,) else None
    parts = _text_parts(expression)
    if parts is None:
        return None
    values, constant = list[Expression](), " "
    for part in parts:
        if isinstance(part, str):
            constant += part
            continue
        if not SEPARATING.search(constant) or part.type not in (Type.INT, Type.ADDRESS, Type.MAC, Type.TIME):
            return None
        values.append(part)
        constant = ""
    if len(values) > 1 and any(value.nullable for value in values) and not _are_null_together(values):
        return None
    return tuple(values) or None


def _text_parts(expression: Expression) -> tuple[Expression | str, ...] | None:
    """Return the values and constants of a text in their order; None if it is made in another way."""
    match expression:
        case TextOf(operand):
            return (operand,)
        case Literal(value=str(text)):
            return (text,)
        case ScalarCall(Scalar.CONCAT, operand, None, (Literal(value=str(before)), Literal(value=str(after)))):
            parts = _text_parts(operand)
            return None if parts is None else (before, *parts, after)
        case JoinedText(left, right):
            one, other = _text_parts(left), _text_parts(right)
            return None if one is None or other is None else one + other
    return None


def _are_null_together(values: Sequence[Expression]) -> bool:
    """Return whether two conditionals have the same conditions, so that they are NULL in the same rows."""
    match values:
        case [Conditional(one, _, Conditional(rest, _, Literal(value=None))), Conditional(other, _, again)]:
            return one == other and isinstance(again, Conditional) and again.condition == rest
    return False
