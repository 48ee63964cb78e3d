"""Lull: where a source is silent, the clock goes on for it.

On an empty poll at `now` the source is behind if its time is more than a threshold s older. Its time is then set to
`now - s`, and promised: at the next poll again, so that in a lull windows close s after their end. It is right if and
only if no row is delivered more than s after its ts by that clock, delay and offset of the two clocks together.

A source that has never spoken is covered as well. Its first rows are then believed by how near they are to the clock.

**Silence is an empty poll.** While rows wait to be read, nobody polls in vain and so nobody calls `tick`, however long
it takes: back-pressure closes no window. The clock is the caller's: the system's for live links, that of the trace
(`lowlevel.promises.lull`) in replays.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from lowlevel.promises.guard import AGREEING
from lowlevel.promises.promise import Promise
from lowlevel.punctuation import BEGINNING
from lowlevel.rows.readers import Rows

# The clock of a replay: the newest time on any of its links.
#
# System time says nothing about packets that were recorded last year. In a replay the trace's own time drives the lull
# rule: a silent link is behind when the others have gone on without it. Where all are silent, time stands still.


class TraceClock:
    """Time as the links of a replay tell it; any threads may call it. BEGINNING before the first of them has begun."""

    def __init__(self) -> None:
        """Begin before any row."""
        self._now = BEGINNING
        self._moving = Lock()

    def __call__(self) -> int:
        """Return the time, ns."""
        return self._now

    def advance(self, newest: int) -> None:
        """Take it that a link has come as far as `newest`, a time that its guard believes."""
        with self._moving:
            self._now = max(self._now, newest)


@dataclass(frozen=True, slots=True)
class LullRule:
    """The threshold of an input's lulls, ns, and the clock that goes on in them, which returns ns since the epoch."""

    threshold: int
    clock: Callable[[], int] = time.time_ns


class Lull(Promise):
    """Another promise, and in lulls `threshold` ns behind the clock. Whichever is more holds."""

    def __init__(self, inner: Promise, threshold: int) -> None:
        """Take `inner` over; ValueError where the threshold is negative."""
        if threshold < 0:
            raise ValueError(f"got a lull of {threshold} ns, expected 0 or more")
        super().__init__(inner.guard)
        self.inner = inner
        self.threshold = threshold
        self._clock = BEGINNING
        self._leaps = 0

    def advance(self, rows: Rows) -> None:
        """Take in rows as `inner` does."""
        self.inner.advance(rows)

    def tick(self, now: int) -> None:
        """Promise `now - threshold` where the source's time is older; a clock that has not begun says nothing."""
        if now == BEGINNING or not self._believes(now):
            return
        due = max(BEGINNING + 1, now - self.threshold)
        if self.newest >= due:
            return
        self.guard.believe(due)
        self.lulls += due > self.low
        self.declare(due)

    def _believes(self, now: int) -> bool:
        """Whether the clock may say so: one that leaps too far has to say it AGREEING times in a row."""
        leaps = self._clock != BEGINNING and now - self._clock > self.guard.jump
        self._leaps = self._leaps + 1 if leaps else 0
        if leaps and self._leaps < AGREEING:
            return False
        self._clock, self._leaps = now, 0
        return True

    def end_block(self) -> None:
        """As `inner` does."""
        self.inner.end_block()

    def declare(self, low: int) -> None:
        """As `inner` does, whose rows are then counted as below the promise where they are."""
        self.inner.declare(low)

    @property
    def low(self) -> int:
        """The low watermark of both."""
        return self.inner.low
