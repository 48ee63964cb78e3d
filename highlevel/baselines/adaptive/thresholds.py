"""When a group becomes eager, and when lazy again: a memory model (Li 2008, §6.3.2, Eq. 6.7, Cond. 6.9).

A group of rate `vol` costs `aggr * wed / SLIDE` bytes eager, a partial for each window that is open, and lazy
`tup * sum_k vol_k * (wed - offset_k)`: tuples of source k come offset_k behind the source that is furthest, and stay so
much shorter. wed, the window extent distance, is how far the furthest source moves from the first tuple of a window to
its close. Cond. 6.9 is eager below lazy, with `vol * wed` for the volume of the window:

    vol * wed  >  aggr * wed / (tup * SLIDE)  +  sum_k vol_k * offset_k

The offsets are on both sides. What is left where they are taken away, `sum_k vol_k * (wed - offset_k)`, are the tuples
that have come and are not expired: AdaptWID counts those, so that neither rates nor offsets have to be estimated.

With the same threshold in both directions a group near it would switch all the time: back is at HYSTERESIS of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

HYSTERESIS = 0.5


@dataclass(frozen=True, slots=True)
class Thresholds:
    """A group of more than `up` unexpired tuples becomes eager, one of fewer than `down` lazy.

    >>> Thresholds(0, 0).of(open_windows=10, partial_bytes=48, tuple_bytes=40)  # fixed ones hold always
    Thresholds(up=0, down=0)
    """

    up: float
    down: float

    def __post_init__(self) -> None:
        """Refuse thresholds between which a group would be both."""
        if not 0 <= self.down <= self.up:
            raise ValueError(
                f"a group would switch all the time: got down {self.down} and up {self.up}, expected 0 <= down <= up"
            )

    def of(self, open_windows: float, partial_bytes: int, tuple_bytes: int) -> Thresholds:
        """Return themselves."""
        return self


ALWAYS_EAGER = Thresholds(0, 0)
"""Every tuple into its partials: WID."""

ALWAYS_LAZY = Thresholds(float("inf"), 0)
"""Every tuple into the buffer until its windows close."""


class Policy(Protocol):
    """How thresholds follow from what a group costs at the moment."""

    def of(self, open_windows: float, partial_bytes: int, tuple_bytes: int) -> Thresholds:
        """Return the thresholds while so many windows are open, at these bytes for a partial and for a tuple."""
        ...


@dataclass(frozen=True, slots=True)
class MemoryModel:
    """Whichever takes fewer bytes.

    >>> MemoryModel(hysteresis=0.5).of(open_windows=10, partial_bytes=48, tuple_bytes=40)
    Thresholds(up=12.0, down=6.0)
    """

    hysteresis: float = HYSTERESIS

    def __post_init__(self) -> None:
        """Refuse what is no part of the threshold."""
        if not 0 < self.hysteresis <= 1:
            raise ValueError(f"hysteresis is a part of the threshold, above 0 and up to 1, got {self.hysteresis}")

    def of(self, open_windows: float, partial_bytes: int, tuple_bytes: int) -> Thresholds:
        """Return Cond. 6.9 as a number of tuples, and its part for the way back."""
        up = partial_bytes * open_windows / tuple_bytes
        return Thresholds(up, self.hysteresis * up)
