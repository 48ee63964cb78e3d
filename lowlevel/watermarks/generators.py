"""Watermark generators: compute the watermarks of links from rows and empty polls (Li 2008, §8.1).

A watermark `t` means that no later row has a ts below `t`. A later row may have the ts `t`. A watermark never
decreases. Rows below the watermark are counted in `rows_below`. Each class computes the watermark by one rule. These
rules apply to all classes:

* The source can declare a watermark (`declare`): the scan of a file declares watermarks, and its end declares END.
* A single row from the future or the past does not change the watermark, because rules use only accepted times
  (`lowlevel.watermarks.jumps`).
"""

from __future__ import annotations

import numpy as np

from lowlevel.expressions.columns import Vector
from lowlevel.punctuation import BEGINNING
from lowlevel.rows.readers import Rows
from lowlevel.watermarks.jumps import (
    AGREEING_ROWS,
    FUTURE_ROWS,
    JUMP,
    PAST_ROWS,
    ROWS_AFTER_ARRIVAL,
    JumpGuard,
    LinkTime,
    Times,
)
from lowlevel.watermarks.jumps import ROWS_BELOW as BELOW_WATERMARK


class WatermarkGenerator:
    """The watermark of one kind of rows on one link. Memory is fixed. Not thread safe.

    A rule implements `_process_times` for the times of some rows, and `_computed_watermark` for the watermark after
    these rows.
    """

    def __init__(self, guard: JumpGuard | None = None) -> None:
        """Use the times that `guard` accepts; the default guard has the default distances."""
        self.guard = guard or JumpGuard()
        self.lulls = 0
        """Number of times that the clock advanced the watermark while the link was idle."""
        self._watermark = BEGINNING

    def advance(self, rows: Rows) -> None:
        """Process rows of a reader, in their order."""
        times = rows.columns["ts"]
        assert isinstance(times, Vector)
        self._process_times(times.data, rows.arrivals)
        self.declare(self._computed_watermark())

    def resume(self, time: LinkTime) -> None:
        """Continue at a time of the link, after rows that another generator has processed."""
        self.guard.resume(time)
        self.declare(self._computed_watermark())

    def tick(self, now: int) -> None:
        """Record an **empty poll**: a poll of the link that found no data. A timer without a poll must not call this.

        `now` (ns) is the time at which the poll began. Data that has arrived since then may wait to be read.
        """

    def end_block(self) -> None:
        """Record that a block of the source has ended, and that all its rows have been processed."""

    def declare(self, watermark: int) -> None:
        """Accept a watermark that the source declares; END if the source has ended."""
        self._watermark = max(self._watermark, watermark)

    @property
    def watermark(self) -> int:
        """The watermark; BEGINNING before the first watermark."""
        return self._watermark

    @property
    def newest(self) -> int:
        """The newest accepted time of the link in ns; BEGINNING before the first accepted time.

        A single row with a wrong clock does not change it. On a live link, the pane of this time is the current pane.
        """
        return self.guard.newest

    @property
    def future_rows(self) -> int:
        """Number of rows from the future, whose times were not accepted."""
        return int(self.guard.state[FUTURE_ROWS])

    @property
    def past_rows(self) -> int:
        """Number of rows from the past: much older than the newest row."""
        return int(self.guard.state[PAST_ROWS])

    @property
    def rows_after_arrival(self) -> int:
        """Number of rows with a time much later than their arrival. Their arrival is used as their time."""
        return int(self.guard.state[ROWS_AFTER_ARRIVAL])

    @property
    def rows_below(self) -> int:
        """Number of rows below the watermark at the arrival of their batch."""
        return int(self.guard.state[BELOW_WATERMARK])

    def _process_times(self, times: Times, arrivals: Times | None) -> None:
        self.guard.process(times, self._watermark, arrivals)

    def _computed_watermark(self) -> int:
        """Return the watermark that the rule computes from the rows so far; BEGINNING if it computes none."""
        return BEGINNING


