"""Define user-defined aggregates and functions. A definition is checked before a query uses it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from highlevel.aggregation import AggregateError, Finish
from highlevel.plan.answer_nodes import RowFunctionKind
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from queries.binding.aggregates import BOUNDED_AGGREGATES, HOLISTIC_AGGREGATES, SELECTIONS, Aggregates
from queries.binding.binder import bind_part
from queries.binding.functions import FUNCTIONS
from queries.binding.user_aggregates import ARGUMENT, DEFINED, UserAggregate
from queries.text.errors import QueryError
from queries.text.lexer import RESERVED_WORDS
from queries.text.windows import CALLS

_NUMERIC_ARGUMENT = Column(ARGUMENT, Type.INT)
"""The argument over which the parts of a definition are checked."""


def define(name: str, parts: Mapping[str, str], finish: Finish) -> None:
    """Define an aggregate, or replace its definition. Raises AggregateError for a wrong definition."""
    if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
        raise AggregateError(f"got the name {name!r} of an aggregate, expected a word like rms")
    if name.lower() in taken_names():
        raise AggregateError(f"the name {name!r} is taken, expected a name that GSQL does not use")
    if not parts:
        raise AggregateError(f"{name} has no parts, expected parts like {{'total': 'sum(x)'}}")
    for part, text in parts.items():
        if not isinstance(part, str) or not part.isidentifier():
            raise AggregateError(f"{name}: got the part {part!r}, expected a word that the function has as a parameter")
        try:
            _try_part(name, part, text)
        except QueryError as error:
            raise AggregateError(
                f"{name}: the part {part!r} is not a bounded aggregate of {ARGUMENT}: {error}"
            ) from None
    _check_parameters(name, parts, finish)
    DEFINED[name.lower()] = UserAggregate(name.lower(), tuple(parts.items()), finish)


def taken_names() -> set[str]:
    """Return the names, in lower case, that user-defined aggregates and functions must not have."""
    functions = (*BOUNDED_AGGREGATES, *HOLISTIC_AGGREGATES, *SELECTIONS, *FUNCTIONS, *CALLS, *RowFunctionKind)
    return {name.lower() for name in (*functions, *RESERVED_WORDS)}


def _try_part(name: str, part: str, text: str) -> None:
    """Bind a part of a definition over a number.

    Raises QueryError unless it is an aggregate with a state of fixed size.
    """
    aggregates = Aggregates(spread=False)
    bind_part(f"the part {part} of {name}", text, _NUMERIC_ARGUMENT, aggregates)
    if aggregates.holistic or aggregates.user_columns:
        raise QueryError("got an aggregate without parts of a fixed size", text, 0, ", ".join(BOUNDED_AGGREGATES))


def _check_parameters(name: str, parts: Mapping[str, str], finish: Finish) -> None:
    """Raise AggregateError if `finish` cannot be called with the parts as keyword arguments."""
    if not callable(finish):
        raise AggregateError(f"{name}: got {type(finish).__name__} to finish with, expected a function of its parts")
    try:
        signature = inspect.signature(finish)
    except ValueError:
        return  # some functions written in C have no signature
    try:
        signature.bind(**dict.fromkeys(parts))
    except TypeError as failure:
        wanted, had = ", ".join(signature.parameters) or "nothing", ", ".join(parts)
        message = f"{name}: its function takes {wanted}, and its parts are {had}: {failure}"
        raise AggregateError(message) from None
