"""Gigascope's running aggregates: sums over several windows of a group. They need CLOSING WHEN.

running_sum(x)                 all windows since the group began
moving_sum(x, 5)               the last 5 windows
moving_sum_exp(x, 5, 0.5)      the last 5 windows; a window that is n windows old has the weight 0.5 ** n
"""

from __future__ import annotations

from collections.abc import Sequence

from capture.lazy_dataclasses import dataclass
from lowlevel.expressions.tree import Column, Expression, Literal
from lowlevel.expressions.types import Type
from queries.binding.comparisons import Operand
from queries.text.errors import QueryError
from queries.text.printer import expression_text
from queries.text.tree import Word

RUNNING_AGGREGATES: dict[str, str] = {
    "running_sum": "running_sum(x)",
    "moving_sum": "moving_sum(x, 5)",
    "moving_sum_exp": "moving_sum_exp(x, 5, 0.5)",
}
"""Running aggregates by name, each with an example of its call."""

MAX_WINDOWS = 1_000
"""Largest number of windows of a moving sum. Each group stores one sum for each of these windows."""


@dataclass(frozen=True, slots=True)
class RunningUse:
    """A running aggregate over `total`, the sum of one window. `column` is its placeholder.

    `window_count`: number of windows; None for all windows. `decay`: weight of a window divided by the weight of the
    next window.
    """

    column: Column
    total: Expression
    window_count: int | None
    decay: float


class RunningAggregates:
    """The running aggregates of one query. Equal aggregates are computed once."""

    def __init__(self) -> None:
        """Begin without aggregates."""
        self.uses: dict[str, RunningUse] = {}
        """Running aggregates by the name of their placeholder."""

    def add(self, sql: str, name: Word, operands: Sequence[Operand], total: Column) -> Column:
        """Add an aggregate and return its placeholder. Raises QueryError for wrong arguments."""
        function = name.text.lower()
        length = None if function == "running_sum" else _window_count(function, operands[1])
        decay = _decay(function, operands[2]) if function == "moving_sum_exp" else 1.0
        call = f"{function}({', '.join(expression_text(operand.bound) for operand in operands)})"
        kind = Type.FLOAT if function == "moving_sum_exp" else total.type
        return self.uses.setdefault(call, RunningUse(Column(call, kind), total, length, decay)).column


def check_arguments(sql: str, name: Word, operands: Sequence[Operand]) -> None:
    """Raise QueryError for a wrong number of arguments, or a first argument that is not a number."""
    function = name.text.lower()
    if len(operands) != RUNNING_AGGREGATES[function].count(",") + 1:
        given = "1 argument" if len(operands) == 1 else f"{len(operands)} arguments"
        raise QueryError(f"{function} with {given}", sql, name.start, RUNNING_AGGREGATES[function])
    if operands[0].bound.type not in (Type.INT, Type.FLOAT):
        operands[0].fail(f"{function} over a value of type {operands[0].bound.type}", "an integer or a float")


def _window_count(function: str, operand: Operand) -> int:
    """Return a number of windows."""
    match operand.bound:
        case Literal(value=int(length), type=Type.INT) if 1 <= length <= MAX_WINDOWS:
            return length
    raise operand.error(f"{function} over an invalid number of windows", f"an integer from 1 to {MAX_WINDOWS}")


def _decay(function: str, operand: Operand) -> float:
    """Return the weight of a window divided by the weight of the next window."""
    match operand.bound:
        case Literal(value=int(decay) | float(decay), type=Type.INT | Type.FLOAT) if 0 < decay <= 1:
            return float(decay)
    raise operand.error(f"{function} with an invalid decay", "a number above 0 and at most 1, for example 0.5")
