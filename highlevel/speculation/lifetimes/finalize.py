"""Finalize: turns any input into valid changes and CTIs. It implements REMEMBER (M; Goldstein et al., CEDR, §5).

A row below the last CTI is late: it is dropped and counted. CTIs have three sources:

    remember    the newest start minus `remember`, which the user chooses. Later arrivals below this time are late
    counts "exactly n changes have a sync time in [a, b)" (ExternalCTI), for example from sequence numbers. When these
    changes and the changes of all earlier counts have arrived, CTI(b) follows. Late changes count too the end CTI(END)

`FinalizeById` receives versions of rows: each has the identifier of its row, a start, and perhaps an end. The newest
version is valid. An end may arrive before its row. Of several ends the earliest is valid. `FinalizeByValue` receives
changes without identifiers. A retraction may arrive before the row that it shortens, or before an earlier retraction of
this row. Then the retraction waits, and the CTIs wait too. Neighbouring retractions are merged.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Any

from capture.lazy_dataclasses import dataclass
from highlevel.speculation.lifetimes.kernels.endpoints import CTI, INSERT, RETRACTION
from highlevel.speculation.lifetimes.model import LifetimeError
from lowlevel.punctuation import BEGINNING, END

Row = Any
"""The values of a row, as a hashable object."""

Change = tuple[int, int, int, int, Row | None]
"""Type, vs, ve, vnew and row."""


@dataclass(frozen=True, slots=True)
class Count:
    """Exactly `expected` changes have a sync time in [start, end)."""

    start: int
    end: int
    expected: int

    def __post_init__(self) -> None:
        """Raise LifetimeError for an empty range or a negative number."""
        if self.start >= self.end or self.expected < 0:
            raise LifetimeError(f"got a count of {self.expected} changes in [{self.start}, {self.end})")


class Ctis:
    """Computes the CTIs of one input from counts of changes, and from the newest start."""

    def __init__(self, remember: int | None, begin: int | None = None) -> None:
        """The CTI is `remember` ns before the newest start. None: only counts give CTIs.

        The first count starts at `begin`.
        """
        self._remember = remember
        self._begin = begin
        self._counts: list[tuple[int, int, int]] = []
        self._received: Counter[int] = Counter()
        self.newest_start = BEGINNING
        self.newest_cti = BEGINNING
        """The last CTI."""

    def receive(self, sync: int) -> None:
        """Count a change, even if it is late. Without `begin` nothing is counted."""
        if self._begin is not None:
            self._received[sync] += 1

    def count(self, count: Count) -> None:
        """Add the expected number of changes of a range. A range below the last CTI is ignored."""
        if self._begin is None:
            raise LifetimeError("got a count of changes, expected the start of the first count, `begin`")
        if count.end > self.newest_cti:
            insort(self._counts, (count.start, count.end, count.expected))

    def advance(self, waiting: int = END) -> int | None:
        """Return a new CTI, or None if it does not advance.

        The CTI is at most `waiting`: the earliest new end of waiting changes, in ns.
        """
        time = self.newest_cti
        for start, end, expected in self._counts:
            if start > max(time, self._begin or 0):  # a gap: changes before `start` may follow
                break
            if sum(n for sync, n in self._received.items() if start <= sync < end) < expected:
                break
            time = max(time, end)
        time = min(time, waiting)
        if self._remember is not None and self.newest_start != BEGINNING:
            forced = self.newest_start - self._remember
            for start, end, _ in self._counts:
                if start <= forced < end:
                    forced = start
            time = max(time, forced)
        return self._set(time) if time > self.newest_cti else None

    def end(self) -> int:
        """Return the CTI of the end of the input."""
        return self._set(END)

    def _set(self, time: int) -> int:
        self.newest_cti = time
        self._counts = [count for count in self._counts if count[1] > time]
        self._received = Counter({sync: n for sync, n in self._received.items() if sync >= time})
        return time


class FinalizeById:
    """Converts versions of rows, which have identifiers, to changes."""

    def __init__(self, remember: int | None, begin: int | None = None) -> None:
        """Store rows for `remember` ns; if `remember` is None, until a CTI of the counts.

        The first count starts at `begin`.
        """
        self.ctis = Ctis(remember, begin)
        self._live: dict[Hashable, tuple[int, int, Row]] = {}
        self._early_ends: dict[Hashable, int] = {}
        self.late = 0
        """Number of versions below the last CTI."""

    @property
    def stored(self) -> int:
        """Number of rows that can still change."""
        return len(self._live) + len(self._early_ends)

    def insert(self, identifier: Hashable, start: int, end: int, row: Row) -> Iterator[Change]:
        """Process a version of a row. It replaces the earlier version.

        If the new end is END, the earlier end remains.
        """
        self.ctis.receive(start)
        self.ctis.newest_start = max(self.ctis.newest_start, start)
        live = self._live.get(identifier)
        if live is not None:
            before_start, before_end, before_row = live
            end = before_end if end == END else end
            if (start, row) == (before_start, before_row) and start < end <= before_end:
                if end < before_end:
                    yield from self._shorten(identifier, live, end)
                return
        if min(start, start if live is None else live[0]) < self.ctis.newest_cti:
            self.late += 1
            return
        if live is not None:
            yield RETRACTION, live[0], live[1], live[0], live[2]
            del self._live[identifier]
        end = min(end, self._early_ends.pop(identifier, END))
        if end > start:
            self._live[identifier] = (start, end, row)
            yield INSERT, start, end, end, row

    def retract(self, identifier: Hashable, end: int) -> Iterator[Change]:
        """End a row at `end`, even if the row has not arrived yet. An end at or before the start withdraws the row."""
        self.ctis.receive(end)
        live = self._live.get(identifier)
        if end < self.ctis.newest_cti:
            self.late += 1
        elif live is None:
            self._early_ends[identifier] = min(end, self._early_ends.get(identifier, END))
        elif end < live[1]:
            yield from self._shorten(identifier, live, max(end, live[0]))

    def _shorten(self, identifier: Hashable, live: tuple[int, int, Row], end: int) -> Iterator[Change]:
        start, before, row = live
        if end < self.ctis.newest_cti:
            self.late += 1
            return
        yield RETRACTION, start, before, end, row
        if end > start:
            self._live[identifier] = (start, end, row)
        else:
            del self._live[identifier]

    def advance(self, *, ended: bool = False) -> Iterator[Change]:
        """Return a CTI if the CTI advances, and remove the rows that cannot change any more."""
        time = self.ctis.end() if ended else self.ctis.advance()
        if time is None:
            return
        yield CTI, time, 0, 0, None
        self._live = {key: live for key, live in self._live.items() if live[1] >= time}
        self._early_ends = {key: early for key, early in self._early_ends.items() if early >= time}


class FinalizeByValue:
    """Converts changes in any order, without identifiers, to valid changes."""

    def __init__(self, remember: int | None, begin: int | None = None) -> None:
        """Store rows for `remember` ns; if `remember` is None, until a CTI of the counts.

        The first count starts at `begin`.
        """
        self.ctis = Ctis(remember, begin)
        self._live: Counter[tuple[int, int, Row]] = Counter()
        self._waiting_retractions: list[tuple[int, int, int, Row]] = []
        self.late = 0
        """Number of changes below the last CTI."""

    @property
    def stored(self) -> int:
        """Number of rows that can still change, plus the number of waiting retractions."""
        return self._live.total() + len(self._waiting_retractions)

    def insert(self, start: int, end: int, row: Row) -> Iterator[Change]:
        """Process an insert."""
        self.ctis.receive(start)
        self.ctis.newest_start = max(self.ctis.newest_start, start)
        if start < self.ctis.newest_cti:
            self.late += 1
            return
        for broken in self._waiting_retractions:
            if (broken[0], broken[1], broken[3]) == (start, end, row):
                self._waiting_retractions.remove(broken)
                end = broken[2]
                break
        if end > start:
            self._live[start, end, row] += 1
            yield INSERT, start, end, end, row

    def retract(self, start: int, end: int, new_end: int, row: Row) -> Iterator[Change]:
        """Process a retraction. It waits if the row, or an earlier retraction of the row, has not arrived yet."""
        self.ctis.receive(new_end)
        if new_end < self.ctis.newest_cti:
            self.late += 1
            return
        for broken in self._waiting_retractions:
            if (broken[0], broken[2], broken[3]) == (start, end, row):
                self._waiting_retractions.remove(broken)
                end = broken[1]
                break
        for broken in self._waiting_retractions:
            if (broken[0], broken[1], broken[3]) == (start, new_end, row):
                self._waiting_retractions.remove(broken)
                new_end = broken[2]
                break
        if not self._live[start, end, row]:
            self._waiting_retractions.append((start, end, new_end, row))
            return
        self._live[start, end, row] -= 1
        if new_end > start:
            self._live[start, new_end, row] += 1
        yield RETRACTION, start, end, new_end, row

    def advance(self, *, ended: bool = False) -> Iterator[Change]:
        """Return a CTI if the CTI advances, and remove the rows that cannot change any more."""
        waiting = min((broken[2] for broken in self._waiting_retractions), default=END)
        time = self.ctis.end() if ended else self.ctis.advance(waiting)
        if time is None:
            return
        yield CTI, time, 0, 0, None
        self._live = Counter({row: n for row, n in self._live.items() if n and row[1] >= time})
        self._waiting_retractions = [broken for broken in self._waiting_retractions if broken[2] >= time]
