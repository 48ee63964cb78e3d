"""Slow twins of windows that slide by rows: the bins of the thesis, and the definition over all rows that have come.

`Bins` is Fig. 6-7 of Li 2008 with its errata. A bin begins with the value of the last bin *at or below* its position.
There is one bin per position and kind. Punctuation keeps the value of the last bin that it removes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import numpy as np

from highlevel.windows.kind import SlideByTuple
from lowlevel.punctuation import BEGINNING, END
from tests.references.windows_oracle import Arrival


@dataclass
class Bin:
    """The value of windows between this position and the next. `rows` are the rows that begin here; none at an end."""

    value: list
    rows: list[int] = field(default_factory=list)


class Bins:
    """Windows as the thesis makes them. A value is the list of all that a window has seen."""

    def __init__(self, window: SlideByTuple) -> None:
        self.window = window
        self.bins: dict[int, Bin] = {}
        self.base: list = []
        self.arrived = 0
        self.finished = 0

    def row(self, ts: int, value: object) -> None:
        start, end = ts, ts + self.window.range
        for place in (start, end):
            if place not in self.bins:
                below = [each for each in self.bins if each <= place]
                self.bins[place] = Bin(list(self.bins[max(below)].value if below else self.base))
        self.arrived += 1
        self.bins[start].rows.append(self.arrived)
        for place, each in self.bins.items():
            if start <= place < end:
                each.value.append(value)

    def punctuate(self, low: int) -> list[tuple[int, list]]:
        """The windows below the watermark, in order: id and what it has seen."""
        found = []
        for place in sorted(each for each in self.bins if each < low):
            each = self.bins.pop(place)
            self.base = each.value
            if self._reported(each.rows):
                found.append((place, each.value))
        return found

    def _reported(self, rows: list[int]) -> bool:
        every, before = self.window.every, self.finished
        self.finished += len(rows)
        if self.window.in_time_order:
            return self.finished // every > before // every
        return any(number % every == 0 for number in rows)

    def counts(self) -> dict[str, int]:
        """The bins as figures print them: S for the start of rows, E for an end, with their counts."""
        return {f"{'S' if each.rows else 'E'}{place}": len(each.value) for place, each in sorted(self.bins.items())}


Aggregated = dict[tuple[int, int, object], tuple]
"""By (window_start, window_end, group), what `fold` makes of the rows."""


class Definition:
    """Windows by definition: each when the watermark passes it, of all rows that have come."""

    def __init__(self, window: SlideByTuple, fold: Callable[[list[Arrival]], tuple]) -> None:
        self.window = window
        self.fold = fold
        self.arrivals: list[Arrival] = []
        self.low = BEGINNING
        self.final: set[int] = set()  # ids of windows that are, at any time, by the definition
        self.waiting: list[Arrival] = []  # came below the watermark, and since the last
        self.late: list[Arrival] = []
        self.inside: list[Arrival] = []
        self.outside = 0
        self.closed = 0

    def row(self, each: Arrival) -> None:
        self.arrivals.append(each)
        if self.low != BEGINNING and each.ts <= self.low - self.window.range:
            self.late.append(each)
            return
        self.inside.append(each)
        if each.ts < self.low:
            self.waiting.append(each)

    def punctuate(self, low: int) -> Aggregated:
        if low <= self.low:
            return {}
        times = np.array([each.ts for each in self.arrivals], np.int64)
        wids = self.window.windows(times).tolist()
        self.final |= {wid for wid in wids if wid < self.low}
        self.late += [each for each in self.waiting if self._held(each)]
        self.waiting = []
        self.final |= {wid for wid in wids if wid < low}
        found: Aggregated = {}
        for wid in (wid for wid in wids if self.low <= wid < low):
            self.closed += 1
            extent = self.window.extent(wid, times)
            members = [each for each, inside in zip(self.arrivals, extent, strict=True) if inside]
            for group in {each.group for each in members}:
                start, end = self.window.bounds(wid)
                found[start, end, group] = self.fold([each for each in members if each.group == group])
        self.low = low
        over = [each for each in self.inside if low == END or each.ts <= low - self.window.range]
        self.outside += sum(not self._held(each) for each in over)
        self.inside = [each for each in self.inside if low != END and each.ts > low - self.window.range]
        return found

    def _held(self, each: Arrival) -> bool:
        return any(each.ts <= wid < each.ts + self.window.range for wid in self.final)


FORMS = ("row", "arrival", "rank")


def fold(rows: list[Arrival]) -> tuple:
    numbers = [each.number for each in rows]
    return len(numbers), sum(numbers), min(numbers), max(numbers)


def random_window(random: Random, form: str) -> SlideByTuple:
    every = 1 if form == "row" else random.choice([2, 3, 5, 30])
    return SlideByTuple(random.choice([1, 10, random.randint(1, 100)]), every, form == "rank")


def by_definition(window: SlideByTuple, order: list[Arrival | int]) -> tuple[set[tuple], Definition]:
    twin = Definition(window, fold)
    found = set()
    for each in order:
        if isinstance(each, Arrival):
            twin.row(each)
        else:
            found |= {(*key, *value) for key, value in twin.punctuate(each).items()}
    return found, twin
