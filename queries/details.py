"""The aggregates of one query that need all values of a group: how they are called, and the keys that they add.

While select list and HAVING are bound, a column named after such an aggregate stands for it (`median(len)`, a name no
input has), as with the bounded ones. The values become keys of the low level, equal ones once; a column that is grouped
by, or the link, is one already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from highlevel.aggregation import FOLDED, LINK, Detail, DetailFunction, Folding, result_type
from highlevel.windows.kind import SessionWindow, SlidingWindow, WindowKind
from lowlevel.expressions.tree import Column, Expression, Literal, columns_of
from lowlevel.expressions.types import NUMBERS, Type
from lowlevel.plan import Key
from queries.comparisons import Operand
from queries.errors import QueryError
from queries.expression_text import expression_text
from queries.tokens import Token

MEDIAN = "median"

DETAILED: dict[str, str] = {
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
"""How each of them is called, by its name."""

MOST_NAMED = 1000
"""Values that `top` may name."""


@dataclass(frozen=True, slots=True)
class _Asked:
    function: DetailFunction
    argument: Expression
    parameter: float


class Details:
    """Collects them as they are bound; equal ones are kept once."""

    def __init__(self, finished: dict[str, Expression]) -> None:
        """`finished` takes what the high level has in the place of each stand-in."""
        self._finished = finished
        self._asked: dict[_Asked, str] = {}
        self._first: Token | None = None
        self._folded: Token | None = None

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._asked)

    def add(self, sql: str, name: Token, operands: Sequence[Operand]) -> Column:
        """Take the one called `name`; returns its stand-in. QueryError for arguments that do not fit."""
        asked = _asked(sql, name, operands)
        self._first = self._first or name
        if asked.function in FOLDED:
            self._folded = self._folded or name
        column = self._asked.setdefault(asked, f"d{len(self._asked)}")
        kind = result_type(asked.function, asked.argument.type)
        nullable = asked.function not in (DetailFunction.COUNT_DISTINCT, DetailFunction.APPROX_COUNT_DISTINCT)
        shown = ", ".join(expression_text(each.bound) for each in operands)
        stand_in = f"{name.text.lower()}({shown})"
        self._finished[stand_in] = Column(column, kind, nullable)
        return Column(stand_in, kind, nullable)

    def check(self, sql: str, window: WindowKind, emit_late: bool) -> None:
        """Refuse windows that values of a group cannot be told of."""
        if self._first is None:
            return
        shown = f"{self._first.text.lower()} over "
        if isinstance(window, SessionWindow):
            # Which rows are of one session is told of a group, not of a group's values.
            raise QueryError(shown + "sessions", sql, self._first.start, "windows of another kind, or other aggregates")
        if self._folded is not None and not isinstance(window, SlidingWindow):
            # Only panes of time are complete before the windows that they are in.
            called = self._folded.text.lower()
            expected = "tumbling or sliding windows of time, or what is exact"
            raise QueryError(f"{called} over windows of this kind", sql, self._folded.start, expected)
        if emit_late:
            raise QueryError(
                shown + "rows that are late", sql, self._first.start, "LATE DROP: what it says cannot be added up"
            )

    def place(
        self, keys: Sequence[Key], groups: Mapping[Expression, Column], count: str
    ) -> tuple[tuple[Key, ...], tuple[Detail, ...], tuple[Folding, ...]]:
        """Return `keys` with those of the values behind them, the details, and the sketches that they are told from.

        `groups` has the columns grouped by, and `count` is the sub-aggregate that counts rows.
        """
        keys, columns = list(keys), {each: column.name for each, column in groups.items()}
        columns[Column(LINK, Type.TEXT)] = LINK
        details = []
        foldings: dict[tuple[DetailFunction, str], Folding] = {}
        for asked, name in self._asked.items():
            argument = asked.argument
            if argument not in columns:
                columns[argument] = f"k{len(keys)}"
                keys.append(Key(columns[argument], argument))
            column = columns[argument]
            if asked.function in FOLDED:
                of = asked.function, column
                column = foldings.setdefault(of, Folding(*of, f"h{len(foldings)}", count, argument.type)).column
            details.append(Detail(name, asked.function, column, argument.type, count, asked.parameter))
        return tuple(keys), tuple(details), tuple(foldings.values())


def _asked(sql: str, name: Token, operands: Sequence[Operand]) -> _Asked:
    called = name.text.lower()
    usage = DETAILED[called]
    if len(operands) != 1 + ("," in usage):
        raise QueryError(
            f"{called} with {len(operands)} argument{'' if len(operands) == 1 else 's'}", sql, name.start, usage
        )
    subject = operands[0]
    if subject.type is Type.BYTES:
        subject.fail(f"{called} over bytes", "a column that is no payload, or length(…) of it")
    if not any(columns_of(subject.bound)):
        subject.fail(f"{called} over a constant", usage)
    function = DetailFunction.QUANTILE if called == MEDIAN else DetailFunction(called)
    quantile = function in (DetailFunction.QUANTILE, DetailFunction.APPROX_QUANTILE)
    if quantile and subject.type not in NUMBERS:
        subject.fail(f"{called} over a value of type {subject.type}", " or ".join(NUMBERS))
    parameter = 0.5 if called == MEDIAN else 0.0
    if len(operands) > 1:
        parameter = _share(operands[1]) if quantile else _most(operands[1])
    return _Asked(function, subject.bound, parameter)


def _share(operand: Operand) -> float:
    """Read the share of a quantile."""
    bound = operand.bound
    if isinstance(bound, Literal) and isinstance(bound.value, int | float) and 0 <= bound.value <= 1:
        return float(bound.value)
    raise operand.error("a quantile that is no share", "a number from 0 to 1, for example 0.99")


def _most(operand: Operand) -> int:
    """Read how many values are named."""
    bound = operand.bound
    if isinstance(bound, Literal) and isinstance(bound.value, int) and 0 < bound.value <= MOST_NAMED:
        return bound.value
    raise operand.error("a number of values that is none", f"an integer from 1 to {MOST_NAMED}")
