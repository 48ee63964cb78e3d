"""What every promise is: rows and empty polls in, a low watermark out that never falls (Li 2008, §8.1).

A promise is *no later row has a ts below `low`*, strictly: a row at `low` itself keeps it. It rests on **knowledge** of
the source, a kind of which is one file here; rows that break it are late, and counted in `below`. Whatever the kind,

* what the source itself says stands beside it (`declare`): a file's scan, and its end, which is P(inf);
* one row from the future or the past changes nothing: kinds see believed rows alone (`lowlevel.promises.guard`).
"""

from __future__ import annotations

import numpy as np

from lowlevel.expressions.columns import Vector
from lowlevel.promises.guard import AFTER, AGREEING, FUTURE, JUMP, PAST, Guard, Times
from lowlevel.promises.guard import BELOW as BELOW_PROMISE
from lowlevel.punctuation import BEGINNING
from lowlevel.rows.readers import Rows


class Promise:
    """The low watermark of one kind of rows on one link. Memory is fixed. Not thread safe.

    A kind says in `_take` what it keeps of the times of some rows, and in `_bound` what it knows after them.
    """

    def __init__(self, guard: Guard | None = None) -> None:
        """Believe what `guard` does, by default the usual one."""
        self.guard = guard or Guard()
        self.lulls = 0
        """Times that silence alone made the promise grow."""
        self._low = BEGINNING

    def advance(self, rows: Rows) -> None:
        """Take in the rows that a reader made, in their order."""
        times = rows.columns["ts"]
        assert isinstance(times, Vector)
        self._take(times.data, rows.arrivals)
        self.declare(self._bound())

    def tick(self, now: int) -> None:
        """Take it that at `now` (ns) nothing was there to be read: only **an empty poll** says so, never a timer alone.

        `now` is the time at which the poll began, so that what came since cannot have been missed.
        """

    def end_block(self) -> None:
        """Take it that a block of the source has ended, where it comes in blocks: the rows so far are all of it."""

    def declare(self, low: int) -> None:
        """Take the source's own word that no later row has a ts below `low`; END where it has ended."""
        self._low = max(self._low, low)

    @property
    def low(self) -> int:
        """The low watermark; BEGINNING where nothing can be promised yet."""
        return self._low

    @property
    def newest(self) -> int:
        """The newest time that is believed of the link, ns, which no single row with a wrong clock moves.

        BEGINNING before enough rows have agreed on it. It is the present of a live link: the pane it is in is current.
        """
        return self.guard.newest

    @property
    def future(self) -> int:
        """Rows that were dated ahead of the link and not believed."""
        return int(self.guard.state[FUTURE])

    @property
    def past(self) -> int:
        """Rows that were dated far behind the newest."""
        return int(self.guard.state[PAST])

    @property
    def after_arrival(self) -> int:
        """Rows that were dated far after they arrived, which is then taken for their time."""
        return int(self.guard.state[AFTER])

    @property
    def below(self) -> int:
        """Rows that were older than what had been promised when their batch came."""
        return int(self.guard.state[BELOW_PROMISE])

    def _take(self, times: Times, arrivals: Times | None) -> None:
        self.guard.follow(times, self._low, arrivals)

    def _bound(self) -> int:
        """Return what is known now, at least as much as before; BEGINNING where that is nothing."""
        return BEGINNING


# Blocks: rows come block by block, each block wholly after the one before it, in any order inside.
#
#     ts   |  3 1 4 2 2  |  5 4 7 6  |  9 8 8 …        ties where blocks touch are allowed
#                ▲ P(4) behind it ▲ P(7)
#
# So comes what is purged at intervals: a router's flow cache, a rotated file. No slack fits: a small one loses rows,
# one of a block's length is right at its end only. What is needed is to know **where a block ends**. Rows alone do not
# tell: inside a block times jump backwards all the while, and where the next begins they may not jump at all. The end
# is
#
# * what the source says (`end_block`): of a followed folder, each file is a block;
# * with a `length`, whatever the source says, a time of the next segment: the block of times
#   `[k * length, (k+1) * length)` of the epoch ends with the first believed row beyond it.
#
# Where neither comes, nothing is promised before the end.


