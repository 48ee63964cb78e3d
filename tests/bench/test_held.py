"""The links and plans of the experiments on joins and unions, small: what they say must be the same in every plan.

What these can catch: links that break their own promises or are less skewed than they say, plans that are fed something
else than their neighbours, and a sampling that does not see what waits. Figures are of the benches, not of tests.
"""

from __future__ import annotations

import pytest

from bench import links as links_module
from bench import x6, x7, x9, x10, x11, x12
from bench.disorder import SECOND
from bench.held import PlanState, check_equal_results, feed_plan
from bench.links import Link, events, flows, packets
from bench.steps import Step
from highlevel.baselines.merge import OrderedMerge
from highlevel.operators.meld import Meld
from lowlevel.punctuation import BEGINNING, END, Punctuation


@pytest.fixture(autouse=True)
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of seconds instead of a quarter of one: few calls."""
    monkeypatch.setattr(links_module, "TICK", 2 * SECOND)


def test_links_keep_their_promises_and_send_all_that_has_arrived() -> None:
    sides: list[Link] = [flows(30, 20, 5, 1), packets(30, 20, 7, 2).with_delay(9 * SECOND)]
    promised = [BEGINNING] * 2
    arrived: list[list[int]] = [[], []]
    for now, number, item in events(sides, 30):
        if isinstance(item, Punctuation):
            assert item.watermark >= promised[number]
            promised[number] = item.watermark
            continue
        times = item.column("ts").to_pylist()
        assert promised[number] <= min(times)
        assert max(times) + sides[number].delay < now <= 30 * SECOND
        arrived[number] += times
    assert promised == [END, END]
    for side, times in zip(sides, arrived, strict=True):
        assert times == [ts for ts in side.times.tolist() if ts + side.delay < 30 * SECOND]
    assert len(arrived[0]) == 600
    assert 380 < len(arrived[1]) < 460


def test_streams_have_the_groups_and_the_rates_that_they_say() -> None:
    made = packets(20, 50, 30, 1)
    assert len(set(zip(*(made.rows.column(name).to_pylist() for name in ("srcIP", "destIP")), strict=True))) == 30
    assert made.rows.num_rows == 1000
    assert (made.times[1:] >= made.times[:-1]).all()
    assert made.rows.equals(packets(20, 50, 30, 1).rows)
    assert not made.rows.equals(packets(20, 50, 30, 2).rows)
    assert set(flows(20, 50, 30, 1).rows.column("key").to_pylist()) == set(range(30))


def test_what_waits_is_sampled_when_all_links_have_sent() -> None:
    sides = [flows(40, 10, 5, 1), flows(40, 10, 5, 2).with_delay(10 * SECOND)]
    ordered, unordered = (
        feed_plan(Step(make(2), 0, 1), sides, 40, 20 * SECOND, "number") for make in (OrderedMerge, Meld)
    )
    assert len(ordered.items) == 10
    assert 80 <= min(ordered.items) <= ordered.max_items <= 120
    assert (ordered.max_bytes, unordered.max_items, unordered.max_bytes) == (24 * ordered.max_items, 0, 0)
    assert ordered.results == unordered.results == ordered.rows
    check_equal_results({"ordered": ordered, "unordered": unordered})
    with pytest.raises(ValueError, match="the plans have different results"):
        check_equal_results({"ordered": ordered, "other": PlanState(results=1)})


def test_a_step_is_sampled_by_itself_where_that_is_asked_for() -> None:
    merge = Step(OrderedMerge(2), 0, 1)
    found = feed_plan(Step(Meld(1), merge), [flows(9, 5, 5, 1)] * 2, 9, 0, "number", sampled=merge)
    assert [step.operator for step in merge.steps()] == [merge.operator]
    assert found.results == found.rows > 0


@pytest.mark.slow("many experiments")
def test_all_plans_of_each_experiment_say_the_same() -> None:
    """`measure` raises where they do not; and what they hold has the form that the experiment is about."""
    skewed = x9.measure(130, 20, 10, (0, 20))
    wait = skewed[20][x9.IN_ORDER].max_items - skewed[0][x9.IN_ORDER].max_items
    assert skewed[20][x9.BUFFERING].max_items > skewed[20][x9.IN_ORDER].max_items - wait
    assert skewed[0][x9.OUT_OF_ORDER].results == skewed[0][x9.BELOW].results > 0
    joined = x10.measure(40, (0, 20))
    for each in joined.values():
        assert each[x10.OUT_OF_ORDER].max_items == each[x10.IN_ORDER].max_items == each[x10.MIXED].max_items
        assert each[x10.OUT_OF_ORDER].results > 0
    assert joined[20][x10.IN_ORDER].max_items > joined[0][x10.IN_ORDER].max_items + 40 * 20 * 2 * 0.8
    late = x11.measure(0.2, (0, 10), 1)
    assert late[10][x11.OUT_OF_ORDER].mean_items < late[10][x11.IN_ORDER].mean_items
    assert late[10][x11.OUT_OF_ORDER].results > 0
    assert x12.measure(0.02, (0, 10), 330)[10][x12.OUT_OF_ORDER].results > 0


def test_order_behind_a_join_costs_more_the_longer_its_ranges_are_and_order_in_front_of_it_a_half() -> None:
    behind = x6.measure(x6.JOINS, (1, 5), 31, 100, 200)
    shares = [each["OPOB"].held.max_items / each["OA"].held.max_items for each in behind.values()]
    assert 1 < shares[0] < shares[1]
    assert behind[5]["OPOB"].latency > behind[5]["OA"].latency + 3
    in_front = x7.measure(x7.JOINS, (5,), 31, 100, 200)[5]
    assert 1.3 < in_front["OPIB"].held.max_items / in_front["OA"].held.max_items < 1.6
