"""Snapshot operators: the changes of each event against a slow twin, and the properties of the papers.

What can go wrong: a row that is cut, joined or published differently for one order of arrival; a multiset that is left
at the wrong entry; a pending end that is counted twice after its retraction; memory that is too small.
"""

from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from highlevel.speculation.lifetimes import snapshot
from highlevel.speculation.lifetimes.aggregates import Aggregate, parse_aggregate
from highlevel.speculation.lifetimes.model import LifetimeError, are_equivalent, concat, have_equal_snapshots
from highlevel.speculation.lifetimes.snapshot import SnapshotOperator, Variant
from tests.conftest import Rounds
from tests.references.lifetimes import (
    C,
    I,
    R,
    at_each_instant,
    canon,
    denote,
    inf,
    interleaved,
    is_ordered,
    is_perfect,
    random_stream,
    to_batch,
    to_events,
)
from tests.references.snapshot_twin import SnapshotTwin

ALL = [
    parse_aggregate(text, text)
    for text in (
        *("count(*)", "sum(x)", "avg(x)", "var_pop(x)", "variance(x)", "min(x)", "max(x)", "count_distinct(x)"),
        *("median(x)", "quantile(x, 0.9)"),
    )
]
MODES = [(variant, exact) for variant in Variant for exact in (True, False)]


def quantile(values: list, p: float) -> float:
    exact = p * (len(values) - 1)
    lower = int(exact)
    upper = min(lower + 1, len(values) - 1)
    return values[lower] + (values[upper] - values[lower]) * (exact - lower)


def all_results(values: list) -> list:
    """The row of ALL for sorted values."""
    n, total = len(values), sum(values)
    spread = n * sum(value * value for value in values) - total * total
    variance = spread / (n * (n - 1)) if n > 1 else None
    moments = (n, total, total / n, spread / (n * n), variance)
    return [(*moments, values[0], values[-1], len(set(values)), quantile(values, 0.5), quantile(values, 0.9))]


def count(values: list) -> list:
    return [len(values)]


def three_largest(values: list) -> list:
    return [(place + 1, value) for place, value in enumerate(values[::-1][:3])]


COUNT = [Aggregate("n", "count")]
LARGEST = [parse_aggregate("x", "largest(x, 3)")]
KINDS = [("all aggregates", ALL, all_results), ("list", LARGEST, three_largest)]


def operator(aggregates: list, variant: Variant, exact: bool = True, whole: bool = False) -> SnapshotOperator:
    schema = to_batch([]).schema
    return SnapshotOperator(schema, aggregates, (), variant, exact=exact, without_full_retractions=whole)


def run(aggregates: list, events: list, variant: Variant, exact: bool = True) -> list:
    return to_events(operator(aggregates, variant, exact).process(to_batch(events)))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0])
@pytest.mark.parametrize("variant, exact", MODES)
def test_the_changes_are_those_of_the_twin_in_any_division(rounds: Rounds, soak: bool, variant, exact, kind) -> None:
    _, aggregates, results = kind
    for seed in rounds(20_000 if soak else 350):
        random = Random(f"snapshots {seed}")
        full = random.random() < 0.7
        events = random_stream(random, random.choice(["any", "any", "ordered", "perfect"]), full=full)
        whole = not full and random.random() < 0.5
        twin = SnapshotTwin(results, variant.name, exact=exact, whole=whole)
        expected = [change for event in events for change in twin.process(event)]
        tested = operator(aggregates, variant, exact, whole)
        place = random.randrange(len(events) + 1)
        parts = [tested.process(to_batch(events[:place])), tested.process(to_batch(events[place:]))]
        assert to_events(concat(parts, tested.schema)) == expected, seed


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0])
@pytest.mark.parametrize("variant, exact", MODES)
def test_the_result_is_valid_and_that_of_the_definition(rounds: Rounds, soak: bool, variant, exact, kind) -> None:
    _, aggregates, results = kind
    for seed in rounds(100_000 if soak else 10_000):
        random = Random(f"definition {seed}")
        order = random.choice(["any", "ordered", "perfect"])
        full = random.random() < 0.7
        events = random_stream(random, order, full=full)
        out = run(aggregates, events, variant, exact)
        result, expected = canon(out), denote(canon(events), results)
        if exact:
            assert result == expected, seed
        assert at_each_instant(result) == at_each_instant(expected), seed
        if variant is Variant.PERFECT and order == "perfect":
            assert is_perfect(out), seed
        if variant is not Variant.EARLIEST and order != "any" and not (exact and full):
            assert is_ordered(out), seed


