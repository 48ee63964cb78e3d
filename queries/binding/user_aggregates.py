"""User-defined aggregates: a name, parts in GSQL over the argument `x`, and a Python function of the parts.

The parts are aggregates with a state of fixed size, so the low level computes them and the high level merges them. When
a window is final, the function receives them as arrays over the window's groups. `queries.binding.definitions` defines
aggregates.
"""

from __future__ import annotations

from capture.lazy_dataclasses import dataclass
from highlevel.aggregation import RESULT, Finish, UserColumn
from lowlevel.expressions.tree import Column, Expression
from queries.text.printer import expression_text

ARGUMENT = "x"
"""The name of the argument in the parts."""


@dataclass(frozen=True)
class UserAggregate:
    """A definition. `parts` are pairs (parameter of `finish`, GSQL text)."""

    name: str
    parts: tuple[tuple[str, str], ...]
    finish: Finish


DEFINED: dict[str, UserAggregate] = {}
"""The definitions of this process by their names in lower case. A plan contains the definitions that it uses."""


class UserColumns:
    """The calls of user-defined aggregates in one query. Equal calls are stored once."""

    def __init__(self, high_level_expressions: dict[str, Expression]) -> None:
        """`high_level_expressions` receives the expression of the high level for each placeholder."""
        self._high_level_expressions = high_level_expressions
        self.uses: dict[str, UserColumn] = {}
        """Calls by their placeholders. Their parts contain placeholders of aggregates."""

    def __bool__(self) -> bool:
        """Return whether the query has such calls."""
        return bool(self.uses)

    def column(self, name: str, argument: Expression) -> Column:
        """Return the placeholder of an aggregate of `argument`."""
        return Column(f"{name}({expression_text(argument)})", RESULT, True)

    def add(self, placeholder: Column, definition: UserAggregate, parts: tuple[Expression, ...]) -> None:
        """Add a call. `parts` are the bound parts of the definition, in its order."""
        names = (name for name, _ in definition.parts)
        column = f"u{len(self.uses)}"
        bound = tuple(zip(names, parts, strict=True))
        self.uses[placeholder.name] = UserColumn(column, placeholder.name, bound, definition.finish)
        self._high_level_expressions[placeholder.name] = Column(column, RESULT, True)
