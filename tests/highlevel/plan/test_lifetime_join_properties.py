"""The properties of the papers for joins of rows with lifetimes (digest §9), over many random streams at once.

P1 the results are those of the definition; P2 no row is withdrawn that was not returned, and nothing changes below a
watermark; P5 the order of arrival does not change the results; P6 a row in two parts gives the same rows at every
instant; P7 results below the returned watermark are complete. Operators of two inputs have neither P3 nor P4, because
their inputs are not ordered with each other. But if nothing is provisional, nothing is corrected. P8, few rows are
stored, is in `tests/highlevel/speculation/lifetimes/test_match_parts.py`.

A stream is a key. All runs are also stopped and restored once.
"""

from collections import Counter
from random import Random

import pyarrow as pa
import pytest

from highlevel.joins.spec import JoinKind, Port
from highlevel.plan.lifetime_nodes import ChangingOverlapJoin, JoinedSide, Lifetime, OverlapJoin
from highlevel.plan.nodes import Node
from highlevel.plan.operators.operator import bounds_of
from highlevel.plan.pipeline import make_operator
from highlevel.speculation.consistency import Consistency
from lowlevel.expressions.tree import Binary, Column
from lowlevel.expressions.types import Op, Type
from lowlevel.punctuation import BEGINNING, END, Punctuation
from tests.conftest import Rounds
from tests.references.change_references import CHANGES
from tests.references.graph_streams import item
from tests.references.operator_contract import through_ipc
from tests.references.plan_references import GROUP, ROWS, schema_of

CHUNK = 500
"""Streams, that is keys, which are run at once."""

TIMES = 30

WAITS = ["final", 0, 6, None]
variants = pytest.mark.parametrize("wait", WAITS)
kinds = pytest.mark.parametrize("kind", JoinKind)

Batch = list[tuple]
"""Rows `ts, other, g, n`: true from ts until `other`. Of changes also a weight, and whether they are final."""


def node_of(kind: JoinKind, wait: int | str | None, time: str) -> Node:
    """A join of rows of a stream. Rows match if the n of the left one is smaller."""
    sides = tuple(JoinedSide(Lifetime("ts", "other"), (("g", f"{name}.g"), ("n", f"{name}.n"))) for name in "lr")
    smaller = Binary(Op.LT, Column("l.n", Type.INT), Column("r.n", Type.INT))
    parameters = (sides, ((GROUP, GROUP),), time, kind, smaller)
    if isinstance(wait, str):
        return OverlapJoin(ROWS, ROWS, *parameters)
    return ChangingOverlapJoin(CHANGES, CHANGES, *parameters, Consistency(wait))


def made_stream(random: Random, key: str) -> list[list[tuple[float, tuple]]]:
    """For each input the rows with the times of their arrival. Some rows are withdrawn later."""
    sides = []
    for _ in Port:
        arrivals = []
        for _ in range(random.randint(0, 3)):
            ts = random.randrange(TIMES)
            row = (ts, ts + random.choice([1, 3, random.randint(1, 20)]), key, random.randrange(4))
            arrival = ts + random.random() * 9
            for weight in random.choice([[1], [1], [1, -1], [1, -1, 1], [2, -1]]):
                arrivals.append((arrival, (*row, weight, False)))
                arrival += random.random() * 9
        sides.append(arrivals)
    return sides


def inputs_of(random: Random, seeds: range, wait: int | str | None) -> list[list[tuple[float, tuple]]]:
    """The arrivals of both inputs. Without changes rows are not withdrawn."""
    sides: list[list[tuple[float, tuple]]] = [[], []]
    for seed in seeds:
        for side, arrivals in zip(sides, made_stream(Random(f"lifetimes {seed}"), f"stream {seed}"), strict=True):
            side += arrivals
    if wait == "final":
        sides = [[(arrival, row[:4]) for arrival, row in side if row[4] == 1] for side in sides]
    return [sorted(side, key=lambda each: each[0]) for side in sides]


def remaining(rows: Batch) -> dict[str, Counter]:
    """How often each row `ts, other, n` of a stream is left."""
    found: dict[str, Counter] = {}
    for ts, other, key, n, *change in rows:
        found.setdefault(key, Counter())[ts, other, n] += change[0] if change else 1
    return {key: +rows for key, rows in found.items()}


def definition(kind: JoinKind, inputs: list[Batch]) -> Counter:
    """Compare each row with each row of the other input, and collect the instants of a row with or without a match."""
    found: Counter = Counter()
    sides = [remaining(rows) for rows in inputs]
    for key in {*sides[0], *sides[1]}:
        of_sides = [side.get(key, Counter()) for side in sides]
        matches: tuple[dict, dict] = ({}, {})
        for one, count in of_sides[0].items():
            for other, others in of_sides[1].items():
                start, end = max(one[0], other[0]), min(one[1], other[1])
                if one[2] < other[2] and start < end:
                    matches[0].setdefault(one, set()).update(range(start, end))
                    matches[1].setdefault(other, set()).update(range(start, end))
                    if not kind.is_left_only:
                        found[start, end, key, one[2], key, other[2]] += count * others
        for port in Port:
            if not kind.keeps(port) and not (kind is JoinKind.SEMI and port is Port.LEFT):
                continue
            for row, count in of_sides[port].items():
                covered = matches[port].get(row, set())
                part = {at for at in range(row[0], row[1]) if (at in covered) == (kind is JoinKind.SEMI)}
                starts = sorted(at for at in part if at - 1 not in part)
                ends = sorted(at + 1 for at in part if at + 1 not in part)
                nothing = () if kind.is_left_only else (None, None)
                values = (key, row[2], *nothing) if port is Port.LEFT else (*nothing, key, row[2])
                for bounds in zip(starts, ends, strict=True):
                    found[(*bounds, *values)] += count
    return found


