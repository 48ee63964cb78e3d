"""What every promise is: rows and empty polls in, a low watermark out that never falls (Li 2008, §8.1).

A promise is *no later row has a ts below `low`*, strictly: a row at `low` itself keeps it. It rests on **knowledge** of
the source, a kind of which is one file here; rows that break it are late, and counted in `below`. Whatever the kind,

* what the source itself says stands beside it (`declare`): a file's scan, and its end, which is P(inf);
* one row from the future or the past changes nothing: kinds see believed rows alone (`lowlevel.promises.guard`).
"""

from __future__ import annotations

from lowlevel.promises.guard import AFTER, FUTURE, PAST, Guard, Times
from lowlevel.promises.guard import BELOW as BELOW_PROMISE
from lowlevel.punctuation import BEGINNING
from lowlevel.readers import Rows
from lowlevel.vectors import Vector


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
