"""The in-order baselines against twins that do the same to one tuple at a time.

A baseline that is slower or less correct than necessary would make the compared operators look better. So its results
must equal those of its definition exactly.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random

import pyarrow as pa
import pytest

from highlevel.baselines import buffering as buffering_module
from highlevel.baselines.buffering import BufferingAggregate
from highlevel.baselines.slack import Lateness, SlackAggregate
from highlevel.windows.kind import SlidingWindow
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.punctuation import END, Punctuation
from lowlevel.subaggregates import Kind, SubAggregate
from tests.conftest import Rounds
from tests.harness.plain_kernels import plain
from tests.references.operator_contract import Event, batched, feed, marks_of, rows_of, through_ipc
from tests.references.windows_oracle import Arrival, Spec, random_spec, random_stream

FLOAT = Column("x", Type.FLOAT)
SUBS = [
    SubAggregate("s0", Kind.COUNT),
    SubAggregate("s1", Kind.SUM),
    SubAggregate("s2", Kind.MIN),
    SubAggregate("s3", Kind.MAX),
    SubAggregate("f1", Kind.SUM, FLOAT),
    SubAggregate("f2", Kind.MIN, FLOAT),
    SubAggregate("f3", Kind.MAX, FLOAT),
]
SCHEMA = pa.schema(
    [
        *((name, pa.int64()) for name in ("ts", "k0", "s0", "s1", "s2", "s3")),
        *((name, pa.float64()) for name in ("f1", "f2", "f3")),
    ]
)


def rows(arrivals: list[Arrival]) -> pa.RecordBatch:
    values = [(each.ts, each.group, 1, *[each.number] * 6) for each in arrivals]
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in values], schema=SCHEMA)


def merged(seen: dict[tuple, list[int]]) -> set[tuple]:
    return {(*key, len(each), *[sum(each), min(each), max(each)] * 2) for key, each in seen.items()}


def buffered(spec: Spec, arrivals: list[Arrival], grouped: bool) -> tuple[set[tuple], int]:
    """The definition of in order: drop each tuple that is older than an earlier one, then compute every extent.

    Return the results and the dropped tuples.
    """
    newest = -(2**63)
    seen: dict[tuple, list[int]] = defaultdict(list)
    dropped = 0
    for each in arrivals:
        if each.ts < newest:
            dropped += 1
            continue
        newest = each.ts
        for wid in spec.wids(each.ts):
            seen[(wid, each.group) if grouped else (wid,)].append(each.number)
    return merged(seen), dropped


def with_slack(spec: Spec, arrivals: list[Arrival], slack: int, lateness: Lateness) -> tuple[set[tuple], int, int]:
    """One tuple at a time: results, tuples that were late, and windows they are missing in."""
    high = -(2**63)
    seen: dict[tuple, list[int]] = defaultdict(list)
    late = lost = 0
    for each in arrivals:
        high = max(high, each.ts)
        wids = spec.wids(each.ts)
        open_wids = [wid for wid in wids if spec.extent(wid)[1] + slack > high]
        if len(open_wids) < len(wids):
            late += 1
            if lateness is Lateness.CONSISTENT:
                open_wids = []
            lost += len(wids) - len(open_wids)
        for wid in open_wids:
            seen[wid, each.group].append(each.number)
    return merged(seen), late, lost


def arrivals_of(random: Random) -> list[Arrival]:
    return [each for each in random_stream(random) if not isinstance(each, int)]


def events_of(random: Random, arrivals: list[Arrival]) -> list[Event]:
    return batched(random, [*((0, each) for each in arrivals), (0, END)], rows)


@pytest.mark.parametrize("grouped", [False, True])
def test_buffering_gives_every_extent_of_what_came_in_order(
    grouped: bool, monkeypatch: pytest.MonkeyPatch, rounds: Rounds
) -> None:
    for seed in rounds(150):
        random = Random(seed)
        monkeypatch.setattr(buffering_module, "OUT_ROWS", random.choice([1, 3, 16_384]))
        monkeypatch.setattr(buffering_module, "MIN_ROWS", random.choice([1, 4, 1024]))
        spec = random_spec(random)
        arrivals = arrivals_of(random)
        if random.random() < 0.7:
            arrivals.sort(key=lambda each: each.ts)
        events = events_of(random, arrivals)
        window = SlidingWindow(spec.range, spec.slide, spec.origin)
        operator = BufferingAggregate(["k0"] if grouped else [], SUBS, window)
        expected, dropped = buffered(spec, arrivals, grouped)
        items = []
        stop = random.randrange(len(events))
        for place, event in enumerate(events):
            if place == stop:  # a restart changes nothing
                stopped, operator = operator, BufferingAggregate(operator.groups, SUBS, window)
                operator.restore(through_ipc(stopped.snapshot()))
            items += feed(operator, event)
        found = rows_of(items)
        assert set(found) == expected, seed
        assert max(found.values(), default=1) == 1
        assert operator.tuples == 0
        assert stopped.disordered + operator.disordered == dropped
        said = [mark.watermark for mark in marks_of(items)]
        assert (said == sorted(set(said)), said[-1]) == (True, END)


def test_a_window_closes_with_the_first_tuple_beyond_its_end_and_is_scanned_whole() -> None:
    operator = BufferingAggregate([], SUBS[1:2], SlidingWindow(10, 5))
    assert feed(operator, (0, rows([Arrival(1, 0, 1), Arrival(4, 0, 2)]))) == []
    assert rows_of(feed(operator, (0, rows([Arrival(5, 0, 4)])))) == {(0, 3): 1}
    assert rows_of(feed(operator, (0, rows([Arrival(12, 0, 8), Arrival(11, 0, 99)])))) == {(1, 7): 1}
    assert (operator.tuples, operator.disordered, operator.scanned) == (2, 1, 5)
    assert rows_of(feed(operator, (0, Punctuation("M", 15)))) == {(2, 12): 1}


def test_scans_as_plain_python_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffering_module, "scan_windows", plain(buffering_module.scan_windows))
    test_a_window_closes_with_the_first_tuple_beyond_its_end_and_is_scanned_whole()
    for seed in range(10):
        random = Random(seed)
        spec = random_spec(random)
        arrivals = sorted(arrivals_of(random), key=lambda each: each.ts)
        grouped = seed % 2 == 0
        window = SlidingWindow(spec.range, spec.slide, spec.origin)
        operator = BufferingAggregate(["k0"] if grouped else [], SUBS, window)
        items = [item for event in events_of(random, arrivals) for item in feed(operator, event)]
        assert set(rows_of(items)) == buffered(spec, arrivals, grouped)[0], seed


@pytest.mark.parametrize("lateness", list(Lateness))
def test_slack_loses_exactly_what_comes_after_its_windows_have_closed(lateness: Lateness, rounds: Rounds) -> None:
    lost = 0
    seeds = rounds(150)
    for seed in seeds:
        random = Random(seed)
        spec = random_spec(random)
        arrivals = arrivals_of(random)
        slack = random.choice([0, 1, 5, 20, 100])
        window = SlidingWindow(spec.range, spec.slide, spec.origin)
        operator = SlackAggregate(["k0"], SUBS, window, slack, lateness)
        items = []
        events = events_of(random, arrivals)
        stop = random.randrange(len(events))
        for event in events:
            items += feed(operator, event)
        assert rows_of(items) == dict.fromkeys(with_slack(spec, arrivals, slack, lateness)[0], 1), seed
        assert (operator.late, operator.lost) == with_slack(spec, arrivals, slack, lateness)[1:], seed
        lost += operator.lost
        first, second = (SlackAggregate(["k0"], SUBS, window, slack, lateness) for _ in range(2))
        said = [item for event in events[:stop] for item in feed(first, event)]
        second.restore(through_ipc(first.snapshot()))
        said += [item for event in events[stop:] for item in feed(second, event)]
        assert rows_of(said) == rows_of(items), seed
    assert lost > len(seeds)


def test_consistent_slack_shows_one_history_and_generous_slack_more_of_it() -> None:
    arrivals = [Arrival(1, 0, 1), Arrival(12, 0, 1), Arrival(8, 0, 1), Arrival(25, 0, 1)]
    found = {}
    for lateness in Lateness:
        operator = SlackAggregate([], SUBS[:1], SlidingWindow(10, 5), 0, lateness)
        items = feed(operator, (0, rows(arrivals))) + feed(operator, (0, Punctuation("M", END)))
        found[lateness] = dict(sorted(rows_of(items)))
    # 8 arrives after window 1, [0, 10), has closed, while window 2, [5, 15), is open.
    assert found[Lateness.CONSISTENT] == {0: 1, 1: 1, 2: 1, 3: 1, 5: 1, 6: 1}
    assert found[Lateness.GENEROUS] == {0: 1, 1: 1, 2: 2, 3: 1, 5: 1, 6: 1}


def test_a_negative_slack_is_refused() -> None:
    with pytest.raises(ValueError, match="got -1"):
        SlackAggregate([], SUBS, SlidingWindow(10, 5), -1, Lateness.GENEROUS)