class BlockWatermark(WatermarkGenerator):
    """Watermark of blocks: no row of a block is older than any row of an earlier block.

    Inside a block, rows may have any order.

        ts   |  3 1 4 2 2  |  5 4 7 6  |  9 8 8 …        two neighbouring blocks may have one time in common
                          t = 4 ▲    t = 7 ▲

    A router that empties its flow cache at intervals writes blocks, and rotated files are blocks. The rule `late` is
    not suitable for blocks: with a small slack rows are late, and a slack of a block's length is larger than needed,
    except at the end of a block. The times of rows do not show the end of a block, because they also jump inside a
    block. So a block ends

    * without a `length`, when the source reports the end (`end_block`): each file of a followed folder is a block;
    * with a `length`, at the first accepted row of a later interval `[k * length, (k+1) * length)` since the epoch.

    If the source reports no end and there is no `length`, the watermark stays BEGINNING until the end of the input.
    """

    def __init__(self, length: int | None = None, agreeing_rows: int = AGREEING_ROWS, jump: int = JUMP) -> None:
        """`length` of blocks in ns; None if the source reports their ends. Raises ValueError if it is below 1."""
        if length is not None and length < 1:
            raise ValueError(f"got blocks of {length} ns, expected at least 1")
        super().__init__(JumpGuard(jump, max(jump, length or 0), agreeing_rows))
        self.length = length

    def end_block(self) -> None:
        """If the source reports ends of blocks, advance the watermark to the newest time: no later row is older."""
        if self.length is None:
            self.declare(self.newest)

    def _computed_watermark(self) -> int:
        newest = self.newest
        if self.length is None or newest == BEGINNING:
            return BEGINNING
        return max(BEGINNING + 1, newest // self.length * self.length)


class ExactWatermark(WatermarkGenerator):
    """The watermark that the source declares. Rows do not change it.

    The scan of a file finds the smallest time after each block (`capture.files.scan`), which is the exact watermark.
    If a source declares no watermark, the watermark stays BEGINNING until the end of the source.
    """


MAX_ROWS = 1 << 20
"""Maximum n of LateByRows. Its n + 1 times are at most 8 MiB."""


LARGE_BATCH_FACTOR = 8
"""A batch with more than LARGE_BATCH_FACTOR * (n + 1) times is reduced before it is partitioned."""


class LateByRows(WatermarkGenerator):
    """Watermark of rows that are at most n rows late: the (n+1)-th largest accepted time so far.

    "n rows late" can mean one of four statements about a row. The watermark is correct for each of the four:

    * At most n earlier rows are newer than the row.
    * The first newer row is at most n rows before it.
    * The row is at most n positions after its position in the sorted rows; equal times have equal positions.
    * The position of the row and its position in the sorted rows differ by at most n.

    Each statement implies the first statement. By the first statement, no row below the (n+1)-th largest time can
    arrive, because n+1 newer rows would be before it.

    Memory: n+1 times and a batch.
    """

    def __init__(self, rows: int, agreeing_rows: int = AGREEING_ROWS, jump: int = JUMP) -> None:
        """Set n to `rows`. Raises ValueError if it is negative or above MAX_ROWS."""
        if not 0 <= rows <= MAX_ROWS:
            raise ValueError(f"got rows that are late by {rows} rows, expected 0 to {MAX_ROWS:,}")
        super().__init__(JumpGuard(jump, jump, agreeing_rows))
        self.rows = rows
        self._largest = np.empty(0, np.int64)  # the smallest time is first as soon as there are n + 1 times

    def _process_times(self, times: Times, arrivals: Times | None) -> None:
        accepted = self.guard.accepted_times(times, self._watermark, arrivals)
        kept_count = self.rows + 1
        if len(self._largest) == kept_count:
            accepted = accepted[accepted > self._largest[0]]
            if len(accepted) == 0:
                return
        if len(accepted) > LARGE_BATCH_FACTOR * kept_count:  # a lower bound, from the last times, removes most times
            tail = accepted[-LARGE_BATCH_FACTOR // 2 * kept_count :]
            accepted = accepted[accepted >= np.partition(tail, len(tail) - kept_count)[len(tail) - kept_count]]
        candidates = np.concatenate([self._largest, accepted])
        surplus = len(candidates) - kept_count
        self._largest = np.partition(candidates, surplus)[surplus:].copy() if surplus >= 0 else candidates

    def _computed_watermark(self) -> int:
        return int(self._largest[0]) if len(self._largest) > self.rows else BEGINNING


class LateByTime(WatermarkGenerator):
    """Watermark of rows that are at most `slack` ns late: the newest accepted time minus `slack`."""

    def __init__(self, slack: int, agreeing_rows: int = AGREEING_ROWS, jump: int = JUMP) -> None:
        """Set `slack`. Rows within the slack are not from the past. Raises ValueError if `slack` is negative."""
        if slack < 0:
            raise ValueError(f"got a slack of {slack} ns, expected 0 or more")
        super().__init__(JumpGuard(jump, max(jump, slack), agreeing_rows))
        self.slack = slack

    def _computed_watermark(self) -> int:
        newest = self.newest
        return newest if newest == BEGINNING else max(BEGINNING + 1, newest - self.slack)


class OrderedWatermark(LateByTime):
    """Watermark of rows in order: the newest accepted time. Rows with an equal time may follow."""

    def __init__(self, agreeing_rows: int = AGREEING_ROWS, jump: int = JUMP) -> None:
        """Set a slack of 0, so that every older row is below the watermark."""
        super().__init__(0, agreeing_rows, jump)


class LateByExport(LateByTime):
    """Watermark of flow records that are exported at most `delay` ns after their end.

    Sequence numbers show until which time all exports of all exporters have arrived. So no later record has ended more
    than `delay` before that time (a CTI, current time increment, from outside the stream: ExternalCTI of CEDR). If
    numbers are missing, or an exporter is silent, the watermark waits for them, but not longer than the rule `late`
    with `slack`. It is at most the newest accepted time. Rows without exports have the rule `late`.

    If the clock of an exporter is ahead, its exports have the time of their arrival. So after it is set back, records
    are late only if they arrive more than `delay` after their end.
    """

    def __init__(self, delay: int, slack: int, agreeing_rows: int = AGREEING_ROWS, jump: int = JUMP) -> None:
        """Set `delay` and `slack`. Raises ValueError for a negative delay, or one that is longer than the slack."""
        if not 0 <= delay <= slack:
            raise ValueError(f"got records that are exported after {delay} ns, expected 0 to {slack}: at most late")
        super().__init__(slack, agreeing_rows, jump)
        self.delay = delay
        self._complete_until = 0

    def advance(self, rows: Rows) -> None:
        """Process rows of a reader, in their order."""
        if rows.exports is not None:
            self._complete_until = rows.exports.complete_until(self.slack)
            if rows.arrivals is not None and len(rows.arrivals):
                self._complete_until = min(self._complete_until, int(rows.arrivals.max()))
        super().advance(rows)

    def _computed_watermark(self) -> int:
        late = super()._computed_watermark()
        if late == BEGINNING:
            return late
        return max(late, min(self.newest, self._complete_until - self.delay))
