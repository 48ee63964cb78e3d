"""Arrivals: input of every variant, in batches of one tick of arrival time, with watermarks.

A watermark is *exact* or *late by* D. Exact: the smallest time of the link's future rows, limited by the arrival clock,
as the scan of a file returns it. Late by D: the largest time of the link so far minus D.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from capture.errors import InputError
from capture.lazy_dataclasses import dataclass
from highlevel.compare.recording import Numbers, Recording
from lowlevel.punctuation import BEGINNING, END, Punctuation

TICK = 250_000_000
"""ns of arrival time in a batch. It is longer if there would be more than about MOST_TICKS batches."""

MOST_TICKS = 4000


@dataclass(frozen=True)
class Source:
    """Input of one leaf from one recording: rows in arrival order, and their division into ticks."""

    leaf: int
    recording: int
    link: str
    rows: pa.RecordBatch
    ends: Numbers


@dataclass(frozen=True)
class Event:
    """End of a tick for a source: the rows of the tick, and the watermark after them."""

    tick: int
    now: int
    port: int
    rows: pa.RecordBatch | None
    low: int
    ends: bool


@dataclass(frozen=True)
class Arrivals:
    """All rows in arrival order. `ticks` are the ends of ticks of `length` ns.

    `lows` and `highs` are per recording, after each tick.
    """

    length: int
    ticks: Numbers
    sources: Sequence[Source]
    lows: Sequence[Numbers]
    highs: Sequence[Numbers]

    @property
    def rows(self) -> int:
        """Number of rows that a variant receives."""
        return sum(source.rows.num_rows for source in self.sources)

    def links(self, leaves: int) -> list[list[str]]:
        """The links of each leaf, in the order of its ports."""
        return [[source.link for source in self.sources if source.leaf == leaf] for leaf in range(leaves)]

    def events(self, late: int | None) -> Iterator[Event]:
        """Yield all events in order, then the end of each source. Watermarks are exact or `late` by some ns.

        A source without rows has an event if its watermark has grown.
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


def make_punctuation(source: Source, low: int) -> Punctuation:
    """Return the punctuation of a source."""
    return Punctuation(source.link, low)


def arrange(
    recordings: Sequence[Recording], arrivals: Sequence[Numbers], settle: int, tick: int | None = None
) -> Arrivals:
    """Sort the rows of recordings by arrival. Raise InputError without rows.

    Pauses have ticks for `settle` ns; after that time no more results can follow.
    """
    whole = np.sort(np.concatenate([np.empty(0, np.int64), *arrivals]))
    if len(whole) == 0:
        raise InputError("got no row in the input, expected at least one")
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
            row_arrivals = arrived[places]
            moved = np.argsort(row_arrivals, kind="stable")
            ordered = rows if (np.diff(moved) == 1).all() else rows.take(pa.array(moved))
            sources.append(Source(leaf, number, each.link, ordered, np.searchsorted(row_arrivals[moved], ticks)))
    sources.sort(key=lambda source: source.leaf)  # ports are numbered through leaf by leaf
    return Arrivals(length, ticks, sources, lows, highs)


def _ticks(arrivals: Numbers, settle: int, tick: int | None) -> tuple[int, Numbers]:
    """Return the length of a tick, and the ends of the ticks with rows or at most `settle` after a row."""
    begin = int(arrivals[0])
    active = int(np.minimum(np.diff(arrivals), settle).sum()) + 1
    length = tick or max(TICK, -(-active // MOST_TICKS))
    busy = np.unique((arrivals - begin) // length)
    spans = np.minimum(np.diff(busy, append=busy[-1] + 1), 1 + -(-settle // length))
    within = np.arange(int(spans.sum())) - np.repeat(np.cumsum(spans) - spans, spans)
    return length, begin + (np.repeat(busy, spans) + within + 1) * length


def _behind(highs: Numbers, late: int) -> Numbers:
    return np.where(highs == BEGINNING, BEGINNING, highs - late)
