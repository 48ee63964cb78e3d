"""Watermarks of links, computed from rows and empty polls; a watermark never decreases (Li 2008, §8.1).

A watermark `low` means that no later row has a ts below `low`; a row at `low` itself is allowed. Each class computes it
by one rule. Rows below the watermark are late, and counted in `below`. For all rules:

* the source can declare watermarks itself (`declare`): those of a file's scan, and END when it ends;
* a single row from the future or the past has no effect: rules receive accepted rows only
(`lowlevel.watermarks.jumps`).
"""

from __future__ import annotations

import numpy as np

from lowlevel.expressions.columns import Vector
from lowlevel.punctuation import BEGINNING
from lowlevel.rows.readers import Rows
from lowlevel.watermarks.jumps import AFTER, AGREEING, FUTURE, JUMP, PAST, JumpGuard, Times
from lowlevel.watermarks.jumps import BELOW as BELOW_WATERMARK


class WatermarkGenerator:
    """The low watermark of one kind of rows on one link. Memory is fixed. Not thread safe.

    A rule implements `_take`, which processes the times of some rows, and `_bound`, which returns the watermark after
    these rows.
    """

    def __init__(self, guard: JumpGuard | None = None) -> None:
        """Use the times that `guard` accepts; the default guard has the default distances."""
        self.guard = guard or JumpGuard()
        self.lulls = 0
        """Number of times that an idle link's watermark was advanced by the clock."""
        self._low = BEGINNING

    def advance(self, rows: Rows) -> None:
        """Process rows of a reader, in their order."""
        times = rows.columns["ts"]
        assert isinstance(times, Vector)
        self._take(times.data, rows.arrivals)
        self.declare(self._bound())

    def tick(self, now: int) -> None:
        """Record that a poll at `now` (ns) found no data. Only an **empty poll** counts, never a timer alone.

        `now` is the time at which the poll began, so that it cannot have missed data that arrived since.
        """

    def end_block(self) -> None:
        """Record that a block of the source has ended: all its rows have been processed."""

    def declare(self, low: int) -> None:
        """Accept a watermark that the source declares; END if the source has ended."""
        self._low = max(self._low, low)

    @property
    def low(self) -> int:
        """The low watermark; BEGINNING if there is none yet."""
        return self._low

    @property
    def newest(self) -> int:
        """The newest accepted time of the link, ns; no single row with a wrong clock moves it.

        BEGINNING before enough rows have agreed. The pane of this time is the current pane of a live link.
        """
        return self.guard.newest

    @property
    def future(self) -> int:
        """Number of rows ahead of the link that were not accepted."""
        return int(self.guard.state[FUTURE])

    @property
    def past(self) -> int:
        """Number of rows far older than the newest."""
        return int(self.guard.state[PAST])

    @property
    def after_arrival(self) -> int:
        """Number of rows dated far after their arrival; the arrival is used as their time."""
        return int(self.guard.state[AFTER])

    @property
    def below(self) -> int:
        """Number of rows that were below the watermark when their batch arrived."""
        return int(self.guard.state[BELOW_WATERMARK])

    def _take(self, times: Times, arrivals: Times | None) -> None:
        self.guard.follow(times, self._low, arrivals)

    def _bound(self) -> int:
        """Return the watermark after the rows so far, not below the last one; BEGINNING if there is none."""
        return BEGINNING


