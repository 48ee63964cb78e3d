"""Groups as plain rows."""

from collections.abc import Callable
from typing import Any

import numpy as np


def flat(function: Callable[..., int]) -> Callable[..., int]:
    """A kernel sees the memory of a matrix as one row of numbers."""

    def call(*arguments: Any) -> int:
        return function(*[each.reshape(-1) if isinstance(each, np.ndarray) else each for each in arguments])

    return call