def run(random: Random, node: Node, inputs: list[list[tuple[float, tuple]]]) -> list:
    """Process both inputs in batches with watermarks, stop and restore once. Return the items."""
    operator = make_operator(node)
    items: list = []
    for port in Port:
        items += operator.punctuate(port, Punctuation("link", 0))
    steps: list[tuple[Port, Batch, int]] = []
    left = [list(arrivals) for arrivals in inputs]
    while any(left):
        port = min((port for port in Port if left[port]), key=lambda port: left[port][0][0])
        size = random.choice([1, 30, 200, 400])
        batch, left[port] = left[port][:size], left[port][size:]
        low = min((row[0] for _, row in left[port]), default=TIMES) - random.choice([0, 0, 4])
        steps.append((port, [row for _, row in batch], max(0, low)))
    steps += [(port, [], END) for port in random.sample(list(Port), 2)]
    stop = random.randrange(len(steps))
    for number, (port, rows, low) in enumerate(steps):
        if number == stop:
            state = through_ipc(operator.snapshot())
            operator = make_operator(node)
            operator.restore(state)
        if rows:
            items += operator.process_rows(port, item(rows, schema_of(node.inputs[port])))
        items += operator.punctuate(port, Punctuation("link", low))
    assert operator.rows_held == 0
    return items


def content(items: list, wait: int | str | None) -> Counter:
    """The results, or the sum of the changes."""
    sums: Counter = Counter()
    for row in (row for each in items if isinstance(each, pa.RecordBatch) for row in each.to_pylist()):
        *values, weight, _ = [*row.values(), 1, True] if wait == "final" else row.values()
        sums[tuple(values)] += weight
    return Counter({row: count for row, count in sums.items() if count})


def edges(results: Counter) -> Counter:
    """The instants at which results begin or end to be true."""
    found: Counter = Counter()
    for (start, end, *row), count in results.items():
        found[start, *row] += count
        found[end, *row] -= count
    return Counter({edge: count for edge, count in found.items() if count})


def chunks(rounds: Rounds, soak: bool) -> list[range]:
    """The seeds of 10,000 streams, or of 100,000, in chunks; `make test` draws 2,000."""
    return [range(first, first + CHUNK) for first in rounds(100_000 if soak else 10_000)[::CHUNK]]


@kinds
@variants
def test_results_are_those_of_the_definition_valid_and_complete(
    rounds: Rounds, soak: bool, kind: JoinKind, wait: int | str | None
) -> None:
    for seeds in chunks(rounds, soak):
        random = Random(f"{kind} {wait} {seeds[0]}")
        time = random.choice(["window_start", "window_end"])
        node, inputs = node_of(kind, wait, time), inputs_of(random, seeds, wait)
        expected = definition(kind, [[row for _, row in side] for side in inputs])
        column = 0 if time == "window_start" else 1
        sums: Counter = Counter()
        watermark = BEGINNING
        for each in run(random, node, inputs):
            if isinstance(each, Punctuation):
                (watermark,) = bounds_of(each, 1)
                below = Counter({row: count for row, count in sums.items() if row[column] < watermark and count})
                assert below == Counter({row: n for row, n in expected.items() if row[column] < watermark}), seeds
                continue
            for row in (tuple(row.values()) for row in each.to_pylist()):
                assert row[column] >= watermark, f"{row} is below {watermark}, {seeds}"
                values, weight = (row, 1) if wait == "final" else (row[:-2], row[-2])
                assert wait is not None or weight > 0, f"{row} is withdrawn although nothing was provisional, {seeds}"
                sums[values] += weight
                assert sums[values] >= 0, f"{row} is withdrawn that was not returned, {seeds}"
        assert watermark == END


@kinds
@variants
def test_neither_the_order_of_arrival_nor_a_divided_row_changes_the_results(
    rounds: Rounds, soak: bool, kind: JoinKind, wait: int | str | None
) -> None:
    for seeds in chunks(rounds, soak):
        random = Random(f"order {kind} {wait} {seeds[0]}")
        node, inputs = node_of(kind, wait, "window_start"), inputs_of(random, seeds, wait)
        expected = definition(kind, [[row for _, row in side] for side in inputs])
        shuffled = [random.sample(side, len(side)) for side in inputs]
        assert content(run(random, node, shuffled), wait) == expected, seeds
        divided = [[part for arrival, row in side for part in divide(arrival, row)] for side in inputs]
        assert edges(content(run(random, node, divided), wait)) == edges(expected), seeds


def divide(arrival: float, row: tuple) -> list[tuple[float, tuple]]:
    """A row as two rows that meet; the same parts for its withdrawal."""
    middle = (row[0] + row[1]) // 2
    if middle == row[0]:
        return [(arrival, row)]
    return [(arrival, (row[0], middle, *row[2:])), (arrival, (middle, *row[1:]))]
