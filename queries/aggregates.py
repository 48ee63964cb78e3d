"""The aggregates of one query, split between the levels by the table in `lowlevel.subaggregates`.

While select list and HAVING are bound, a column named after an aggregate stands for it (`sum(len)`, a name no input
has); `finished` says what the high level computes in its place from the merged sub-aggregates.
"""

from __future__ import annotations

from lowlevel.expressions import Binary, Column, Expression, Literal, Mean, Op, Present, Type, columns_of
from lowlevel.kinds import RowKind
from lowlevel.subaggregates import Kind, SubAggregate
from queries.expression_text import expression_text


class Aggregates:
    """Collects aggregates as they are bound; equal ones, and equal words of different ones, are kept once."""

    def __init__(self, kind: RowKind) -> None:
        """Collect aggregates over rows of one kind."""
        self._rows = kind
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
            return self._count(argument)
        if function == "avg":
            return Mean(self._word(Kind.SUM, self._summed(argument)), self._count(argument))
        word = self._word(Kind(function), argument)
        return Present(word, self._count(argument)) if argument.nullable else word

    def _count(self, argument: Expression | None) -> Column:
        """Count of the rows where `argument` is not NULL: of all rows where it never is."""
        return self._word(Kind.COUNT, argument if argument is not None and argument.nullable else None)

    def _word(self, kind: Kind, argument: Expression | None) -> Column:
        key = kind, argument
        if key not in self._words:
            self._words[key] = SubAggregate(f"s{len(self._words)}", kind, argument)
        word = self._words[key]
        return Column(word.name, word.type)

    def _summed(self, argument: Expression) -> Expression:
        """Return what `avg` sums: floats where a sum of integers would wrap within a few rows."""
        if argument.type is Type.INT and self.holds_time(argument):
            return Binary(Op.MUL, argument, Literal(1.0, Type.FLOAT))
        return argument
