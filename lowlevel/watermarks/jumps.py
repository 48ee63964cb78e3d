"""Time jumps: a filter of times, so that a wrong clock does not close windows or flush tables.

        past      │ back │         accepted          │ jump │        ahead: accepted after 64 in a row
    ──────────────┼──────┼──────────────────── newest ──────┼────────────────────────────────────────────────► ts

The time of a row that is more than `jump` ahead of the newest time waits. If the times of `agreeing_rows` consecutive
rows wait, the link has jumped: the smallest of these times becomes the newest time. Times that are more than `jump`
ahead of this time continue to wait. A new link has no newest time before `agreeing_rows` rows.

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
from lowlevel.watermarks.lateness import LIMITS, STEP_OF_CELL, Lateness, count_lateness

Times = npt.NDArray[np.int64]

JUMP = 3600 * SECOND
"""Default maximum distance in ns. The clock of a row that is further ahead of the newest row may be wrong."""

MIN_JUMP = SECOND
"""Minimum of `jump` in ns. A smaller `jump` would treat ordinary pauses between packets as wrong clocks."""

AGREEING_ROWS = 64
"""Default number of consecutive rows that must be ahead for a jump."""

NEWEST, WAITING_ROWS, FUTURE_ROWS, PAST_ROWS, ROWS_BELOW, ROWS_AFTER_ARRIVAL, WAITING_TIMES = range(7)
"""Words of the state.

* NEWEST: the newest accepted time.
* WAITING_ROWS: number of waiting rows.
* FUTURE_ROWS, PAST_ROWS, ROWS_BELOW, ROWS_AFTER_ARRIVAL: number of rows from the future, from the past, below the
  watermark, and with a time more than `jump` after their arrival.
