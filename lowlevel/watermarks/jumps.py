"""Time jumps: a filter of times, so that a wrong clock does not close windows or flush tables.

        past      │ back │         accepted          │ jump │        ahead: accepted after 64 in a row
    ──────────────┼──────┼──────────────────── newest ──────┼────────────────────────────────────────────────► ts

The time of a row that is more than `jump` ahead of the newest time waits. If the times of `agreeing` consecutive rows
wait, the link has jumped: the smallest of these times becomes the newest time. Times that are more than `jump` ahead of
this time continue to wait. A new link has no newest time before `agreeing` rows.

If the next row is not ahead, the rows whose times wait are **from the future**. Rows more than `back` older than the
newest row are **from the past**. Both are counted, and both enter their windows if these are open. They do not change
the newest time, which never decreases.

Rows of flow exporters have two times: the time of the exporter, and the **arrival** of the datagram. A flow ends before
its record arrives, so the guard uses the earlier time. So an exporter with a fast clock does not advance a link beyond
the arrival of its datagrams. If the two times differ by at most `jump`, they confirm each other, and a single row
suffices for a jump. So rows of an exporter with a slow clock do not delay the jump.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from capture.lazy_dataclasses import dataclass
from capture.native import kernel
from capture.units import SECOND
from lowlevel.punctuation import BEGINNING

Times = npt.NDArray[np.int64]

JUMP = 3600 * SECOND
"""Default maximum distance in ns. The clock of a row that is further ahead of the newest row may be wrong."""

MIN_JUMP = SECOND
"""Minimum of `jump` in ns. A smaller `jump` would treat ordinary pauses between packets as wrong clocks."""

AGREEING = 64
"""Default number of consecutive rows that must be ahead for a jump."""

NEWEST, RUN, FUTURE, PAST, BELOW, AFTER, AHEAD = range(7)
"""Words of the state.

* NEWEST: the newest accepted time.
* RUN: number of waiting rows.
* FUTURE, PAST, BELOW, AFTER: number of rows from the future, from the past, below the watermark, and with a time more
  than `jump` after their arrival.
