"""How the sampling rate follows a ring: by hand, and against a ring that fills and drains by the rate.

Tests by hand detect a burst that is treated as overload, a step down that is too early, and a ring that raises its
request while it is emptied. The closed loop detects a rate that never settles, that flaps, that stays up after the
overload, or that does not relieve the ring.
"""

from itertools import pairwise

import pytest

from lowlevel.node.shedding import MAX_K, MAX_PATIENCE, MEAN_TIME, MIN_PATIENCE, RingPressure

MS = 10**6
START = 10**18


class Told:
    """A rule and the time."""

    def __init__(self) -> None:
        self.rule = RingPressure()
        self.now = START

    def tell(self, share: float, milliseconds: int, step: int = 10) -> list[int]:
        """Say the share every `step` ms for so long; return k each time."""
        ks = []
        for _ in range(0, milliseconds, step):
            ks.append(self.rule.update(share, self.now))
            self.now += step * MS
        return ks


def test_a_burst_of_less_than_100_ms_changes_nothing() -> None:
    told = Told()
    told.tell(0.0, 10)
    for _ in range(50):
        assert set(told.tell(1.0, 100)) == {0}
        assert set(told.tell(0.0, 100)) == {0}
    told.tell(0.51, 190)
    assert told.tell(0.51, 10) == [1]


def test_a_full_ring_raises_k_by_one_every_200_ms_up_to_the_largest() -> None:
    told = Told()
    for wanted in range(1, MAX_K + 1):
        assert told.tell(1.0, MEAN_TIME // MS) == [wanted - 1] * 20
        assert told.tell(1.0, 10) == [wanted]  # the first look has begun the time
    assert set(told.tell(1.0, 5000)) == {MAX_K}


def test_a_ring_that_is_being_emptied_asks_for_no_more_and_one_that_fills_again_does() -> None:
    told = Told()
    told.tell(1.0, 210)
    assert told.rule.k == 1
    for step in range(90):
        assert set(told.tell(0.99 - step / 200, 100)) == {1}  # however slowly
    told.tell(0.9, 400)
    assert (filled := told.rule.k) > 1
    assert set(told.tell(0.4, 410)) == {filled}  # what it was filled to is forgotten now
    told.tell(0.6, 400)
    assert told.rule.k > filled


def test_a_ring_that_is_full_whenever_a_block_is_reduced_is_full() -> None:
    """Looks come before and after each block: those that are passed over take no time."""
    told = Told()
    for _ in range(3):
        told.tell(1.0, 150, 150)
        for share in (1.0, 0.7, 0.3, 0.0):
            told.tell(share, 1, 1)
    assert told.rule.k > 0


def test_k_stays_between_an_eighth_and_half_and_falls_by_one_for_each_patience_below() -> None:
    told = Told()
    told.tell(1.0, 430)
    assert told.rule.k == 2
    assert set(told.tell(0.5, 100_000, 1000)) == {2}
    assert set(told.tell(0.126, 100_000)) == {2}
    assert set(told.tell(0.125, 990)) == {2}
    told.tell(0.2, 10)  # not for long enough
    assert set(told.tell(0.0, 990)) == {2}
    assert set(told.tell(0.0, 1010)) == {1}  # the look after a step begins the time
    assert set(told.tell(0.0, 5000)) == {0}


def test_patience_doubles_where_k_rises_soon_after_it_has_fallen() -> None:
    told = Told()
    told.tell(1.0, 210)
    waited = []
    for _ in range(8):
        begun = told.now
        while told.rule.k:
            told.tell(0.0, 10)
        waited.append(round((told.now - begun) / MIN_PATIENCE))
        told.tell(1.0, 210)
    assert waited == [1, 2, 4, 8, 16, 32, 64, 64]
    assert told.rule.patience == MAX_PATIENCE
    told.tell(0.0, 64_020)
    assert told.rule.k == 0
    told.tell(0.0, 65_000, 1000)  # and it was right
    told.tell(1.0, 210)
    assert (told.rule.k, told.rule.patience) == (1, MIN_PATIENCE)


def test_a_time_that_is_passed_over_says_nothing() -> None:
    told = Told()
    for _ in range(20):  # a look at the full ring after each pause, and a short one at the next packets
        told.now += 30_000 * MS
        told.rule.restart_mean()
        assert set(told.tell(1.0, 100)) == {0}
        assert set(told.tell(0.0, 100)) == {0}
    assert told.tell(1.0, 250)[-1] == 1
    told.now += 30_000 * MS  # longer than patience: the ring was emptied by what was refused
    told.rule.restart_mean()
    assert set(told.tell(0.0, 900)) == {1}
    assert told.tell(0.0, 200)[-1] == 0


def test_a_clock_that_is_set_back_begins_anew() -> None:
    told = Told()
    told.tell(1.0, 200)
    told.now -= 3600 * 1000 * MS
    assert set(told.tell(1.0, 200)) == {0}
    assert told.tell(1.0, 10) == [1]


FIVE_MINUTES = 60_000
"""Looks, 5 ms apart."""


@pytest.mark.parametrize("load", [0.5, 0.97, 1.3, 1.9, 3.0, 20.0, 300.0])
@pytest.mark.parametrize("size", [0.05, 1.0])
def test_a_ring_under_a_steady_load_is_relieved_and_the_rate_settles(load: float, size: float) -> None:
    """A ring of `size` (seconds that filling it takes the wire's capacity) with `load` times what the node can reduce.

    Walking over a block that is not reduced costs a thousandth of reducing it.
    """
    rule, filled, now, step = RingPressure(), 0.0, START, 0.005
    ks: list[int] = []
    lost = [0.0, 0.0]
    for number in range(2 * FIVE_MINUTES):
        cost = 0.5**rule.k + 0.001  # one second of input
        filled += step * (load - 1 / cost)
        lost[number >= FIVE_MINUTES] += max(0.0, filled - size)
        filled = min(max(filled, 0.0), size)
        now += int(step * 1e9)
        ks.append(rule.update(filled / size, now))
    settled = ks[FIVE_MINUTES:]
    if load < 1:
        assert set(ks) == {0}
        assert lost == [0.0, 0.0]
        return
    need = min(k for k in range(MAX_K + 1) if load * (0.5**k + 0.001) <= 1)
    assert need - 1 <= min(settled) <= max(settled) <= need + 1
    changes = sum(before != after for before, after in pairwise(settled))
    assert changes <= 5 * 3  # a trial in 64 s, which is a step down and one or two up
    assert lost[1] <= 0.005 * load * 300  # while it is tried whether less is enough
    while rule.k:  # the overload is over
        now += int(step * 1e9)
        rule.update(0.0, now)
    assert now - START < (600 + MAX_K * 65) * 10**9
