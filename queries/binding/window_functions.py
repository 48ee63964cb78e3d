"""SQL window functions (OVER): their names, arguments and types.

A window function computes a value for each result row from other result rows: its rank, the row before it, its share of
a total. HAVING has already filtered these rows. If the query has windows, all these rows are of the same window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from capture.lazy_dataclasses import dataclass
from highlevel.plan.answer_nodes import FRAMED, Frame, RowFunctionKind
from lowlevel.expressions.tree import Column, Expression, Literal
from lowlevel.expressions.types import NUMBERS, Type
from queries.binding.comparisons import Operand
from queries.text import tree
from queries.text.errors import QueryError
from queries.text.expressions import WITHOUT_ARGUMENT
from queries.text.literals import duration_of, number_literal
from queries.text.printer import expression_text

SHIFTS = (RowFunctionKind.LAG, RowFunctionKind.LEAD)
"""Functions that return a value of an earlier or later row."""
RATIOS = (RowFunctionKind.PERCENT_RANK, RowFunctionKind.CUME_DIST)
"""Functions whose result is a number from 0 to 1."""
DISTANCE_LIMIT = 2**31
"""The distance in lag and lead must be below this number of rows."""

ARGUMENT_TYPES = {
    RowFunctionKind.SUM: (Type.INT, Type.FLOAT),
    RowFunctionKind.AVG: (Type.INT, Type.FLOAT),
    RowFunctionKind.MIN: NUMBERS,
    RowFunctionKind.MAX: NUMBERS,
}
"""Valid types of the argument by function. Other functions accept all types except bytes."""


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
    frame: Frame
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
        frame = Frame() if node.frame is None else FrameBinder(sql, kind, order).bind(node.frame)
        value = None if operand is None else operand.bound
        inside = "*" if arguments is None else ", ".join(expression_text(argument.bound) for argument in arguments)
        bound = BoundFunction(
            f"{name}({inside}) OVER ({_clause_text(partition, order, frame)})",
            kind,
            _type_of(kind, value),
            value,
            tuple(partition),
            tuple(order),
            distance,
            frame,
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
        case Literal(value=int(distance), type=Type.INT) if 0 <= distance < DISTANCE_LIMIT:
            return distance
    raise arguments[1].error(f"{kind} with a distance that is not a number", "a number of rows, 0 or more")


def _type_of(kind: RowFunctionKind, argument: Expression | None) -> Type:
    if kind in RATIOS or kind is RowFunctionKind.AVG:
        return Type.FLOAT
    if argument is None or kind is RowFunctionKind.COUNT:
        return Type.INT
    return argument.type


@dataclass(frozen=True, slots=True)
class FrameBinder:
    """Binds the frame of a window function with the keys `order` of ORDER BY."""

    sql: str
    kind: RowFunctionKind
    order: Sequence[OrderKey]

    def bind(self, frame: tree.Frame) -> Frame:
        """Return the frame with numbers as bounds. Raises QueryError for a wrong frame."""
        if self.kind not in FRAMED:
            expected = f"no frame: {self.kind} uses all rows of the partition"
            raise QueryError(f"a frame of {self.kind}", self.sql, frame.start, expected)
        if not self.order:
            raise QueryError("a frame without ORDER BY in OVER", self.sql, frame.start, "ORDER BY before the frame")
        if frame.first.direction == "FOLLOWING" and frame.first.distance is None:
            raise QueryError("a frame from UNBOUNDED FOLLOWING", self.sql, frame.first.start, "an earlier row")
        if frame.last.direction == "PRECEDING" and frame.last.distance is None:
            raise QueryError("a frame to UNBOUNDED PRECEDING", self.sql, frame.last.start, "a later row")
        first, last = self._bound(frame, frame.first), self._bound(frame, frame.last)
        if first is not None and last is not None and first > last:
            expected = "the earlier bound first: BETWEEN 5 PRECEDING AND CURRENT ROW"
            raise QueryError("a frame that ends before it begins", self.sql, frame.last.start, expected)
        return Frame(first, last, frame.by_values)

    def _bound(self, frame: tree.Frame, bound: tree.FrameBound) -> int | float | None:
        if bound.direction is None:
            return 0
        if bound.distance is None:
            return None
        distance = self._value_distance(bound.distance) if frame.by_values else self._row_distance(bound.distance)
        return -distance if bound.direction == "PRECEDING" else distance

    def _row_distance(self, distance: tree.Constant | tree.Length) -> int:
        if isinstance(distance, tree.Constant):
            number = number_literal(distance.text, distance.negative)
            if isinstance(number, int) and 0 <= number < DISTANCE_LIMIT:
                return number
        expected = "a whole number, for example ROWS 5 PRECEDING; a length of time follows RANGE"
        raise QueryError("got a frame of ROWS without a number of rows", self.sql, distance.start, expected)

    def _value_distance(self, distance: tree.Constant | tree.Length) -> int | float:
        if len(self.order) > 1:
            problem = f"a distance in RANGE with {len(self.order)} keys in ORDER BY"
            raise QueryError(problem, self.sql, distance.start, "one key, or ROWS")
        kind = self.order[0].expression.type
        if kind is Type.TIME and isinstance(distance, tree.Length):
            return duration_of(self.sql, distance)
        number = number_literal(distance.text, distance.negative) if isinstance(distance, tree.Constant) else None
        if kind is Type.FLOAT and number is not None and number >= 0:
            return number
        if kind is Type.INT and isinstance(number, int) and number >= 0:
            return number
        expected = {Type.TIME: "a length of time, for example 10 seconds", Type.FLOAT: "a number, 0 or more"}.get(
            kind, "a whole number, 0 or more" if kind is Type.INT else "ROWS: such values have no distances"
        )
        problem = f"got an unsuitable distance in RANGE over a value of type {kind}"
        raise QueryError(problem, self.sql, distance.start, expected)


def _clause_text(partition: Sequence[Expression], order: Sequence[OrderKey], frame: Frame) -> str:
    parts = []
    if partition:
        parts.append("PARTITION BY " + ", ".join(map(expression_text, partition)))
    if order:
        keys = (
            expression_text(key.expression) + " DESC" * key.descending + " NULLS FIRST" * key.nulls_first
            for key in order
        )
        parts.append("ORDER BY " + ", ".join(keys))
    if frame != Frame():
        parts.append(frame.text)
    return " ".join(parts)
