"""How a ring that fills raises the sampling rate, and how the rate falls again: the rule, step by step.

    share of the ring's bytes that wait                        k
    over 200 ms more than 1/2 in the mean, and not falling     1 more, whenever that is so
    neither                                                    stays
    up to 1/8 for as long as `patience`                        1 less, whenever that is so

A ring is there for bursts: what it takes in and gives back within 100 ms is none of this rule's business. Nor is one
that is being emptied, however slowly: its mean is below that of the 200 ms before.

A node that k relieves has an empty ring, and would be overloaded again with less: how much comes can be seen in no
other way than by trying. So patience is 1 s at first, and doubles, up to 64 s, whenever k must rise again within 64 s
of having fallen. Under a steady overload the rate then changes about twice in a minute.
"""

from __future__ import annotations

from capture.units import SECOND

STEEPEST = 10
"""The largest k."""

HIGH, LOW = 1 / 2, 1 / 8
"""Shares of a ring: the mean above which k rises, and the share up to which it falls."""

WINDOW = SECOND // 5
"""Nanoseconds that a mean is of, at least."""

SHORTEST, LONGEST = SECOND, 64 * SECOND
"""Nanoseconds of patience."""


class RingPressure:
    """Follows one ring, whose occupancy it is told with the time; no clock and no I/O of its own.

    `k` is what the ring asks for, `patience` (ns) how long it must have been nearly empty for less.
    """

    def __init__(self) -> None:
        """Begin with an empty ring."""
        self.k = 0
        self.patience = SHORTEST
        self._fell: int | None = None  # when k last fell, unless it has risen since
        self._seen: int | None = None  # the last look; None begins anew
        self._calm_since = self._window_since = 0
        self._filled = 0.0  # the window's ns, times the share
        self._before = 0.0  # mean of the window before, where it was above HIGH

    def follow(self, share: float, now: int) -> int:
        """Follow a ring of which a `share` of the bytes waited since the last call, until `now` (ns); return k."""
        if self._seen is None or now < self._seen:
            self._seen = self._calm_since = self._window_since = now
            self._filled = 0.0
            return self.k
        self._filled += share * (now - self._seen)
        self._seen = now
        if share > LOW:
            self._calm_since = now
        if self.k and now - self._calm_since >= self.patience:
            self.k -= 1
            self._fell, self._seen = now, None
        elif (lasted := now - self._window_since) >= WINDOW:
            self._end_window(self._filled / lasted, now)
        return self.k

    def pass_over(self) -> None:
        """Take it that nothing is known of the time since the last call: blocks were refused, whatever the ring held.

        What `follow` is told next begins anew. Neither a mean nor a calm reaches over such a time.
        """
        self._seen = None

    def _end_window(self, mean: float, now: int) -> None:
        rising = HIGH < mean >= self._before
        self._before = mean if mean > HIGH else 0.0
        self._window_since, self._filled = now, 0.0
        if rising and self.k < STEEPEST:
            if self._fell is not None:
                self.patience = min(2 * self.patience, LONGEST) if now - self._fell <= LONGEST else SHORTEST
            # The tables are emptied now: that is not time in which the new rate has failed.
            self.k, self._fell, self._seen = self.k + 1, None, None
