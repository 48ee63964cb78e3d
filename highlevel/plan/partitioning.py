"""What rows are dealt to partitions by: expressions over columns, and what is left of them behind a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from highlevel.aggregation import Output
from highlevel.joins.spec import Side
from lowlevel.expressions.tree import Binary, Column, Expression, Literal, columns_of
from lowlevel.expressions.types import INTEGERS, Op, Type

Deal = tuple[Expression, ...]
"""Expressions over a node's columns, by names and types alone: rows with equal values are in one partition, and all
rows where there is no expression. None in place of a deal: no matter how."""


def serves(dealt: Deal, wanted: Deal) -> bool:
    """Whether rows that agree in all of `wanted` are in one partition: they agree in what they are dealt by."""
    return set(dealt) <= set(wanted)


def shown(deal: Deal, outputs: Sequence[Output]) -> Deal | None:
    """Return how rows are dealt as the outputs show it; None where they do not show it."""
    names = dict(zip(bare(out.expression for out in outputs), outputs, strict=True))
    found = [names.get(each) for each in deal]
    if None in found:
        return None
    return tuple(Column(out.name, out.expression.type) for out in found if out is not None)


def hashed_alike(expression: Expression, other: Expression) -> Expression:
    """Return a key so that equal values of it and of the other side's are of one type: an INT beside a FLOAT is one."""
    if expression.type in INTEGERS and other.type is Type.FLOAT:
        return Binary(Op.ADD, expression, Literal(0.0, Type.FLOAT))
    return expression


def kept(deal: Deal, side: Side) -> Deal | None:
    """Return how rows of a join are dealt as its output has them; None where a column does not leave."""
    names = dict(side.columns)
    if any(column.name not in names for each in deal for column in columns_of(each)):
        return None
    return tuple(
        substituted(each, {column.name: Column(names[column.name], column.type) for column in columns_of(each)})
        for each in deal
    )


def bare(expressions: Iterable[Expression]) -> Deal:
    """Return expressions whose columns are told by name and type alone, so that equal ones are equal.

    >>> bare([Column("a", Type.INT, nullable=True)]) == bare([Column("a", Type.INT, bits=8)])
    True
    """
    return tuple(
        substituted(each, {column.name: Column(column.name, column.type) for column in columns_of(each)})
        for each in expressions
    )


def substituted(expression: Expression, by_name: Mapping[str, Expression]) -> Expression:
    """Return an expression with others in place of its columns.

    >>> substituted(Column("a", Type.INT), {"a": Column("b", Type.INT)}).name
    'b'
    """
    if isinstance(expression, Column):
        return by_name[expression.name]
    children: dict[str, Any] = {}
    for field in fields(expression):
        child = getattr(expression, field.name)
        if isinstance(child, Expression):
            children[field.name] = substituted(child, by_name)
        elif isinstance(child, tuple):
            children[field.name] = tuple(
                substituted(each, by_name) if isinstance(each, Expression) else each for each in child
            )
    return replace(expression, **children) if children else expression
