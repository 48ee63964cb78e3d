"""The aggregates of one query, split between the levels by the table in `lowlevel.subaggregates`.

While select list and HAVING are bound, a column named after an aggregate stands for it (`sum(len)`, a name no input
has); `finished` says what the high level computes in its place from the merged sub-aggregates.

Of rows that are spread over panes, sums of counters take the shares of each pane, and everything else takes a row once,
where it ends; so does the count that a mean divides by.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from lowlevel.expressions import (
    SHARE,
    AtEnd,
    Binary,
    Column,
    Expression,
    Literal,
    Mean,
    Op,
    Present,
    Type,
    columns_of,
)
from lowlevel.kinds import RowKind
from lowlevel.spread import is_counter
from lowlevel.subaggregates import Kind, SubAggregate
from queries.expression_text import expression_text


class Aggregates:
    """Collects aggregates as they are bound; equal ones, and equal words of different ones, are kept once."""

    def __init__(self, kind: RowKind, spread: bool) -> None:
        """Collect aggregates over rows of one kind, which may be spread over panes."""
        self._rows = kind
        self._spread = spread
        self._words: dict[tuple[Kind, Expression | None], SubAggregate] = {}
        self.finished: dict[str, Expression] = {}
        """Expression over sub-aggregates by the name of the column that stands for the aggregate."""

    def add(self, function: str, argument: Expression | None) -> Column:
        """Take `count`, `sum`, `min`, `max` or `avg` of `argument`, None for `count(*)`; return its stand-in."""
        name = f"{function}({'*' if argument is None else expression_text(argument)})"
        if name not in self.finished:
            self.finished[name] = self._finish(function, argument)
        finished = self.finished[name]
        return Column(name, finished.type, finished.nullable)

    def keep(self, kind: Kind, argument: Expression) -> None:
        """Keep a sub-aggregate that no item of the query asks for."""
        self._word(kind, argument)

    @property
    def subaggregates(self) -> tuple[SubAggregate, ...]:
        """The words of a table entry, one at least: without aggregates it is the count, for the engines to merge."""
        if not self._words:
            self._word(Kind.COUNT, None)
        return tuple(self._words.values())

    def holds_time(self, expression: Expression) -> bool:
        """Whether a time is among its columns: six values of `ts` sum to more than an int64 holds."""
        return any(self._rows.is_time(column.name) for column in columns_of(expression))

    def _finish(self, function: str, argument: Expression | None) -> Expression:
        if function == "count" or argument is None:
            return self._count(self._at_end(argument))
        if function == "avg":
            return Mean(self._word(Kind.SUM, self._summed(argument)), self._count(self._at_end(argument)))
        argument = self._shared(argument) if function == "sum" else self._at_end(argument) or argument
        word = self._word(Kind(function), argument)
        return Present(word, self._count(argument)) if argument.nullable else word

    def _count(self, argument: Expression | None) -> Column:
        """Count of the rows where `argument` is not NULL: of all rows where it never is."""
        return self._word(Kind.COUNT, argument if argument is not None and argument.nullable else None)

    def _summed(self, argument: Expression) -> Expression:
        """Return what `avg` sums: floats where a sum of integers would wrap within a few rows."""
        shared = self._shared(argument)
        if argument.type is Type.INT and self.holds_time(argument):
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
        return Column(word.name, word.type)


def _with_shares(expression: Expression) -> Expression:
    """Replace each counter by its share."""
    if isinstance(expression, Column):
        return replace(expression, name=SHARE + expression.name) if is_counter(expression.name) else expression
    children = {field.name: getattr(expression, field.name) for field in fields(expression)}
    shares: dict[str, Any] = {
        name: _with_shares(child) for name, child in children.items() if isinstance(child, Expression)
    }
    return replace(expression, **shares) if shares else expression
