"""The properties of the papers for DISTINCT ON, MERGE and CHANGES BY (digest §9), over many random streams at once.

Rows are points in time with weights, so P1 to P8 are read as: the results are those of the definition (P1); no row is
withdrawn that was not returned, and nothing changes below a watermark (P2); in order, DISTINCT ON needs no correction
(P3, P4); the order of arrival does not change the results (P5); results below the returned watermark are complete (P7);
few rows are stored below a watermark (P8). P6 divides lifetimes, which these rows do not have. A stream is a key.

All runs are also stopped and restored once.
"""

from collections import Counter
from collections.abc import Callable
from random import Random

import pyarrow as pa
import pytest

from highlevel.plan.nodes import Node
from highlevel.plan.operators.operator import bounds_of
from highlevel.plan.pipeline import make_operator
from highlevel.plan.revision_nodes import (
    ChangingFirstCopies,
    ChangingFlowMerge,
    ChangingNetRows,
    FirstCopies,
    FlowMerge,
    NetRows,
)
from highlevel.speculation.consistency import Consistency
from lowlevel.punctuation import BEGINNING, END, Punctuation
from tests.conftest import Rounds
from tests.references.graph_streams import added_up, item
from tests.references.operator_contract import through_ipc
from tests.references.plan_references import ROWS, schema_of
from tests.references.revision_references import ENDS, ROLES, first_copies, flows, net_rows

CHUNK = 250
"""Streams, that is keys, which are run at once."""

WITHIN = 8
COPIES, FLOWS, LOG = (
    FirstCopies(ROWS, ("g",), WITHIN),
    FlowMerge(ROWS, ("g",), ROLES, WITHIN, None, "other", ENDS),
    NetRows(ROWS, "n"),
)
DEFINITIONS: dict[str, tuple[Node, Callable]] = {
    "copies": (COPIES, first_copies),
    "flows": (FLOWS, flows),
    "log": (LOG, net_rows),
}
WAITS = ["final", 0, 10, None]
variants = pytest.mark.parametrize("wait", WAITS)
operators = pytest.mark.parametrize("name", DEFINITIONS)

Batch = list[tuple]


def node_of(name: str, wait: int | str | None) -> Node:
    node = DEFINITIONS[name][0]
    if isinstance(wait, str):
        return node
    consistency = Consistency(wait)
    if isinstance(node, FirstCopies):
        return ChangingFirstCopies(node.input, node.keys, node.within, consistency)
    if isinstance(node, FlowMerge):
        parameters = (node.input, node.keys, node.roles, node.within, node.idle, node.start, node.ended)
        return ChangingFlowMerge(*parameters, consistency)
    assert isinstance(node, NetRows)
    return ChangingNetRows(node.input, node.change, consistency)


def row_of(random: Random, name: str, key: str) -> list[tuple]:
    """A row of a stream; of a change log also its withdrawal."""
    ts = random.randrange(60)
    if name != "log":
        return [(ts, max(0, ts - random.randrange(9)), key, random.randrange(5))]
    weights = random.choice([[1], [1, -1], [1, -1, 1], [2, -1], [1, 0]])
    return [(ts, None, key, weight) for weight in weights]


def disordered(name: str, seeds: range, *, late: float = 25) -> Batch:
    """The rows of the streams of some seeds, in the order of arrival. The changes of a row keep their order."""
    keyed = []
    for seed in seeds:
        random = Random(f"{name} {seed}")
        for _ in range(random.randint(1, 8)):
            arrival = -1.0
            for row in row_of(random, name, f"stream {seed}"):
                arrival = max(arrival, row[0] + random.random() * late)
                keyed.append((arrival, row))
    return [row for _, row in sorted(keyed, key=lambda each: each[0])]


def in_batches(random: Random, rows: Batch) -> list[tuple[Batch, int]]:
    """Batches of rows, each with a watermark that no later row contradicts."""
    batches, begin = [], 0
    while begin < len(rows):
        end = begin + random.choice([1, 20, 150, 400])
        low = min((ts for ts, *_ in rows[end:]), default=60) - random.choice([0, 0, 4])
        batches.append((rows[begin:end], low))
        begin = end
    return batches


def run(random: Random, node: Node, rows: Batch, watch: Callable = lambda *_: None) -> list[list]:
    """Process batches of rows, stop and restore once. Return the items of each step, the last for the end."""
    operator = make_operator(node)
    steps, given = [list(operator.punctuate(0, Punctuation("link", 0)))], []
    batches = [*in_batches(random, rows), ([], END)]
    stop = random.randrange(len(batches))
    for number, (batch, low) in enumerate(batches):
        if number == stop:
            state = through_ipc(operator.snapshot())
            operator = make_operator(node)
            operator.restore(state)
        items = list(operator.process_rows(0, item(batch, schema_of(ROWS)))) if batch else []
        steps.append([*items, *operator.punctuate(0, Punctuation("link", low))])
        given += batch
        watch(operator, given, low, steps)
    return steps


