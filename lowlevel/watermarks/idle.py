"""Idle links: while a link has no data, the clock advances its watermark (the lull rule).

The rule has a threshold s. An empty poll is a poll that finds no data. If the newest time of the link is older than
`now - s` at an empty poll, the newest time and the watermark become `now - s`. So windows of an idle link close s after
their end. The watermark is right if and only if every row arrives at most s after its ts. So s must be at least the
delay of rows plus the difference between the clock of the rows and this clock.

The rule also applies to a link without a row so far. Its first rows are then accepted if they are near the clock.

**Only an empty poll shows that a link is idle.** While rows wait to be read, no poll is empty and `tick` is not called.
So a slow node does not close windows too early. The caller passes the time: for live links the system time, for replays
the time of the trace (`ReplayClock`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

from capture.lazy_dataclasses import dataclass
from lowlevel.punctuation import BEGINNING
from lowlevel.rows.readers import Rows
from lowlevel.watermarks.generators import WatermarkGenerator
from lowlevel.watermarks.jumps import AGREEING_ROWS


class ReplayClock:
    """The clock of a replay: the newest time on any of its links, or BEGINNING before the first row. Thread safe.

    The system time has no relation to packets that were recorded last year. So the idle rule uses the time of the
    trace: the watermark of an idle link follows the other links. If all links are idle, the time does not change.
    """

    def __init__(self) -> None:
        """Start with BEGINNING."""
        self._now = BEGINNING
        self._lock = Lock()

    def __call__(self) -> int:
        """Return the time, ns."""
        return self._now

    def advance(self, newest: int) -> None:
        """Advance the clock to `newest`, an accepted time of a link."""
        with self._lock:
            self._now = max(self._now, newest)


@dataclass(frozen=True, slots=True)
class IdleRule:
    """The idle threshold of an input in ns, and a clock that returns ns since the epoch."""

    threshold: int
    clock: Callable[[], int] = time.time_ns


class IdleWatermark(WatermarkGenerator):
    """The watermark of another generator.

    While the link is idle, it is at least the clock's time minus `threshold` ns.
    """

    def __init__(self, inner: WatermarkGenerator, threshold: int) -> None:
        """Extend the generator `inner`. Raises ValueError if the threshold is negative."""
        if threshold < 0:
            raise ValueError(f"got a lull of {threshold} ns, expected 0 or more")
        super().__init__(inner.guard)
        self.inner = inner
        self.threshold = threshold
        self._last_clock_time = BEGINNING
        self._leap_count = 0

    def advance(self, rows: Rows) -> None:
        """Pass rows to `inner`."""
        self.inner.advance(rows)

    def tick(self, now: int) -> None:
        """Advance newest time and watermark to `now - threshold`, if they are older.

        If `now` is BEGINNING, do nothing.
        """
        if now == BEGINNING or not self._accepts(now):
            return
        lower_bound = max(BEGINNING + 1, now - self.threshold)
        if self.newest >= lower_bound:
            return
        self.guard.accept(lower_bound)
        self.lulls += lower_bound > self.watermark
        self.declare(lower_bound)

    def _accepts(self, now: int) -> bool:
        """Return whether a clock time is accepted. A leap above `jump` ns needs AGREEING_ROWS consecutive calls."""
        has_leapt = self._last_clock_time != BEGINNING and now - self._last_clock_time > self.guard.jump
        self._leap_count = self._leap_count + 1 if has_leapt else 0
        if has_leapt and self._leap_count < AGREEING_ROWS:
            return False
        self._last_clock_time, self._leap_count = now, 0
        return True

    def end_block(self) -> None:
        """Pass the end of a block to `inner`."""
        self.inner.end_block()

    def declare(self, watermark: int) -> None:
        """Pass a declared watermark to `inner`, which counts the rows below it."""
        self.inner.declare(watermark)

    @property
    def watermark(self) -> int:
        """The watermark."""
        return self.inner.watermark
