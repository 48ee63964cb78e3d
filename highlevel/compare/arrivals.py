"""Arrivals: the input of every variant, in batches of one tick of arrival time, with watermarks.

A watermark is *exact* or *late by* D. Exact: the smallest time of all future rows of the link, but at most the arrival
time, as for a scanned file. Late by D: the largest time of the link so far minus D.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from capture.errors import InputError
from capture.lazy_dataclasses import dataclass
from highlevel.compare.recording import Numbers, Recording
from lowlevel.punctuation import BEGINNING, END, Punctuation

MIN_TICK = 250_000_000
"""Minimum length of a tick in ns of arrival time. Ticks are longer if there would be more than about MAX_TICKS ticks.
"""

MAX_TICKS = 4000


@dataclass(frozen=True)
class Source:
    """The input of one leaf from one recording: rows in arrival order.

    `is_end`: for each tick, the index after its last row.

    `leaf` and `recording` are indexes in the lists of leaves and recordings.
    """

    leaf: int
    recording: int
    link: str
    rows: pa.RecordBatch
    ends: Numbers


@dataclass(frozen=True)
class Event:
    """End of a tick at the time `now` for one source: the rows of the tick, and the watermark after them.

    `is_end`: whether this is the end of the source.
    """

    tick: int
    now: int
    port: int
    rows: pa.RecordBatch | None
    watermark: int
    is_end: bool


@dataclass(frozen=True)
class Arrivals:
    """All rows in arrival order. `ticks`: the ends of the ticks, whose length is `length` ns.

    `exact_watermarks` and `largest_times`: for each recording the values after each tick.
    """

    length: int
    ticks: Numbers
    sources: Sequence[Source]
    exact_watermarks: Sequence[Numbers]
    largest_times: Sequence[Numbers]

    @property
    def rows(self) -> int:
        """Number of rows that a variant receives."""
        return sum(source.rows.num_rows for source in self.sources)

    def links(self, leaves: int) -> list[list[str]]:
        """The links of each leaf, in the order of its ports."""
        return [[source.link for source in self.sources if source.leaf == leaf] for leaf in range(leaves)]

    def events(self, watermark_delay: int | None) -> Iterator[Event]:
        """Yield all events in order, then the end of each source.

        Watermarks are `watermark_delay` ns behind the newest time, or exact if it is None.

        A source without rows has an event if its watermark has grown.
        """
        watermarks = self.exact_watermarks
        if watermark_delay is not None:
            watermarks = [
                np.where(newest == BEGINNING, BEGINNING, newest - watermark_delay) for newest in self.largest_times
            ]
        starts, sent = [0] * len(self.sources), [BEGINNING] * len(self.sources)
        for tick, now in enumerate(self.ticks.tolist()):
            for port, source in enumerate(self.sources):
                start, end = starts[port], int(source.ends[tick])
                rows = source.rows.slice(start, end - start) if end > start else None
                watermark = int(watermarks[source.recording][tick])
                if rows is not None or watermark > sent[port]:
                    yield Event(tick, now, port, rows, watermark, is_end=False)
                starts[port], sent[port] = end, watermark
        for port in range(len(self.sources)):
            yield Event(len(self.ticks) - 1, int(self.ticks[-1]), port, None, END, is_end=True)


def make_punctuation(source: Source, watermark: int) -> Punctuation:
    """Return the punctuation of a source."""
    return Punctuation(source.link, watermark)


def arrange(
    recordings: Sequence[Recording], arrivals: Sequence[Numbers], settle: int, tick: int | None = None
) -> Arrivals:
    """Sort the rows of recordings by `arrivals`, one array per recording. Raise InputError if there are no rows.

    A pause between rows has ticks only in its first `settle` ns, because no result can follow later in the pause.
    `tick`: the length of a tick in ns; None: chosen automatically.
    """
    all_arrivals = np.sort(np.concatenate([np.empty(0, np.int64), *arrivals]))
    if len(all_arrivals) == 0:
        raise InputError("got no row in the input, expected at least one")
    length, ticks = _choose_ticks(all_arrivals, settle, tick)
    sources: list[Source] = []
    exact_watermarks, largest_times = [], []
    for index, (recording, link_arrivals) in enumerate(zip(recordings, arrivals, strict=True)):
        order = np.argsort(link_arrivals, kind="stable")
        times = recording.times[order]
        ends = np.searchsorted(link_arrivals[order], ticks)
        suffix_minima = np.append(np.minimum.accumulate(times[::-1])[::-1], END) if len(times) else np.array([END])
        earliest = suffix_minima[ends]
        exact_watermarks.append(np.where(earliest == END, END, np.minimum(earliest, ticks)))
        prefix_maxima = np.append(BEGINNING, np.maximum.accumulate(times)) if len(times) else np.array([BEGINNING])
        largest_times.append(prefix_maxima[ends])
        for leaf, (rows, positions) in recording.leaf_rows.items():
            row_arrivals = link_arrivals[positions]
            row_order = np.argsort(row_arrivals, kind="stable")
            ordered = rows if (np.diff(row_order) == 1).all() else rows.take(pa.array(row_order))
            row_ends = np.searchsorted(row_arrivals[row_order], ticks)
            sources.append(Source(leaf, index, recording.link, ordered, row_ends))
    sources.sort(key=lambda source: source.leaf)  # the ports of a leaf have consecutive numbers
    return Arrivals(length, ticks, sources, exact_watermarks, largest_times)


def _choose_ticks(arrivals: Numbers, settle: int, tick: int | None) -> tuple[int, Numbers]:
    """Return the length of a tick, and the ends of the ticks with rows or at most `settle` ns after a row."""
    begin = int(arrivals[0])
    active = int(np.minimum(np.diff(arrivals), settle).sum()) + 1
    length = tick or max(MIN_TICK, -(-active // MAX_TICKS))
    ticks_with_rows = np.unique((arrivals - begin) // length)
    spans = np.minimum(np.diff(ticks_with_rows, append=ticks_with_rows[-1] + 1), 1 + -(-settle // length))
    offsets = np.arange(int(spans.sum())) - np.repeat(np.cumsum(spans) - spans, spans)
    return length, begin + (np.repeat(ticks_with_rows, spans) + offsets + 1) * length
