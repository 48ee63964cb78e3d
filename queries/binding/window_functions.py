"""Window functions of SQL (OVER): their names, arguments and types.

A window function computes a value for each row from other rows of the answer: its rank, the row before it, its share of
a total. It sees the rows after HAVING, and within the window of the query if there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from highlevel.plan.nodes import RowFunctionKind
from lowlevel.expressions.tree import Column, Expression, Literal
from lowlevel.expressions.types import NUMBERS, Type
from queries.binding.comparisons import Operand
from queries.text import tree
from queries.text.errors import QueryError
from queries.text.expressions import WITHOUT_ARGUMENT
from queries.text.printer import expression_text

SHIFTS = (RowFunctionKind.LAG, RowFunctionKind.LEAD)
RATIOS = (RowFunctionKind.PERCENT_RANK, RowFunctionKind.CUME_DIST)
MAX_DISTANCE = 2**31
"""First number of rows that is too large for lag and lead."""

ARGUMENT_TYPES = {
    RowFunctionKind.SUM: (Type.INT, Type.FLOAT),
    RowFunctionKind.AVG: (Type.INT, Type.FLOAT),
    RowFunctionKind.MIN: NUMBERS,
    RowFunctionKind.MAX: NUMBERS,
}
"""Types of the argument. Other functions accept all types except bytes."""


@dataclass(frozen=True, slots=True)
class OrderKey:
    """A bound key of ORDER BY."""

    expression: Expression
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class BoundFunction:
    """A window function over bound expressions. `name` is its placeholder in the select list."""

    name: str
    kind: RowFunctionKind
    type: Type
    argument: Expression | None
    partition: tuple[Expression, ...]
    order: tuple[OrderKey, ...]
    distance: int
    start: int = field(compare=False)

    @property
    def column(self) -> Column:
        """The placeholder."""
        return Column(self.name, self.type, nullable=self.kind.value not in (*WITHOUT_ARGUMENT, "count"))


class WindowFunctions:
    """The window functions of one query. Equal functions are computed once."""

    def __init__(self) -> None:
        """Begin without functions."""
        self.uses: dict[str, BoundFunction] = {}

    def add(
        self,
        sql: str,
        node: tree.Over,
        arguments: Sequence[Operand] | None,
        partition: Sequence[Expression],
        order: Sequence[OrderKey],
    ) -> Column:
        """Check a function and return its placeholder. `arguments` is None for `count(*)`."""
        word = node.call.function
        name = word.text.lower()
        choices = tuple(kind.value for kind in RowFunctionKind)
        if name not in choices:
            problem = f"{word.text} with OVER"
            raise QueryError(problem, sql, word.start, "one of these window functions", choices, name)
        if node.call.where is not None:
            expected = "CASE in its argument: sum(CASE WHEN … THEN x END)"
            raise QueryError(f"FILTER together with OVER after {name}", sql, node.call.where.start, expected)
        kind = RowFunctionKind(name)
        for key in (*partition, *(each.expression for each in order)):
            if key.type is Type.BYTES:
                raise QueryError("OVER with bytes", sql, node.start, "length(…), or byte(…, n) of them")
        operand = self._argument(sql, node, kind, arguments)
        distance = _distance(kind, arguments or ())
        value = None if operand is None else operand.bound
        inside = "*" if arguments is None else ", ".join(expression_text(each.bound) for each in arguments)
        bound = BoundFunction(
            f"{name}({inside}) OVER ({_clause(partition, order)})",
            kind,
            _type_of(kind, value),
            value,
            tuple(partition),
            tuple(order),
            distance,
            node.start,
        )
        return self.uses.setdefault(bound.name, bound).column

    def _argument(
        self, sql: str, node: tree.Over, kind: RowFunctionKind, arguments: Sequence[Operand] | None
    ) -> Operand | None:
        word = node.call.function
        if arguments is None:
            if kind is not RowFunctionKind.COUNT:
                raise QueryError(f"{kind}(*)", sql, word.start, f"{kind} of a column, or count(*)")
            return None
        fewest, most = (0, 0) if kind.value in WITHOUT_ARGUMENT else (1, 2) if kind in SHIFTS else (1, 1)
        if not fewest <= len(arguments) <= most:
            expected = {0: f"{kind}() without an argument", 1: "one argument", 2: "a column and a number of rows"}[most]
            given = "1 argument" if len(arguments) == 1 else f"{len(arguments)} arguments"
            raise QueryError(f"{kind} with {given}", sql, word.start, expected)
        if not arguments:
            return None
        argument = arguments[0]
        if argument.bound.type is Type.BYTES:
            argument.fail(f"{kind} over bytes", "length(…), or byte(…, n) of them")
        types = ARGUMENT_TYPES.get(kind)
        if types is not None and argument.bound.type not in types:
            argument.fail(f"{kind} over a value of type {argument.bound.type}", " or ".join(types))
        return argument


def _distance(kind: RowFunctionKind, arguments: Sequence[Operand]) -> int:
    if kind not in SHIFTS or len(arguments) < 2:
        return 1
    match arguments[1].bound:
        case Literal(value=int(distance), type=Type.INT) if 0 <= distance < MAX_DISTANCE:
            return distance
    raise arguments[1].error(f"{kind} by another distance than a number", "a number of rows, 0 or more")


def _type_of(kind: RowFunctionKind, argument: Expression | None) -> Type:
    if kind in RATIOS or kind is RowFunctionKind.AVG:
        return Type.FLOAT
    if argument is None or kind is RowFunctionKind.COUNT:
        return Type.INT
    return argument.type


def _clause(partition: Sequence[Expression], order: Sequence[OrderKey]) -> str:
    parts = []
    if partition:
        parts.append("PARTITION BY " + ", ".join(map(expression_text, partition)))
    if order:
        keys = (
            expression_text(key.expression) + " DESC" * key.descending + " NULLS FIRST" * key.nulls_first
            for key in order
        )
        parts.append("ORDER BY " + ", ".join(keys))
    return " ".join(parts)