def test_the_kernel_stays_inside_its_arrays(rounds: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel as plain Python, with numpy's bound checks."""
    monkeypatch.setattr(snapshot, "process_changes", snapshot.process_changes.function)
    for seed in rounds(60):
        random = Random(f"plain {seed}")
        events = random_stream(random)
        for variant in Variant:
            twin = SnapshotTwin(all_results, variant.name)
            expected = [change for event in events for change in twin.process(event)]
            with np.errstate(over="ignore"):  # random numbers are meant to wrap
                assert run(ALL, events, variant) == expected, seed


def shared_run(
    streams: list[list], variant: Variant, cti: float = inf, *, exact: bool = True
) -> tuple[SnapshotOperator, pa.RecordBatch]:
    """Run many streams at once, each as a group, without their CTIs. One run costs little more than one stream."""
    kinds = (pa.int64(), pa.int64())
    tested = SnapshotOperator(to_batch([], ("x", "stream"), kinds).schema, ALL, ["stream"], variant, exact=exact)
    events = [
        (*event[:-1], (event[-1], number))
        for number, stream in enumerate(streams)
        for event in stream
        if event[0] != "C"
    ]
    return tested, tested.process(to_batch([*events, C(cti)], ("x", "stream"), kinds))


def differing(one: pa.RecordBatch, other: pa.RecordBatch, *, at_every_instant: bool = False) -> list[int]:
    """The numbers of the streams whose results have other histories."""
    if (have_equal_snapshots if at_every_instant else are_equivalent)(one, other):
        return []
    histories = [canon(to_events(batch)) for batch in (one, other)]
    different = {row[-1][0] for row in (histories[0] - histories[1]) + (histories[1] - histories[0])}
    return sorted(different) or [-1]


def test_the_order_of_arrival_does_not_change_the_result(rounds: Rounds, soak: bool) -> None:
    streams, others = [], []
    for seed in rounds(100_000 if soak else 10_000):
        random = Random(f"orders {seed}")
        streams.append(random_stream(random))
        chains: dict = {}
        for event in streams[-1]:
            if event[0] != "C":
                chains.setdefault((event[1], event[-1]), []).append(event)
        others.append(interleaved(random, list(chains.values())))
    for variant, exact in MODES:
        one, other = (shared_run(each, variant, exact=exact)[1] for each in (streams, others))
        assert differing(one, other, at_every_instant=not exact) == [], "streams with these numbers"


def test_ctis_and_the_order_of_arrival_do_not_change_the_result(rounds: Rounds) -> None:
    for seed in rounds(60):
        random = Random(f"ctis {seed}")
        events = random_stream(random)
        for variant in Variant:
            without = [*(event for event in events if event[0] != "C"), C(inf)]
            assert canon(run(ALL, events, variant)) == canon(run(ALL, without, variant)), seed


def test_a_row_in_two_parts_gives_the_same_result_at_every_instant(rounds: Rounds, soak: bool) -> None:
    streams, others = [], []
    for seed in rounds(100_000 if soak else 10_000):
        random = Random(f"parts {seed}")
        streams.append(random_stream(random, "perfect"))
        divided = []
        for event in streams[-1]:
            if event[0] == "I" and event[2] != inf and event[2] - event[1] > 1:
                middle = random.randint(event[1] + 1, event[2] - 1)
                divided += [I(event[1], middle, event[3]), I(middle, event[2], event[3])]
            elif event[0] == "I":
                divided.append(event)
        others.append(divided)
    for variant, exact in MODES:
        one, other = (shared_run(each, variant, exact=exact)[1] for each in (streams, others))
        assert differing(one, other, at_every_instant=True) == [], "streams with these numbers"


def test_after_a_cti_all_rows_that_end_before_it_are_returned_and_few_endpoints_remain(
    rounds: Rounds, soak: bool
) -> None:
    for first in rounds(100_000 if soak else 10_000)[::100]:
        random = Random(f"progress {first}")
        t = random.randrange(1, 25)
        streams = []
        for seed in range(first, first + 100):
            events = random_stream(Random(f"progress {seed}"))
            place = next(place for place, event in enumerate(events) if event[0] == "C" and event[1] >= t)
            streams.append(events[:place])
        histories = [canon(event for event in stream if event[0] != "C") for stream in streams]
        expected = Counter(
            {
                (vs, ve, (number, *row)): count
                for number, history in enumerate(histories)
                for (vs, ve, row), count in denote(history, all_results).items()
                if ve <= t
            }
        )
        endpoints = [{time for vs, ve, _ in history for time in (vs, ve) if time >= t} for history in histories]
        for variant in Variant:
            tested, out = shared_run(streams, variant, t)
            found = Counter({row: count for row, count in canon(to_events(out)).items() if row[1] <= t})
            assert found == expected, first
            assert tested.entries <= sum(len(later) + 1 for later in endpoints), first


def test_a_cti_removes_the_endpoints_before_it(rounds: Rounds) -> None:
    for seed in rounds(150):
        random = Random(f"purge {seed}")
        for variant in Variant:
            tested = operator(ALL, variant)
            promised = -inf
            rows: list = []
            live: list = []
            for event in random_stream(random):
                live.append(event)
                if event[0] == "C":
                    tested.process(to_batch(live))
                    rows, live = [*rows, *live], []
                    promised = event[1]
                    history = canon([each for each in rows if each[0] != "C"])
                    later = {time for vs, ve, _ in history for time in (vs, ve) if time >= promised}
                    assert tested.entries <= len(later) + 1, seed
            assert promised == inf


def test_groups_are_independent_and_the_least_cti_is_returned(rounds: Rounds) -> None:
    for seed in rounds(200):
        random = Random(f"groups {seed}")
        events = random_stream(random, payloads=12)
        for variant in Variant:
            groups = {p % 3 for *_, p in (event for event in events if event[0] != "C")}
            tested = SnapshotOperator(to_batch([], ("x", "g"), (pa.int64(), pa.string())).schema, ALL, ["g"], variant)
            named = [event if event[0] == "C" else (*event[:-1], (event[-1], f"g{event[-1] % 3}")) for event in events]
            split = random.randrange(len(named))
            batches = [to_batch(part, ("x", "g"), (pa.int64(), pa.string())) for part in (named[:split], named[split:])]
            out = to_events(concat([tested.process(batch) for batch in batches], tested.schema))
            canon(out)
            for group in groups:
                own = [event for event in events if event[0] == "C" or event[-1] % 3 == group]
                twin = SnapshotTwin(all_results, variant.name)
                expected = [change for event in own for change in twin.process(event) if change[0] != "C"]
                found = [event for event in out if event[0] != "C" and event[-1][0] == f"g{group}"]
                assert [(*event[:-1], event[-1][1:]) for event in found] == expected, seed


def test_many_groups_come_and_go_in_constant_memory() -> None:
    tested = SnapshotOperator(to_batch([], ("x",)).schema, [*COUNT, parse_aggregate("m", "max(x)")], ["x"])
    sizes = []
    for turn in range(12):
        names = range(turn * 5_000, (turn + 1) * 5_000)
        tested.process(to_batch([*(I(turn * 10, turn * 10 + 5, name) for name in names), C(turn * 10 + 9)]))
        assert tested.entries == 0
        sizes.append(tested.bytes)
    assert sizes[-1] <= 2 * sizes[3]


def test_null_is_no_value_and_large_values_are_exact() -> None:
    events = [I(0, 10, 2**62), I(2, 8, -(2**63)), I(4, 6, None), C(20)]
    names = ("n", "v", "s", "p", "m", "d")
    texts = ("count(*)", "count(x)", "var_pop(x)", "avg(x)", "min(x)", "count_distinct(x)")
    aggregates = [parse_aggregate(name, text) for name, text in zip(names, texts, strict=True)]
    rows = [event for event in run(aggregates, events, Variant.PERFECT) if event[0] == "I"]
    spread = float((2**62 + 2**63) ** 2 / 4)
    pair = (2, 2, spread, (2**62 - 2**63) / 2, -(2**63), 2)
    assert rows == [
        I(0, 2, (1, 1, 0.0, float(2**62), 2**62, 1)),
        I(2, 4, pair),
        I(4, 6, (3, *pair[1:])),
        I(6, 8, pair),
        I(8, 10, (1, 1, 0.0, float(2**62), 2**62, 1)),
    ]


def test_a_group_without_values_has_null_results() -> None:
    texts = ("sum(x)", "avg(x)", "min(x)", "median(x)", "count_distinct(x)", "count(x)", "count(*)")
    aggregates = [parse_aggregate(text, text) for text in texts]
    (row,) = (event for event in run(aggregates, [I(0, 10, None), C(20)], Variant.PERFECT) if event[0] == "I")
    assert row == I(0, 10, (None, None, None, None, 0, 0, 1))


def test_floats_have_the_order_of_their_values_and_nan_is_the_greatest() -> None:
    values = [1.5, -2.25, float("nan"), -0.0, 0.0, float("-inf")]
    events = [*(I(0, 10, value) for value in values), C(20)]
    tested = SnapshotOperator(
        to_batch([], kinds=(pa.float64(),)).schema,
        [
            parse_aggregate("a", "min(x)"),
            parse_aggregate("d", "count_distinct(x)"),
            parse_aggregate("m", "quantile(x, 0.6)"),
        ],
    )
    out = to_events(tested.process(to_batch(events, kinds=(pa.float64(),))))
    assert out[0] == I(0, 10, (float("-inf"), 5, 0.0))


def test_texts_are_counted_and_grouped() -> None:
    kinds = (pa.string(), pa.string())
    tested = SnapshotOperator(
        to_batch([], ("host", "port"), kinds).schema, [parse_aggregate("ports", "count_distinct(port)")], ["host"]
    )
    events = [I(0, 10, ("a", "ssh")), I(2, 6, ("a", "http")), I(3, 5, ("b", None)), C(20)]
    assert [
        event for event in to_events(tested.process(to_batch(events, ("host", "port"), kinds))) if event[0] == "I"
    ] == [
        I(0, 2, ("a", 1)),
        I(2, 6, ("a", 2)),
        I(6, 10, ("a", 1)),
        I(3, 5, ("b", 0)),
    ]


@pytest.mark.parametrize(
    "events",
    [
        [I(5, 9, 1), I(7, 12, 1), C(10), C(11), R(5, 9, 5, 1)],
        [R(5, 9, 5, 1)],
        [I(5, 9, 1), I(20, 30, 1), R(5, 8, 6, 1)],
    ],
)
def test_changes_that_contradict_earlier_ones_are_refused(events: list) -> None:
    with pytest.raises(LifetimeError, match="expected a time after the last CTI"):
        run(COUNT, events, Variant.PERFECT)


@pytest.mark.parametrize(
    "text, message",
    [
        ("total(x)", "got the aggregate total, expected one of count"),
        ("sum(*)", "expected a column"),
        ("quantile(x)", "expected a number after the column"),
        ("quantile(x, 2)", "expected a quantile of 0 to 1"),
        ("largest(x, 0)", "expected 1 to 1000 values"),
        ("sum x", "expected a call such as"),
        ("sum(y)", "expected a column of x"),
    ],
)
def test_wrong_aggregates_are_refused(text: str, message: str) -> None:
    with pytest.raises(LifetimeError, match=message):
        operator([parse_aggregate("a", text)], Variant.PERFECT)


@pytest.mark.parametrize(
    "kind, text", [(pa.float64(), "variance(x)"), (pa.string(), "median(x)"), (pa.string(), "min(x)")]
)
def test_aggregates_of_wrong_types_are_refused(kind: pa.DataType, text: str) -> None:
    with pytest.raises(LifetimeError, match=f"of {kind} values, expected"):
        SnapshotOperator(to_batch([], kinds=(kind,)).schema, [parse_aggregate("a", text)])


def test_many_entries_and_values_need_no_room_in_advance() -> None:
    random = np.random.default_rng(7)
    starts = np.sort(random.integers(0, 5_000, 1_500))
    rows = [
        I(int(start), int(start) + 1 + int(random.integers(0, 2_000)), int(random.integers(0, 900))) for start in starts
    ]
    late = I(0, 30_000, 3)
    tested = operator([*COUNT, parse_aggregate("m", "median(x)")], Variant.PERFECT)
    out = to_events(concat([tested.process(to_batch([*rows[:1_000], late, *rows[1_000:], C(inf)]))], tested.schema))
    expected = denote(canon([*rows, late]), lambda values: [len(values)])
    assert {(vs, ve): n for vs, ve, (n, _) in canon(out)} == {(vs, ve): n for vs, ve, n in expected}
