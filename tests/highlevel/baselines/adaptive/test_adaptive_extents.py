"""Time for which windows stay open by the high watermarks, and its use in the memory model.

The wrong mark (low instead of high, one source instead of the furthest) shows in Eq. 6.7: it says how many tuples are
buffered, which can be counted.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from highlevel.baselines.adaptive.aggregate import AdaptiveAggregate
from highlevel.baselines.adaptive.extents import Extents
from highlevel.baselines.adaptive.thresholds import ALWAYS_LAZY, MemoryModel
from highlevel.sliding.aggregate import END_WID, FIRST_WID
from highlevel.windows.kind import SlidingWindow
from lowlevel.punctuation import Punctuation
from lowlevel.subaggregates import Kind, SubAggregate


def record(extents: Extents, source: int, *tuples: tuple[int, int, int]) -> None:
    times, firsts, ends = (np.array(each, np.int64) for each in zip(*tuples, strict=True))
    extents.record(source, times, firsts, ends)


def test_a_distance_is_from_the_first_tuple_of_a_window_to_its_close() -> None:
    extents = Extents(1, 10)
    assert extents.distance == 10
    record(extents, 0, (3, 0, 2), (7, 1, 3), (4, 0, 2))
    record(extents, 0, (12, 2, 4), (9, 1, 3), (18, 3, 5))
    assert extents.opened == [(0, 2, 3), (2, 3, 7), (3, 4, 12), (4, 5, 18)]
    extents.close(2)  # windows 0 and 1, whose first tuple came at 3
    assert extents.distance == 15
    extents.close(2)
    assert extents.distance == 15
    extents.close(4)  # 2, then 3
    assert (extents.distance, extents.opened, extents.covered) == (6, [(4, 5, 18)], [(4, 5)])


def test_the_furthest_source_is_the_clock_and_others_are_behind_it() -> None:
    extents = Extents(3, 10)
    record(extents, 1, (100, 10, 11))
    record(extents, 0, (60, 6, 7))
    assert extents.offsets() == [40, 0, None]
    assert extents.opened == [(6, 7, 100), (10, 11, 100)]


def test_windows_over_a_gap_are_never_listed() -> None:
    extents = Extents(1, 10)
    record(extents, 0, (0, 0, 10), (10**15, 10**14, 10**14 + 10), (5, 0, 10))
    assert len(extents.opened) == 2


def test_a_restart_goes_on_measuring() -> None:
    extents, other = Extents(2, 10), Extents(2, 10)
    record(extents, 0, (3, 0, 2), (7, 1, 3))
    other.restore(extents.snapshot())
    for each in (extents, other):
        record(each, 1, (21, 2, 4))
        each.close(2)
    assert (other.distance, other.opened, other.newest_times) == (
        extents.distance,
        extents.opened,
        extents.newest_times,
    )
    assert other.distance == 18


def test_the_model_says_how_many_tuples_are_buffered() -> None:
    """Eq. 6.7: the rate of each source times the distance less its offset, 1100 here. The count is the same."""
    rates, delays = (10, 5), (0, 20)
    window = SlidingWindow(60_000, 2_000)
    operator = AdaptiveAggregate([], [SubAggregate("packets", Kind.COUNT)], 60_000, 2_000, 2, ALWAYS_LAZY)
    held = []
    for second in range(300):
        for source, (rate, delay) in enumerate(zip(rates, delays, strict=True)):
            times = np.arange(rate) * 1000 // rate + (second - delay) * 1000
            if times[0] < 0:
                continue
            first, end = np.maximum(times // 2_000, 0), np.maximum((times + 60_000) // 2_000, 0)
            columns = {"ts": times, "packets": np.ones_like(times), FIRST_WID: first, END_WID: end}
            batch = pa.RecordBatch.from_pydict({name: pa.array(values) for name, values in columns.items()})
            list(operator.process_rows(source, batch))
            if source == 1 and second > 200:
                held.append(operator.tuples)
            list(operator.punctuate(source, Punctuation("", window.first_open_window(int(times[0]) + 1000))))
    distance = operator.extents.distance / 1000
    offsets = [each / 1000 for each in operator.extents.offsets() if each is not None]
    assert distance == pytest.approx(80, abs=2)
    assert offsets == pytest.approx(delays, abs=1)
    predicted = sum(rate * (distance - offset) for rate, offset in zip(rates, offsets, strict=True))
    assert np.mean(held) == pytest.approx(predicted, rel=0.03)


def test_the_condition_with_offsets_is_the_condition_on_counted_tuples() -> None:
    """Cond. 6.9 as printed, and as it is used: offsets are on both sides."""
    random = np.random.default_rng(1)
    decided = set()
    for _ in range(500):
        distance, slide = random.uniform(10, 100), random.uniform(1, 10)
        rates = random.exponential(0.6, 3)
        offsets = np.append(0, random.uniform(0, 10, 2))
        partial, tuple_ = random.integers(20, 100, 2).tolist()
        printed = rates.sum() * distance > partial * distance / (tuple_ * slide) + (rates * offsets).sum()
        counted = (rates * (distance - offsets)).sum()
        used = counted > MemoryModel().for_group(distance / slide, partial, tuple_).eager_above
        assert printed == used
        decided.add(bool(used))
    assert decided == {True, False}
