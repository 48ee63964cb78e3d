"""The model: validity, equivalence, and the forms of changes."""

from random import Random

import pytest

from highlevel.speculation.lifetimes.model import (
    LifetimeError,
    are_equivalent,
    canonical_history,
    check_changes,
    from_weighted,
    have_equal_snapshots,
    instants,
    weighted,
)
from tests.conftest import Rounds
from tests.references.lifetimes import C, I, R, at_each_instant, canon, from_time, inf, random_stream, to_batch


@pytest.mark.parametrize(
    "events, message",
    [
        ([I(5, 5, 1)], "as change 0, expected a lifetime"),
        ([I(5, 9, 1), R(5, 9, 9, 1)], "as change 1, expected a lifetime"),
        ([I(5, 9, 1), R(5, 9, 4, 1)], "as change 1, expected a lifetime"),
        ([C(6), I(5, 9, 1)], "as change 1, expected a sync time that is not below an earlier CTI"),
        ([I(5, 9, 1), C(8), R(5, 9, 7, 1)], "as change 2, expected a sync time that is not below an earlier CTI"),
        (
            [R(5, 9, 7, 1)],
            "got a retraction of {'vs': 5, 've': 9, 'x': 1}, expected a row that exists with this lifetime",
        ),
        ([R(5, 9, 7, 1), I(5, 9, 1)], "expected a row that exists with this lifetime"),
        ([I(5, 9, 1), R(5, 9, 7, 1), R(5, 9, 6, 1)], "expected a row that exists with this lifetime"),
        ([I(5, 9, 1), R(5, 9, 7, 2)], "expected a row that exists with this lifetime"),
    ],
)
def test_invalid_changes_are_refused(events: list, message: str) -> None:
    with pytest.raises(LifetimeError, match=message.replace("{", r"\{")):
        check_changes(to_batch(events))


def test_the_history_and_both_equivalences_are_those_of_the_definition(rounds: Rounds) -> None:
    equal = snapshots = 0
    for seed in rounds(400):
        random = Random(f"model {seed}")
        one, other = ([*random_stream(random, payloads=1)] for _ in range(2))
        if random.random() < 0.5:
            other = [*sorted((event for event in one if event[0] == "I"), key=lambda event: event[2])]
            other += [event for event in one if event[0] == "R"]
        rows = canonical_history(to_batch(one)).to_pylist()
        history = canon(one)
        assert sum(history.values()) == len(rows), seed
        assert {(row["vs"], from_time(row["ve"]), row["x"]) for row in rows} == set(history), seed
        same = history == canon(other)
        same_instants = at_each_instant(history) == at_each_instant(canon(other))
        assert are_equivalent(to_batch(one), to_batch(other)) == same, seed
        assert have_equal_snapshots(to_batch(one), to_batch(other)) == same_instants, seed
        equal, snapshots = equal + same, snapshots + same_instants
    assert 0 < equal <= snapshots


def test_weights_and_changes_are_converted_both_ways(rounds: Rounds) -> None:
    for seed in rounds(200):
        changes = to_batch(random_stream(Random(f"weights {seed}")))
        back = from_weighted(weighted(changes))
        check_changes(back)
        assert are_equivalent(changes, back), seed


def test_rows_without_an_end_have_one_instant() -> None:
    rows = instants(to_batch([I(1, inf, 1), R(1, inf, 5, 1), C(9)])).to_pylist()
    assert rows == [
        {"at": 1, "x": 1, "weight": 1},
        {"at": 1, "x": 1, "weight": -1},
        {"at": 1, "x": 1, "weight": 1},
        {"at": 5, "x": 1, "weight": -1},
    ]
