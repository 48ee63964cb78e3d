"""The definitions of every kind of window: which windows there are, what each holds, and that the two views agree.

Duality: a row is in extent(w) if and only if w is in its wids (Li 2008, §5.1). The tests detect a bound that is off by
one in only one view, ceilings instead of floors, and empty windows.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from highlevel.windows.kind import LandmarkWindow, SessionWindow, SlideByTuple, SlidingWindow, TupleWindow, WindowKind
from tests.conftest import Rounds


def sliding(random: Random) -> WindowKind:
    return SlidingWindow(random.randint(1, 100), random.randint(1, 30), random.choice([0, random.randint(-50, 50)]))


def tumbling(random: Random) -> WindowKind:
    length = random.randint(1, 40)
    return SlidingWindow(length, length, random.randint(-50, 50))


def gapped(random: Random) -> WindowKind:
    length = random.randint(1, 20)
    return SlidingWindow(length, length + random.randint(1, 20))


def landmark(random: Random) -> WindowKind:
    return LandmarkWindow(random.randint(1, 30), random.randint(-50, 50))


def session(random: Random) -> WindowKind:
    return SessionWindow(random.randint(1, 12))


def of_rows(random: Random) -> WindowKind:
    return TupleWindow(random.randint(1, 30), random.randint(1, 12), random.random() < 0.5)


def by_row(random: Random) -> WindowKind:
    return SlideByTuple(random.randint(1, 60))


def by_arrival(random: Random) -> WindowKind:
    return SlideByTuple(random.randint(1, 60), random.randint(2, 7))


def in_time_order(random: Random) -> WindowKind:
    return SlideByTuple(random.randint(1, 60), random.randint(2, 7), True)


KINDS = (sliding, tumbling, gapped, landmark, session, of_rows, by_row, by_arrival, in_time_order)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_row_is_in_a_window_where_the_window_is_one_of_the_row(kind) -> None:  # type: ignore[no-untyped-def]
    held = 0
    for seed in range(400):
        random = Random(seed)
        window = kind(random)
        count = random.randint(1, 40)
        values = np.array([random.randrange(-60, 200) for _ in range(count)], np.int64)
        if isinstance(window, TupleWindow):
            values = np.arange(count)  # the numbers of rows, in their order
        windows = window.windows(values)
        assert windows.tolist() == sorted(set(windows.tolist()))
        first, end = window.wids(values)
        for wid in windows.tolist():
            extent = window.extent(wid, values)
            assert extent.tolist() == ((first <= wid) & (wid < end)).tolist(), (seed, window, wid)
            assert extent.any(), (seed, window, wid)
            held += int(extent.sum())
            if not isinstance(window, SessionWindow):
                begin, behind = window.bounds(wid)
                assert extent.tolist() == ((begin <= values) & (values < behind)).tolist()
    assert held > 1000


@pytest.mark.parametrize("kind", [sliding, gapped, of_rows], ids=lambda kind: kind.__name__)
def test_windows_are_all_that_hold_a_row_and_no_other(kind) -> None:  # type: ignore[no-untyped-def]
    for seed in range(300):
        random = Random(seed)
        window = kind(random)
        values = np.array(sorted({random.randrange(0, 150) for _ in range(random.randint(0, 12))}), np.int64)
        every = [wid for wid in range(400) if window.extent(wid, values).any()]
        assert window.windows(values).tolist() == every, (seed, window)


def test_sessions_are_chains_of_rows_nearer_than_the_gap(rounds: Rounds) -> None:
    for seed in rounds(300):
        random = Random(seed)
        gap = random.randint(1, 12)
        values = np.array([random.randrange(100) for _ in range(random.randint(1, 30))], np.int64)
        chains: list[list[int]] = []
        for value in sorted(values.tolist()):
            if chains and value - chains[-1][-1] < gap:
                chains[-1].append(value)
            else:
                chains.append([value])
        window = SessionWindow(gap)
        assert window.windows(values).tolist() == [chain[0] for chain in chains]
        for chain in chains:
            assert sorted(values[window.extent(chain[0], values)].tolist()) == chain


def test_windows_that_slide_by_rows_are_at_their_rows() -> None:
    times = np.array([30, 10, 20, 20, 50, 40, 10], np.int64)
    assert SlideByTuple(5).windows(times).tolist() == [10, 20, 30, 40, 50]
    assert SlideByTuple(5, 3).windows(times).tolist() == [20, 40]  # the third and the sixth to arrive
    assert SlideByTuple(5, 3, True).windows(times).tolist() == [20, 40]  # 10 10 20 20 30 40 50
    assert SlideByTuple(5, 2, True).windows(times).tolist() == [10, 20, 40]
    for seed in range(100):  # however ties are broken, the n-th in order has one time
        random = Random(seed)
        values = np.array([random.randrange(10) for _ in range(25)], np.int64)
        other = values.copy()
        random.shuffle(other)
        assert SlideByTuple(5, 3, True).windows(values).tolist() == SlideByTuple(5, 3, True).windows(other).tolist()


def test_what_is_no_window_is_refused() -> None:
    for make in (
        lambda: SlidingWindow(0, 1),
        lambda: LandmarkWindow(0),
        lambda: LandmarkWindow(1, cap=0),
        lambda: SessionWindow(0),
        lambda: TupleWindow(1, 0),
        lambda: TupleWindow(1, 1, idle=5),
        lambda: SlideByTuple(1, 0),
    ):
        with pytest.raises(ValueError, match=r"positive|expected a length|only for windows of partitions"):
            make()
