"""Arrivals: what every variant is fed with, in batches of a tick of arrival time, and what may be promised behind each.

A promise is either *exact*, the smallest time of the link's rows that are still to come, as the scan of a file knows
it (but never ahead of the clock of arrivals), or *late by* D, the largest time that the link has brought less D.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from capture.errors import InputError
from highlevel.compare.recording import Numbers, Recording
from lowlevel.punctuation import BEGINNING, END, Punctuation

TICK = 250_000_000
"""ns of arrival time in a batch, unless there would be more than about MOST_TICKS."""

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
    """All rows in the order in which they arrive. `ticks` are the ends of ticks of `length` ns.

    `lows` and `highs` are of recordings, behind each tick.
    """

    length: int
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
        """Yield everything in order, with promises that are exact or, ns, `late`; at last the end of every source.

        Of a source that brings nothing there is an event where its promise has grown.
        """
        lows = self.lows if late is None else [_behind(highs, late) for highs in self.highs]
        begun, said = [0] * len(self.sources), [BEGINNING] * len(self.sources)
        for tick, now in enumerate(self.ticks.tolist()):
            for port, source in enumerate(self.sources):
                first, end = begun[port], int(source.ends[tick])
                rows = source.rows.slice(first, end - first) if end > first else None
                low = int(lows[source.recording][tick])
                if rows is not None or low > said[port]:
                    yield Event(tick, now, port, rows, low, ends=False)
                begun[port], said[port] = end, low
        for port in range(len(self.sources)):
            yield Event(len(self.ticks) - 1, int(self.ticks[-1]), port, None, END, ends=True)


def promise(source: Source, low: int) -> Punctuation:
    """Return a promise of a source."""
    return Punctuation(source.link, low)


def arrange(
    recordings: Sequence[Recording], arrivals: Sequence[Numbers], settle: int, tick: int | None = None
) -> Arrivals:
    """Put the rows of recordings in the order of their arrivals. Raises InputError where there is none.

    Of a time in which nothing arrives there are ticks for `settle` ns: then all has happened that is going to.
    """
    whole = np.sort(np.concatenate([np.empty(0, np.int64), *arrivals]))
    if len(whole) == 0:
        raise InputError("there is no row in the input, expected some to compare with")
    length, ticks = _ticks(whole, settle, tick)
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
    return Arrivals(length, ticks, sources, lows, highs)


def _ticks(arrivals: Numbers, settle: int, tick: int | None) -> tuple[int, Numbers]:
    """Return the length of a tick, and the ends of those in which rows arrive, and of those within `settle` behind."""
    begin = int(arrivals[0])
    active = int(np.minimum(np.diff(arrivals), settle).sum()) + 1
    length = tick or max(TICK, -(-active // MOST_TICKS))
    busy = np.unique((arrivals - begin) // length)
    spans = np.minimum(np.diff(busy, append=busy[-1] + 1), 1 + -(-settle // length))
    within = np.arange(int(spans.sum())) - np.repeat(np.cumsum(spans) - spans, spans)
    return length, begin + (np.repeat(busy, spans) + within + 1) * length


def _behind(highs: Numbers, late: int) -> Numbers:
    return np.where(highs == BEGINNING, BEGINNING, highs - late)
