"""The streams of the experiments, and what is true of them, against their definitions by hand.

A stream that is less disordered than it says, a promise that a later tuple breaks, or a truth that is not, would make
any operator look as good as one likes.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from bench.accuracy import compute_errors, compute_true_results, run_with_punctuations, run_with_slack
from bench.disorder import BAND, SECOND, SMALL_SHARES, Stream, band, blocks, pieces, skewed
from highlevel.baselines.slack import Lateness
from highlevel.windows.kind import SlidingWindow
from tests.references.windows_oracle import low_watermarks

SHARES = {"DS1": (39, 51, 10), "DS2": (65, 29, 6), "DS3": (76, 20, 4), "DS4": (82, 16, 3), "DS5": (85, 13, 2)}
"""Percent of groups that are small, medium and large (Table 6-2, as its sizes and shares of the data give them)."""


def same(one: Stream, other: Stream) -> bool:
    return all((getattr(one, name) == getattr(other, name)).all() for name in ("times", "arrivals", "groups", "values"))


def test_a_seed_gives_the_same_stream_and_another_another() -> None:
    for make in (lambda seed: band(20, 10, seed), lambda seed: skewed("DS1", 900, 60, seed)):
        assert same(make(1), make(1))
        assert not same(make(1), make(2))


def test_tuples_of_a_band_are_late_by_up_to_its_width() -> None:
    stream = band(200, 100, seed=1)
    late = stream.arrivals - stream.times
    assert (np.diff(stream.arrivals) >= 0).all()
    assert 0 <= late.min() < 0.01 * SECOND
    assert 0.95 * BAND * SECOND < late.max() <= BAND * SECOND


def test_blocks_rise_and_are_at_random_inside() -> None:
    stream = blocks(4, 490, 10, seed=1)
    each = stream.times.reshape(4, 4900)
    assert (each[:-1].max(1) < each[1:].min(1)).all()
    assert (each.max(1) - each.min(1) > 489 * SECOND).all()
    assert all(abs(np.corrcoef(block, np.arange(4900))[0, 1]) < 0.05 for block in each)
    assert (stream.arrivals > stream.times).all()


@pytest.mark.parametrize("name", list(SMALL_SHARES))
def test_groups_of_three_sizes_have_the_shares_of_the_table(name: str) -> None:
    stream = skewed(name, 20_000, 60, seed=1)
    sizes = Counter(Counter(stream.groups.tolist()).values())
    assert set(sizes) == {1, 15, 300}
    found = [100 * sizes[size] / sum(sizes.values()) for size in (1, 15, 300)]
    assert found == pytest.approx(SHARES[name], abs=1)
    assert len(stream) == pytest.approx(20_000, abs=300)


def test_promises_say_all_that_is_true_and_no_more() -> None:
    for stream in (band(30, 10, seed=1), blocks(2, 50, 4, seed=1)):
        assert stream.watermarks()[:-1].tolist() == low_watermarks(stream.times.tolist())[1:-1]


def test_pieces_are_the_whole_and_end_where_a_step_is_made() -> None:
    steps = np.array([0, 0, 0, 2, 2, 3])
    assert list(pieces(steps)) == [(0, 4), (4, 6)]
    assert list(pieces(np.array([1]))) == [(0, 1)]


def test_the_truth_is_that_of_every_extent() -> None:
    stream, window = band(30, 10, seed=3), SlidingWindow(5 * SECOND, 2 * SECOND)
    true = compute_true_results(stream, window, 14)
    for wid in range(14):
        inside = (stream.times >= window.start(wid)) & (stream.times < window.end(wid))
        assert (true.counts[wid], true.sums[wid]) == (inside.sum(), stream.values[inside].sum())
        assert true.tuples[wid] == np.flatnonzero(stream.times < window.end(wid)).max() + 1


def test_a_window_that_lost_a_tuple_is_seen_and_one_that_waited_is_not() -> None:
    stream, window = band(60, 20, seed=1), SlidingWindow(10 * SECOND, 2 * SECOND)
    true = compute_true_results(stream, window, 25)
    judged = slice(5, 25)
    exact = compute_errors(run_with_punctuations(stream, window, 25), true, judged)
    assert (exact.wrong, exact.count, exact.average, exact.behind) == (0, 0, 0, 0)
    patient = compute_errors(run_with_slack(stream, window, 25, round(BAND * SECOND), Lateness.GENEROUS), true, judged)
    assert (patient.wrong, patient.count) == (0, 0)
    assert patient.delay > exact.delay
    hasty = {each: compute_errors(run_with_slack(stream, window, 25, 0, each), true, judged) for each in Lateness}
    assert hasty[Lateness.CONSISTENT].count > 2 * hasty[Lateness.GENEROUS].count > 0
    assert hasty[Lateness.GENEROUS].behind < 0
