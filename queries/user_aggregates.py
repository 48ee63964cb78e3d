"""Aggregates that users define in Python: a name, parts in GSQL over the argument `x`, and a function that finishes.

The parts are bounded aggregates, so they are kept next to the packets and merged like any other; the function sees them
once a window is final, as arrays over its groups.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from highlevel.aggregation import RESULT, AggregateError, Finish, UserColumn
from lowlevel.expressions.tree import Column, Expression
from lowlevel.expressions.types import Type
from queries.errors import QueryError
from queries.expression_text import expression_text
from queries.reserved_words import RESERVED
from queries.tokens import Token

if TYPE_CHECKING:
    from queries.aggregates import Aggregates

ARGUMENT = "x"
"""What parts call the argument."""

_NUMBER = Column(ARGUMENT, Type.INT)
"""The argument that a definition is tried with."""


@dataclass(frozen=True)
class UserAggregate:
    """A definition. `parts` are GSQL texts by the names that `finish` has for them."""

    name: str
    parts: tuple[tuple[str, str], ...]
    finish: Finish


DEFINED: dict[str, UserAggregate] = {}
"""The definitions of this process by their names in lower case. A plan holds what it uses: it needs none of them."""


def define(name: str, parts: Mapping[str, str], finish: Finish) -> None:
    """Define an aggregate, or define it anew. Raises AggregateError, with what was expected, where it is none."""
    from queries.part_binder import bind_part, known_functions

    if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
        raise AggregateError(f"got the name {name!r} of an aggregate, expected a word like rms")
    if name.upper() in RESERVED or name.lower() in known_functions():
        raise AggregateError(f"the name {name!r} is taken, expected one that GSQL does not have")
    if not parts:
        raise AggregateError(f"{name} has no parts, expected some like {{'total': 'sum(x)'}}")
    for part, text in parts.items():
        if not isinstance(part, str) or not part.isidentifier():
            raise AggregateError(f"{name}: got the part {part!r}, expected a word that the function has as a parameter")
        try:
            bind_part(name, part, text, _NUMBER, None)
        except QueryError as error:
            raise AggregateError(f"{name}: the part {part!r} is no bounded aggregate of {ARGUMENT}: {error}") from None
    _check_parameters(name, parts, finish)
    DEFINED[name.lower()] = UserAggregate(name.lower(), tuple(parts.items()), finish)


def _check_parameters(name: str, parts: Mapping[str, str], finish: Finish) -> None:
    """Refuse a function that cannot be called with the parts by their names."""
    if not callable(finish):
        raise AggregateError(f"{name}: got {type(finish).__name__} to finish with, expected a function of its parts")
    try:
        signature = inspect.signature(finish)
    except ValueError:
        return  # of some functions written in C it is not known
    try:
        signature.bind(**dict.fromkeys(parts))
    except TypeError as failure:
        wanted, had = ", ".join(signature.parameters) or "nothing", ", ".join(parts)
        message = f"{name}: its function takes {wanted}, and its parts are {had}: {failure}"
        raise AggregateError(message) from None


class UserColumns:
    """Collects the uses of one query as they are bound; equal ones are kept once."""

    def __init__(self, finished: dict[str, Expression]) -> None:
        """`finished` takes what the high level has in the place of each stand-in."""
        self._finished = finished
        self.asked: dict[str, UserColumn] = {}
        """Uses by their stand-ins; their parts are over stand-ins of aggregates."""

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.asked)

    def add(self, sql: str, name: Token, argument: Expression, aggregates: Aggregates) -> Column:
        """Take a use of the aggregate called `name`, its parts into `aggregates`; returns its stand-in."""
        from queries.part_binder import bind_part

        defined = DEFINED[name.text.lower()]
        stand_in = f"{defined.name}({expression_text(argument)})"
        if stand_in not in self.asked:
            try:
                parts = tuple(
                    (part, bind_part(defined.name, part, text, argument, aggregates)) for part, text in defined.parts
                )
            except QueryError as error:
                problem = f"{stand_in}, of which a part is '{error.sql}': {error.message}"
                raise QueryError(problem, sql, name.start, error.expected) from None
            column = f"u{len(self.asked)}"
            self.asked[stand_in] = UserColumn(column, stand_in, parts, defined.finish)
            self._finished[stand_in] = Column(column, RESULT, True)
        return Column(stand_in, RESULT, True)
