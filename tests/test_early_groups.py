"""Group-wise punctuation: what a group has leaves early, once, and what comes later for it is late.

* Random streams with promises about groups among those about all catch rows that leave twice or never, totals that
  still hold a group that has left, promises lost in a restart, and late rows that are not counted.
* The state after each promise catches a group whose rows stay behind.
"""

from collections import Counter, defaultdict
from random import Random

import pyarrow as pa
import pytest

from highlevel.aggregate import EARLY, Aggregate
from lowlevel.punctuation import END, Punctuation
from lowlevel.subaggregates import SubAggregate
from tests.operator_contract import feed, rows_of, through_ipc
from tests.test_strategies import COUNT, LEAST, MADE, QUERIES, SUM, choose, partials, unruly
from tests.windows_oracle import Arrival, Spec, random_spec

Early = tuple[tuple[int | None, ...], int]
"""A promise about some groups."""


def keys(*groups: int | None) -> pa.RecordBatch:
    return pa.record_batch({"k0": pa.array(groups, pa.int64())})


def close(operator: Aggregate, groups: tuple[int | None, ...], low: int) -> Counter[tuple]:
    return rows_of(operator.punctuate_groups(0, keys(*groups), low))


def with_early(random: Random, spec: Spec) -> list[Arrival | int | Early]:
    """A stream with promises about some groups, most of them about windows that are open and hold rows."""
    events: list[Arrival | int | Early] = []
    reached = 0
    for each in unruly(random, spec):
        events.append(each)
        if isinstance(each, Arrival):
            reached = max(reached, spec.wids(each.ts).stop)
        if random.random() < 0.2:
            groups = tuple(random.sample([None, 0, 1, 2, 7, 99], random.randint(1, 3)))
            events.append((groups, random.choice([END, reached, *[max(0, reached - random.randint(0, 30))] * 3])))
    return events


def by_definition(spec: Spec, subs: list[SubAggregate], events: list) -> tuple[list[Counter[tuple]], int]:
    """What leaves at each promise, and how often a tuple was late for a window."""
    closed: dict[int | None, int] = defaultdict(int)
    all_closed = late = 0
    seen: dict[tuple, list[int]] = defaultdict(list)
    left = []
    for each in events:
        if isinstance(each, Arrival):
            for wid in spec.wids(each.ts):
                if wid < max(all_closed, closed[each.group]):
                    late += 1
                else:
                    seen[wid, each.group].append(each.number)
            continue
        groups, low = (None, each) if isinstance(each, int) else each
        due = [key for key in seen if key[0] < low and (groups is None or key[1] in groups)]
        left.append(Counter((*key, *(MADE[sub.name](seen.pop(key)) for sub in subs[:1])) for key in due))
        if groups is None:
            all_closed = max(all_closed, low)
        else:
            for group in groups:
                closed[group] = max(closed[group], low)
    return left, late


@pytest.mark.parametrize("way", ["merged", "totals", "both"])
def test_each_row_leaves_once_with_the_first_promise_that_covers_it(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(350):
        random = Random(seed)
        choose(monkeypatch, random, way)
        spec, subs = random_spec(random), random.choice(QUERIES)[:1]
        events = with_early(random, spec)
        expected, late = by_definition(spec, subs, events)
        operator = Aggregate(["k0"], subs)
        found = []
        for each in events:
            if isinstance(each, Arrival):
                assert feed(operator, (0, partials(spec, subs, [each]))) == []
            elif isinstance(each, int):
                found.append(rows_of(feed(operator, (0, Punctuation("M", each)))))
            else:
                found.append(close(operator, *each))
                for (first, _), pile in operator.open.piles.items():
                    held = {group for batch in pile.batches() for group in batch["k0"].to_pylist()}
                    assert first >= each[1] or each[1] <= operator.closed or not held & set(each[0]), (
                        "rows of a group that has left"
                    )
            if random.random() < 0.1:
                state = operator.snapshot()
                counted, operator = operator.late, Aggregate(["k0"], subs)
                operator.restore(through_ipc(state) if random.random() < 0.5 else state)
                operator.late = counted
        assert found == expected, seed
        assert operator.late == late, seed
        assert operator.bytes == 0


def test_a_group_leaves_the_totals_of_a_window_that_others_stay_in(monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, Random(0), "totals")
    for subs in ([COUNT, SUM], [COUNT, LEAST]):
        spec, operator = Spec(10, 1), Aggregate(["k0"], subs)
        feed(operator, (0, partials(spec, subs, [Arrival(ts, group, 4) for ts in (0, 1) for group in (1, 2)])))
        assert len(rows_of(feed(operator, (0, Punctuation("M", 3))))) == 6
        assert {row[:2] for row in close(operator, (1,), 5)} == {(3, 1), (4, 1)}
        later = rows_of(feed(operator, (0, Punctuation("M", END))))
        assert {row[:2] for row in later} == {(wid, 2) for wid in range(3, 11)} | {(wid, 1) for wid in range(5, 11)}


def test_later_rows_of_a_group_are_late_for_the_windows_that_it_has_left() -> None:
    spec, operator = Spec(10, 5), Aggregate(["k0"], [COUNT])
    feed(operator, (0, partials(spec, [COUNT], [Arrival(6, 0, 0), Arrival(6, 1, 0)])))
    assert close(operator, (0,), 2) == {(1, 0, 1): 1}
    feed(operator, (0, partials(spec, [COUNT], [Arrival(7, 0, 0), Arrival(7, 1, 0)])))
    assert (operator.late, operator.late_rows) == (1, 1)
    assert rows_of(feed(operator, (0, Punctuation("M", END)))) == {(1, 1, 2): 1, (2, 0, 2): 1, (2, 1, 2): 1}


def test_promises_about_groups_are_forgotten_when_that_about_all_says_as_much() -> None:
    operator = Aggregate(["k0"], [COUNT])
    assert close(operator, (3, None), 7) == Counter()
    assert EARLY in operator.snapshot()
    feed(operator, (0, Punctuation("M", 6)))
    assert operator.snapshot()[EARLY].to_pydict() == {"k0": [3, None], "low": [7, 7]}
    feed(operator, (0, Punctuation("M", 7)))
    assert EARLY not in operator.snapshot()


def test_a_promise_that_says_nothing_new_leaves_everything_as_it_is() -> None:
    spec, operator = Spec(10, 10), Aggregate(["k0"], [COUNT])
    feed(operator, (0, Punctuation("M", 2)))
    feed(operator, (0, partials(spec, [COUNT], [Arrival(25, 0, 0)])))
    assert close(operator, (0,), 2) == close(operator, (), 9) == close(operator, (5,), 3) == Counter()
    assert rows_of(feed(operator, (0, Punctuation("M", 3)))) == {(2, 0, 1): 1}
