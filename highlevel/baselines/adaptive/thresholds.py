"""Thresholds at which a group switches between eager and lazy aggregation (Li 2008, §6.3.2).

Eager aggregation keeps a partial for each open window. Lazy aggregation stores the tuples until their windows close. A
memory model determines the thresholds (Equation 6.7, Condition 6.9). The window extent distance `wed` is the time by
which the most advanced source progresses between the first tuple of a window and the close of the window. A group
receives `vol_k` tuples of source k per time, and `vol` tuples of all sources. It costs:

* eager: `aggr * wed / SLIDE` bytes, a partial of `aggr` bytes for each open window.
* lazy: `tup * sum_k vol_k * (wed - offset_k)` bytes. `tup` is the size of a tuple. Tuples of source k arrive `offset_k`
  after the most advanced source, so they are stored for a shorter time.

Condition 6.9 states that eager is cheaper than lazy:

    vol * wed  >  aggr * wed / (tup * SLIDE)  +  sum_k vol_k * offset_k

If the sum with the offsets is moved to the left side, the left side becomes `sum_k vol_k * (wed - offset_k)`, because
vol is the sum of all vol_k. This is the number of tuples that have been received and have not expired. The operator
that uses these thresholds (AdaptWID) counts these tuples. So it need not estimate rates and offsets.

With only one threshold, a group near this threshold would switch repeatedly. So the threshold for a switch to lazy
is HYSTERESIS times the threshold for a switch to eager.
"""

from __future__ import annotations

from typing import Protocol

from capture.lazy_dataclasses import dataclass

HYSTERESIS = 0.5
"""Threshold for a switch to lazy, divided by the threshold for a switch to eager."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """A group becomes eager with more than `eager_above` unexpired tuples, and lazy with fewer than `lazy_below`.

    >>> Thresholds(0, 0).for_group(open_windows=10, partial_bytes=48, tuple_bytes=40)  # constant thresholds
    Thresholds(eager_above=0, lazy_below=0)
    """

    eager_above: float
    lazy_below: float

    def __post_init__(self) -> None:
        """Raise ValueError if `lazy_below` is negative or above `eager_above`."""
        if not 0 <= self.lazy_below <= self.eager_above:
            raise ValueError(
                f"got lazy_below {self.lazy_below} and eager_above {self.eager_above}, "
                "expected 0 <= lazy_below <= eager_above"
            )

    def for_group(self, open_windows: float, partial_bytes: int, tuple_bytes: int) -> Thresholds:
        """Return these constant thresholds."""
        return self


ALWAYS_EAGER = Thresholds(0, 0)
"""Each tuple is added at once to the partials of its windows (the method WID, window ID, of Li 2008)."""

ALWAYS_LAZY = Thresholds(float("inf"), 0)
"""Each tuple is stored until its windows close."""


class ThresholdPolicy(Protocol):
    """Computes thresholds from the current cost of a group."""

    def for_group(self, open_windows: float, partial_bytes: int, tuple_bytes: int) -> Thresholds:
        """Return the thresholds for `open_windows` open windows and these sizes of a partial and a tuple."""
        ...


@dataclass(frozen=True, slots=True)
class MemoryModel:
    """A policy that minimises the number of bytes.

    >>> MemoryModel(hysteresis=0.5).for_group(open_windows=10, partial_bytes=48, tuple_bytes=40)
    Thresholds(eager_above=12.0, lazy_below=6.0)
    """

    hysteresis: float = HYSTERESIS

    def __post_init__(self) -> None:
        """Raise ValueError if the hysteresis is not above 0 and at most 1."""
        if not 0 < self.hysteresis <= 1:
            raise ValueError(f"hysteresis must be above 0 and at most 1, got {self.hysteresis}")

    def for_group(self, open_windows: float, partial_bytes: int, tuple_bytes: int) -> Thresholds:
        """Return the number of tuples from Condition 6.9 as `eager_above`, and a share of it as `lazy_below`."""
        eager_above = partial_bytes * open_windows / tuple_bytes
        return Thresholds(eager_above, self.hysteresis * eager_above)
