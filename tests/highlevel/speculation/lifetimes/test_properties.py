"""The properties P1 to P8 of the papers for all operators of `Lifetimes` (digest §9), over many random streams at once.

    P1 the rows are those of the definition         P5 the order of arrival does not change the rows
    P2 the output is a valid stream                 P6 a row in two parts gives the same rows at every instant
    P3 rows in order, without corrections, remain   P7 after a CTI all rows that end by it are out
    P4 changes in order remain in order             P8 few rows are stored after a CTI

A stream is a key of its own, and all streams of a chunk share the CTIs. P2 is part of `canon`. Windows do not have P6:
they depend on how lifetimes are divided. Operators of two inputs have neither P3 nor P4, because their inputs are not
ordered with each other; snapshot operators have both for each group (`test_snapshot`). P3 to P8 of Align are in
`test_stream_operators`.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise, product
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from capture.lazy_dataclasses import dataclass
from highlevel.speculation.lifetimes.equi_join import LifetimeJoin
from highlevel.speculation.lifetimes.finalize import FinalizeById
from highlevel.speculation.lifetimes.model import concat
from highlevel.speculation.lifetimes.set_operations import RowCounts, SetOperation, UnionAll
from highlevel.speculation.lifetimes.streams import Lifetimes
from tests.conftest import Rounds
from tests.references.lifetimes import (
    C,
    I,
    canon,
    denote,
    inf,
    interleaved,
    is_ordered,
    is_perfect,
    merged,
    random_stream,
    sync,
    to_batch,
    to_events,
    to_time,
)

CHUNK = 250
"""Streams that are run at once."""

NAMES, KINDS = ("stream", "x"), (pa.int64(), pa.int64())
WITHIN, SHOWN = 5, 7

History = Counter
"""(vs, ve, row): how often the row is true."""


def ceiling(value: float, unit: int) -> float:
    return value if value == inf else -(-value // unit) * unit


def moved(change: Callable, history: History) -> History:
    """The rows with other lifetimes; without those that `change` gives None."""
    found: History = Counter()
    for (vs, ve, row), count in history.items():
        if (lifetime := change(vs, ve)) is not None:
            found[(*lifetime, row)] += count
    return found


def by_stream(history: History) -> dict:
    """The rows of each stream."""
    found: dict = {}
    for (vs, ve, (stream, x)), count in history.items():
        found.setdefault(stream, Counter())[vs, ve, x] += count
    return found


def counted(history: History, key: Callable = lambda x: x) -> History:
    """The number of rows of each group, and the sum of their x. `key`: the group of x."""
    found: History = Counter()
    for stream, rows in by_stream(history).items():
        groups: dict = {}
        for (vs, ve, x), count in rows.items():
            groups.setdefault(key(x), Counter())[vs, ve, x] += count
        for group, members in groups.items():
            results = denote(members, lambda values: [(len(values), sum(values))])
            found.update({(vs, ve, (stream, group, *result)): n for (vs, ve, result), n in results.items()})
    return found


def multisets(operation: Callable, *histories: History) -> History:
    """A set operation at each instant between neighbouring ends or starts."""
    found: History = Counter()
    members: dict = {}
    for side, history in enumerate(histories):
        for (vs, ve, row), count in history.items():
            members.setdefault(row, []).append((vs, ve, side, count))
    for row, lifetimes in members.items():
        points = sorted({time for vs, ve, *_ in lifetimes for time in (vs, ve)})
        for begin, end in pairwise(points):
            counts = [0, 0]
            for vs, ve, side, count in lifetimes:
                counts[side] += count if vs <= begin < ve else 0
            found[begin, end, row] += max(0, operation(*counts))
    return +found


def pairs(left: History, right: History, times: Callable) -> History:
    """The pairs of rows of one stream with equal x. `times` returns the lifetime of a pair, or None."""
    found: History = Counter()
    others = by_stream(right)
    for stream, rows in by_stream(left).items():
        for ((vs, ve, x), one), ((ws, we, y), other) in product(rows.items(), others.get(stream, Counter()).items()):
            if x == y and (lifetime := times((vs, ve), (ws, we))) is not None:
                found[(*lifetime, (stream, x))] += one * other
    return found


def overlap(one: tuple, other: tuple) -> tuple | None:
    begin, end = max(one[0], other[0]), min(one[1], other[1])
    return (begin, end) if begin < end else None


def at_the_later(one: tuple, other: tuple) -> tuple | None:
    return (other[0], other[0] + 1) if one[0] < other[0] <= one[0] + WITHIN else None


def without_reply(left: History, right: History) -> History:
    found: History = Counter()
    others = by_stream(right)
    for (vs, _, (stream, x)), count in left.items():
        replies = [ws for ws, _, y in others.get(stream, Counter()) if x == y and ws >= vs]
        end = min([vs + WITHIN + SHOWN, *replies])
        if end > vs + WITHIN:
            found[vs + WITHIN, end, (stream, x)] += count
    return found


def without_ones(history: History) -> History:
    """The rows whose x is not 1."""
    return Counter({(vs, ve, (stream, x)): n for (vs, ve, (stream, x)), n in history.items() if x != 1})


def renamed_rows(history: History) -> History:
    """The rows with the stream twice, without x. Rows that differ in x only become equal."""
    found: History = Counter()
    for (vs, ve, (stream, _)), count in history.items():
        found[vs, ve, (stream, stream)] += count
    return found


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator: how it is made, its definition, and the properties that it has."""

    make: Callable
    rows: Callable
    inputs: int = 1
    is_exact: bool = True
    """Whether lifetimes are those of the definition (canonical), and not only the rows of each instant."""
    is_ordered: bool = False
    is_view: bool = True
    is_immediate: bool = False


