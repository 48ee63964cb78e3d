"""Groups as plain rows."""

from collections.abc import Callable
from typing import Any

import numpy as np


def flat(function: Callable[..., int]) -> Callable[..., int]:
    """A kernel sees the memory of a matrix as one row of numbers."""

    def call(*arguments: Any) -> int:
        return function(*map(flat_value, arguments))

    return call


def flat_value(value: Any) -> Any:
    """A matrix as one row of numbers, also in the fields of a record."""
    if isinstance(value, tuple):
        return type(value)(*map(flat_value, value))
    return value.reshape(-1) if isinstance(value, np.ndarray) else value
