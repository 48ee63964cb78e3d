"""Which rows a link's progress believes: one clock that is wrong must neither close windows nor flush a table.

        past      │ back │          believed         │ jump │        ahead: 64 of these in a row are believed
    ──────────────┼──────┼──────────────────── newest ──────┼────────────────────────────────────────────────► ts

A row more than `jump` ahead of the newest counts only when `agreeing` rows in a row are, it among them. Then the link
has jumped: the least of them is the newest, and those that are still more than `jump` ahead of that go on waiting for
others. So does a link begin: before `agreeing` rows it has no newest. Rows ahead that the next ones contradict are
**from the future**; rows more than `back` behind the newest are **from the past**. Both are counted, and are in their
windows all the same where those are open. Neither moves the newest, which never falls.

Rows of exporters have two clocks, their own and that of whoever saw the datagram **arrive**, and nothing ends after its
arrival is seen: a row's time is here the earlier of the two. So an exporter whose clock is ahead moves a link no
further than what arrives does. Where the two are at most `jump` apart they confirm each other, and one row is a jump:
others of an exporter whose clock is behind, between them, do not hold the link back.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from capture.native import kernel
from capture.units import SECOND
from lowlevel.punctuation import BEGINNING

Times = npt.NDArray[np.int64]

JUMP = 3600 * SECOND
"""A row this far from the newest, in ns, may be a clock that is wrong, unless a link is told another distance."""

LEAST_JUMP = SECOND
"""Below it the ordinary pauses between packets would look like clocks that are wrong."""

AGREEING = 64
"""Rows in a row that make a jump believed."""

NEWEST, RUN, FUTURE, PAST, BELOW, AFTER, AHEAD = range(7)
"""Words of the state: the newest ts; how many rows ahead wait; rows from the future, from the past, below the promise,
and dated more than `jump` after their arrival; and from AHEAD on the rows that wait, `agreeing` words."""


@kernel("i64(i64*, i64*, i64, i64, i64*, i64, i64, i64, i64, i64*, i64)")
def follow(times, arrivals, arriving, rows, state, jump, back, agreeing, low, believed, keep):  # type: ignore[no-untyped-def]
    """Take in `times` (rows), none of which was promised to be below `low`; `state` moves on.

    Where `arriving`, `arrivals` (rows) are theirs; it is not read otherwise.
    Where `keep`, writes what is believed to `believed` (room for rows), of a run that agrees its least alone, and
    returns how many; 0 otherwise.
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


class Guard:
    """Follows the newest row of one kind on one link. Memory: `agreeing` words and a batch. Not thread safe."""

    def __init__(self, jump: int = JUMP, back: int = JUMP, agreeing: int = AGREEING) -> None:
        """Believe rows up to `jump` ns ahead, or `agreeing` in a row; those over `back` ns behind are from the past.

        ValueError where `jump` is below LEAST_JUMP.
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
        """Take in the times of some rows, in their order, and of their arrivals where these are known.

        `low` is what was promised of them.
        """
        if arrivals is not None or not self._ordinary(times, low):
            self._follow(times, arrivals, low, keep=False)

    def believed(self, times: Times, low: int, arrivals: Times | None = None) -> Times:
        """Take in as `follow`; return the times that are believed, valid until the next call or as long as `times`."""
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
        """Take in rows among which nothing is to be believed or counted but the newest, a tenth of the work; or none.

        False where one of them may be from the future, from the past or below `low`, or may contradict such.
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
        """Take it from elsewhere that the link has come as far as `time`; rows that were ahead may no longer be."""
        if time <= self.newest:
            return
        self.state[NEWEST] = time
        ahead = self.state[AHEAD : AHEAD + int(self.state[RUN])]
        waiting = [each for each in ahead.tolist() if each > time + self.jump]
        self.state[AHEAD : AHEAD + len(waiting)] = waiting
        self.state[RUN] = len(waiting)

    @property
    def newest(self) -> int:
        """The newest time that is believed, ns; BEGINNING where there is none yet."""
        return int(self.state[NEWEST])