* AHEAD: first of `agreeing` words with the times of waiting rows.
"""


@kernel("i64(i64*, i64*, i64, i64, i64*, i64, i64, i64, i64, i64*, i64)")
def follow(times, arrivals, arriving, rows, state, jump, back, agreeing, low, accepted, keep):  # type: ignore[no-untyped-def]
    """Process the times of a batch of rows, and update `state`. Return the number of times written to `accepted`.

    * `times`: times of the rows. `arrivals`: their arrival times, used only if `arriving`.
    * `low`: the watermark before these rows.
    * `keep`: write accepted times to `accepted`, which has room for `rows`. For the rows that agree on a jump, only
      the smallest time is written.
    """
    newest = state[NEWEST]
    run = state[RUN]
    kept = 0
    for row in range(rows):
        time = times[row]
        if time < low:
            state[BELOW] += 1
        confirmed = np.int64(0)
        if arriving:
            arrival = arrivals[row]
            if time > arrival:
                confirmed = np.int64(np.uint64(time) - np.uint64(arrival) <= np.uint64(jump))
                state[AFTER] += 1 - confirmed
                time = arrival
            else:
                confirmed = np.int64(np.uint64(arrival) - np.uint64(time) <= np.uint64(jump))
        # The difference of any two int64 fits uint64.
        if newest != BEGINNING and (time <= newest or np.uint64(time) - np.uint64(newest) <= np.uint64(jump)):
            state[FUTURE] += run
            run = 0
            if time >= newest:
                newest = time
            elif np.uint64(newest) - np.uint64(time) > np.uint64(back):
                state[PAST] += 1
                continue
            if keep:
                accepted[kept] = time
                kept += 1
            continue
        if confirmed:
            for index in range(run):
                waiting = state[AHEAD + index]
                if waiting > time:
                    state[FUTURE] += np.uint64(waiting) - np.uint64(time) > np.uint64(jump)
                else:
                    state[PAST] += np.uint64(time) - np.uint64(waiting) > np.uint64(back)
            run = 0
            newest = time
            if keep:
                accepted[kept] = time
                kept += 1
            continue
        state[AHEAD + run] = time
        run += 1
        if run == agreeing:
            newest = state[AHEAD]
            for index in range(1, run):
                newest = min(newest, state[AHEAD + index])
            run = 0
            for index in range(agreeing):
                waiting = state[AHEAD + index]
                if np.uint64(waiting) - np.uint64(newest) > np.uint64(jump):
                    state[AHEAD + run] = waiting
                    run += 1
            if keep:
                accepted[kept] = newest
                kept += 1
    state[NEWEST] = newest
    state[RUN] = run
    return kept


@dataclass(frozen=True, slots=True)
class LinkTime:
    """The time of a link between two rows: its newest accepted time, and the times that wait."""

    newest: int
    waiting: tuple[int, ...] = ()


class JumpGuard:
    """The newest accepted time of one kind of rows on one link. Not thread safe.

    Memory: `agreeing` words and a batch.
    """

    def __init__(self, jump: int = JUMP, back: int = JUMP, agreeing: int = AGREEING) -> None:
        """Accept rows up to `jump` ns ahead, or `agreeing` consecutive rows. Rows over `back` ns older are past.

        Raises ValueError if `jump` is less than MIN_JUMP.
        """
        if jump < MIN_JUMP:
            raise ValueError(f"got a clock jump of {jump} ns, expected at least {MIN_JUMP} (1 s)")
        self.jump = jump
        self.back = back
        self.agreeing = agreeing
        self.state = np.zeros(AHEAD + agreeing, np.int64)
        self.state[NEWEST] = BEGINNING
        self._accepted = np.empty(0, np.int64)

    def follow(self, times: Times, low: int, arrivals: Times | None = None) -> None:
        """Process the times of a batch of rows in order, with their arrivals if known.

        `low` is the watermark before these rows.
        """
        if arrivals is not None or not self._follow_fast(times, low):
            self._follow(times, arrivals, low, keep=False)

    def accepted_times(self, times: Times, low: int, arrivals: Times | None = None) -> Times:
        """Process rows like `follow`; return the accepted times. The array is valid until the next call."""
        if arrivals is None and self._follow_fast(times, low):
            return times
        if len(self._accepted) < len(times):
            self._accepted = np.empty(len(times), np.int64)
        return self._accepted[: self._follow(times, arrivals, low, keep=True)]

    def _follow(self, times: Times, arrivals: Times | None, low: int, *, keep: bool) -> int:
        given = times if arrivals is None else arrivals
        return follow(
            times, given, arrivals is not None, len(times), self.state, self.jump, self.back, self.agreeing, low,
            self._accepted, keep,
        )  # fmt: skip

    def _follow_fast(self, times: Times, low: int) -> bool:
        """Process a batch only by its smallest and largest time, at a tenth of the kernel's cost.

        Returns False, and changes no state, if a row may be from the future, from the past or below `low`, or if times
        wait.
        """
        newest = self.newest
        if newest == BEGINNING or self.state[RUN] or len(times) == 0:
            return False
        earliest, latest = int(times.min()), max(newest, int(times.max()))
        if latest - newest > self.jump or earliest < max(low, latest - self.back):
            return False
        self.state[NEWEST] = latest
        return True

    def accept(self, time: int) -> None:
        """Accept a time from another source, such as the clock. Times that are then no longer ahead stop waiting."""
        if time <= self.newest:
            return
        self.state[NEWEST] = time
        ahead = self.state[AHEAD : AHEAD + int(self.state[RUN])]
        waiting = [ts for ts in ahead.tolist() if ts > time + self.jump]
        self.state[AHEAD : AHEAD + len(waiting)] = waiting
        self.state[RUN] = len(waiting)

    @property
    def newest(self) -> int:
        """The newest accepted time in ns; BEGINNING before the first accepted time."""
        return int(self.state[NEWEST])

    @property
    def link_time(self) -> LinkTime:
        """The time of the link. A guard that resumes from it accepts the same times as this guard."""
        return LinkTime(self.newest, tuple(self.state[AHEAD : AHEAD + int(self.state[RUN])].tolist()))

    def resume(self, time: LinkTime) -> None:
        """Continue after the rows of another guard. Their counters are not copied."""
        self.state[NEWEST], self.state[RUN] = time.newest, len(time.waiting)
        self.state[AHEAD : AHEAD + len(time.waiting)] = time.waiting
