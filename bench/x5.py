"""AdaptWID compared with always eager (WID) and always lazy (tuples until windows close): Li 2008, Figure 6-19.

a) sum over tumbling seconds of DS1 to DS5, in which groups of one record contain 1 to 9 % of the data and are 39 to
   85 % of the groups. b) count over RANGE 10 s, SLIDE 1 s of two links of 4000 tuples/s and an almost idle control
   link that is late by 0 to 10 s, by groups with Zipf frequencies.

All three are the same operator with other thresholds. Memory is the maximum size of its groups, tuples and partials,
with their indexes. The WID of Wiretide, Aggregate, stores panes instead of windows. It is listed separately.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bench.disorder import SECOND, SMALL_SHARES, Numbers, Stream, skewed
from bench.one_core import on_one_core
from bench.plots import curves
from bench.report import Report
from bench.setting import Setting
from highlevel.baselines.adaptive.aggregate import AdaptiveAggregate
from highlevel.baselines.adaptive.thresholds import ALWAYS_EAGER, ALWAYS_LAZY, MemoryModel, ThresholdPolicy
from highlevel.operators.meld import Meld
from highlevel.sliding.aggregate import Aggregate
from highlevel.windows.kind import SlidingWindow
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.punctuation import END, Item, Punctuation
from lowlevel.subaggregates import Kind, SubAggregate

POLICIES: dict[str, ThresholdPolicy] = {"eager": ALWAYS_EAGER, "lazy": ALWAYS_LAZY, "adaptive": MemoryModel()}
SKEWS = (0, 2, 5, 10)
"""Delays of the control link in seconds."""

RATE = 4000
TICK = SECOND // 10
"""Span of data times in a batch."""

SUM = [SubAggregate("value", Kind.SUM, Column("value", Type.INT))]
COUNT = [SubAggregate("packets", Kind.COUNT)]

Event = tuple[int, pa.RecordBatch | int]
"""A source and its items: a batch, or a watermark."""


@dataclass(frozen=True)
class Figures:
    """Maximum bytes and items (tuples, partials), ns per tuple, and ms from a watermark to its results."""

    bytes: int
    items: int
    ns: float
    latency: float


def events_of(streams: Sequence[Stream], delays: Sequence[int], window: SlidingWindow) -> Iterator[Event]:
    """Return the events of all sources, delayed by `delays` (µs): batches of a TICK, and watermarks after them."""
    last = max(int(stream.times[-1]) + delay for stream, delay in zip(streams, delays, strict=True))
    for tick in range(0, last + TICK, TICK):
        for source, (stream, delay) in enumerate(zip(streams, delays, strict=True)):
            first, end = np.searchsorted(stream.times, [tick - delay, tick - delay + TICK]).tolist()
            if first < end:
                yield source, stream.batch(first, end, window)
            yield source, tick - delay + TICK
    for source in range(len(streams)):
        yield source, END


def feed_plan(
    operator: AdaptiveAggregate | Aggregate, events: Sequence[Event], sources: int, window: SlidingWindow
) -> Figures:
    """Feed an operator, and measure its state."""
    meld = Meld(sources)
    items = most = rows = 0
    peak = 0
    spent = 0.0
    latencies = []
    for source, event in events:
        before = time.process_time()
        found: list[Item] = []
        if isinstance(event, int):
            mark = Punctuation("", event if event == END else window.first_open_window(event))
            if isinstance(operator, AdaptiveAggregate):
                found += operator.punctuate(source, mark)
            else:
                for least in meld.punctuate(source, mark):
                    assert isinstance(least, Punctuation)
                    found += operator.punctuate(0, least)
        else:
            rows += event.num_rows
            if isinstance(operator, AdaptiveAggregate):
                found += operator.process_rows(source, event)
                items = operator.tuples + operator.partials
            else:
                found += operator.process_rows(0, event.drop_columns(["ts"]))
        step_time = time.process_time() - before
        spent += step_time
        if found:
            latencies.append(step_time * 1000)
        peak = max(peak, operator.peak_bytes if isinstance(operator, AdaptiveAggregate) else operator.bytes)
        most = max(most, items)
    return Figures(peak, most, spent / rows * 1e9, float(np.median(latencies)))


def compare(
    streams: Sequence[Stream], delays: Sequence[int], window: SlidingWindow, subs: list[SubAggregate]
) -> dict[str, Figures]:
    """Run all policies, and the aggregate of Wiretide, over the same events."""
    events = list(events_of(streams, delays, window))
    found = {}
    for name, policy in POLICIES.items():
        operator = AdaptiveAggregate(["group"], subs, window.range, window.slide, len(streams), policy)
        found[name] = feed_plan(operator, events, len(streams), window)
    found["Aggregate"] = feed_plan(Aggregate(["group"], subs), events, len(streams), window)
    return found


def run_tumbling(records: int) -> dict[str, dict[str, Figures]]:
    """Run experiment a. Return the figures by data set."""
    window = SlidingWindow(SECOND, SECOND)
    return {name: compare([skewed(name, records, 60, seed=1)], [0], window, SUM) for name in SMALL_SHARES}


def run_sliding(seconds: int) -> dict[str, dict[str, Figures]]:
    """Run experiment b. Return the figures by the delay of the control link in seconds."""
    window = SlidingWindow(10 * SECOND, SECOND)
    random = np.random.default_rng(1)
    streams = [zipf(random, seconds, rate) for rate in (RATE, RATE, 1)]
    return {f"{skew} s": compare(streams, [0, 0, skew * SECOND], window, COUNT) for skew in SKEWS}


def zipf(random: np.random.Generator, seconds: int, rate: int, groups: int = 100_000) -> Stream:
    """Return a link whose groups have Zipf frequencies."""
    weights = 1.0 / np.arange(1, groups + 1)
    names: Numbers = np.searchsorted(np.cumsum(weights) / weights.sum(), random.random(seconds * rate))
    times = np.sort(random.integers(seconds * SECOND, size=len(names)))
    return Stream(times, times, names, np.ones_like(times))


def run(setting: Setting) -> Report:
    """Compare the policies."""
    report = Report("X5")
    records, seconds = (20_000, 12) if setting.quick else (60_000, 15)
    one, two = on_one_core(run_tumbling, records), on_one_core(run_sliding, seconds)
    for what, title, found in (
        ("a", f"sum over tumbling seconds, {records:,} records in 60 s", one),
        ("b", f"count over 10 s each second, {2 * RATE * seconds:,} tuples, control behind", two),
    ):
        names = list(next(iter(found.values())))
        report.table(
            f"{what}) {title}: KB at most (tuples and partials), ns for a tuple, ms to results",
            (what, *names, "adaptive / better"),
            [
                (
                    position,
                    *(
                        f"{each.bytes / 1e3:,.0f} ({each.items:,}) {each.ns:.0f} {each.latency:.2f}"
                        for each in row.values()
                    ),
                    f"{memory_share(row):.2f}",
                )
                for position, row in found.items()
            ],
        )
        if setting.plots:
            lines = {name: [row[name].bytes / 1e3 for row in found.values()] for name in POLICIES}
            labels = ("data set" if what == "a" else "control link behind", "KB held at most")
            curves(setting.plots / f"x5{what}.svg", title, list(found), lines, labels)
    report.add_criterion(
        "a, memory, adaptive / the better of eager and lazy, the most", max(map(memory_share, one.values())), "<= 1.05"
    )
    report.add_criterion(
        "b, memory, adaptive / the better of eager and lazy, the most", max(map(memory_share, two.values())), "<= 1.05"
    )
    return report


def memory_share(row: dict[str, Figures]) -> float:
    """Return the memory of AdaptWID as a share of the memory of the better of the other two."""
    return row["adaptive"].bytes / min(row["eager"].bytes, row["lazy"].bytes)
