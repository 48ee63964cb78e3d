"""OPOB- and OPIB-Join: the results of OA-Join, in order, and the cost of waiting for order.

The tests detect a baseline that loses rows, returns them out of order, or holds rows for longer than necessary. Such a
baseline would make the join without order look good.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from highlevel.baselines.opib_join import OpibJoin
from highlevel.baselines.opob_join import OpobJoin
from highlevel.baselines.sorted_join import SortedJoin
from highlevel.joins.oa_join import OAJoin
from highlevel.joins.spec import JoinKind, WatermarkForm
from highlevel.joins.window import Band, Port
from lowlevel.punctuation import BEGINNING, END, Item, Punctuation
from tests.references.join_twin import SCHEMA, pairs, random_spec, rows, rows_of, spec_of
from tests.references.operator_contract import Event, feed, rows_behind_promises, through_ipc
from tests.references.windows_oracle import Arrival, random_stream

RUNS = 300
KINDS = (JoinKind.INNER, JoinKind.INNER, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI)
MINUTE = 60


def events_of(random: Random) -> tuple[list[list[Arrival]], list[Event]]:
    inputs = [random_stream(random), [END] if random.random() < 0.05 else random_stream(random)]
    often = random.choice([0.1, 0.3, 0.7])
    inputs = [
        [each for each in stream if isinstance(each, Arrival) or each == END or random.random() < often]
        for stream in inputs
    ]
    arrivals = [[each for each in stream if isinstance(each, Arrival)] for stream in inputs]
    events: list[Event] = []
    places = [0, 0]
    while places != [len(stream) for stream in inputs]:  # a few of one side, then a few of the other
        port = random.randrange(2)
        few = inputs[port][places[port] : places[port] + random.randint(1, 12)]
        places[port] += len(few)
        for kind, group in groupby(few, type):
            if kind is int:
                events += [(port, Punctuation("M", each)) for each in group]
            else:
                events.append((port, rows(list(group))))
    return arrivals, events


@pytest.mark.slow("many long streams")
def test_results_are_those_of_a_join_without_order_and_in_order() -> None:
    total = 0
    for seed in range(RUNS):
        random = Random(seed)
        spec = random_spec(random, random.choice(KINDS))
        arrivals, events = events_of(random)
        expected = fed(OAJoin(spec, WatermarkForm.LEFT), events)
        said = [item for item in expected if isinstance(item, Punctuation)]
        stop = random.randrange(len(events))
        for make in (OpobJoin, OpibJoin):
            stopped, operator = make(spec), make(spec)
            items = fed(stopped, events[:stop])
            operator.restore(through_ipc(stopped.snapshot()))
            items += fed(operator, events[stop:])
            left = rows_behind_promises(items)
            times = [ts for ts, *_ in left]
            assert times == sorted(times)
            found = Counter(left)
            assert found == Counter(rows_of(expected)), (make, seed)
            assert [item for item in items if isinstance(item, Punctuation)] == said, (make, seed)
            assert (operator.rows_held, operator.late) == (0, 0)
            assert stopped.received + operator.received == sum(map(len, arrivals))
            assert stopped.results + operator.results == found.total()
        if spec.kind is JoinKind.INNER:
            assert found == pairs(spec, *arrivals), seed
        total += found.total()
    assert total > 3000


def fed(operator: OAJoin | OpobJoin | OpibJoin, events: list[Event]) -> list[Item]:
    return [item for event in events for item in feed(operator, event)]


def test_a_result_is_parked_until_no_later_one_is_before_it_and_no_longer() -> None:
    for seed in range(RUNS // 5):
        random = Random(seed)
        spec = random_spec(random)
        _, events = events_of(random)
        operator, without = OpobJoin(spec), OAJoin(spec, WatermarkForm.LEFT)
        parked: Counter[tuple] = Counter()
        promised = BEGINNING
        for event in events:
            for item in feed(without, event):
                if isinstance(item, Punctuation):
                    promised = item.watermark
                else:
                    parked.update(rows_of([item]))
            feed(operator, event)
            parked = Counter({row: count for row, count in parked.items() if row[0] >= promised})
            assert operator.rows_held == without.rows_held + parked.total(), seed
            assert (operator.bytes > without.bytes) == bool(parked)


def test_a_row_is_delayed_until_all_that_it_may_meet_is_there_and_no_longer() -> None:
    for seed in range(RUNS // 5):
        random = Random(seed)
        spec = random_spec(random)
        _, events = events_of(random)
        operator = OpibJoin(spec)
        waiting: list[int] = []
        bounds = [BEGINNING, BEGINNING]
        for port, item in events:
            feed(operator, (port, item))
            if isinstance(item, Punctuation):
                bounds[port] = max(bounds[port], item.watermark)
            elif port == Port.LEFT:
                waiting += item.column("ts").to_pylist()
            complete = spec.window.expiry_time(Port.LEFT, bounds[Port.RIGHT])
            waiting = [ts for ts in waiting if ts >= min(complete, bounds[Port.LEFT])]
            assert operator.buffer.rows == len(waiting), seed


@pytest.mark.parametrize("make", [OpobJoin, OpibJoin])
@pytest.mark.parametrize("kind", [JoinKind.RIGHT, JoinKind.FULL])
def test_rows_without_a_left_time_have_no_place_in_its_order(make: type, kind: JoinKind) -> None:
    with pytest.raises(ValueError, match=f"got a {kind} join"):
        make(spec_of(Band(1, 1), kind=kind))


@pytest.mark.parametrize("make", [OpobJoin, OpibJoin])
def test_a_row_behind_its_own_promise_is_counted_and_dropped(make: type) -> None:
    operator = make(spec_of(Band(5, 5), keyed=False))
    items = feed(operator, (0, Punctuation("L", 10)))
    items += feed(operator, (0, rows([Arrival(9, 0, 1), Arrival(10, 0, 2)])))
    items += feed(operator, (1, rows([Arrival(9, 0, 3)])))
    for port in (0, 1):
        items += feed(operator, (port, Punctuation("M", END)))
    assert rows_of(items) == [(10, 2, 3, 9)]
    assert operator.late == 1


def batch_of(times: np.ndarray) -> pa.RecordBatch:
    zeros = np.zeros_like(times)
    return pa.RecordBatch.from_arrays([pa.array(each) for each in (times, times, zeros, zeros)], schema=SCHEMA)


def test_a_late_input_costs_its_sort_what_the_join_without_order_does_not_hold() -> None:
    # RANGE 2 minutes both; some rows of the left are up to 5 minutes late, which it promises; the right is in order.
    random = np.random.default_rng(1)
    spec = spec_of(Band(2 * MINUTE, 2 * MINUTE), keyed=False)
    sort, without = SortedJoin(spec, (None, None)), OAJoin(spec, WatermarkForm.LEFT)
    lefts = np.arange(20 * MINUTE)
    arrivals = lefts + np.where(random.random(len(lefts)) < 0.02, random.integers(0, 5 * MINUTE, len(lefts)), 0)
    held: dict[str, list[list[int]]] = {"sort": [], "without": []}
    for now in range(20 * MINUTE):
        for operator in (sort, without):
            feed(operator, (0, batch_of(lefts[arrivals == now])))
            feed(operator, (0, Punctuation("L", now - 5 * MINUTE)))
            feed(operator, (1, batch_of(np.array([now]))))
            feed(operator, (1, Punctuation("R", now)))
        if now > 12 * MINUTE:
            held["sort"].append([sort.sorts[0].rows_held, sort.join.sides[0].rows, sort.join.sides[1].rows])
            held["without"].append([without.sides[port].state.held for port in Port])
    least, most = (getattr(np.array(held["without"]), each)(0) / MINUTE for each in ("min", "max"))
    assert 1.9 < least[0] <= most[0] < 2.3
    assert 7 <= least[1] <= most[1] < 7.3
    waiting, left, right = np.array(held["sort"]).mean(0) / MINUTE
    assert waiting == pytest.approx(5, abs=0.1)
    assert left == pytest.approx(0, abs=0.1)
    assert right == pytest.approx(7, abs=0.1)
