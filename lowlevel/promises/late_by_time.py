"""Late by time: no row is more than so many ns older than the newest row before it."""

from __future__ import annotations

from lowlevel.promises.guard import AGREEING, JUMP, Guard
from lowlevel.promises.promise import Promise
from lowlevel.punctuation import BEGINNING


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