class Blocks(WatermarkGenerator):
    """Watermark of rows that arrive in blocks: each block wholly after the one before it, in any order inside.

        ts   |  3 1 4 2 2  |  5 4 7 6  |  9 8 8 …        equal times where blocks touch are allowed
                      low = 4 ▲  low = 7 ▲

    A router that empties its flow cache at intervals writes such blocks, and so does the rotation of files. No allowed
    disorder fits: a small one loses rows, and a block's length is right only at the end of the block. The times of rows
    do not show the end of a block: they jump backwards inside a block, and may not jump between two blocks. So a block
    ends

    * when the source reports it (`end_block`): each file of a followed folder is a block;
    * with a `length`, regardless of the source, at the first accepted row of a later segment
      `[k * length, (k+1) * length)` of the epoch.

    Without either there is no watermark before the end of the input.
    """

    def __init__(self, length: int | None = None, agreeing: int = AGREEING, jump: int = JUMP) -> None:
        """Set the `length` of blocks that are equal segments of time, ns. Raises ValueError if it is less than 1."""
        if length is not None and length < 1:
            raise ValueError(f"got blocks of {length} ns, expected at least 1")
        super().__init__(JumpGuard(jump, max(jump, length or 0), agreeing))
        self.length = length

    def end_block(self) -> None:
        """Advance to the newest time, if the source reports the blocks: the next block begins there or later."""
        if self.length is None:
            self.declare(self.newest)

    def _bound(self) -> int:
        newest = self.newest
        if self.length is None or newest == BEGINNING:
            return BEGINNING
        return max(BEGINNING + 1, newest // self.length * self.length)


class Exact(WatermarkGenerator):
    """The watermark that the source declares; rows do not change it.

    The scan of a file finds the smallest time after each block (`capture.files.scan`), which is the definition of the
    low watermark. A source that declares no watermark has a watermark only at its end.
    """


MOST_ROWS = 1 << 20
"""Largest n of LateByRows. Its n + 1 times are at most 8 MiB."""


LARGE_BATCH_FACTOR = 8
"""If a batch has more than LARGE_BATCH_FACTOR times the rows that are kept, its last rows are searched first."""


class LateByRows(WatermarkGenerator):
    """Watermark of rows that are at most n rows late: the (n+1)-th largest accepted time so far.

    "n rows late" has four readings, and the watermark is right for each of them:

    * at most n earlier rows are newer than the row;
    * the first newer row is at most n rows before it;
    * the row is at most n positions after its position in the order of time, which equal times share;
    * the row and its position in that order are at most n positions apart, in either direction.

    Each implies the first. A row below the (n+1)-th largest time would have n+1 newer rows before it, so it cannot
    arrive. The largest time before the last n rows would be right only for the second reading.

    Memory: n+1 times and a batch.
    """

    def __init__(self, rows: int, agreeing: int = AGREEING, jump: int = JUMP) -> None:
        """Set n to `rows`. Raises ValueError if it is negative or above MOST_ROWS."""
        if not 0 <= rows <= MOST_ROWS:
            raise ValueError(f"got rows that are late by {rows} rows, expected 0 to {MOST_ROWS:,}")
        super().__init__(JumpGuard(jump, jump, agreeing))
        self.rows = rows
        self._largest = np.empty(0, np.int64)  # once it is full, the smallest time is first

    def _take(self, times: Times, arrivals: Times | None) -> None:
        believed = self.guard.believed(times, self._low, arrivals)
        wanted = self.rows + 1
        if len(self._largest) == wanted:
            believed = believed[believed > self._largest[0]]
            if len(believed) == 0:
                return
        if len(believed) > LARGE_BATCH_FACTOR * wanted:  # skip rows that are older than the last few without a sort
            last = believed[-LARGE_BATCH_FACTOR // 2 * wanted :]
            believed = believed[believed >= np.partition(last, len(last) - wanted)[len(last) - wanted]]
        together = np.concatenate([self._largest, believed])
        surplus = len(together) - wanted
        self._largest = np.partition(together, surplus)[surplus:].copy() if surplus >= 0 else together

    def _bound(self) -> int:
        return int(self._largest[0]) if len(self._largest) > self.rows else BEGINNING


class LateByTime(WatermarkGenerator):
    """The newest time less the allowed disorder `slack`, ns."""

    def __init__(self, slack: int, agreeing: int = AGREEING, jump: int = JUMP) -> None:
        """Raise ValueError if `slack` is negative. Rows within the allowed disorder are not from the past."""
        if slack < 0:
            raise ValueError(f"got a slack of {slack} ns, expected 0 or more")
        super().__init__(JumpGuard(jump, max(jump, slack), agreeing))
        self.slack = slack

    def _bound(self) -> int:
        newest = self.newest
        return newest if newest == BEGINNING else max(BEGINNING + 1, newest - self.slack)


class Ordered(LateByTime):
    """The newest time: rows are in order. Rows with an equal time may follow, so the bound is strict."""

    def __init__(self, agreeing: int = AGREEING, jump: int = JUMP) -> None:
        """Allow no disorder: each older row is late."""
        super().__init__(0, agreeing, jump)
