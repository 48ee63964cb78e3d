"""Ordered: no row is older than one before it.

The promise is the last value itself, and strict: rows that tie with it may follow. Reading it as "everything up to the
last value has arrived" would be wrong at every tie.
"""

from __future__ import annotations

from lowlevel.promises.guard import AGREEING, JUMP
from lowlevel.promises.late_by_time import LateByTime


class Ordered(LateByTime):
    """Promises the newest row's time: late by 0 ns."""

    def __init__(self, agreeing: int = AGREEING, jump: int = JUMP) -> None:
        """Where the order is broken, rows are late by however little."""
        super().__init__(0, agreeing, jump)
