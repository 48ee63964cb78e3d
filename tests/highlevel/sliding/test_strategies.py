"""Every way to make a window of its panes, against the definition, over panes of any kind.

* Random streams detect a pane that is added or removed twice or never, a group that stays as zeros, and steps of the
  front that miss a late merge buffer. They detect totals that survive a change of strategy or a restart, and unchanged
  windows that are not emitted.
* Rows that are late for some of their windows create merge buffers that end before earlier ones.
* Counted merges, not time, catch windows that are merged from all of their panes.
"""

from collections import Counter, defaultdict
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from highlevel.groups import merge_buffer as buffer
from highlevel.groups.layer import Layer
from highlevel.groups.running_totals import RunningTotals
from highlevel.groups.two_stacks import TwoStacks
from highlevel.sliding import window_rows
from highlevel.sliding import window_rows as strategy
from highlevel.sliding.aggregate import END_WID, FIRST_WID, Aggregate
from highlevel.sliding.window_rows import Strategy, strategy_of
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.punctuation import END, Punctuation
from lowlevel.subaggregates import Kind, SubAggregate
from tests.conftest import Rounds
from tests.references.operator_contract import feed, rows_of, through_ipc
from tests.references.windows_oracle import Arrival, Spec, random_spec, random_stream

FLOAT = Column("x", Type.FLOAT)
INT = Column("n", Type.INT)
COUNT = SubAggregate("count", Kind.COUNT)
SUM = SubAggregate("sum", Kind.SUM, INT)
LEAST, MOST = SubAggregate("min", Kind.MIN, INT), SubAggregate("max", Kind.MAX, INT)
FLOATS = SubAggregate("float", Kind.SUM, FLOAT)
WAYS = ["merged", "totals", "both"]
"""How windows are made of their panes: see `choose`."""

QUERIES = [[COUNT], [SUM], [COUNT, SUM], [LEAST], [COUNT, SUM, LEAST, MOST], [FLOATS], [COUNT, FLOATS, MOST]]
MADE: dict[str, Any] = {
    "count": lambda numbers: len(numbers),
    "sum": sum,
    "min": min,
    "max": max,
    "float": lambda numbers: sum(number / 2 for number in numbers),
}


def partials(spec: Spec, subs: list[SubAggregate], arrivals: list[Arrival]) -> pa.RecordBatch:
    columns = {"k0": pa.array([each.group for each in arrivals], pa.int64())}
    for sub in subs:
        values = [MADE[sub.name]([each.number]) for each in arrivals]
        columns[sub.name] = pa.array(values, pa.float64() if sub.type is Type.FLOAT else pa.int64())
    wids = [spec.wids(each.ts) for each in arrivals]
    columns[FIRST_WID] = pa.array([each.start for each in wids], pa.int64())
    columns[END_WID] = pa.array([each.stop for each in wids], pa.int64())
    return pa.record_batch(columns)


