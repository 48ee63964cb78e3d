"""Thresholds for a switch to eager and back: a memory model (Li 2008, §6.3.2, Equation 6.7, Condition 6.9).

The window extent distance `wed` is the progress of the most advanced source from the first tuple of a window to its
close. A group with `vol` tuples per time costs:

* eager: `aggr * wed / SLIDE` bytes, a partial of `aggr` bytes for each open window.
* lazy: `tup * sum_k vol_k * (wed - offset_k)` bytes, `tup` bytes per tuple. Tuples of source k arrive `offset_k` after
  the most advanced source, so they are stored for a shorter time.

Condition 6.9, eager is cheaper than lazy:

    vol * wed  >  aggr * wed / (tup * SLIDE)  +  sum_k vol_k * offset_k

With the offsets on the left, the left side is `sum_k vol_k * (wed - offset_k)`: the number of received tuples that have
not expired. AdaptWID counts these tuples, so it need not estimate rates and offsets.

With one threshold a group near it would switch again and again. So the threshold for a switch to lazy is HYSTERESIS
times the threshold for a switch to eager.
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
            raise ValueError(f"got down {self.down} and up {self.up}, expected 0 <= down <= up")

    def of(self, open_windows: float, partial_bytes: int, tuple_bytes: int) -> Thresholds:
        """Return these constant thresholds."""
        return self


ALWAYS_EAGER = Thresholds(0, 0)
"""Every tuple into its partials: WID."""

ALWAYS_LAZY = Thresholds(float("inf"), 0)
"""Every tuple into the buffer until its windows close."""


class Policy(Protocol):
    """Computes thresholds from the current cost of a group."""

    def of(self, open_windows: float, partial_bytes: int, tuple_bytes: int) -> Thresholds:
        """Return the thresholds for `open_windows` open windows and these sizes of a partial and a tuple."""
        ...


@dataclass(frozen=True, slots=True)
class MemoryModel:
    """A policy that minimises the number of bytes.

    >>> MemoryModel(hysteresis=0.5).of(open_windows=10, partial_bytes=48, tuple_bytes=40)
    Thresholds(up=12.0, down=6.0)
    """

    hysteresis: float = HYSTERESIS

    def __post_init__(self) -> None:
        """Raise an error if the hysteresis is not a share."""
        if not 0 < self.hysteresis <= 1:
            raise ValueError(f"hysteresis must be above 0 and at most 1, got {self.hysteresis}")

    def of(self, open_windows: float, partial_bytes: int, tuple_bytes: int) -> Thresholds:
        """Return the number of tuples from Condition 6.9 as `up`, and a share of it as `down`."""
        up = partial_bytes * open_windows / tuple_bytes
        return Thresholds(up, self.hysteresis * up)
