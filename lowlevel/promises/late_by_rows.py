"""Late by rows: no row is more than n rows late. The promise is the (n+1)-th largest time so far.

"n rows late" can be read in four ways, and the bound holds under each:

* at most n rows before a row are newer than it;
* the first row that is newer than it is at most n places before it;
* it is at most n places behind its place in the order of time, which ties share;
* it and its place in that order are at most n places apart, in either direction.

Each implies the first, by which a row below the (n+1)-th largest so far, having n+1 newer ones before it, cannot come.
The largest of all but the last n rows would hold under the second alone.
"""

from __future__ import annotations

import numpy as np

from lowlevel.promises.guard import AGREEING, JUMP, Guard, Times
from lowlevel.promises.promise import Promise
from lowlevel.punctuation import BEGINNING

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
