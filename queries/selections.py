"""Conditions of HAVING that compare the groups of a window: `heavy(0.05)`, `heavy(0.05, sum(len))`, `top(10, count)`.

While HAVING is bound, a column named after such a condition stands for it, as with aggregates.
"""

from __future__ import annotations

from collections.abc import Sequence

from highlevel.aggregation import Selection, SelectionKind
from highlevel.windows.kind import SessionWindow, TupleWindow, WindowKind
from lowlevel.expressions.tree import Column, Expression, Literal
from lowlevel.expressions.types import NUMBERS, Type
from queries.comparisons import Operand
from queries.errors import QueryError
from queries.expression_text import expression_text
from queries.tokens import Token

SELECTED: dict[str, str] = {
    SelectionKind.HEAVY: "heavy(0.05) or heavy(0.05, sum(len))",
    SelectionKind.TOP: "top(10, sum(len))",
}
"""How each condition is called, by its name."""

MOST_GROUPS = 1_000_000
"""Groups that `top` may select in a window."""


class Selections:
    """Collects them as they are bound; equal ones are kept once."""

    def __init__(self, finished: dict[str, Expression]) -> None:
        """`finished` takes what the high level has in the place of each stand-in."""
        self._finished = finished
        self.asked: dict[str, Selection] = {}
        """Selections by their stand-ins; their values are over stand-ins of aggregates."""
        self._first: Token | None = None

    def add(self, sql: str, name: Token, operands: Sequence[Operand], count: Expression) -> Column:
        """Take the one called `name`; returns its stand-in. `count` is what is compared where nothing is named."""
        kind = SelectionKind(name.text.lower())
        usage = SELECTED[kind]
        if not 1 <= len(operands) <= 2 or (len(operands) == 1 and kind is SelectionKind.TOP):
            problem = f"{kind} with {len(operands)} argument{'' if len(operands) == 1 else 's'}"
            raise QueryError(problem, sql, name.start, usage)
        value = operands[1].bound if len(operands) == 2 else count
        if value.type not in NUMBERS:
            operands[1].fail(f"{kind} by a value of type {value.type}", " or ".join(NUMBERS))
        parameter = _share(operands[0]) if kind is SelectionKind.HEAVY else _most(operands[0])
        stand_in = f"{kind}({parameter}, {expression_text(value)})"
        if stand_in not in self.asked:
            column = f"w{len(self.asked)}"
            self.asked[stand_in] = Selection(column, kind, value, parameter)
            self._finished[stand_in] = Column(column, Type.BOOL)
        self._first = self._first or name
        return Column(stand_in, Type.BOOL)

    def check(self, sql: str, window: WindowKind, emit_late: bool) -> None:
        """Refuse windows that are a group's own, and rows that come when a window's groups are gone."""
        if self._first is None:
            return
        shown, place = self._first.text.lower(), self._first.start
        if isinstance(window, SessionWindow) or (isinstance(window, TupleWindow) and window.partitioned):
            problem = f"{shown} over windows that each group has for itself"
            raise QueryError(problem, sql, place, "windows that groups share")
        if emit_late:
            raise QueryError(f"{shown} over rows that are late", sql, place, "LATE DROP: other groups are gone by then")


def _share(operand: Operand) -> str:
    bound = operand.bound
    if isinstance(bound, Literal) and bound.type in NUMBERS and 0 <= float(str(bound.value)) <= 1:
        return str(bound.value)
    raise operand.error("a share that is none", "a number from 0 to 1, for example 0.05")


def _most(operand: Operand) -> str:
    bound = operand.bound
    if isinstance(bound, Literal) and isinstance(bound.value, int) and 0 < bound.value <= MOST_GROUPS:
        return str(bound.value)
    raise operand.error("a number of groups that is none", f"an integer from 1 to {MOST_GROUPS}")
