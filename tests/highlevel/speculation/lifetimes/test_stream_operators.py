"""AlterLifetime, Align, Finalize and the join over random streams: the definition, and valid changes."""

from collections import Counter
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from highlevel.speculation.lifetimes import equi_join
from highlevel.speculation.lifetimes.align import Align, Release
from highlevel.speculation.lifetimes.alter_lifetime import AlterLifetime, NewLifetime, Window
from highlevel.speculation.lifetimes.equi_join import LifetimeJoin
from highlevel.speculation.lifetimes.finalize import FinalizeById, FinalizeByValue
from highlevel.speculation.lifetimes.kernels.endpoints import CTI, INSERT
from highlevel.speculation.lifetimes.model import LifetimeError, concat
from highlevel.speculation.lifetimes.sources import LifetimeColumns
from highlevel.speculation.lifetimes.streams import lifetimes_of
from lowlevel.punctuation import END
from tests.conftest import Rounds
from tests.references.lifetimes import (
    C,
    I,
    R,
    canon,
    from_time,
    inf,
    is_ordered,
    is_perfect,
    merged,
    random_stream,
    to_batch,
    to_events,
    to_time,
)

SCHEMA = to_batch([]).schema


def ceiling(value: float, unit: int) -> float:
    return value if value == inf else -(-value // unit) * unit


WINDOWS = {
    NewLifetime(Window.LAST, 5): lambda vs, ve: (vs, vs + 5),
    NewLifetime(Window.TUMBLING, 4, 4): lambda vs, ve: (vs // 4 * 4, vs // 4 * 4 + 4),
    NewLifetime(Window.HOPPING, 6, 4): lambda vs, ve: (ceiling(vs, 4), ceiling(vs, 4) + 6),
    NewLifetime(Window.INSERTS): lambda vs, ve: (vs, inf),
    NewLifetime(Window.WIDENED, unit=4): lambda vs, ve: (vs // 4 * 4, ceiling(ve, 4)),
}


@pytest.mark.parametrize("new", WINDOWS, ids=lambda new: new.window.value)
def test_new_lifetimes_are_those_of_the_definition(rounds: Rounds, soak: bool, new: NewLifetime) -> None:
    for seed in rounds(100_000 if soak else 10_000):
        random = Random(f"windows {seed}")
        events = random_stream(random)
        expected: Counter = Counter()
        for (vs, ve, p), count in canon(events).items():
            expected[(*WINDOWS[new](vs, ve), p)] += count
        operator = AlterLifetime(new)
        place = random.randrange(len(events))
        parts = [operator.process(to_batch(part)) for part in (events[:place], events[place:])]
        out = to_events(concat(parts, SCHEMA))
        assert canon(out) == expected, seed
        assert out[-1] == C(inf)


def test_deletes_are_the_rows_that_ended(rounds: Rounds, soak: bool) -> None:
    for seed in rounds(100_000 if soak else 10_000):
        events = random_stream(Random(f"deletes {seed}"))
        expected: Counter = Counter()
        for (_, ve, p), count in canon(events).items():
            if ve < inf:
                expected[ve, inf, p] += count
        out = to_events(AlterLifetime(NewLifetime(Window.DELETES)).process(to_batch(events)))
        assert canon(out) == expected, seed


def test_the_windows_of_the_digest() -> None:
    def changed(new: NewLifetime, events: list) -> list:
        return to_events(AlterLifetime(new).process(to_batch(events)))

    last = NewLifetime(Window.LAST, 5)
    assert changed(last, [I(5, 20, 1), R(5, 20, 9, 1), C(7), R(5, 9, 7, 1)]) == [I(5, 10, 1), C(7)]
    assert changed(last, [I(8, 20, 1), C(7), R(8, 20, 8, 1)]) == [I(8, 13, 1), C(7), R(8, 13, 8, 1)]
    assert changed(NewLifetime(Window.TUMBLING, 4, 4), [I(5, 6, 1), C(7), C(9)]) == [I(4, 8, 1), C(4), C(8)]
    assert changed(NewLifetime(Window.INSERTS), [I(5, 9, 1), R(5, 9, 5, 1)]) == [I(5, inf, 1), R(5, inf, 5, 1)]
    assert changed(NewLifetime(Window.DELETES), [I(5, 9, 1), R(5, 9, 7, 1), C(7)]) == [
        *(I(9, inf, 1), R(9, inf, 9, 1), I(7, inf, 1), C(7)),
    ]


def test_a_window_of_no_length_is_refused() -> None:
    with pytest.raises(LifetimeError, match="got a length of 0 ns"):
        NewLifetime(Window.LAST)
    with pytest.raises(LifetimeError, match="got a unit of 0 ns"):
        NewLifetime(Window.WIDENED, unit=0)


@pytest.mark.parametrize("release", Release)
@pytest.mark.parametrize("wait", [0, 3, 8, None])
def test_waiting_keeps_the_canonical_history(rounds: Rounds, soak: bool, wait: int | None, release: Release) -> None:
    for seed in rounds(10_000 if soak else 60):
        random = Random(f"align {seed}")
        events = random_stream(random, "any", payloads=2)
        align = Align(SCHEMA, wait, release)
        out: list = []
        while events:
            size = random.choice([1, 1, 3, 20])
            out += to_events(align.process(to_batch(events[:size])))
            del events[:size]
        expected = canon(random_stream(Random(f"align {seed}"), "any", payloads=2))
        assert canon(out) == expected, seed
        assert align.stored == 0
        if wait is None and release is Release.SYNC:
            assert is_ordered(out), seed
        if wait is None and release is Release.PERFECT:
            assert is_perfect(out), seed


@pytest.mark.parametrize("release", Release)
@pytest.mark.parametrize("wait", [0, 3, 8, None])
def test_many_streams_wait_together(rounds: Rounds, soak: bool, wait: int | None, release: Release) -> None:
    kinds = (pa.int64(), pa.int64())
    schema = to_batch([], ("stream", "x"), kinds).schema
    for first in rounds(100_000 if soak else 10_000)[::100]:
        random = Random(f"align together {first}")
        streams = [random_stream(Random(f"align together {seed}"), payloads=2) for seed in range(first, first + 100)]
        events = merged(random, streams)
        align = Align(schema, wait, release)
        out: list = []
        for start in range(0, len(events), 150):
            out += to_events(align.process(to_batch(events[start : start + 150], ("stream", "x"), kinds)))
        assert canon(out) == canon(events), first
        assert align.stored == 0
        if wait is None and release is Release.SYNC:
            assert is_ordered(out), first
        if wait is None and release is Release.PERFECT:
            assert is_perfect(out), first


@pytest.mark.parametrize("release", Release)
def test_changes_wait_by_a_clock_from_their_arrival(rounds: Rounds, soak: bool, release: Release) -> None:
    """No change waits longer than from the first waiting change of its row, also if no further change arrives."""
    merged_changes = 0
    for seed in rounds(10_000 if soak else 200):
        random = Random(f"clock {seed}")
        events = random_stream(random, "any", payloads=2)
        expected, received = canon(events), len(events)
        now, last_arrival = 0, 0
        align = Align(SCHEMA, 5, release, lambda: now)  # noqa: B023  # called in this round only
        out: list = []
        while events:
            now += random.choice([0, 1, 2, 7])
            size = random.choice([0, 1, 1, 3, 20])
            last_arrival = now if size else last_arrival
            out += to_events(align.process(to_batch(events[:size])))
            del events[:size]
            assert not align.stored or now - last_arrival < 5, seed
        assert canon(out) == expected, seed
        assert align.stored == 0
        merged_changes += received - len(out)
    assert merged_changes > 0


def test_a_change_is_returned_when_the_clock_has_advanced_by_the_wait() -> None:
    now = 100
    align = Align(SCHEMA, 5, clock=lambda: now)
    tick = to_batch([])
    assert to_events(align.process(to_batch([I(3, 9, 1)]))) == []
    now = 103
    assert to_events(align.process(to_batch([I(1, 4, 2), R(3, 9, 6, 1)]))) == []
    now = 104
    assert to_events(align.process(tick)) == []
    now = 105
    assert to_events(align.process(tick)) == [I(3, 6, 1)], "its retraction has not waited, but belongs to the row"
    now = 107
    assert to_events(align.process(tick)) == []
    now = 108
    assert to_events(align.process(tick)) == [I(1, 4, 2)]


def changes_of(out: list) -> list:
    changes = []
    for kind, vs, ve, vnew, row in out:
        end = from_time(ve)
        changes.append(
            C(from_time(vs)) if kind == CTI else I(vs, end, row) if kind == INSERT else R(vs, end, vnew, row)
        )
    return changes


@pytest.mark.parametrize("by_id", [False, True])
def test_finalize_repairs_any_order(rounds: Rounds, soak: bool, by_id: bool) -> None:
    for seed in rounds(100_000 if soak else 10_000):
        random = Random(f"finalize {seed}")
        events = [event for event in random_stream(random, closed=False, payloads=3) if event[0] != "C"]
        chains: dict = {}
        numbered = []
        for number, event in enumerate(events):
            if event[0] == "I":
                identifier = chains[event[1:]] = [*chains.get(event[1:], []), number]
                numbered.append((event, number))
            else:
                _, vs, ve, vnew, p = event
                identifier = chains[vs, ve, p].pop()
                chains[vs, vnew, p] = [*chains.get((vs, vnew, p), []), identifier]
                numbered.append((event, identifier))
        if not by_id and len({event[1:2] + event[-1:] for event in events if event[0] == "I"}) < sum(
            event[0] == "I" for event in events
        ):
            continue  # equal rows in any order are ambiguous by value
        random.shuffle(numbered)
        finalize = FinalizeById(None) if by_id else FinalizeByValue(None)
        out: list = []
        for event, identifier in numbered:
            times = [to_time(time) for time in event[1:-1]]
            if by_id and event[0] == "I":
                out += finalize.insert(identifier, *times, event[-1])
            elif by_id:
                out += finalize.retract(identifier, times[2])
            elif event[0] == "I":
                out += finalize.insert(*times, event[-1])
            else:
                out += finalize.retract(*times, event[-1])
        out += finalize.advance(ended=True)
        assert out[-1][:2] == (CTI, END)
        assert canon(changes_of(out)) == canon(events), seed


def test_a_newer_version_replaces_a_row_and_keeps_a_known_end() -> None:
    finalize = FinalizeById(100)
    out = [*finalize.insert("f", 10, END, 1), *finalize.insert("f", 10, 30, 2), *finalize.insert("f", 10, END, 3)]
    out += finalize.insert("f", 10, 25, 3)
    assert changes_of(out) == [
        *(I(10, inf, 1), R(10, inf, 10, 1), I(10, 30, 2), R(10, 30, 10, 2), I(10, 30, 3), R(10, 30, 25, 3)),
    ]
    assert changes_of([*finalize.insert("g", 200, END, 1), *finalize.advance()]) == [I(200, inf, 1), C(100)]
    assert list(finalize.insert("f", 10, 20, 4)) == []
    assert finalize.late == 1
    assert finalize.stored == 1


@pytest.mark.parametrize("size, count", [(1, 150), (4, 600), (40, 1_300)])
def test_a_join_has_the_pairs_of_nested_loops(rounds: Rounds, soak: bool, size: int, count: int) -> None:
    kinds = (pa.int64(), pa.string())
    for seed in rounds(50 * count if soak else count):
        random = Random(f"join {seed}")
        sides = [
            [event if event[0] == "C" else (*event[:-1], (event[-1] % 3, f"{side}{event[-1]}")) for event in stream]
            for side, stream in enumerate(random_stream(random, payloads=5) for _ in range(2))
        ]
        join = LifetimeJoin(
            to_batch([], ("k", "a"), kinds).schema, to_batch([], ("k", "b"), kinds).schema, [("k", "k")]
        )
        expected: Counter = Counter()
        left, right = (canon(events) for events in sides)
        for (vs, ve, (key, a)), copies in left.items():
            for (ws, we, (other, b)), times in right.items():
                if key == other and max(vs, ws) < min(ve, we):
                    expected[max(vs, ws), min(ve, we), (key, a, b)] += copies * times
        out: list = []
        remaining = [list(events) for events in sides]
        while any(remaining):
            side = random.choice([side for side in range(2) if remaining[side]])
            out += to_events(join.process(side, to_batch(remaining[side][:size], ("k", "ab"[side]), kinds)))
            del remaining[side][:size]
        assert canon(out) == expected, seed
        assert out[-1] == C(inf)
        assert join.stored == 0


def test_the_kernels_of_a_join_stay_inside_their_arrays(rounds: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels as plain Python, with numpy's bound checks."""
    for name in ("join_changes", "remove_ended_rows"):
        monkeypatch.setattr(equi_join, name, getattr(equi_join, name).function)
    for seed in rounds(60):
        random = Random(f"plain join {seed}")
        sides = [random_stream(random, payloads=3) for _ in range(2)]
        join = LifetimeJoin(SCHEMA, SCHEMA, [("x", "x")])
        parts = [join.process(side, to_batch(events)) for side, events in enumerate(sides)]
        expected: Counter = Counter()
        for (vs, ve, x), count in canon(sides[0]).items():
            for (ws, we, y), times in canon(sides[1]).items():
                if x == y and max(vs, ws) < min(ve, we):
                    expected[max(vs, ws), min(ve, we), x] += count * times
        assert canon(to_events(concat(parts, join.schema))) == expected, seed
        assert join.stored == 0


class Input:
    """Batches of rows that record whether they were closed."""

    def __init__(self) -> None:
        self.closed = False

    def __iter__(self):
        return iter([pa.record_batch({"s": [number], "e": [number + 5], "x": [1]}) for number in range(0, 50, 10)])

    def close(self) -> None:
        self.closed = True


def test_inputs_are_closed_if_the_reader_stops() -> None:
    schema = pa.schema([("s", pa.int64()), ("e", pa.int64()), ("x", pa.int64())])
    opened: list[Input] = []

    def start() -> Input:
        opened.append(Input())
        return opened[-1]

    stream = lifetimes_of(schema, start, LifetimeColumns("s", "e"))
    joined = stream.join(stream.select("x"), on=["x"]).where(pc.field("x") == 1)
    assert opened == []
    changes = joined.changes()
    next(changes)
    assert len(opened) == 2
    changes.close()
    assert [each.closed for each in opened] == [True, True]
    assert joined.table().num_rows == 5
    assert [each.closed for each in opened] == [True] * 4


def test_a_join_of_many_rows_grows_and_shrinks() -> None:
    join = LifetimeJoin(to_batch([], ("k",)).schema, to_batch([], ("k",)).schema, [("k", "k")])
    pairs, sizes = 0, []
    for turn in range(12):
        rows = [I(turn * 100, turn * 100 + 50, turn * 3_000 + number) for number in range(3_000)]
        for side in range(2):
            out = to_events(join.process(side, to_batch([*rows, C(turn * 100 + 60)], ("k",))))
            pairs += sum(change[0] == "I" for change in out)
        sizes.append(join.bytes)
    assert pairs == 12 * 3_000
    assert sizes[-1] <= 2 * sizes[3]


def test_a_key_with_many_rows_gives_all_pairs() -> None:
    kinds = (pa.int64(), pa.int64())
    join = LifetimeJoin(to_batch([], ("k", "a"), kinds).schema, to_batch([], ("k", "b"), kinds).schema, [("k", "k")])
    join.process(0, to_batch([I(0, 10, (1, number)) for number in range(300)], ("k", "a"), kinds))
    out = to_events(join.process(1, to_batch([I(5, 20, (1, number)) for number in range(300)], ("k", "b"), kinds)))
    assert len(set(out)) == 90_000


def test_null_keys_have_no_pairs() -> None:
    schema = to_batch([], ("k",)).schema
    join = LifetimeJoin(schema, schema, [("k", "k")])
    events = [I(0, 10, None), I(0, 10, 7)]
    join.process(0, to_batch(events, ("k",)))
    assert to_events(join.process(1, to_batch(events, ("k",)))) == [I(0, 10, 7)]


@pytest.mark.parametrize(
    "left, right, on, message",
    [
        (("k",), ("k",), [], "got no columns to join on"),
        (("k",), ("k",), [("j", "k")], "got the column 'j', expected one of k"),
        (("k", "a"), ("k", "a"), [("k", "k")], "got the column 'a' on both sides"),
    ],
)
def test_wrong_joins_are_refused(left, right, on, message) -> None:
    kinds = (pa.int64(), pa.int64())
    schemas = [to_batch([], names, kinds[: len(names)]).schema for names in (left, right)]
    with pytest.raises(LifetimeError, match=message):
        LifetimeJoin(*schemas, on)


def test_keys_of_other_types_are_refused() -> None:
    with pytest.raises(LifetimeError, match="got k of type int64 and k of type string, expected equal types"):
        LifetimeJoin(to_batch([], ("k",)).schema, to_batch([], ("k",), (pa.string(),)).schema, [("k", "k")])
