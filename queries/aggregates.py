"""The aggregates of one query, split between the levels by the table in `lowlevel.subaggregates`.

While select list and HAVING are bound, a column named after an aggregate stands for it (`sum(len)`, a name no input
has); `finished` says what the high level computes in its place from the merged sub-aggregates.

Of rows that are spread over panes, sums of counters take the shares of each pane, and everything else takes a row once,
where it ends; so does the count that a mean divides by.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from lowlevel.expressions.tree import (
    SHARE,
    AtEnd,
    Binary,
    Column,
    Expression,
    Literal,
    Mean,
    Present,
    Unary,
    Variance,
    columns_of,
)
from lowlevel.expressions.types import INTEGERS, Op, Type
from lowlevel.subaggregates import TIME_OF, Kind, SubAggregate
from lowlevel.table.spread import is_counter
from queries.details import Details
from queries.expression_text import expression_text
from queries.selections import Selections
from queries.user_aggregates import UserColumns

VARIANCES: dict[str, tuple[bool, bool]] = {
    "variance": (True, False),
    "var_samp": (True, False),
    "var_pop": (False, False),
    "stddev": (True, True),
    "stddev_samp": (True, True),
    "stddev_pop": (False, True),
}
"""Variances by their SQL names: whether of a sample, and whether its square root. Plain names are of a sample."""

LARGE_TIME = 10**17
"""Nanoseconds of three years: a time less a constant of that size is a difference of times."""

INTEGERS_ALONE = ("bit_and", "bit_or", "bit_xor")
"""Aggregates of integers."""

BOUNDED = ("count", "sum", "min", "max", "avg", *VARIANCES, *INTEGERS_ALONE, "first", "last")
"""Aggregates with parts of a fixed size."""


class Aggregates:
    """Collects aggregates as they are bound; equal ones, and equal words of different ones, are kept once."""

    def __init__(self, spread: bool) -> None:
        """Collect aggregates over rows, which may be spread over panes."""
        self._spread = spread
        self._words: dict[tuple[Kind, Expression | None], SubAggregate] = {}
        self.finished: dict[str, Expression] = {}
        """Expression over sub-aggregates by the name of the column that stands for the aggregate."""
        self.details = Details(self.finished)
        self.selections = Selections(self.finished)
        self.user_columns = UserColumns(self.finished)

    def add(self, function: str, argument: Expression | None) -> Column:
        """Take one of BOUNDED of `argument`, None for `count(*)`; return its stand-in."""
        name = f"{function}({'*' if argument is None else expression_text(argument)})"
        if name not in self.finished:
            self.finished[name] = self._finish(function, argument)
        finished = self.finished[name]
        return Column(name, finished.type, finished.nullable)

    def keep(self, kind: Kind, argument: Expression) -> None:
        """Keep a sub-aggregate that no item of the query asks for."""
        self._word(kind, argument)

    def count_of_rows(self) -> str:
        """Keep the count of the group's rows; return the name of its column."""
        return self._count(self._at_end(None)).name

    @property
    def subaggregates(self) -> tuple[SubAggregate, ...]:
        """The words of a table entry, one at least: without aggregates it is the count, for the engines to merge."""
        if not self._words:
            self._word(Kind.COUNT, None)
        return tuple(self._words.values())

    def _finish(self, function: str, argument: Expression | None) -> Expression:
        if function == "count" or argument is None:
            return self._count(self._at_end(argument))
        if function == "avg":
            return Mean(self._word(Kind.SUM, self._summed(argument)), self._count(self._at_end(argument)))
        if function in VARIANCES:
            return self._variance(function, self._at_end(argument) or argument)
        argument = self._shared(argument) if function == "sum" else self._at_end(argument) or argument
        kind = Kind(function)
        if kind in TIME_OF:
            self._word(TIME_OF[kind], argument)
        word = self._word(kind, argument)
        return Present(word, self._count(argument)) if argument.nullable else word

    def _variance(self, function: str, argument: Expression) -> Expression:
        """Return a variance, of sums that do not wrap."""
        number = argument if argument.type is Type.FLOAT else Binary(Op.MUL, argument, Literal(1.0, Type.FLOAT))
        squares = Binary(Op.MUL, number, number)
        total, of_squares = self._word(Kind.SUM, number), self._word(Kind.SUM, squares)
        return Variance(total, of_squares, self._count(argument), *VARIANCES[function])

    def _count(self, argument: Expression | None) -> Column:
        """Count of the rows where `argument` is not NULL: of all rows where it never is."""
        return self._word(Kind.COUNT, argument if argument is not None and argument.nullable else None)

    def _summed(self, argument: Expression) -> Expression:
        """Return what `avg` sums: floats where a sum of integers would wrap within a few rows."""
        shared = self._shared(argument)
        if argument.type in INTEGERS and holds_time(argument):
            return Binary(Op.MUL, shared, Literal(1.0, Type.FLOAT))
        return shared

    def _at_end(self, argument: Expression | None) -> Expression | None:
        """Return the argument of what a row takes part in once, where its end is."""
        return AtEnd(argument or Literal(True, Type.BOOL)) if self._spread else argument

    def _shared(self, argument: Expression) -> Expression:
        """Return the argument of a sum: what a pane has of each counter, or the row where its end is."""
        if not self._spread:
            return argument
        if not any(is_counter(column.name) for column in columns_of(argument)):
            return AtEnd(argument)
        return _with_shares(argument)

    def _word(self, kind: Kind, argument: Expression | None) -> Column:
        key = kind, argument
        if key not in self._words:
            self._words[key] = SubAggregate(f"s{len(self._words)}", kind, argument)
        word = self._words[key]
        return Column(word.name, word.result_type)


def holds_time(expression: Expression) -> bool:
    """Return whether one of the columns is a time."""
    return any(column.type is Type.TIME for column in columns_of(expression))


def is_as_large_as_a_time(expression: Expression) -> bool:
    """Return whether values are integers as large as a time: six of them sum to more than an int64 holds."""
    if isinstance(expression, Unary):
        return expression.op is Op.NEG and is_as_large_as_a_time(expression.operand)
    if not isinstance(expression, Binary):
        return expression.type is Type.TIME
    if expression.op is Op.MUL and expression.type is Type.INT:
        return is_as_large_as_a_time(expression.left) or is_as_large_as_a_time(expression.right)
    since = expression.right.value if isinstance(expression.right, Literal) else None
    return expression.type is Type.TIME and not (isinstance(since, int) and abs(since) >= LARGE_TIME)


def is_product_of_times(op: Op, left: Expression, right: Expression) -> bool:
    """Return whether an operation multiplies a time by another integer that a time is part of.

    >>> ts = Column("ts", Type.TIME)
    >>> is_product_of_times(Op.MUL, ts, ts), is_product_of_times(Op.MUL, ts, Literal(2, Type.INT))
    (True, False)
    """
    if op is not Op.MUL or left.type not in INTEGERS or right.type not in INTEGERS:
        return False
    large = is_as_large_as_a_time(left) or is_as_large_as_a_time(right)
    return large and holds_time(left) and holds_time(right)


def _with_shares(expression: Expression) -> Expression:
    """Replace each counter by its share."""
    if isinstance(expression, Column):
        return replace(expression, name=SHARE + expression.name) if is_counter(expression.name) else expression
    children = {field.name: getattr(expression, field.name) for field in fields(expression)}
    shares: dict[str, Any] = {
        name: _with_shares(child) for name, child in children.items() if isinstance(child, Expression)
    }
    return replace(expression, **shares) if shares else expression
