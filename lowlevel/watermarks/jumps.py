"""Time jumps: the filter that keeps a wrong clock from closing windows or flushing a table.

        past      │ back │         accepted          │ jump │        ahead: accepted after 64 in a row
    ──────────────┼──────┼──────────────────── newest ──────┼────────────────────────────────────────────────► ts

A row more than `jump` ahead of the newest row is accepted only if `agreeing` consecutive rows are that far ahead. Then
the link has jumped, and the smallest of these times becomes the newest. Rows that are still more than `jump` ahead of
the new newest time keep waiting. A new link has no newest time before `agreeing` rows.

Rows ahead that the next rows contradict are **from the future**. Rows more than `back` older than the newest are **from
the past**. Both are counted, and both enter their windows if these are open. Neither moves the newest time, which never
decreases.

Rows of exporters have two times: the exporter's own, and the **arrival** of the datagram. No flow ends after its record
arrives, so the guard uses the earlier time. An exporter whose clock is ahead then moves a link no further than its
datagrams do. If both times are at most `jump` apart, they confirm each other, and one such row is enough for a jump.
So rows of an exporter with a late clock, between such rows, do not delay the link.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from capture.native import kernel
from capture.units import SECOND
from lowlevel.punctuation import BEGINNING

Times = npt.NDArray[np.int64]

JUMP = 3600 * SECOND
"""Default distance from the newest row, in ns, from which the clock of a row may be wrong."""

LEAST_JUMP = SECOND
"""Smallest `jump` in ns. With a smaller one, ordinary pauses between packets would look like wrong clocks."""

AGREEING = 64
"""Consecutive rows that must agree on a jump."""

NEWEST, RUN, FUTURE, PAST, BELOW, AFTER, AHEAD = range(7)
"""Words of the state.

NEWEST: the newest ts. RUN: number of rows ahead that wait. FUTURE, PAST, BELOW, AFTER: counters of rows from the
future, from the past, below the watermark, and dated more than `jump` after their arrival. AHEAD: first of `agreeing`
words with the times of waiting rows."""


@kernel("i64(i64*, i64*, i64, i64, i64*, i64, i64, i64, i64, i64*, i64)")
def follow(times, arrivals, arriving, rows, state, jump, back, agreeing, low, believed, keep):  # type: ignore[no-untyped-def]
    """Process the times of some rows; `state` is updated.

    `times` (`rows` words): times of the rows. `arrivals` (`rows` words): their arrivals, read only if `arriving`.
    `low`: the watermark before these rows. If `keep`, the accepted times are written to `believed` (room for `rows`);
    consecutive rows that agree on a jump write their smallest time only. Returns the number of times written, else 0.
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
        # The difference of two int64 fits uint64, whatever the times.
        if newest != BEGINNING and (time <= newest or np.uint64(time) - np.uint64(newest) <= np.uint64(jump)):
            state[FUTURE] += run
            run = 0
            if time >= newest:
                newest = time
            elif np.uint64(newest) - np.uint64(time) > np.uint64(back):
                state[PAST] += 1
                continue
            if keep:
                believed[kept] = time
                kept += 1
            continue
        if confirmed:
            for place in range(run):
                waiting = state[AHEAD + place]
                if waiting > time:
                    state[FUTURE] += np.uint64(waiting) - np.uint64(time) > np.uint64(jump)
                else:
                    state[PAST] += np.uint64(time) - np.uint64(waiting) > np.uint64(back)
            run = 0
            newest = time
            if keep:
                believed[kept] = time
                kept += 1
            continue
        state[AHEAD + run] = time
        run += 1
        if run == agreeing:
            newest = state[AHEAD]
            for place in range(1, run):
                newest = min(newest, state[AHEAD + place])
            run = 0
            for place in range(agreeing):
                waiting = state[AHEAD + place]
                if np.uint64(waiting) - np.uint64(newest) > np.uint64(jump):
                    state[AHEAD + run] = waiting
                    run += 1
            if keep:
                believed[kept] = newest
                kept += 1
    state[NEWEST] = newest
    state[RUN] = run
    return kept


class JumpGuard:
    """The newest accepted time of one kind of rows on one link. Not thread safe.

    Memory: `agreeing` words and a batch.
    """

    def __init__(self, jump: int = JUMP, back: int = JUMP, agreeing: int = AGREEING) -> None:
        """Accept rows up to `jump` ns ahead, or `agreeing` in a row; rows over `back` ns older are from the past.

        Raises ValueError if `jump` is less than LEAST_JUMP.
        """
        if jump < LEAST_JUMP:
            raise ValueError(f"got a clock jump of {jump} ns, expected at least {LEAST_JUMP} (1 s)")
        self.jump = jump
        self.back = back
        self.agreeing = agreeing
        self.state = np.zeros(AHEAD + agreeing, np.int64)
        self.state[NEWEST] = BEGINNING
        self._believed = np.empty(0, np.int64)

    def follow(self, times: Times, low: int, arrivals: Times | None = None) -> None:
        """Process the times of some rows, in their order, and their arrivals if these are known.

        `low` is the watermark before these rows.
        """
        if arrivals is not None or not self._ordinary(times, low):
            self._follow(times, arrivals, low, keep=False)

    def believed(self, times: Times, low: int, arrivals: Times | None = None) -> Times:
        """Process rows as `follow` does and return the accepted times. The array is valid until the next call."""
        if arrivals is None and self._ordinary(times, low):
            return times
        if len(self._believed) < len(times):
            self._believed = np.empty(len(times), np.int64)
        return self._believed[: self._follow(times, arrivals, low, keep=True)]

    def _follow(self, times: Times, arrivals: Times | None, low: int, *, keep: bool) -> int:
        arrived = times if arrivals is None else arrivals
        return follow(
            times, arrived, arrivals is not None, len(times), self.state, self.jump, self.back, self.agreeing, low,
            self._believed, keep,
        )  # fmt: skip

    def _ordinary(self, times: Times, low: int) -> bool:
        """Process rows of which only the newest matters, at a tenth of the cost.

        Returns False, without any effect, if a row may be from the future, from the past or below `low`, or if rows
        ahead wait.
        """
        newest = self.newest
        if newest == BEGINNING or self.state[RUN] or len(times) == 0:
            return False
        earliest, latest = int(times.min()), max(newest, int(times.max()))
        if latest - newest > self.jump or earliest < max(low, latest - self.back):
            return False
        self.state[NEWEST] = latest
        return True

    def believe(self, time: int) -> None:
        """Accept `time` from another source, such as the clock; forget waiting rows that are no longer ahead."""
        if time <= self.newest:
            return
        self.state[NEWEST] = time
        ahead = self.state[AHEAD : AHEAD + int(self.state[RUN])]
        waiting = [ts for ts in ahead.tolist() if ts > time + self.jump]
        self.state[AHEAD : AHEAD + len(waiting)] = waiting
        self.state[RUN] = len(waiting)

    @property
    def newest(self) -> int:
        """The newest accepted time, ns; BEGINNING before the first."""
        return int(self.state[NEWEST])
