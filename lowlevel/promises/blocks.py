"""Blocks: rows come block by block, each block wholly after the one before it, in any order inside.

    ts   |  3 1 4 2 2  |  5 4 7 6  |  9 8 8 …        ties where blocks touch are allowed
               ▲ P(4) behind it ▲ P(7)

So comes what is purged at intervals: a router's flow cache, a rotated file. No slack fits: a small one loses rows, one
of a block's length is right at its end only. What is needed is to know **where a block ends**. Rows alone do not tell:
inside a block times jump backwards all the while, and where the next begins they may not jump at all. The end is

* what the source says (`end_block`): of a followed folder, each file is a block;
* with a `length`, whatever the source says, a time of the next segment: the block of times
  `[k * length, (k+1) * length)` of the epoch ends with the first believed row beyond it.

Where neither comes, nothing is promised before the end.
"""

from __future__ import annotations

from lowlevel.promises.guard import AGREEING, JUMP, Guard
from lowlevel.promises.promise import Promise
from lowlevel.punctuation import BEGINNING


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
