"""Window ids against the boundary table of the thesis and against the definition of an extent.

* The boundary table catches floor for ceiling, inclusive for half-open and ids by start instead of end.
* Duality on random specifications detects errors that a table of round numbers hides. Examples are RANGE below SLIDE,
  RANGE that SLIDE does not divide, and origins before and after the times.
* `first_open_window` against extents catches a window closed too early (a row would be late) or too late.
"""

from random import Random

import pytest

from highlevel.windows.kind import WHOLE_INPUT, SlidingWindow
from tests.conftest import Rounds
from tests.references.windows_oracle import random_spec

MINUTES = SlidingWindow(600, 60)
TEN = 10 * 3600
NOON = 12 * 3600


@pytest.mark.parametrize(
    ("wid", "start", "end"),
    [(0, -540, 60), (1, -480, 120), (8, -60, 540), (9, 0, 600), (10, 60, 660), (14, 300, 900)],
)
def test_window_bounds_are_those_of_the_boundary_table(wid: int, start: int, end: int) -> None:
    assert (MINUTES.start(wid), MINUTES.end(wid)) == (start, end)


@pytest.mark.parametrize(("time", "first", "last"), [(5, 0, 9), (0, 0, 9), (60, 1, 10), (599, 9, 18), (600, 10, 19)])
def test_ids_of_a_time_are_those_of_the_boundary_table(time: int, first: int, last: int) -> None:
    assert range(*MINUTES.wids(time)) == range(first, last + 1)
    assert range(*SlidingWindow(600, 60, TEN).wids(TEN + time)) == range(first, last + 1)


def test_the_printed_ceilings_are_not_followed() -> None:
    # Erratum E1: ceil((t - o) / s) - 1 + 1 would be 1 for 5 s, and the tuple would miss window 0, [0, 60).
    assert -(-5 // 60) == 1
    assert MINUTES.wids(5)[0] == 0


@pytest.mark.parametrize(
    ("seconds", "closed"),
    # 12:11:00 finishes windows up to 10; at 12:10:30 window 10 = [12:01, 12:11) is open (erratum E3).
    [(660, 11), (630, 10), (659, 10), (60, 1), (59, 0), (0, 0), (-1, 0), (-3600, 0)],
)
def test_a_promise_closes_exactly_the_windows_that_end_at_or_before_it(seconds: int, closed: int) -> None:
    assert SlidingWindow(600, 60, NOON).first_open_window(NOON + seconds) == closed


def test_ids_and_extents_are_dual(rounds: Rounds) -> None:
    for seed in rounds(600):
        random = Random(seed)
        spec = random_spec(random)
        window = SlidingWindow(spec.range, spec.slide, spec.origin)
        for time in [*(random.randint(-300, 300) for _ in range(20)), spec.origin, spec.origin - 1]:
            by_extent = [wid for wid in range(700) if window.start(wid) <= time < window.end(wid)]
            assert list(range(*window.wids(time))) == by_extent, (seed, window, time)
            assert range(*window.wids(time)) == spec.wids(time)


def test_closed_windows_hold_no_time_from_the_promise_on_and_open_ones_may(rounds: Rounds) -> None:
    for seed in rounds(600):
        random = Random(seed)
        spec = random_spec(random)
        window = SlidingWindow(spec.range, spec.slide, spec.origin)
        low = random.randint(-300, 300)
        closed = window.first_open_window(low)
        assert all(window.end(wid) <= low for wid in range(closed))
        assert window.end(closed) > low


def test_panes_divide_range_and_slide() -> None:
    assert [SlidingWindow(*each).pane for each in [(9, 6), (4, 1), (600, 60), (60, 600), (7, 7)]] == [3, 1, 60, 60, 7]


def test_a_gap_between_windows_belongs_to_none() -> None:
    gapped = SlidingWindow(range=1, slide=10)
    assert [list(range(*gapped.wids(time))) for time in (8, 9, 10, 18, 19)] == [[], [0], [], [], [1]]


def test_the_window_of_a_query_without_one_holds_every_time_a_capture_can_say() -> None:
    assert range(*WHOLE_INPUT.wids(0)) == range(*WHOLE_INPUT.wids(2**32 * 10**9 - 1)) == range(1)
    assert WHOLE_INPUT.first_open_window(2**32 * 10**9) == 0


@pytest.mark.parametrize(("length", "slide"), [(0, 1), (1, 0), (-1, 1), (1, -1)])
def test_sizes_without_a_window_are_refused(length: int, slide: int) -> None:
    with pytest.raises(ValueError, match=f"must be positive, got RANGE {length} ns, SLIDE {slide} ns"):
        SlidingWindow(length, slide)