def rows_in(steps: list[list]) -> list[tuple]:
    batches = (each for items in steps for each in items if isinstance(each, pa.RecordBatch))
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def content(node: Node, steps: list[list], wait: int | str | None) -> Counter:
    """The results, or the sum of the changes."""
    return Counter(rows_in(steps)) if wait == "final" else added_up(Counter(rows_in(steps)))


def chunks(rounds: Rounds, soak: bool) -> list[range]:
    """The seeds of 10,000 streams, or of 100,000, in chunks; `make test` draws 2,000."""
    return [range(first, first + CHUNK) for first in rounds(100_000 if soak else 10_000)[::CHUNK]]


@operators
@variants
def test_the_results_are_those_of_the_definition_in_any_order_of_arrival(
    rounds: Rounds, soak: bool, name: str, wait: int | str | None
) -> None:
    definition, node = DEFINITIONS[name][1], node_of(name, wait)
    for seeds in chunks(rounds, soak):
        random = Random(f"definition {name} {seeds[0]}")
        rows = disordered(name, seeds)
        expected = definition(node, [rows])
        assert content(node, run(random, node, rows), wait) == expected, seeds
        random.shuffle(rows)
        assert content(node, run(random, node, rows), wait) == expected, seeds


@operators
@variants
def test_changes_are_valid_and_complete_below_each_watermark(
    rounds: Rounds, soak: bool, name: str, wait: int | str | None
) -> None:
    definition, node = DEFINITIONS[name][1], node_of(name, wait)
    for seeds in chunks(rounds, soak):
        rows = disordered(name, seeds)
        steps = run(Random(f"valid {name} {seeds[0]}"), node, rows)
        expected = definition(node, [rows])
        sums: Counter = Counter()
        watermark = BEGINNING
        for each in (each for items in steps for each in items):
            if isinstance(each, Punctuation):
                (watermark,) = bounds_of(each, 1)
                below = Counter({row: count for row, count in sums.items() if row[0] < watermark and count})
                assert below == Counter({row: n for row, n in expected.items() if row[0] < watermark}), seeds
                continue
            for row in (tuple(row.values()) for row in each.to_pylist()):
                assert row[0] >= watermark, f"{row} is below {watermark}, {seeds}"
                if wait == "final":
                    sums[row] += 1
                else:
                    sums[row[:-2]] += row[-2]
            assert min(sums.values(), default=0) >= 0, f"a row is withdrawn that was not returned, {seeds}"
        assert watermark == END


@pytest.mark.parametrize("wait", [0, 10, None])
def test_copies_in_order_need_no_correction(rounds: Rounds, soak: bool, wait: int | None) -> None:
    for seeds in chunks(rounds, soak):
        rows = sorted(disordered("copies", seeds), key=lambda row: (row[0], row[1], row[3]))
        steps = run(Random(f"order {seeds[0]}"), node_of("copies", wait), rows)
        newest = BEGINNING
        for returned in (rows_in([items]) for items in steps):
            assert all(weight > 0 and ts >= newest for ts, *_, weight, _ in returned), seeds
            newest = max([newest, *(ts for ts, *_ in returned)])


@operators
def test_without_provisional_results_there_are_no_corrections(rounds: Rounds, soak: bool, name: str) -> None:
    for seeds in chunks(rounds, soak):
        steps = run(Random(f"patient {name} {seeds[0]}"), node_of(name, None), disordered(name, seeds))
        assert all(weight > 0 and final for *_, weight, final in rows_in(steps)), seeds


@operators
@variants
def test_below_a_watermark_one_row_of_a_key_is_stored(
    rounds: Rounds, soak: bool, name: str, wait: int | str | None
) -> None:
    """Of a change log no row is stored; of copies and flows the last one, if a later row can follow it."""

    def watch(operator, given: Batch, low: int, _: list) -> None:
        later = [row for row in given if row[0] >= low]
        newest: dict = {}
        for ts, _, key, _ in given:
            newest[key] = max(ts, newest.get(key, BEGINNING)) if ts < low else newest.get(key, BEGINNING)
        open_keys = sum(low - WITHIN <= ts < low for ts in newest.values()) if name != "log" else 0
        assert operator.rows_held <= len(later) + open_keys

    for seeds in chunks(rounds, soak):
        run(Random(f"purge {name} {seeds[0]}"), node_of(name, wait), disordered(name, seeds), watch)