def unruly(random: Random, spec: Spec) -> list[Arrival | int]:
    """A stream of tuples and promises in window ids, some of which are not kept: rows are late for some windows."""
    events: list[Arrival | int] = []
    for each in random_stream(random, 40):
        if isinstance(each, Arrival):
            if spec.wids(each.ts):
                events.append(each)
        elif each != END:
            hasty = random.choice([0, 0, 0, random.randint(0, 60)])
            events.append(max(0, (each + hasty - spec.origin) // spec.slide))
    return [*events, END]


def by_definition(spec: Spec, subs: list[SubAggregate], events: list[Arrival | int]) -> tuple[Counter[tuple], int]:
    """The rows of all windows, and how often a tuple was late for one."""
    closed = late = 0
    seen: dict[tuple, list[int]] = defaultdict(list)
    for each in events:
        if isinstance(each, int):
            closed = max(closed, each)
            continue
        for wid in spec.wids(each.ts):
            if wid < closed:
                late += 1
            else:
                seen[wid, each.group].append(each.number)
    return Counter((*key, *(MADE[sub.name](numbers) for sub in subs)) for key, numbers in seen.items()), late


def choose(monkeypatch: pytest.MonkeyPatch, random: Random, way: str) -> None:
    """Make windows be merged, or kept as totals, or one or the other by chance."""
    prices = {"merged": (0, 10**9), "totals": (10**6, -(10**6)), "both": (random.choice([1, 3, 10]), 20)}
    pile_cost, totals_cost = prices[way]
    monkeypatch.setattr(strategy, "BUFFER_COST", pile_cost)
    monkeypatch.setattr(strategy, "TOTALS_COST", totals_cost)
    monkeypatch.setattr(buffer, "MERGE_ROWS", random.choice([0, 3, 16_384]))
    monkeypatch.setattr(window_rows, "CLOSE_ROWS", random.choice([1, 20, 65_536]))
    monkeypatch.setattr(window_rows, "MIN_SEPARATE_ROWS", random.choice([0, 4, 4096]))


@pytest.mark.parametrize("way", WAYS)
def test_every_strategy_gives_the_windows_of_the_definition(
    way: str, monkeypatch: pytest.MonkeyPatch, rounds: Rounds
) -> None:
    used: Counter[Strategy] = Counter()
    for number in rounds(1200 // len(WAYS)):
        seed = WAYS.index(way) + number * len(WAYS)
        random = Random(seed)
        choose(monkeypatch, random, way)
        spec, subs = random_spec(random), random.choice(QUERIES)
        events = unruly(random, spec)
        operator = Aggregate(["k0"], subs)
        found: Counter[tuple] = Counter()
        waiting: list[Arrival] = []
        for each in events:
            if isinstance(each, Arrival):
                waiting.append(each)
            if waiting and (isinstance(each, int) or random.random() < 0.4):
                assert feed(operator, (0, partials(spec, subs, waiting))) == []
                waiting = []
            if isinstance(each, int):
                items = feed(operator, (0, Punctuation("M", each)))
                wids = [wid for item in items if isinstance(item, pa.RecordBatch) for wid in item["wid"].to_pylist()]
                assert wids == sorted(wids)
                found += rows_of(items)
                used.update([operator.strategy] if wids else [])
            if random.random() < 0.05:
                state = operator.snapshot()
                late, operator = operator.late, Aggregate(["k0"], subs)
                operator.restore(through_ipc(state) if random.random() < 0.5 else state)
                operator.late = late
        expected, late = by_definition(spec, subs, events)
        assert found == expected, seed
        assert operator.late == late, seed
        assert operator.open.buffers == {}
        assert operator.bytes == 0
    wanted = {"merged": {Strategy.MERGE}, "totals": set(Strategy) - {Strategy.MERGE}, "both": set(Strategy)}
    assert set(used) == wanted[way]


def test_sums_of_floats_and_extremes_are_never_subtracted() -> None:
    for subs in QUERIES:
        exact = all(sub.type is Type.INT and sub.kind in (Kind.COUNT, Kind.SUM) for sub in subs)
        expected = Strategy.RUNNING_TOTALS if exact else Strategy.TWO_STACKS
        assert strategy_of(subs, 60, 10**6) is expected


def panes(operator: Aggregate, subs: list[SubAggregate], spec: Spec, count: int, groups: int) -> None:
    """Let time go by, a pane at a time, each with all groups."""
    for pane in range(count):
        arrivals = [Arrival(pane, group, pane % 7) for group in range(groups)]
        feed(operator, (0, partials(spec, subs, arrivals)))
        feed(operator, (0, Punctuation("M", pane)))


@pytest.mark.parametrize("subs, most", [([COUNT, SUM], 2), ([COUNT, LEAST], 3)])
def test_a_pane_is_merged_a_few_times_however_long_the_window(
    subs: list[SubAggregate], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    merges = []
    merge = Layer.merge
    monkeypatch.setattr(Layer, "merge", lambda self, *given, **named: merges.append(1) or merge(self, *given, **named))
    choose(monkeypatch, Random(0), "totals")
    monkeypatch.setattr(buffer, "MERGE_ROWS", 10**6)
    operator = Aggregate(["k0"], subs)
    count = 400
    panes(operator, subs, Spec(60, 1), count, 5)
    assert len(merges) <= (most + 1) * count  # one more to bring a pane to rest


def test_two_stacks_keep_few_steps_of_a_long_window() -> None:
    schema = partials(Spec(1, 1), [LEAST], []).schema
    stacks = TwoStacks(schema, ["k0"], Aggregate(["k0"], [LEAST]).window_rows.merge_rules)
    most = 0
    for wid in range(2500):
        stacks.add((wid, wid + 900), partials(Spec(1, 1), [LEAST], [Arrival(0, 0, wid)]))
        stacks.remove_before(wid)
        most = max(most, len(stacks.front) + len(stacks.blocks))
        assert stacks.rows().to_pylist() == [{"k0": 0, "min": max(0, wid - 899)}]
    assert most <= 2 * 31


def test_groups_of_which_nothing_is_left_take_no_memory() -> None:
    schema = partials(Spec(1, 1), [COUNT], []).schema
    totals = RunningTotals(schema, ["k0"], Aggregate(["k0"], [COUNT]).window_rows.merge_rules)
    for wid in range(3000):
        totals.remove_before(wid)
        totals.add((wid, wid + 3), partials(Spec(1, 1), [COUNT], [Arrival(0, wid, 0)]))
        assert totals.rows().num_rows == min(3, wid + 1)
        assert totals.table.count <= 1100


@pytest.mark.slow("long streams")
def test_windows_between_which_nothing_changes_are_all_emitted() -> None:
    spec, operator = Spec(3600, 1), Aggregate(["k0"], [COUNT])
    feed(operator, (0, partials(spec, [COUNT], [Arrival(10, group, 1) for group in range(4500)])))
    items = feed(operator, (0, Punctuation("M", END)))
    counted = Counter(wid for item in items if isinstance(item, pa.RecordBatch) for wid in item["wid"].to_pylist())
    assert counted == dict.fromkeys(range(10, 3610), 4500)
