"""The aggregates of one query.

Each is divided into sub-aggregates for the low level, and an expression for the high level.

While the select list and HAVING are bound, a *placeholder* replaces each aggregate: a column whose name is the text of
the aggregate, `sum(len)`. `high_level_expressions` contains for each placeholder the expression that the high level
computes. There are three kinds. Selections are conditions of HAVING, but are treated like aggregates:

    bounded       count, sum, avg, …           sub-aggregates of a fixed size in a table entry
    holistic      median, top, entropy, …      need all values of a group, so the low level groups by the values too
    selections    heavy(0.05), top(10, count)  conditions of HAVING that compare the groups of a window

With SPREAD, `sum` divides each counter of a row (its bytes, for example) among the panes of the row's lifetime. All
other aggregates, and the divisor of a mean, count the row once, in the pane of its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from capture.lazy_dataclasses import dataclass
from highlevel.aggregation import (
    LINK,
    SKETCH_FUNCTIONS,
    Detail,
    DetailFunction,
    Folding,
    Selection,
    SelectionKind,
    result_type,
)
from highlevel.windows.kind import AnyWindow, LifetimeWindow, SessionWindow, SlidingWindow, TupleWindow
from lowlevel.expressions.computed_texts import find_computed_text, spelled_values
from lowlevel.expressions.tree import (
    SHARE_PREFIX,
    AtEnd,
    Binary,
    Call,
    Column,
    Conditional,
    Expression,
    Literal,
    Mean,
    Present,
    Unary,
    Variance,
    WideSum,
    columns_of,
    transform,
    width_of,
)
from lowlevel.expressions.types import INTEGERS, NUMBERS, Op, Type
from lowlevel.plan import Key
from lowlevel.subaggregates import TIME_OF, Kind, SubAggregate
from lowlevel.table.spread import is_counter
from queries.binding.comparisons import Operand
from queries.binding.running_aggregates import RunningAggregates
from queries.binding.user_aggregates import UserColumns
from queries.text.errors import QueryError
from queries.text.printer import expression_text
from queries.text.tree import Word

VARIANCES: dict[str, tuple[bool, bool]] = {
    "variance": (True, False),
    "var_samp": (True, False),
    "var_pop": (False, False),
    "stddev": (True, True),
    "stddev_samp": (True, True),
    "stddev_pop": (False, True),
}
"""Variances and standard deviations by SQL name. The pair states: computed over a sample, is a square root. Names
without a suffix mean the sample.
"""

LARGE_TIME = 10**17
"""Three years in ns: a constant of at least this size is a time, so a time minus this constant is a difference."""

NARROW_BITS = 32
"""Integers with at most this number of bits are summed in one word of a table entry, into which 2**31 of them fit."""

INTEGER_AGGREGATES = ("bit_and", "bit_or", "bit_xor")
"""Aggregates that accept only integers."""

VALUE_AGGREGATES = ("min", "max", "first", "last")
"""Aggregates that return one of the values, which may have any type except bytes."""

VALUE_TYPES = (*NUMBERS, Type.BOOL, Type.ADDRESS, Type.MAC, Type.TEXT)
"""Types of the values that VALUE_AGGREGATES accept."""

BOUNDED_AGGREGATES = ("count", "sum", "min", "max", "avg", *VARIANCES, *INTEGER_AGGREGATES, "first", "last")
"""Aggregates whose state has a fixed size."""

MEDIAN = "median"

HOLISTIC_AGGREGATES: dict[str, str] = {
    DetailFunction.COUNT_DISTINCT: "count_distinct(x)",
    MEDIAN: "median(x)",
    DetailFunction.QUANTILE: "quantile(x, 0.99)",
    DetailFunction.MODE: "mode(x)",
    DetailFunction.ENTROPY: "entropy(x)",
    DetailFunction.TOP: "top(x, 10)",
    DetailFunction.APPROX_COUNT_DISTINCT: "approx_count_distinct(x)",
    DetailFunction.APPROX_QUANTILE: "approx_quantile(x, 0.99)",
    DetailFunction.APPROX_TOP: "approx_top(x, 10)",
}
"""Holistic aggregates by name, each with an example of its call."""

MAX_VALUES = 1000
"""Largest number of values that `top` reports."""

SELECTIONS: dict[str, str] = {
    SelectionKind.HEAVY: "heavy(0.05) or heavy(0.05, sum(len))",
    SelectionKind.TOP: "top(10, sum(len))",
}
"""Conditions on groups by name, each with an example of its call."""

MAX_GROUPS = 1_000_000
"""Largest number of groups that `top` selects in a window."""


class Aggregates:
    """The aggregates of one query. Equal aggregates and equal sub-aggregates are stored once."""

    def __init__(self, spread: bool, *, running: bool = False) -> None:
        """`spread`: rows may be divided among several panes (SPREAD).

        `running`: the query may have running aggregates.
        """
        self._spread = spread
        self._subaggregates: dict[tuple[Kind, Expression | None], SubAggregate] = {}
        self.high_level_expressions: dict[str, Expression] = {}
        """Expressions over sub-aggregates, by the name of the placeholder."""
        self.holistic = HolisticAggregates(self.high_level_expressions)
        self.selections = Selections(self.high_level_expressions)
        self.user_columns = UserColumns(self.high_level_expressions)
        self.running = RunningAggregates() if running else None

    def add(self, function: str, argument: Expression | None) -> Column:
        """Add an aggregate of BOUNDED and return its placeholder. `argument` is None for `count(*)`."""
        name = f"{function}({'*' if argument is None else expression_text(argument)})"
        if name not in self.high_level_expressions:
            self.high_level_expressions[name] = self._high_level_expression(function, argument)
        expression = self.high_level_expressions[name]
        return Column(name, expression.type, expression.nullable)

    def add_non_numeric(self, sql: str, name: Word, operand: Operand) -> Column:
        """Add min, max, first or last of values that are not numbers, and return its placeholder."""
        kind = Kind(name.text.lower())
        if kind not in TIME_OF:
            return self.holistic.add(sql, name, [operand])
        # first and last use two sub-aggregates, the time and then the value. Here the value is a key, so only the time
        # is needed. The other sub-aggregate contains the constant 1, which costs least.
        row = self._count_once_argument(Literal(1, Type.INT)) or Literal(1, Type.INT)
        time = self._subaggregate(TIME_OF[kind], row)
        self._subaggregate(kind, row)
        return self.holistic.add(sql, name, [operand], time.name)

    def add_subaggregate(self, kind: Kind, argument: Expression) -> None:
        """Add a sub-aggregate that no aggregate of the query reads. MERGE of flow records needs it."""
        self._subaggregate(kind, argument)

    def count_of_rows(self) -> str:
        """Add the count of rows, and return the name of its column."""
        return self._count(self._count_once_argument(None)).name

    @property
    def subaggregates(self) -> tuple[SubAggregate, ...]:
        """The sub-aggregates: at least one.

        In a query without aggregates this is the count of rows, because engines need a column to merge.
        """
        if not self._subaggregates:
            self._subaggregate(Kind.COUNT, None)
        return tuple(self._subaggregates.values())

    def _high_level_expression(self, function: str, argument: Expression | None) -> Expression:
        if function == "count" or argument is None:
            return self._count(self._count_once_argument(argument))
        if function == "avg":
            return Mean(
                self._sum(self._mean_argument(argument), Type.FLOAT), self._count(self._count_once_argument(argument))
            )
        if function in VARIANCES:
            return self._variance(function, self._count_once_argument(argument) or argument)
        argument = (
            self._sum_argument(argument) if function == "sum" else self._count_once_argument(argument) or argument
        )
        kind = Kind(function)
        if kind in TIME_OF:
            self._subaggregate(TIME_OF[kind], argument)
        value = self._sum(argument) if kind is Kind.SUM else self._subaggregate(kind, argument)
        return Present(value, self._count(argument)) if argument.nullable else value

    def _sum(self, argument: Expression, sum_type: Type = Type.INT) -> Expression:
        """Return the sum of an argument that is not NULL.

        `sum_type`: the type of the sum of wide integers, INT or FLOAT.
        """
        if argument.type not in INTEGERS or width_of(argument) <= NARROW_BITS:
            return self._subaggregate(Kind.SUM, argument)
        return WideSum(
            self._subaggregate(Kind.UPPER_SUM, argument), self._subaggregate(Kind.LOWER_SUM, argument), sum_type
        )

    def _variance(self, function: str, argument: Expression) -> Expression:
        """Return a variance. It is computed from sums of floats, which do not overflow."""
        number = argument if argument.type is Type.FLOAT else Binary(Op.MUL, argument, Literal(1.0, Type.FLOAT))
        squares = Binary(Op.MUL, number, number)
        total, of_squares = self._subaggregate(Kind.SUM, number), self._subaggregate(Kind.SUM, squares)
        return Variance(total, of_squares, self._count(argument), *VARIANCES[function])

    def _count(self, argument: Expression | None) -> Column:
        """Return the count of the rows with a non-NULL `argument`, or of all rows if it is never NULL."""
        return self._subaggregate(Kind.COUNT, argument if argument is not None and argument.nullable else None)

    def _mean_argument(self, argument: Expression) -> Expression:
        """Return the argument of the sum in `avg`.

        Times become floats, because integers would overflow after a few rows.
        """
        value = self._sum_argument(argument)
        if argument.type in INTEGERS and contains_time(argument):
            return Binary(Op.MUL, value, Literal(1.0, Type.FLOAT))
        return value

    def _count_once_argument(self, argument: Expression | None) -> Expression | None:
        """Return an argument that counts a row with SPREAD once, in the pane of its end."""
        return AtEnd(argument or Literal(True, Type.BOOL)) if self._spread else argument

    def _sum_argument(self, argument: Expression) -> Expression:
        """Return the argument of a sum.

        Counters are divided among the panes; other values count once, in the pane of the end.
        """
        if not self._spread:
            return argument
        if not any(is_counter(column.name) for column in columns_of(_without_conditions(argument))):
            return AtEnd(argument)
        return transform(argument, _share_of_counter)

    def _subaggregate(self, kind: Kind, argument: Expression | None) -> Column:
        """Add a sub-aggregate if there is no equal one, and return its column."""
        key = kind, argument
        if key not in self._subaggregates:
            self._subaggregates[key] = SubAggregate(f"s{len(self._subaggregates)}", kind, argument)
        subaggregate = self._subaggregates[key]
        return Column(subaggregate.name, subaggregate.result_type)


def contains_time(expression: Expression) -> bool:
    """Return whether the expression contains a time column."""
    return any(column.type is Type.TIME for column in columns_of(expression))


def is_as_large_as_a_time(expression: Expression) -> bool:
    """Return whether the values are integers as large as a time. The sum of six such values exceeds an int64."""
    if isinstance(expression, Unary):
        return expression.op is Op.NEG and is_as_large_as_a_time(expression.operand)
    if not isinstance(expression, Binary):
        return expression.type is Type.TIME
    if expression.op is Op.MUL and expression.type is Type.INT:
        return is_as_large_as_a_time(expression.left) or is_as_large_as_a_time(expression.right)
    since = expression.right.value if isinstance(expression.right, Literal) else None
    return expression.type is Type.TIME and not (isinstance(since, int) and abs(since) >= LARGE_TIME)


def is_product_of_times(op: Op, left: Expression, right: Expression) -> bool:
    """Return whether an operation multiplies a time by another expression that contains a time.

    >>> ts = Column("ts", Type.TIME)
    >>> is_product_of_times(Op.MUL, ts, ts), is_product_of_times(Op.MUL, ts, Literal(2, Type.INT))
    (True, False)
    """
    if op is not Op.MUL or left.type not in INTEGERS or right.type not in INTEGERS:
        return False
    large = is_as_large_as_a_time(left) or is_as_large_as_a_time(right)
    return large and contains_time(left) and contains_time(right)


def _without_conditions(expression: Expression) -> Expression:
    """Replace the conditions of conditionals in an expression by TRUE."""

    def change(part: Expression) -> Expression | None:
        if not isinstance(part, Conditional):
            return None
        return Conditional(
            Literal(True, Type.BOOL), _without_conditions(part.value), _without_conditions(part.otherwise)
        )

    return transform(expression, change)


def _share_of_counter(expression: Expression) -> Expression | None:
    """Replace a counter by its share in a pane. Conditions of conditionals use the whole row."""
    if isinstance(expression, Conditional):
        results = (transform(part, _share_of_counter) for part in (expression.value, expression.otherwise))
        return Conditional(expression.condition, *results)
    if isinstance(expression, Column) and is_counter(expression.name):
        return replace(expression, name=SHARE_PREFIX + expression.name)
    return None


@dataclass(frozen=True, slots=True)
class _HolisticUse:
    """A call of a holistic aggregate. count_distinct has one or several `arguments`, other functions one.

    `time_column`: for first and last the column with the time of each value; otherwise empty.
    """

    function: DetailFunction
    arguments: tuple[Expression, ...]
    parameter: float
    time_column: str = ""


class HolisticAggregates:
    """The holistic aggregates of one query. Equal aggregates are stored once."""

    def __init__(self, high_level_expressions: dict[str, Expression]) -> None:
        """`high_level_expressions` receives the column of the high level for each placeholder."""
        self._high_level_expressions = high_level_expressions
        self._uses: dict[_HolisticUse, str] = {}
        self._first_name: Word | None = None
        self._first_sketch_name: Word | None = None

    def __bool__(self) -> bool:
        """Return whether the query has holistic aggregates."""
        return bool(self._uses)

    def add(self, sql: str, name: Word, operands: Sequence[Operand], time_column: str = "") -> Column:
        """Add an aggregate and return its placeholder. Raises QueryError for wrong arguments.

        `time_column`: for first and last the column with the time of each value; otherwise empty.
        """
        use = replace(_holistic_use(sql, name, operands), time_column=time_column)
        self._first_name = self._first_name or name
        if use.function in SKETCH_FUNCTIONS:
            self._first_sketch_name = self._first_sketch_name or name
        column = self._uses.setdefault(use, f"d{len(self._uses)}")
        kind = result_type(use.function, use.arguments[0].type)
        nullable = use.function not in (DetailFunction.COUNT_DISTINCT, DetailFunction.APPROX_COUNT_DISTINCT)
        call = ", ".join(expression_text(operand.bound) for operand in operands)
        stand_in = f"{name.text.lower()}({call})"
        self._high_level_expressions[stand_in] = Column(column, kind, nullable)
        return Column(stand_in, kind, nullable)

    def check(self, sql: str, window: AnyWindow, emit_late: bool) -> None:
        """Raise QueryError for windows that holistic aggregates do not support."""
        if self._first_name is None:
            return
        call = f"{self._first_name.text.lower()} over "
        if isinstance(window, SessionWindow):
            # Sessions are computed for each group, but the low level would group by the values too.
            raise QueryError(
                call + "sessions", sql, self._first_name.start, "windows of another kind, or other aggregates"
            )
        if self._first_sketch_name is not None and not isinstance(window, SlidingWindow):
            # A sketch is computed from complete panes. Only panes of windows of time are complete before their window
            # ends.
            called = self._first_sketch_name.text.lower()
            expected = "tumbling or sliding windows of time, or an exact aggregate"
            raise QueryError(f"{called} over windows of this kind", sql, self._first_sketch_name.start, expected)
        if emit_late:
            raise QueryError(
                call + "rows that are late",
                sql,
                self._first_name.start,
                "LATE DROP: additional results cannot be added to earlier results",
            )

    def plan_value_keys(
        self, keys: Sequence[Key], groups: Mapping[Expression, Column], count: str
    ) -> tuple[tuple[Key, ...], tuple[Detail, ...], tuple[Folding, ...]]:
        """Return `keys` followed by keys for the values, the aggregates, and the sketches that the aggregates read.

        Equal arguments share a key. Columns of GROUP BY, and the link, are keys already. `groups` are the columns of
        GROUP BY. `count` is the name of the sub-aggregate that counts rows.
        """
        keys, columns = list(keys), {expression: column.name for expression, column in groups.items()}
        columns[Column(LINK, Type.TEXT)] = LINK
        details = []
        foldings: dict[tuple[DetailFunction, str], Folding] = {}
        for use, name in self._uses.items():
            for argument in use.arguments:
                if argument not in columns:
                    columns[argument] = f"k{len(keys)}"
                    keys.append(Key(columns[argument], argument))
            column, *others = (columns[argument] for argument in use.arguments)
            argument = use.arguments[0]
            if use.function in SKETCH_FUNCTIONS:
                of = use.function, column
                column = foldings.setdefault(of, Folding(*of, f"h{len(foldings)}", count, argument.type)).column
            of_detail = column, argument.type, count, use.parameter, tuple(others), use.time_column
            details.append(Detail(name, use.function, *of_detail))
        return tuple(keys), tuple(details), tuple(foldings.values())


def _holistic_use(sql: str, name: Word, operands: Sequence[Operand]) -> _HolisticUse:
    called = name.text.lower()
    usage = HOLISTIC_AGGREGATES.get(called, f"{called}(x)")
    several = called == DetailFunction.COUNT_DISTINCT and len(operands) > 1
    if len(operands) != 1 + ("," in usage) and not several:
        raise QueryError(
            f"{called} with {len(operands)} argument{'' if len(operands) == 1 else 's'}", sql, name.start, usage
        )
    subject = operands[0]
    if called == "count_distinct" and len(operands) == 1:
        values = spelled_values(subject.bound)
        if values is not None:
            return _HolisticUse(DetailFunction.COUNT_DISTINCT, values, 0.0)
    for argument in operands if several else operands[:1]:
        spelling = find_computed_text(argument.bound)
        if spelling is not None:
            expected = f"a query over the rows: FROM (SELECT ts, {expression_text(spelling)} AS t FROM …)"
            made_of = "the text of bytes" if isinstance(spelling, Call) else "a text that an expression computes"
            argument.fail(f"{called} over {made_of}", expected)
        if argument.type is Type.BYTES:
            argument.fail(f"{called} over bytes", "another column, or the length(…) of these bytes")
        if not any(columns_of(argument.bound)):
            argument.fail(f"{called} over a constant", usage)
    if several:
        return _HolisticUse(DetailFunction.COUNT_DISTINCT, tuple(operand.bound for operand in operands), 0.0)
    function = DetailFunction.QUANTILE if called == MEDIAN else DetailFunction(called)
    quantile = function in (DetailFunction.QUANTILE, DetailFunction.APPROX_QUANTILE)
    if quantile and subject.type not in NUMBERS:
        subject.fail(f"{called} over a value of type {subject.type}", " or ".join(NUMBERS))
    parameter = 0.5 if called == MEDIAN else 0.0
    if len(operands) > 1:
        parameter = _quantile(operands[1]) if quantile else _value_count(operands[1])
    return _HolisticUse(function, (subject.bound,), parameter)


def _quantile(operand: Operand) -> float:
    """Return the second argument of a quantile, from 0 to 1."""
    bound = operand.bound
    if isinstance(bound, Literal) and isinstance(bound.value, int | float) and 0 <= bound.value <= 1:
        return float(bound.value)
    raise operand.error("a quantile outside 0 to 1", "a number from 0 to 1, for example 0.99")


def _value_count(operand: Operand) -> int:
    """Return the number of values that `top` reports."""
    bound = operand.bound
    if isinstance(bound, Literal) and isinstance(bound.value, int) and 0 < bound.value <= MAX_VALUES:
        return bound.value
    raise operand.error("an invalid number of values", f"an integer from 1 to {MAX_VALUES}")


class Selections:
    """The conditions of HAVING that compare the groups of a window. Equal conditions are stored once."""

    def __init__(self, high_level_expressions: dict[str, Expression]) -> None:
        """`high_level_expressions` receives the column of the high level for each placeholder."""
        self._high_level_expressions = high_level_expressions
        self.uses: dict[str, Selection] = {}
        """Selections by the name of their placeholder. Their values contain placeholders of aggregates."""
        self._first: Word | None = None

    def add(self, sql: str, name: Word, operands: Sequence[Operand], count: Expression) -> Column:
        """Add a condition and return its placeholder.

        Groups are compared by `count` if the call has no second argument.
        """
        kind = SelectionKind(name.text.lower())
        usage = SELECTIONS[kind]
        if not 1 <= len(operands) <= 2 or (len(operands) == 1 and kind is SelectionKind.TOP):
            problem = f"{kind} with {len(operands)} argument{'' if len(operands) == 1 else 's'}"
            raise QueryError(problem, sql, name.start, usage)
        value = operands[1].bound if len(operands) == 2 else count
        if value.type not in NUMBERS:
            operands[1].fail(f"{kind} by a value of type {value.type}", " or ".join(NUMBERS))
        parameter = _group_share(operands[0]) if kind is SelectionKind.HEAVY else _group_count(operands[0])
        stand_in = f"{kind}({parameter}, {expression_text(value)})"
        if stand_in not in self.uses:
            column = f"w{len(self.uses)}"
            self.uses[stand_in] = Selection(column, kind, value, parameter)
            self._high_level_expressions[stand_in] = Column(column, Type.BOOL)
        self._first = self._first or name
        return Column(stand_in, Type.BOOL)

    def check(self, sql: str, window: AnyWindow, emit_late: bool) -> None:
        """Raise QueryError for windows that differ between groups, and for LATE EMIT."""
        if self._first is None:
            return
        call, start = self._first.text.lower(), self._first.start
        by_group = isinstance(window, SessionWindow | LifetimeWindow)
        if by_group or (isinstance(window, TupleWindow) and window.partitioned):
            problem = f"{call} over windows that differ between groups"
            raise QueryError(problem, sql, start, "windows that groups share")
        if emit_late:
            raise QueryError(
                f"{call} over rows that are late",
                sql,
                start,
                "LATE DROP: late rows cannot be compared with all groups",
            )


def _group_share(operand: Operand) -> str:
    bound = operand.bound
    if isinstance(bound, Literal) and bound.type in NUMBERS and 0 <= float(str(bound.value)) <= 1:
        return str(bound.value)
    raise operand.error("a share outside 0 to 1", "a number from 0 to 1, for example 0.05")


def _group_count(operand: Operand) -> str:
    bound = operand.bound
    if isinstance(bound, Literal) and isinstance(bound.value, int) and 0 < bound.value <= MAX_GROUPS:
        return str(bound.value)
    raise operand.error("an invalid number of groups", f"an integer from 1 to {MAX_GROUPS}")
