"""Results of windows over disordered streams, with slack or with punctuations, compared with the true results.

Each batch ends with a tuple that closes a window. So the time of a result is the time of a tuple, not of a batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bench.disorder import SECOND, Numbers, Stream, pieces
from highlevel.baselines.slack import Lateness, SlackAggregate
from highlevel.sliding.aggregate import Aggregate
from highlevel.windows.kind import SlidingWindow
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.punctuation import END, Item, Punctuation
from lowlevel.subaggregates import Kind, SubAggregate

SUBAGGREGATES = [SubAggregate("packets", Kind.COUNT), SubAggregate("value", Kind.SUM, Column("value", Type.INT))]


@dataclass(frozen=True)
class WindowResults:
    """The count, the sum and the time of the result of each window, by window ID.

    `closed`: arrival time of the result in µs. `tuples`: number of tuples before the result. In the true results,
    `closed` is the end of the window, and `tuples` the number of tuples that complete the window.
    """

    counts: Numbers
    sums: Numbers
    closed: Numbers
    tuples: Numbers


@dataclass(frozen=True)
class Errors:
    """Errors over all windows: the share of wrong windows, mean errors of counts and averages in %, and delays.

    `delay`: median seconds from the end of a window to its result. `behind`: mean number of tuples from the
    completion of a window to its result.
    """

    wrong: float
    count: float
    average: float
    delay: float
    behind: float


def compute_true_results(stream: Stream, window: SlidingWindow, windows: int) -> WindowResults:
    """Compute the results of windows by the definition of their extents."""
    order = np.argsort(stream.times, kind="stable")
    times, sums = stream.times[order], np.append(0, np.cumsum(stream.values[order]))
    ends = window.origin + (np.arange(windows) + 1) * window.slide
    first, last = np.searchsorted(times, ends - window.range), np.searchsorted(times, ends)
    complete = np.maximum.accumulate(order) + 1
    return WindowResults(last - first, sums[last] - sums[first], ends, complete[last - 1])


class ResultCollector:
    """Collects the results of an operator with their times."""

    def __init__(self, windows: int) -> None:
        """Collect the windows with IDs below `windows`."""
        self.rows = np.zeros((4, windows), np.int64)

    def store(self, items: Iterable[Item], stream: Stream, end: int) -> None:
        """Store the rows of items that the operator emits after tuple `end - 1`."""
        for item in items:
            if isinstance(item, pa.RecordBatch):
                wids = item.column("wid").to_numpy()
                known = wids < self.rows.shape[1]
                self.rows[0, wids[known]] = item.column("packets").to_numpy()[known]
                self.rows[1, wids[known]] = item.column("value").to_numpy()[known]
                self.rows[2, wids[known]] = stream.arrivals[end - 1]
                self.rows[3, wids[known]] = end

    @property
    def results(self) -> WindowResults:
        """Return the collected results."""
        return WindowResults(*self.rows)


def run_with_slack(
    stream: Stream, window: SlidingWindow, windows: int, slack: int, lateness: Lateness
) -> WindowResults:
    """Run the in-order operator with a slack."""
    operator = SlackAggregate([], SUBAGGREGATES, window, slack, lateness)
    found = ResultCollector(windows)
    high = np.maximum.accumulate(stream.times)
    for first, end in pieces((high - slack - window.origin) // window.slide):
        found.store(operator.process_rows(0, stream.batch(first, end)), stream, end)
    found.store(operator.punctuate(0, Punctuation("*", END)), stream, len(stream))
    return found.results


def run_with_punctuations(stream: Stream, window: SlidingWindow, windows: int) -> WindowResults:
    """Run the operator of Wiretide. A watermark follows each tuple after which a window can close."""
    operator = Aggregate([], SUBAGGREGATES)
    found = ResultCollector(windows)
    lows = np.maximum((stream.watermarks() - window.origin) // window.slide, 0)
    for first, end in pieces(lows):
        found.store(operator.process_rows(0, stream.batch(first, end, window)), stream, end)
        found.store(operator.punctuate(0, Punctuation("*", int(lows[end - 1]))), stream, end)
    found.store(operator.punctuate(0, Punctuation("*", END)), stream, len(stream))
    return found.results


def compute_errors(results: WindowResults, true: WindowResults, judged: slice) -> Errors:
    """Return the errors of the windows in the slice `judged`. Each of these windows has tuples."""
    counts, sums = results.counts[judged], results.sums[judged]
    true_counts, true_sums = true.counts[judged], true.sums[judged]
    average = np.divide(sums, counts, out=np.zeros(len(counts)), where=counts > 0)
    true_average = true_sums / true_counts
    return Errors(
        wrong=float(np.mean((counts != true_counts) | (sums != true_sums)) * 100),
        count=float(np.mean(np.abs(true_counts - counts) / true_counts) * 100),
        average=float(np.mean(np.abs(true_average - average) / true_average) * 100),
        delay=float(np.median(results.closed[judged] - true.closed[judged])) / SECOND,
        behind=float(np.mean(results.tuples[judged] - true.tuples[judged])),
    )