class Blocks(Promise):
    """Promises, whenever a block has ended, that no later row is older than its newest."""

    def __init__(self, length: int | None = None, agreeing: int = AGREEING, jump: int = JUMP) -> None:
        """`length` (ns, at least 1) is that of blocks that are equal segments of time; ValueError for less."""
        if length is not None and length < 1:
            raise ValueError(f"got blocks of {length} ns, expected at least 1")
        super().__init__(Guard(jump, max(jump, length or 0), agreeing))
        self.length = length

    def end_block(self) -> None:
        """Promise the newest row's time, where blocks are what the source says: the next begins there or later."""
        if self.length is None:
            self.declare(self.newest)

    def _bound(self) -> int:
        newest = self.newest
        if self.length is None or newest == BEGINNING:
            return BEGINNING
        return max(BEGINNING + 1, newest // self.length * self.length)


# Exact: the source knows what follows, or nobody does.
#
# Of a file the scan has found the smallest time behind each block (`capture.files.scan`), which is the definition of
# the low watermark itself; what is declared is all that is promised. A source that declares nothing promises at its
# end.


class Exact(Promise):
    """Promises what the source declares, and nothing by its rows."""


# Late by rows: no row is more than n rows late. The promise is the (n+1)-th largest time so far.
#
# "n rows late" can be read in four ways, and the bound holds under each:
#
# * at most n rows before a row are newer than it;
# * the first row that is newer than it is at most n places before it;
# * it is at most n places behind its place in the order of time, which ties share;
# * it and its place in that order are at most n places apart, in either direction.
#
# Each implies the first, by which a row below the (n+1)-th largest so far, having n+1 newer ones before it, cannot
# come. The largest of all but the last n rows would hold under the second alone.


MOST_ROWS = 1 << 20
"""Rows that a row may be late, at most: as many times are kept, 8 MiB."""


FEW = 8
"""Times as many rows as are kept, among which those are looked for at once."""


class LateByRows(Promise):
    """Promises the (`rows` + 1)-th largest believed time; memory: as many times and a batch."""

    def __init__(self, rows: int, agreeing: int = AGREEING, jump: int = JUMP) -> None:
        """ValueError where `rows` is negative or above MOST_ROWS."""
        if not 0 <= rows <= MOST_ROWS:
            raise ValueError(f"got rows that are late by {rows} rows, expected 0 to {MOST_ROWS:,}")
        super().__init__(Guard(jump, jump, agreeing))
        self.rows = rows
        self._largest = np.empty(0, np.int64)  # once it is full the least of them stands first

    def _take(self, times: Times, arrivals: Times | None) -> None:
        believed = self.guard.believed(times, self._low, arrivals)
        wanted = self.rows + 1
        if len(self._largest) == wanted:
            believed = believed[believed > self._largest[0]]
            if len(believed) == 0:
                return
        if len(believed) > FEW * wanted:  # most are older than the last few: those are found without sorting any
            last = believed[-FEW // 2 * wanted :]
            believed = believed[believed >= np.partition(last, len(last) - wanted)[len(last) - wanted]]
        together = np.concatenate([self._largest, believed])
        surplus = len(together) - wanted
        self._largest = np.partition(together, surplus)[surplus:].copy() if surplus >= 0 else together

    def _bound(self) -> int:
        return int(self._largest[0]) if len(self._largest) > self.rows else BEGINNING


class LateByTime(Promise):
    """Promises `slack` ns behind the newest row."""

    def __init__(self, slack: int, agreeing: int = AGREEING, jump: int = JUMP) -> None:
        """ValueError where `slack` is negative. Rows as old as it allows are not from the past."""
        if slack < 0:
            raise ValueError(f"got a slack of {slack} ns, expected 0 or more")
        super().__init__(Guard(jump, max(jump, slack), agreeing))
        self.slack = slack

    def _bound(self) -> int:
        newest = self.newest
        return newest if newest == BEGINNING else max(BEGINNING + 1, newest - self.slack)


# Ordered: no row is older than one before it.
#
# The promise is the last value itself, and strict: rows that tie with it may follow. Reading it as "everything up to
# the last value has arrived" would be wrong at every tie.


class Ordered(LateByTime):
    """Promises the newest row's time: late by 0 ns."""

    def __init__(self, agreeing: int = AGREEING, jump: int = JUMP) -> None:
        """Where the order is broken, rows are late by however little."""
        super().__init__(0, agreeing, jump)
