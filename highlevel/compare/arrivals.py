"""Arrivals: what every variant is fed with, in batches of a tick of arrival time, and what may be promised behind each.

A promise is either *exact*, the smallest time of the link's rows that are still to come, as the scan of a file knows
it (but never ahead of the clock of arrivals), or *late by* D, the largest time that the link has brought less D.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from highlevel.compare.recording import Numbers, Recording
from lowlevel.punctuation import BEGINNING, END, Punctuation

TICK = 250_000_000
"""ns of arrival time in a batch, unless there would be more than MOST_TICKS."""

MOST_TICKS = 4000


@dataclass(frozen=True)
class Source:
    """What one leaf gets of one recording: its rows in the order of arrival, and which of them come in which tick."""

    leaf: int
    recording: int
    link: str
    rows: pa.RecordBatch
    ends: Numbers


@dataclass(frozen=True)
class Event:
    """The end of a tick for a source: the rows that came in it, and what is promised behind them."""

    tick: int
    now: int
    port: int
    rows: pa.RecordBatch | None
    low: int
    ends: bool


@dataclass(frozen=True)
class Arrivals:
    """All rows in the order in which they arrive. `lows` and `highs` are of recordings, behind each tick."""

    ticks: Numbers
    sources: Sequence[Source]
    lows: Sequence[Numbers]
    highs: Sequence[Numbers]

    @property
    def rows(self) -> int:
        """Rows that variants get."""
        return sum(source.rows.num_rows for source in self.sources)

    def links(self, leaves: int) -> list[list[str]]:
        """The links of each leaf, in the order of its ports."""
        return [[source.link for source in self.sources if source.leaf == leaf] for leaf in range(leaves)]

    def events(self, late: int | None) -> Iterator[Event]:
        """Yield everything in order, with promises that are exact or, ns, `late`; at last the end of every source."""
        lows = self.lows if late is None else [_behind(highs, late) for highs in self.highs]
        begun = [0] * len(self.sources)
        for tick, now in enumerate(self.ticks.tolist()):
            for port, source in enumerate(self.sources):
                first, end = begun[port], int(source.ends[tick])
                rows = source.rows.slice(first, end - first) if end > first else None
                begun[port] = end
                yield Event(tick, now, port, rows, int(lows[source.recording][tick]), ends=False)
        for port in range(len(self.sources)):
            yield Event(len(self.ticks) - 1, int(self.ticks[-1]), port, None, END, ends=True)


def promise(source: Source, low: int) -> Punctuation:
    """Return a promise of a source."""
    return Punctuation(source.link, low)


def arrange(recordings: Sequence[Recording], arrivals: Sequence[Numbers], tick: int | None = None) -> Arrivals:
    """Put the rows of recordings in the order of their arrivals; ValueError where there is none."""
    whole = [each for each in arrivals if len(each)]
    if not whole:
        raise ValueError("there are no rows")
    begin, last = min(int(each.min()) for each in whole), max(int(each.max()) for each in whole)
    length = tick or max(TICK, -(-(last - begin + 1) // MOST_TICKS))
    ticks = begin + np.arange(1, (last - begin) // length + 2) * length
    sources: list[Source] = []
    lows, highs = [], []
    for number, (each, arrived) in enumerate(zip(recordings, arrivals, strict=True)):
        order = np.argsort(arrived, kind="stable")
        times = each.times[order]
        ends = np.searchsorted(arrived[order], ticks)
        least = np.append(np.minimum.accumulate(times[::-1])[::-1], END) if len(times) else np.array([END])
        to_come = least[ends]
        lows.append(np.where(to_come == END, END, np.minimum(to_come, ticks)))
        most = np.append(BEGINNING, np.maximum.accumulate(times)) if len(times) else np.array([BEGINNING])
        highs.append(most[ends])
        for leaf, (rows, places) in each.kept.items():
            mine = arrived[places]
            moved = np.argsort(mine, kind="stable")
            ordered = rows if (np.diff(moved) == 1).all() else rows.take(pa.array(moved))
            sources.append(Source(leaf, number, each.link, ordered, np.searchsorted(mine[moved], ticks)))
    sources.sort(key=lambda source: source.leaf)  # ports are numbered through leaf by leaf
    return Arrivals(ticks, sources, lows, highs)


def _behind(highs: Numbers, late: int) -> Numbers:
    return np.where(highs == BEGINNING, BEGINNING, highs - late)
