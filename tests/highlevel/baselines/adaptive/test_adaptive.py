"""AdaptWID against its algorithm written slowly, against WID, and against the definition.

* The printed trace catches a switch at the wrong tuple, a partial that counts the wrong tuples, and a group that stays.
* Random streams with thresholds that change after every window detect a tuple that is in a partial and in the buffer,
  or in neither, when its group switches. Fixed thresholds and the memory model detect the same for groups that do not
  switch.
* The slow twin catches volumes that drift: counted tuples, switches and what is held are compared after every event.
* Plain kernels catch an access out of bounds, which machine code would not say.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from highlevel.baselines.adaptive import aggregate
from highlevel.baselines.adaptive import store as store_module
from highlevel.baselines.adaptive.aggregate import AdaptiveAggregate
from highlevel.baselines.adaptive.layout import GROUP, LAST, NONE, VOLUME, WID
from highlevel.baselines.adaptive.thresholds import ALWAYS_EAGER, ALWAYS_LAZY, ThresholdPolicy, Thresholds
from highlevel.sliding.aggregate import END_WID, FIRST_WID, Aggregate
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.integer_ranges import count
from lowlevel.punctuation import BEGINNING, END, Item, Punctuation
from lowlevel.subaggregates import Kind, SubAggregate
from tests.conftest import Rounds
from tests.harness.plain_kernels import plain
from tests.references.adaptive_twin import AdaptiveTwin, Moody, held, policy_of
from tests.references.operator_contract import (
    Contract,
    Event,
    all_rows,
    batched,
    check,
    check_restart,
    feed,
    interleaved,
    reordered,
    rows_of,
)
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
        *((name, pa.int64()) for name in ("k0", "ts", FIRST_WID, END_WID, "s0", "s1", "s2", "s3")),
        *((name, pa.float64()) for name in ("f1", "f2", "f3")),
    ]
)
SUMMED = [SubAggregate("s1", Kind.SUM)]


def rows(spec: Spec, arrivals: list[Arrival]) -> pa.RecordBatch:
    values = [
        (each.group, each.ts, spec.wids(each.ts).start, spec.wids(each.ts).stop, 1, *[each.number] * 6)
        for each in arrivals
    ]
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in values], schema=SCHEMA)


def in_wids(spec: Spec, stream: list[Arrival | int]) -> list[Arrival | int]:
    return [
        each if each == END else max(0, (each - spec.origin) // spec.slide) if isinstance(each, int) else each
        for each in stream
        if isinstance(each, int) or spec.wids(each.ts)
    ]


def contract(spec: Spec, policy: ThresholdPolicy, sources: int = 1) -> Contract:
    return Contract(
        make=lambda: AdaptiveAggregate(["k0"], SUBS, spec.range, spec.slide, sources, policy),
        ports=sources,
        progress=lambda rows: min(rows["wid"].to_pylist()),
        watermark=lambda lows: min(lows) if min(lows) > 0 else BEGINNING,
        held=held,
    )


def by_definition(spec: Spec, stream: list[Arrival | int]) -> set[tuple]:
    seen: dict[tuple, list[int]] = defaultdict(list)
    for each in stream:
        if not isinstance(each, int):
            for wid in spec.wids(each.ts):
                seen[wid, each.group].append(each.number)
    return {(*key, len(each), *[sum(each), min(each), max(each)] * 2) for key, each in seen.items()}


def by_wid(events: list[Event]) -> list[Item]:
    """Return the results of WID for the same events."""
    wid = Aggregate(["k0"], SUBS)
    bounds: dict[int, int] = {}
    found: list[Item] = []
    ports = {port for port, _ in events}
    for port, item in events:
        if isinstance(item, Punctuation):
            bounds[port] = max(bounds.get(port, BEGINNING), item.watermark)
            if len(bounds) == len(ports):
                found += wid.punctuate(0, Punctuation("*", min(bounds.values())))
        else:
            found += wid.process_rows(0, item.select([name for name in SCHEMA.names if name != "ts"]))
    return found


def test_the_printed_trace_of_a_sum_that_switches_twice() -> None:
    spec = Spec(4, 2)
    operator = AdaptiveAggregate(["k0"], [*SUMMED, SubAggregate("s0", Kind.COUNT)], 4, 2, 1, Thresholds(2, 2))

    def arrive(*arrivals: tuple[int, int]) -> None:
        for ts, number in arrivals:
            assert feed(operator, (0, rows(spec, [Arrival(ts, 0, number)]))) == []

    def close(ts: int) -> dict[int, int]:
        emitted = feed(operator, (0, Punctuation("M", ts // 2)))
        return {wid: total for wid, _, total, _ in rows_of(emitted)}

    def state() -> tuple[str, int, dict[int, tuple[int, int]], list[int]]:
        """Mode, volume, partials as wid: (sum, tuples counted), and sums in the buffer."""
        store = operator.store
        partials = store.partials.used_rows
        tuples = sorted(row[-2] for row in store.copy_tuples().tolist())
        return (
            "eager" if store.is_eager.any() else "lazy",
            int(store.groups[0, VOLUME]),
            {int(row[WID]): (int(row[-2]), int(row[LAST])) for row in partials},
            tuples,
        )

    arrive((0, 1), (1, 2))
    assert state() == ("lazy", 2, {}, [1, 2])
    arrive((2, 4))
    assert state() == ("eager", 3, {0: (3, 0), 1: (7, 2), 2: (4, 1)}, [])
    assert close(2) == {0: 3}
    assert state() == ("eager", 3, {1: (7, 2), 2: (4, 1)}, [])
    arrive((3, 8))
    assert close(4) == {1: 15}
    assert state() == ("eager", 2, {2: (12, 2)}, [])
    arrive((5, 16))
    assert close(6) == {2: 28}
    assert state() == ("lazy", 1, {3: (16, 1)}, [])
    arrive((6, 32))
    assert state() == ("lazy", 2, {3: (16, 1)}, [32])
    assert close(8) == {3: 48}
    assert state() == ("lazy", 1, {}, [32])
    assert close(10) == {4: 32}
    assert (operator.groups_eager, operator.tuples, operator.partials) == (0, 0, 0)
    assert (operator.to_eager, operator.to_lazy, operator.bytes) == (1, 1, 0)


@pytest.mark.parametrize("part", range(4))
def test_any_stream_and_any_switching_give_what_wid_gives(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    switched = 0
    for seed in range(part, 1000, 4):
        random = Random(seed)
        monkeypatch.setattr(aggregate, "CLOSE_ROWS", random.choice([1, 5, 65_536]))
        spec = random_spec(random)
        sources = random.choice([1, 1, 2, 3])
        inputs = [in_wids(spec, random_stream(random, 30)) for _ in range(sources)]

        def batch(arrivals: list[Arrival], spec: Spec = spec) -> pa.RecordBatch:
            return rows(spec, arrivals)

        events = batched(random, interleaved(random, inputs), batch)
        policy = policy_of(seed // 4, random)
        operator = AdaptiveAggregate(["k0"], SUBS, spec.range, spec.slide, sources, policy)
        made = contract(spec, policy, sources)
        trace = check(replace(made, make=lambda operator=operator: operator), events)
        found = all_rows(trace)
        assert set(found) == by_definition(spec, [each for stream in inputs for each in stream]), seed
        assert max(found.values(), default=1) == 1
        if seed % 8 < 4 and spec.range < 4 * spec.slide:
            assert found == rows_of(by_wid(events)), seed
        if seed % 5 == 0:
            check_restart(made, events, trace, random.randint(0, len(events)), ipc=random.random() < 0.5)
        assert operator.bytes == 0, seed
        switched += operator.to_lazy
    assert switched > 50


def test_the_order_of_arrival_changes_nothing_that_it_may_not(rounds: Rounds) -> None:
    for seed in rounds(100):
        random = Random(seed)
        spec = random_spec(random)
        stream = in_wids(spec, random_stream(random, 30))
        times = [
            each if not isinstance(each, int) or each == END else spec.origin + each * spec.slide for each in stream
        ]
        found = []
        for order in (stream, in_wids(spec, reordered(random, times))):
            events = batched(random, ((0, each) for each in order), lambda arrivals, spec=spec: rows(spec, arrivals))
            found.append(all_rows(check(contract(spec, policy_of(seed, random)), events)))
        assert found[0] == found[1], seed


def test_volumes_modes_and_what_is_held_are_those_of_the_slow_twin() -> None:
    eager = 0
    for seed in range(200):
        random = Random(seed)
        spec = random_spec(random)
        up = random.randint(0, 8)
        thresholds = Thresholds(up, random.randint(0, up))
        operator = AdaptiveAggregate(["k0"], SUMMED, spec.range, spec.slide, 1, thresholds)
        twin = AdaptiveTwin(thresholds.eager_above, thresholds.lazy_below)
        for each in in_wids(spec, random_stream(random, 30)):
            if isinstance(each, int):
                emitted = feed(operator, (0, Punctuation("M", each)))
                assert {(wid, group): total for wid, group, total in rows_of(emitted)} == twin.close(each), seed
            else:
                feed(operator, (0, rows(spec, [each])))
                wids = spec.wids(each.ts)
                twin.take(each.group, each.number, wids.start, wids.stop)
            store = operator.store
            names = store.keys.columns()[0].to_pylist() if operator.group_types else []
            volumes = dict(zip(names, store.groups[: store.group_count, VOLUME].tolist(), strict=True))
            lively = {name: each.volume for name, each in twin.groups.items()}
            assert {name: volume for name, volume in volumes.items() if volume} == {
                name: volume for name, volume in lively.items() if volume
            }, seed
            modes = dict(zip(names, store.is_eager.tolist(), strict=True))
            assert {name for name, mode in modes.items() if mode and volumes[name]} == {
                name for name, each in twin.groups.items() if each.eager and each.volume
            }, seed
            assert (operator.tuples, operator.partials) == (len(twin.buffer), twin.partials), seed
            assert operator.to_eager == twin.to_eager
        eager += operator.to_eager
    assert eager > 200


def test_the_kernels_as_plain_python_hold_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = [(store_module, "index_partials")]
    kernels += [(store_module, name) for name in ("chain_tuples", "take_tuples", "add_due")]
    for seed in range(12):
        random = Random(seed)
        spec = random_spec(random)
        stream = in_wids(spec, random_stream(random, 30))
        policy = policy_of(seed, random)
        moods = random.getrandbits(32)
        states = []
        for plainly in (False, True):
            if isinstance(policy, Moody):
                policy = Moody(Random(moods))
            with monkeypatch.context() as patch:
                for module, name in kernels if plainly else ():
                    patch.setattr(module, name, plain(getattr(module, name)))
                operator = AdaptiveAggregate(["k0"], SUBS, spec.range, spec.slide, 1, policy)
                said = []
                for event in batched(Random(seed), ((0, each) for each in stream), lambda a, s=spec: rows(s, a)):
                    said.append(rows_of(feed(operator, event)))
                    said.append({name: table.to_pydict() for name, table in operator.snapshot().items()})
                states.append(said)
        assert states[0] == states[1], seed


def test_late_rows_are_counted_per_window_and_never_open_one_again() -> None:
    spec = Spec(10, 5)
    for policy in (ALWAYS_EAGER, ALWAYS_LAZY):
        operator = AdaptiveAggregate(["k0"], SUBS[:1], 10, 5, 1, policy)
        feed(operator, (0, rows(spec, [Arrival(6, 0, 0)])))
        assert rows_of(feed(operator, (0, Punctuation("M", 2)))) == {(1, 0, 1): 1}
        feed(operator, (0, rows(spec, [Arrival(7, 0, 0), Arrival(3, 0, 0), Arrival(12, 0, 0)])))
        assert (operator.late, operator.late_rows, operator.received) == (3, 2, 4)
        assert count(operator.open_windows()) == 2
        assert rows_of(feed(operator, (0, Punctuation("M", END)))) == {(2, 0, 3): 1, (3, 0, 1): 1}
        feed(operator, (0, rows(spec, [Arrival(95, 0, 0)])))
        assert (operator.late, operator.bytes, operator.windows_closed) == (5, 0, 3)


def test_a_gap_of_years_costs_nothing() -> None:
    year = 365 * 86_400 * 10**9
    spec = Spec(600 * 10**9, 60 * 10**9)
    operator = AdaptiveAggregate(["k0"], SUMMED, spec.range, spec.slide)
    feed(operator, (0, rows(spec, [Arrival(5, 0, 1), Arrival(30 * year, 0, 2)])))
    assert count(operator.open_windows()) == 20
    items = feed(operator, (0, Punctuation("M", END)))
    assert len(rows_of(items)) == operator.windows_closed == 20


def test_keys_of_all_types_come_back_as_they_were() -> None:
    fields = {
        "address": pa.array([b"\x0a\0\0\1", None, bytes(16), b"\x0a\0\0\1", b""], pa.binary()),
        "name": pa.array(["eth0", "", None, "eth0", "a long name of an interface"]),
        "flag": pa.array([True, None, False, True, False]),
        "port": pa.array([443, 0, None, 443, -(2**63)], pa.int64()),
        "share": pa.array([0.0, 1.5, None, -0.0, float("inf")], pa.float64()),
    }
    numbers = {name: pa.array([number] * 5) for name, number in (("ts", 1), (FIRST_WID, 0), (END_WID, 1), ("s1", 1))}
    operator = AdaptiveAggregate(list(fields), SUMMED, 10, 10)
    feed(operator, (0, pa.RecordBatch.from_pydict(fields | numbers)))
    restarted = AdaptiveAggregate(list(fields), SUMMED, 10, 10)
    restarted.restore(operator.snapshot())
    for each in (operator, restarted):
        (result, _) = feed(each, (0, Punctuation("M", END)))
        assert isinstance(result, pa.RecordBatch)
        assert result.schema.types[1:6] == [column.type for column in fields.values()]
        values = [column.to_pylist() for column in fields.values()]
        expected = {row: 2 if row[3] == 443 else 1 for row in list(zip(*values, strict=True))}
        assert {tuple(row.values())[1:6]: row["s1"] for row in result.to_pylist()} == expected


def test_a_subaggregate_that_is_no_number_is_refused() -> None:
    strange = replace(SUMMED[0], kind="sketch")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="sums, MIN and MAX of numbers, got s1"):
        AdaptiveAggregate(["k0"], [strange], 10, 10)


@pytest.mark.parametrize(("up", "down"), [(1, 2), (3, -1)])
def test_thresholds_between_which_a_group_would_be_both_are_refused(up: float, down: float) -> None:
    with pytest.raises(ValueError, match=f"got lazy_below {down} and eager_above {up}"):
        Thresholds(up, down)


@pytest.mark.slow("long streams")
def test_a_lower_way_back_switches_less_often() -> None:
    switches = []
    spec = Spec(100, 10)
    for down in (6, 5, 4, 3):
        random = np.random.default_rng(1)
        operator = AdaptiveAggregate(["k0"], SUMMED, 100, 10, 1, Thresholds(6, down))
        times = np.cumsum(random.exponential(100 / 6, 1000)).astype(int)
        for ts in times.tolist():
            feed(operator, (0, Punctuation("M", ts // 10)))
            feed(operator, (0, rows(spec, [Arrival(ts, 0, 1)])))
        switches.append(operator.to_eager + operator.to_lazy)
    assert switches == sorted(switches, reverse=True)
    assert switches[-1] < switches[0] / 2


def test_memory_follows_what_is_held() -> None:
    spec = Spec(10, 10)
    operator = AdaptiveAggregate(["k0"], SUMMED, 10, 10, 1, Thresholds(1, 1))
    feed(operator, (0, rows(spec, [Arrival(0, group % 5000, 1) for group in range(8000)])))
    assert (operator.groups_eager, operator.partials, operator.tuples) == (3000, 3000, 2000)
    assert operator.peak_bytes == operator.bytes
    feed(operator, (0, Punctuation("M", 1)))
    store = operator.store
    arrays = (store.groups, store.tuples, store.partials.rows, store.partials.index)
    assert sum(each.nbytes for each in arrays) + store.keys.bytes < 10_000


def test_a_buffer_without_gaps_is_used_again() -> None:
    """Rows that a group leaves when it becomes eager are taken by the next tuples."""
    spec = Spec(10, 10)
    operator = AdaptiveAggregate(["k0"], SUMMED, 10, 10, 1, Thresholds(3, 1))
    for group in range(1000):
        feed(operator, (0, rows(spec, [Arrival(0, group, 1)] * 4)))
    assert len(operator.store.tuples) == store_module.MIN_ROWS
    assert (operator.store.tuples[:3, GROUP] == NONE).all()
