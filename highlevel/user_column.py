"""Aggregates that users define, as a plan has them (`wiretide.aggregate`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from capture.errors import WiretideError
from lowlevel.expressions.tree import Expression
from lowlevel.expressions.types import Type

Finish = Callable[..., Any]
"""Takes an array per part by the parts' names, and returns the results in an array of the same length."""

RESULT = Type.FLOAT
"""The type of every result."""


class AggregateError(WiretideError, ValueError):
    """A user's aggregate that is not one: fix its definition."""

    status = 2


@dataclass(frozen=True, slots=True)
class UserColumn:
    """One use of such an aggregate in a query. Its result is the column `name`, FLOAT.

    `shown` is the use as messages name it. `parts` are expressions over merged sub-aggregates, by the names that
    `finish` has for them.
    """

    name: str
    shown: str
    parts: tuple[tuple[str, Expression], ...]
    finish: Finish
