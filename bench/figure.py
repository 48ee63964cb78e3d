"""A measured quantity: the median of several runs, with the smallest and the largest value."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """The values of several runs, at least one, in one unit.

    >>> Figure((3.0, 1.0, 2.0)).median
    2.0
    >>> str(Figure((3.0, 1.0, 2.0)))
    '2 (1..3)'
    """

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle value, on which one disturbed run has no effect."""
        return statistics.median(self.values)

    def rate(self, amount: float) -> Figure:
        """Convert seconds to rates: `amount` per second."""
        return Figure(tuple(amount / value for value in self.values))

    def __str__(self) -> str:
        low, high = min(self.values), max(self.values)
        return f"{self.median:.3g} ({low:.3g}..{high:.3g})" if len(self.values) > 1 else f"{self.median:.3g}"


def quotient(one: Figure, other: Figure) -> Figure:
    """Return, for each turn, the value of `one` divided by the value of `other`. The two steps took turns.

    The machine has slow and fast phases of minutes. Both values of a turn are of the same phase, so it cancels out.

    >>> quotient(Figure((2.0, 6.0, 3.0)), Figure((1.0, 3.0, 1.0)))
    Figure(values=(2.0, 2.0, 3.0))
    """
    return Figure(tuple(mine / yardstick for mine, yardstick in zip(one.values, other.values, strict=True)))


def figure(values: Iterable[float]) -> Figure:
    """Collect the values of several runs."""
    return Figure(tuple(values))
