"""Thresholds for a switch to eager and back: a memory model (Li 2008, §6.3.2, Equation 6.7, Condition 6.9).

With the rate `vol` an eager group costs `aggr * wed / SLIDE` bytes, a partial for each open window. A lazy group costs
`tup * sum_k vol_k * (wed - offset_k)` bytes: tuples of source k arrive offset_k after the most advanced source, and are
stored for a shorter time. The window extent distance wed is the progress of the most advanced source from the first
tuple of a window to its close. Condition 6.9 (eager is cheaper than lazy), with `vol * wed` for the volume of the
window:

    vol * wed  >  aggr * wed / (tup * SLIDE)  +  sum_k vol_k * offset_k

With the offsets moved to the left, the left side is `sum_k vol_k * (wed - offset_k)`, the number
of received tuples that are not expired. AdaptWID counts these, so rates and offsets need no estimate.

With only one threshold a group near it would switch all the time. So the threshold for lazy is HYSTERESIS times the
threshold for eager.
"""

from __future__ import annotations

from typing import Protocol

from capture.lazy_dataclasses import dataclass

HYSTERESIS = 0.5


@dataclass(frozen=True, slots=True)
class Thresholds:
    """A group becomes eager with more than `up` unexpired tuples, and lazy with fewer than `down`.

    >>> Thresholds(0, 0).of(open_windows=10, partial_bytes=48, tuple_bytes=40)  # constant thresholds
    Thresholds(up=0, down=0)
    """

    up: float
    down: float

    def __post_init__(self) -> None:
        """Raise ValueError if `down` is above `up`."""
        if not 0 <= self.down <= self.up:
            raise ValueError(
                f"a group would switch all the time: got down {self.down} and up {self.up}, expected 0 <= down <= up"
            )

    def of(self, open_windows: float, partial_bytes: int, tuple_bytes: int) -> Thresholds:
        """Return these constant thresholds."""
        return self


ALWAYS_EAGER = Thresholds(0, 0)
"""Every tuple into its partials: WID."""

ALWAYS_LAZY = Thresholds(float("inf"), 0)
"""Every tuple into the buffer until its windows close."""


class Policy(Protocol):
    """Method to compute thresholds from the current cost of a group."""

    def of(self, open_windows: float, partial_bytes: int, tuple_bytes: int) -> Thresholds:
        """Return the thresholds for `open_windows` open windows and these sizes of a partial and a tuple."""
        ...


@dataclass(frozen=True, slots=True)
class MemoryModel:
    """Minimise the number of bytes.

    >>> MemoryModel(hysteresis=0.5).of(open_windows=10, partial_bytes=48, tuple_bytes=40)
    Thresholds(up=12.0, down=6.0)
    """

    hysteresis: float = HYSTERESIS

    def __post_init__(self) -> None:
        """Raise an error if the hysteresis is not a share."""
        if not 0 < self.hysteresis <= 1:
            raise ValueError(f"hysteresis must be above 0 and at most 1, got {self.hysteresis}")

    def of(self, open_windows: float, partial_bytes: int, tuple_bytes: int) -> Thresholds:
        """Return Condition 6.9 as a number of tuples for `up`, and a share of it for `down`."""
        up = partial_bytes * open_windows / tuple_bytes
        return Thresholds(up, self.hysteresis * up)
