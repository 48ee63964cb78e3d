"""The selection of shown groups: it stays at the boundary, and follows clear changes."""

from __future__ import annotations

from itertools import pairwise
from math import inf, nan
from random import Random

import pytest

from dashboards.prometheus.query_series import QuerySeries
from dashboards.prometheus.stable_groups import StableGroups
from tests.references.exporter_rows import plan, rows


def changes(windows: list[dict[str, float]], size: int) -> int:
    """Return how often a group loses its series."""
    stable, before, count = StableGroups(size), set[object](), 0
    for time, values in enumerate(windows):
        largest = dict(sorted(values.items(), key=lambda pair: -pair[1])[: stable.candidates])
        shown = {*stable.update(time, {**largest, **{name: values[name] for name in before & values.keys()}})}  # type: ignore[index,misc]
        assert len(shown) <= size
        count += len(before - shown)
        before = shown
    return count


def largest_changes(windows: list[dict[str, float]], size: int) -> int:
    """Return the same for the largest groups of each window."""
    tops = [set(sorted(values, key=lambda name: -values[name])[:size]) for values in windows]
    return sum(len(old - new) for old, new in pairwise(tops))


@pytest.mark.parametrize("seed", range(20))
def test_equal_groups_at_the_boundary_do_not_take_turns(seed: int) -> None:
    random = Random(seed)
    windows = [
        {**{f"big{n}": 1000.0 + n for n in range(8)}, **{f"equal{n}": random.uniform(90, 110) for n in range(6)}}
        for _ in range(200)
    ]
    assert largest_changes(windows, 10) > 100
    assert changes(windows, 10) <= 2


def test_a_clearly_larger_group_gets_a_series() -> None:
    stable = StableGroups(1)
    for time in range(30):
        assert stable.update(time, {"old": 100.0, "new": 1.0}) == ("old",)
    shown = [stable.update(time, {"new": 200.0, "old": 100.0}) for time in range(30, 45)]
    assert shown[0] == ("old",)
    assert shown[-1] == ("new",)


def test_a_group_without_rows_gives_its_place_to_a_larger_one() -> None:
    stable = StableGroups(1)
    assert stable.update(0, {"a": 100.0}) == ("a",)
    assert stable.update(1, {"b": 91.0}) == ("b",)


def test_a_window_that_arrives_in_parts_counts_once() -> None:
    once, twice = StableGroups(2), StableGroups(2)
    random = Random(1)
    for time in range(20):
        values = {name: random.random() for name in "abcd"}
        twice.update(time, {"a": 50.0})
        assert once.update(time, values) == twice.update(time, values)


def test_an_older_window_changes_nothing() -> None:
    stable = StableGroups(2)
    stable.update(5, {"a": 9.0, "b": 8.0})
    assert stable.update(4, {"c": 100.0, "b": 1.0, "d": 0.5}) == ("b", "c")
    assert stable.shown == ("a", "b")
    assert stable.update(6, {"a": 9.0, "b": 8.0}) == ("a", "b")


def test_values_that_are_no_numbers_are_last() -> None:
    stable = StableGroups(2)
    assert set(stable.update(0, {"inf": inf, "nan": nan, "null": None, "least": -5.0})) == {"inf", "least"}
    assert set(stable.update(1, {"a": 7.0, "inf": nan})) == {"inf", "a"}
    empty = StableGroups(1)
    assert empty.update(0, {"null": None, "nan": nan}) == ("null",)
    assert empty.update(1, {"number": -7.0, "null": None}) == ("number",)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("small_window", [0, 2_000])
def test_series_and_others_add_up_in_every_window(
    small_window: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboards.prometheus.query_series.MAX_GROUPS_OF_SMALL_WINDOW", small_window)
    random = Random(seed)
    query = plan("srcIP, destPort, count(*) AS packets", "srcIP, destPort")
    series, stable = QuerySeries(query, 3), StableGroups(3)
    for window in range(30):
        groups = {
            (random.choice([None, "10.0.0.1", "10.0.0.2", "2001:db8::1"]), random.choice([None, 53, 80, 443])): n
            for n in range(1, random.randint(2, 20))
        }
        shown = series.select_series(
            rows(query, 60 * window, *((*key, n) for key, n in groups.items())), stable, window
        )
        (values,) = shown.series
        own = {labels: value for labels, value in values if labels != ("other", "other")}
        assert len(own) <= 3
        for (address, port), value in own.items():
            assert value == groups[address or None, int(port) if port else None]
        assert sum(value for _, value in values) == sum(groups.values())
        assert shown.folded == len(groups) - len(own)