window = partial(Operator, is_ordered=True, is_view=False, is_immediate=True)
SUMS = {"n": "count(*)", "total": "sum(x)"}
OPERATORS = {
    **{
        f"group-by, {variant}": Operator(
            lambda rows, variant=variant: rows.aggregate(["stream", "x"], variant=variant, **SUMS), counted
        )
        for variant in ("perfect", "ordered", "earliest")
    },
    "group-by, divided": Operator(
        lambda rows: rows.aggregate(["stream", "x"], exact=False, **SUMS), counted, is_exact=False
    ),
    "all rows of a stream": Operator(
        lambda rows: rows.aggregate(["stream"], **SUMS),
        lambda history: moved_rows(counted(history, lambda _: 0)),
    ),
    "select": Operator(
        lambda rows: rows.where(pc.field("x") != 1),
        without_ones,
        is_ordered=True,
        is_immediate=True,
    ),
    "project": Operator(
        lambda rows: rows.select("stream", renamed="stream"),
        renamed_rows,
        is_ordered=True,
        is_immediate=True,
    ),
    "last": window(lambda rows: rows.last(5), partial(moved, lambda vs, _: (vs, vs + 5))),
    "tumbling": window(lambda rows: rows.tumbling(4), partial(moved, lambda vs, _: (vs // 4 * 4, vs // 4 * 4 + 4))),
    "hopping": window(
        lambda rows: rows.hopping(6, 4), partial(moved, lambda vs, _: (ceiling(vs, 4), ceiling(vs, 4) + 6))
    ),
    "began": window(lambda rows: rows.began(), partial(moved, lambda vs, _: (vs, inf))),
    "ended": window(
        lambda rows: rows.ended(), partial(moved, lambda _, ve: None if ve == inf else (ve, inf)), is_ordered=False
    ),
    "widened": window(
        lambda rows: rows.widened(4), partial(moved, lambda vs, ve: (vs // 4 * 4, ceiling(ve, 4))), is_ordered=False
    ),
    "distinct": Operator(lambda rows: rows.distinct(), partial(multisets, lambda one, _: min(one, 1)), is_exact=False),
    "union": Operator(lambda rows, others: rows.union(others), lambda left, right: left + right, 2, is_immediate=True),
    "except": Operator(
        lambda rows, others: rows.minus(others), partial(multisets, lambda one, other: one - other), 2, is_exact=False
    ),
    "intersect": Operator(lambda rows, others: rows.intersect(others), partial(multisets, min), 2, is_exact=False),
    "join": Operator(
        lambda rows, others: rows.join(others, ["stream", "x"]),
        lambda *sides: pairs(*sides, overlap),
        2,
        is_immediate=True,
    ),
    "sequence": Operator(
        lambda rows, others: rows.followed_by(others, ["stream", "x"], WITHIN),
        lambda *sides: pairs(*sides, at_the_later),
        2,
        is_view=False,
        is_immediate=True,
    ),
    "absence": Operator(
        lambda rows, others: rows.not_followed_by(others, ["stream", "x"], WITHIN, SHOWN),
        without_reply,
        2,
        is_exact=False,
        is_view=False,
    ),
}


def moved_rows(history: History) -> History:
    """The rows without the constant group."""
    return Counter({(vs, ve, (stream, *result)): n for (vs, ve, (stream, _, *result)), n in history.items()})


def source(random: Random, events: list) -> Lifetimes:
    """Changes in batches of any size, the same in each run."""
    batches, begin = [], 0
    while begin < len(events):
        size = random.choice([1, 7, 60, 400])
        batches.append(to_batch(events[begin : begin + size], NAMES, KINDS))
        begin += size
    return Lifetimes(to_batch([], NAMES, KINDS).schema, lambda _: iter(batches))


def output(random: Random, operator: Operator, inputs: list[list]) -> list:
    """The changes that an operator returns for events of its inputs."""
    result = operator.make(*(source(random, events) for events in inputs))
    return to_events(concat(list(result._run()), result._schema))


def edges(history: History, until: dict | None = None) -> Counter:
    """The instants at which rows begin or end to be true. `until`: for each row the instants before a time."""
    found: Counter = Counter()
    for (vs, ve, row), count in history.items():
        last = inf if until is None else until.get(row, -inf)
        if vs < last:
            found[vs, row] += count
        if ve < last:
            found[ve, row] -= count
    return Counter({edge: count for edge, count in found.items() if count})


def chunks(rounds: Rounds, soak: bool, name: str) -> Iterator[tuple[Random, list[int]]]:
    """The seeds of 10,000 streams, or of 100,000, in chunks; `make test` draws 2,000."""
    for first in rounds(100_000 if soak else 10_000)[::CHUNK]:
        yield Random(f"{name} {first}"), [*range(first, first + CHUNK)]


def streams_of(seeds: list[int], name: str, inputs: int, **options) -> list[list[list]]:
    """For each input the streams of the seeds."""
    return [
        [random_stream(Random(f"{name} {side} {seed}"), payloads=3, **options) for seed in seeds]
        for side in range(inputs)
    ]


def without_ctis(random: Random, streams: list[list]) -> list:
    """Many streams in any order of arrival, with one CTI at the end."""
    keyed = [
        [(*event[:-1], (number, event[-1])) for event in stream if event[0] != "C"]
        for number, stream in enumerate(streams)
    ]
    return [*interleaved(random, keyed), C(inf)]


def closed_at(t: int, events: list) -> list:
    """The events up to the last one below t."""
    return events[: 1 + max((place for place, event in enumerate(events) if sync(event) < t), default=-1)]


every_operator = pytest.mark.parametrize("name", OPERATORS)


@every_operator
def test_rows_are_those_of_the_definition_and_changes_are_valid(rounds: Rounds, soak: bool, name: str) -> None:
    operator = OPERATORS[name]
    for random, seeds in chunks(rounds, soak, "definition"):
        inputs = [merged(random, streams) for streams in streams_of(seeds, "definition", operator.inputs)]
        found, expected = canon(output(random, operator, inputs)), operator.rows(*map(canon, inputs))
        if operator.is_exact:
            assert found == expected, f"of the streams {seeds[0]} to {seeds[-1]}"
        else:
            assert edges(found) == edges(expected), f"of the streams {seeds[0]} to {seeds[-1]}"


@every_operator
def test_the_order_of_arrival_does_not_change_the_rows(rounds: Rounds, soak: bool, name: str) -> None:
    operator = OPERATORS[name]
    for random, seeds in chunks(rounds, soak, "arrival"):
        inputs = streams_of(seeds, "arrival", operator.inputs)
        found = [
            canon(output(random, operator, [without_ctis(random, reordered(random, each)) for each in inputs]))
            for _ in range(2)
        ]
        assert (found[0] == found[1]) if operator.is_exact else (edges(found[0]) == edges(found[1])), seeds[0]


def reordered(random: Random, streams: list[list]) -> list[list]:
    """The streams with their chains in another order."""
    found = []
    for stream in streams:
        chains: dict = {}
        for event in stream:
            if event[0] != "C":
                chains.setdefault((event[1], event[-1]), []).append(event)
        found.append(interleaved(random, list(chains.values())))
    return found


@pytest.mark.parametrize("name", [name for name, operator in OPERATORS.items() if operator.is_view])
def test_a_row_in_two_parts_gives_the_same_rows_at_every_instant(rounds: Rounds, soak: bool, name: str) -> None:
    operator = OPERATORS[name]
    for random, seeds in chunks(rounds, soak, "parts"):
        inputs = streams_of(seeds, "parts", operator.inputs, kind="perfect")
        divided = [[divide(random, stream) for stream in streams] for streams in inputs]
        whole, parts = (
            canon(output(random, operator, [without_ctis(random, each) for each in of])) for of in (inputs, divided)
        )
        assert edges(whole) == edges(parts), f"of the streams {seeds[0]} to {seeds[-1]}"


def divide(random: Random, stream: list) -> list:
    """Each row as two rows that meet."""
    divided = []
    for event in stream:
        if event[0] == "I" and event[2] - event[1] > 1:
            middle = random.randint(event[1] + 1, int(min(event[2] - 1, event[1] + 30)))
            divided += [I(event[1], middle, event[3]), I(middle, event[2], event[3])]
        elif event[0] == "I":
            divided.append(event)
    return divided


@every_operator
def test_after_a_cti_the_rows_before_it_are_returned(rounds: Rounds, soak: bool, name: str) -> None:
    """Operators without snapshots return all rows at once. Others return the rows that end by the CTI."""
    operator, compared = OPERATORS[name], 0
    for random, seeds in chunks(rounds, soak, "after a CTI"):
        t = random.randrange(1, 25)
        inputs = [
            [*closed_at(t, without_ctis(random, streams)), C(t)]
            for streams in streams_of(seeds, "progress", operator.inputs)
        ]
        expected = operator.rows(*(canon(events[:-1]) for events in inputs))
        found = canon(output(random, operator, inputs))
        if operator.is_immediate:
            assert found == expected, f"CTI {t} of the streams {seeds[0]} to {seeds[-1]}"
            compared += len(expected)
            continue
        until = dict.fromkeys((row for *_, row in expected), inf)
        for vs, ve, row in expected:
            if ve > t:
                until[row] = min(until[row], vs)
        assert edges(found, until) == edges(expected, until), f"CTI {t} of the streams {seeds[0]} to {seeds[-1]}"
        compared += len(edges(expected, until))
    assert compared


@pytest.mark.parametrize("name", [name for name, operator in OPERATORS.items() if operator.is_ordered])
def test_rows_and_changes_in_order_remain_in_order(rounds: Rounds, soak: bool, name: str) -> None:
    operator = OPERATORS[name]
    for random, seeds in chunks(rounds, soak, "order"):
        for kind, holds in (("perfect", is_perfect), ("ordered", is_ordered)):
            (streams,) = streams_of(seeds, "order", 1, kind=kind)
            events = sorted(without_ctis(random, streams), key=sync)
            assert holds(output(random, operator, [events])), f"of the streams {seeds[0]} to {seeds[-1]}"


SCHEMA = to_batch([], NAMES, KINDS).schema


@pytest.mark.parametrize("name", ["except", "intersect", "distinct", "join"])
def test_few_rows_are_stored_after_a_cti(rounds: Rounds, soak: bool, name: str) -> None:
    """A set operation stores the later endpoints of each row, a join the rows that end later. A union stores nothing.

    A join removes rows when at least half of its memory is used.
    """
    for random, seeds in chunks(rounds, soak, "purge"):
        t = random.randrange(1, 25)
        inputs = [closed_at(t, without_ctis(random, streams)) for streams in streams_of(seeds, "purge", 2)]
        histories = [canon(events) for events in inputs]
        if name == "join":
            join = LifetimeJoin(SCHEMA, SCHEMA, [(column, column) for column in NAMES])
            for port, events in [*enumerate(inputs), (0, [C(t)]), (1, [C(t)])]:
                join.process(port, to_batch(events, NAMES, KINDS))
            later = sum(n for history in histories for (_, ve, _), n in history.items() if ve > t)
            assert join.stored <= max(2 * later, 4_096), seeds[0]
            for port in range(2):
                join.process(port, to_batch([C(inf)], NAMES, KINDS))
            assert join.stored == 0, seeds[0]
            continue
        united, counts = UnionAll(SCHEMA, SCHEMA), RowCounts(SCHEMA, SetOperation(name))
        for port, events in [*enumerate(inputs), (0, [C(t)]), (1, [C(t)])]:
            counts.process(port, united.process(port, to_batch(events, NAMES, KINDS)))
        endpoints = {(row, time) for history in histories for vs, ve, row in history for time in (vs, ve) if time >= t}
        open_rows = {row for history in histories for _, ve, row in history if ve > t}
        assert counts._counts.entries <= len(endpoints) + len(open_rows), seeds[0]


def test_finalize_stores_the_rows_that_can_still_change(rounds: Rounds, soak: bool) -> None:
    """P7 and P8: each change is passed on at once, and after a CTI only rows that end later are stored."""
    for seed in rounds(100_000 if soak else 10_000):
        random = Random(f"forgotten {seed}")
        finalize = FinalizeById(random.randrange(12))
        ends: dict[int, float] = {}
        for number, event in enumerate(event for event in random_stream(random, "perfect") if event[0] == "I"):
            changes = [*finalize.insert(number, event[1], to_time(event[2]), event[3])]
            if changes:
                ends[number] = event[2]
            assert len(changes) + finalize.late == number + 1 - (len(ends) - len(changes)), seed
            list(finalize.advance())
            assert finalize.stored == sum(end >= finalize.ctis.newest_cti for end in ends.values()), seed