* WAITING_TIMES: first of `agreeing_rows` words with the times of waiting rows.
"""


@kernel("i64(i64*, i64*, i64, i64, i64*, i64, i64, i64, i64, i64*, i64, i64*, i64*, i64*)")
def filter_times(  # type: ignore[no-untyped-def]
    times, arrivals, has_arrivals, row_count, state, jump, back, agreeing_rows, watermark, accepted, write_accepted,
    limits, steps, lateness,
):  # fmt: skip
    """Process the times of a batch of rows, and update `state`. Return the number of times written to `accepted`.

    * `times`: times of the rows. `arrivals`: their arrival times, used only if `has_arrivals`.
    * `watermark`: the watermark before these rows.
    * `write_accepted`: write accepted times to `accepted`, which has room for `row_count` times. For the rows that
      agree on a jump, only the smallest time is written.
    * `limits`, `steps`, `lateness`: the words of the late rows (`lowlevel.watermarks.lateness`). Rows from the
      past are not counted there, because their clock may be wrong.
    """
    newest = state[NEWEST]
    waiting_count = state[WAITING_ROWS]
    accepted_count = 0
    for row in range(row_count):
        time = times[row]
        if time < watermark:
            state[ROWS_BELOW] += 1
        confirmed = np.int64(0)
        if has_arrivals:
            arrival = arrivals[row]
            if time > arrival:
                confirmed = np.int64(np.uint64(time) - np.uint64(arrival) <= np.uint64(jump))
                state[ROWS_AFTER_ARRIVAL] += 1 - confirmed
                time = arrival
            else:
                confirmed = np.int64(np.uint64(arrival) - np.uint64(time) <= np.uint64(jump))
        # The difference of any two int64 fits uint64.
        if newest != BEGINNING and (time <= newest or np.uint64(time) - np.uint64(newest) <= np.uint64(jump)):
            state[FUTURE_ROWS] += waiting_count
            waiting_count = 0
            if time >= newest:
                newest = time
            elif np.uint64(newest) - np.uint64(time) > np.uint64(back):
                state[PAST_ROWS] += 1
                continue
            else:
                count_lateness(newest - time, limits, steps, lateness)
            if write_accepted:
                accepted[accepted_count] = time
                accepted_count += 1
            continue
        if confirmed:
            for index in range(waiting_count):
                waiting = state[WAITING_TIMES + index]
                if waiting > time:
                    state[FUTURE_ROWS] += np.uint64(waiting) - np.uint64(time) > np.uint64(jump)
                else:
                    state[PAST_ROWS] += np.uint64(time) - np.uint64(waiting) > np.uint64(back)
            waiting_count = 0
            newest = time
            if write_accepted:
                accepted[accepted_count] = time
                accepted_count += 1
            continue
        state[WAITING_TIMES + waiting_count] = time
        waiting_count += 1
        if waiting_count == agreeing_rows:
            newest = state[WAITING_TIMES]
            for index in range(1, waiting_count):
                newest = min(newest, state[WAITING_TIMES + index])
            waiting_count = 0
            for index in range(agreeing_rows):
                waiting = state[WAITING_TIMES + index]
                if np.uint64(waiting) - np.uint64(newest) > np.uint64(jump):
                    state[WAITING_TIMES + waiting_count] = waiting
                    waiting_count += 1
            if write_accepted:
                accepted[accepted_count] = newest
                accepted_count += 1
    state[NEWEST] = newest
    state[WAITING_ROWS] = waiting_count
    return accepted_count


@dataclass(frozen=True, slots=True)
class LinkTime:
    """The time of a link between two rows: its newest accepted time, and the times that wait."""

    newest: int
    waiting: tuple[int, ...] = ()


class JumpGuard:
    """The newest accepted time of one kind of rows on one link. Not thread safe.

    Memory: `agreeing_rows` words and a batch.
    """

    def __init__(self, jump: int = JUMP, back: int = JUMP, agreeing_rows: int = AGREEING_ROWS) -> None:
        """Accept rows up to `jump` ns ahead, or `agreeing_rows` consecutive rows. Rows over `back` ns older are past.

        Raises ValueError if `jump` is less than MIN_JUMP.
        """
        if jump < MIN_JUMP:
            raise ValueError(f"got a clock jump of {jump} ns, expected at least {MIN_JUMP} (1 s)")
        self.jump = jump
        self.back = back
        self.agreeing_rows = agreeing_rows
        self.state = np.zeros(WAITING_TIMES + agreeing_rows, np.int64)
        self.state[NEWEST] = BEGINNING
        self.lateness = Lateness()
        """The late rows, without rows from the past."""
        self._accepted = np.empty(0, np.int64)

    def process(self, times: Times, watermark: int, arrivals: Times | None = None) -> None:
        """Process the times of a batch of rows in order, with their arrivals if known.

        `watermark` is the watermark before these rows.
        """
        if arrivals is not None or not self._process_fast(times, watermark):
            self._process(times, arrivals, watermark, write_accepted=False)

    def accepted_times(self, times: Times, watermark: int, arrivals: Times | None = None) -> Times:
        """Process rows like `process`; return the accepted times. The array is valid until the next call."""
        if arrivals is None and self._process_fast(times, watermark):
            return times
        if len(self._accepted) < len(times):
            self._accepted = np.empty(len(times), np.int64)
        return self._accepted[: self._process(times, arrivals, watermark, write_accepted=True)]

    def _process(self, times: Times, arrivals: Times | None, watermark: int, *, write_accepted: bool) -> int:
        given = times if arrivals is None else arrivals
        return filter_times(
            times, given, arrivals is not None, len(times), self.state, self.jump, self.back, self.agreeing_rows,
            watermark, self._accepted, write_accepted, LIMITS, STEP_OF_CELL, self.lateness.words,
        )  # fmt: skip

    def _process_fast(self, times: Times, watermark: int) -> bool:
        """Process a batch by its smallest and largest time, and count its late rows, at a fifth of the kernel's cost.

        Returns False, and changes no state, if a row may be from the future, from the past or below `watermark`, or if
        times wait.
        """
        newest = self.newest
        if newest == BEGINNING or self.state[WAITING_ROWS] or len(times) == 0:
            return False
        earliest, latest = int(times.min()), max(newest, int(times.max()))
        if latest - newest > self.jump or earliest < max(watermark, latest - self.back):
            return False
        self.lateness.add_rows(times, newest)
        self.state[NEWEST] = latest
        return True

    def accept(self, time: int) -> None:
        """Accept a time from another source, such as the clock. Times that are then no longer ahead stop waiting."""
        if time <= self.newest:
            return
        self.state[NEWEST] = time
        ahead = self.state[WAITING_TIMES : WAITING_TIMES + int(self.state[WAITING_ROWS])]
        waiting = [ts for ts in ahead.tolist() if ts > time + self.jump]
        self.state[WAITING_TIMES : WAITING_TIMES + len(waiting)] = waiting
        self.state[WAITING_ROWS] = len(waiting)

    @property
    def newest(self) -> int:
        """The newest accepted time in ns; BEGINNING before the first accepted time."""
        return int(self.state[NEWEST])

    @property
    def link_time(self) -> LinkTime:
        """The time of the link. A guard that resumes from it accepts the same times as this guard."""
        return LinkTime(
            self.newest, tuple(self.state[WAITING_TIMES : WAITING_TIMES + int(self.state[WAITING_ROWS])].tolist())
        )

    def resume(self, time: LinkTime) -> None:
        """Continue after the rows of another guard. Their counters are not copied."""
        self.state[NEWEST], self.state[WAITING_ROWS] = time.newest, len(time.waiting)
        self.state[WAITING_TIMES : WAITING_TIMES + len(time.waiting)] = time.waiting
