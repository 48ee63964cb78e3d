"""The in-order joins against all pairs, and their results if there is no global order.

A baseline that loses pairs that its definition has, or holds rows longer than it has to, would flatter what it is
compared with. A join that is right without order would hide why it requires order.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from highlevel.baselines import chains, iop_join
from highlevel.baselines.iop_join import IopJoin
from highlevel.baselines.sorted_join import SortedJoin
from highlevel.joins.spec import JoinKind
from highlevel.joins.window import Band
from lowlevel.punctuation import BEGINNING, END, Item, Punctuation
from tests.harness.plain_kernels import plain
from tests.references.join_twin import pairs, random_spec, rows, rows_of, spec_of
from tests.references.operator_contract import batched, feed, interleaved, rows_behind_promises, through_ipc
from tests.references.windows_oracle import Arrival, random_stream

RUNS = 300
MINUTE = 60


def two_streams(random: Random, ordered: bool) -> list[list[Arrival | int]]:
    """Return the rows of two inputs with valid watermarks, in order if required."""
    inputs = [random_stream(random), [END] if random.random() < 0.05 else random_stream(random)]
    return [in_order(each) for each in inputs] if ordered else inputs


def in_order(stream: list[Arrival | int]) -> list[Arrival | int]:
    arrivals = sorted((each for each in stream if isinstance(each, Arrival)), key=lambda each: each.ts)
    return [*arrivals, END]


def arrivals_of(stream: list[Arrival | int]) -> list[Arrival]:
    return [each for each in stream if isinstance(each, Arrival)]


def test_inputs_in_order_give_all_pairs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    total = 0
    for seed in range(RUNS):
        random = Random(seed)
        monkeypatch.setattr(chains, "INITIAL_CAPACITY", random.choice([1, 4, 1024]))
        monkeypatch.setattr(chains, "MAX_PAIRS", random.choice([1, 5, 65_536]))
        monkeypatch.setattr(iop_join, "UNUSED_KEYS", random.choice([0, 4096]))
        inputs, spec = two_streams(random, ordered=True), random_spec(random)
        operator = IopJoin(spec)
        events = batched(random, interleaved(random, inputs), rows)
        stop = random.randrange(len(events))
        items: list[Item] = []
        for place, event in enumerate(events):
            if place == stop:
                stopped, operator = operator, IopJoin(spec)
                operator.restore(through_ipc(stopped.snapshot()))
                assert operator.rows_held == stopped.rows_held
            items += feed(operator, event)
        expected = pairs(spec, *map(arrivals_of, inputs))
        assert Counter(rows_behind_promises(items)) == expected, seed
        assert (operator.rows_held, operator.late, stopped.late) == (0, 0, 0)
        assert stopped.results + operator.results == expected.total()
        total += expected.total()
    assert total > 5000


def test_probes_as_plain_python_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("chain", "walk"):
        monkeypatch.setattr(chains, name, plain(getattr(chains, name)))
    for seed in range(15):
        random = Random(seed)
        inputs, spec = two_streams(random, ordered=True), random_spec(random)
        operator = IopJoin(spec)
        events = batched(random, interleaved(random, inputs), rows)
        items = [item for event in events for item in feed(operator, event)]
        assert Counter(rows_of(items)) == pairs(spec, *map(arrivals_of, inputs)), seed


def test_a_row_leaves_the_state_as_soon_as_the_other_side_is_beyond_its_window() -> None:
    operator = IopJoin(spec_of(Band(3, 2), keyed=False))
    feed(operator, (0, rows([Arrival(5, 0, 0), Arrival(6, 0, 0)])))
    assert operator.rows_held == 2
    feed(operator, (1, rows([Arrival(8, 0, 0)])))  # 5 may meet another 8
    assert (operator.rows_held, operator.results) == (3, 2)
    feed(operator, (1, rows([Arrival(9, 0, 0)])))
    assert (operator.rows_held, operator.results) == (3, 3)
    feed(operator, (0, Punctuation("M", 12)))
    assert operator.rows_held == 1
    feed(operator, (1, rows([Arrival(7, 0, 0)])))
    assert (operator.rows_held, operator.late) == (1, 1)
    assert operator.bytes > 0
    with pytest.raises(ValueError, match="got a LEFT join"):
        IopJoin(spec_of(Band(3, 2), kind=JoinKind.LEFT))


def test_keys_that_nobody_has_any_more_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iop_join, "UNUSED_KEYS", 8)
    operator = IopJoin(spec_of(Band(3, 3)))
    for ts in range(200):
        for port in (0, 1):
            feed(operator, (port, rows([Arrival(ts, ts // 2, 0)])))
    assert operator.rows_held <= 8
    assert 2 * operator.keys.count <= 3 * operator.rows_held + 12
    # ts t meets t-3..t+3 of the same key, its own and its neighbour's.
    assert operator.results == 400


def over_arrival(spec: object, arrivals: list[tuple[int, Arrival, int]]) -> list[tuple]:
    """Pairs of (port, row, arrival) that a join finds which goes by arrival; one batch a row, in that order."""
    operator = IopJoin(spec, clocks=("arrival", "arrival"))  # type: ignore[arg-type]
    items: list[Item] = []
    for port, each, at in sorted(arrivals, key=lambda row: row[2]):
        items += feed(operator, (port, rows([each], lambda _, at=at: at)))
    for port in (0, 1):
        items += feed(operator, (port, Punctuation("M", END)))
    return rows_of(items)


def test_a_join_by_arrival_is_right_in_one_global_order() -> None:
    for seed in range(RUNS // 6):
        random = Random(seed)
        spec = random_spec(random)
        inputs = two_streams(random, ordered=True)
        both = [(port, each, each.ts) for port in (0, 1) for each in arrivals_of(inputs[port])]
        assert Counter(over_arrival(spec, both)) == pairs(spec, *map(arrivals_of, inputs)), seed


def test_a_join_by_arrival_pairs_by_arrival_whatever_the_times_are() -> None:
    differ = 0
    for seed in range(RUNS // 6):
        random = Random(seed)
        spec = random_spec(random)
        delays = [random.randint(0, 30), random.randint(0, 30)]
        inputs = two_streams(random, ordered=True)
        both = [(port, each, each.ts + delays[port]) for port in (0, 1) for each in arrivals_of(inputs[port])]
        moved = [[each._replace(ts=each.ts + delays[port]) for each in arrivals_of(inputs[port])] for port in (0, 1)]
        by_arrival = Counter(
            {
                (left - delays[0], number, other, right - delays[1]): count
                for (left, number, other, right), count in pairs(spec, *moved).items()
            }
        )
        found = Counter(over_arrival(spec, both))
        assert found == by_arrival, seed
        differ += found != pairs(spec, *map(arrivals_of, inputs))
    assert differ > RUNS // 12


def minutes(clock: str) -> int:
    """Seconds of a time of day."""
    hours, minute, second = (int(part) for part in clock.split(":"))
    return (hours * 60 + minute) * 60 + second


def test_a_late_input_makes_a_join_by_arrival_pair_what_is_minutes_apart() -> None:
    # Main1 is 5 minutes behind; RANGE 3 minutes of Main1, 2 of Main2. At 10:11 Main1's last 3 minutes are those from
    # 10:03, and Main2's last 2 those from 10:09.
    spec = spec_of(Band(3 * MINUTE - 1, 2 * MINUTE - 1), keyed=False)
    begin, now = minutes("10:00:00"), minutes("10:11:00")
    main1 = [(0, Arrival(ts, 0, 0), ts + 5 * MINUTE) for ts in range(begin - 5 * MINUTE, now - 5 * MINUTE)]
    main2 = [(1, Arrival(ts, 0, 0), ts) for ts in range(begin, now)]
    operator = IopJoin(spec, clocks=("arrival", "arrival"))
    found = []
    for port, each, at in sorted([*main1, *main2], key=lambda row: (row[2], -row[0])):
        found += rows_of(feed(operator, (port, rows([each], lambda _, at=at: at))))
    held = [
        [clock - behind for clock in side.clocks[side.first - side.base : side.end - side.base].tolist()]
        for side, behind in zip(operator.sides, (5 * MINUTE, 0), strict=True)
    ]
    assert (min(held[0]), max(held[0])) == (minutes("10:03:00"), minutes("10:05:59"))
    assert (min(held[1]), max(held[1])) == (minutes("10:09:00"), minutes("10:10:59"))
    assert (minutes("10:03:00"), minutes("10:10:59")) in {(left, right) for left, _, _, right in found}
    distances = [right - left for left, _, _, right in found]
    assert minutes("10:10:59") - minutes("10:03:00") == max(distances) == 479
    assert min(distances) > 180  # outside of the band, all of them


def test_a_join_by_arrival_loses_what_it_forgot_before_a_late_input_came() -> None:
    # Main2 is a minute late: when its row of s arrives, Main1's rows of [s - 3 min, s - 2 min) are gone.
    spec = spec_of(Band(3 * MINUTE, 2 * MINUTE), keyed=False)
    times = range(0, 20 * MINUTE, 5)
    both = [(0, Arrival(ts, 0, 0), ts) for ts in times] + [(1, Arrival(ts, 0, 0), ts + MINUTE) for ts in times]
    found = {(left, right) for left, _, _, right in over_arrival(spec, both)}
    true = {
        (left, right)
        for left, _, _, right in pairs(spec, *([each[1] for each in both if each[0] == port] for port in (0, 1)))
    }
    assert {right - left for left, right in true - found} == set(range(2 * MINUTE + 5, 3 * MINUTE + 5, 5))
    assert {right - left for left, right in found - true} == set(range(-3 * MINUTE, -2 * MINUTE, 5))
    assert {(left, right) for left, right in true if right - left > 2 * MINUTE} == true - found


@pytest.mark.parametrize("slack", [None, 0, 20])
def test_a_sort_before_the_join_gives_all_pairs_of_what_is_not_late(slack: int | None) -> None:
    lost = 0
    for seed in range(RUNS // 3):
        random = Random(seed)
        inputs, spec = two_streams(random, ordered=False), random_spec(random)
        if slack is not None:
            inputs = [[*arrivals_of(each), END] for each in inputs]
        operator = SortedJoin(spec, (slack, slack))
        kept: list[list[Arrival]] = []
        for stream in inputs:
            high, kept_here = BEGINNING, []
            for each in arrivals_of(stream):
                high = max(high, each.ts)
                if slack is None or each.ts >= high - slack:
                    kept_here.append(each)
            kept.append(kept_here)
        events = batched(random, interleaved(random, inputs), rows)
        stop = random.randrange(len(events))
        items: list[Item] = []
        for place, event in enumerate(events):
            if place == stop:
                stopped, operator = operator, SortedJoin(spec, (slack, slack))
                operator.restore(through_ipc(stopped.snapshot()))
            items += feed(operator, event)
        assert Counter(rows_behind_promises(items)) == pairs(spec, *kept), seed
        assert operator.rows_held == 0
        late = sum(len(arrivals_of(stream)) for stream in inputs) - sum(map(len, kept))
        assert stopped.late + operator.late == late
        assert stopped.received + operator.received == sum(len(arrivals_of(stream)) for stream in inputs)
        assert stopped.results + operator.results == len(rows_of(items))
        lost += late
    assert (lost > 100) == (slack is not None)
