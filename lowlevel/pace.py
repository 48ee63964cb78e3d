"""How far a link has come, told from its rows alone: the newest ts, and what may be promised `slack` behind it.

A file can be asked for the smallest time of what follows; a live link cannot. It promises that no row is more than
`slack` older than the newest one. One row dated next year must then not close every window: a row more than JUMP ahead
of the newest counts only when AGREEING rows in a row are, it among them. Then the link has jumped, and the least of
them is the newest. So does a link begin: before AGREEING rows nothing is promised. Rows ahead that no such run
confirmed are counted; they are in their windows all the same, which stay open until the link gets there.

The promise never falls. A row below it is late, which is counted where windows close (`highlevel.aggregate`).
"""

from __future__ import annotations

import numpy as np

from capture.native import kernel
from lowlevel.punctuation import BEGINNING
from lowlevel.readers import Rows
from lowlevel.vectors import Vector

JUMP = 3600 * 10**9
"""A row this far ahead of the newest, in ns, may be a clock that is wrong."""

AGREEING = 64
"""Rows in a row that make a jump believed."""

NEWEST, RUN, LEAST, FUTURE = range(4)
"""Words of the state: the newest ts, rows ahead of it since the last that was not, the least of them, and the rows
ahead that were not believed."""


@kernel("i64(i64*, i64, i64*, i64, i64)")
def follow(times, rows, state, jump, agreeing):  # type: ignore[no-untyped-def]
    """Take in `times` (rows); `state` (4 words, as named above, newest BEGINNING at first) moves on. Returns rows."""
    newest = state[NEWEST]
    run = state[RUN]
    for row in range(rows):
        time = times[row]
        # The difference of two int64 fits uint64, whatever the times.
        if newest != BEGINNING and (time <= newest or np.uint64(time) - np.uint64(newest) <= np.uint64(jump)):
            newest = max(newest, time)
            state[FUTURE] += run
            run = 0
            continue
        state[LEAST] = min(state[LEAST], time) if run else time
        run += 1
        if run == agreeing:
            newest = state[LEAST]
            run = 0
    state[NEWEST] = newest
    state[RUN] = run
    return rows


class Pace:
    """Follows the newest row of one kind on one link. Not thread safe."""

    def __init__(self, slack: int) -> None:
        """Promise `slack` ns behind the newest row; ValueError where it is negative."""
        if slack < 0:
            raise ValueError(f"got a slack of {slack} ns, expected 0 or more")
        self.slack = slack
        self.state = np.array([BEGINNING, 0, 0, 0], np.int64)

    def advance(self, rows: Rows) -> None:
        """Take in the rows that a reader made, in their order."""
        times = rows.columns["ts"]
        assert isinstance(times, Vector)
        follow(times.data, rows.count, self.state, JUMP, AGREEING)

    @property
    def low(self) -> int:
        """The low watermark; BEGINNING where nothing can be promised yet."""
        newest = int(self.state[NEWEST])
        return newest if newest == BEGINNING else max(BEGINNING + 1, newest - self.slack)

    @property
    def future(self) -> int:
        """Rows that were dated ahead of the link and not believed."""
        return int(self.state[FUTURE])
