"""CHANGES BY over random change logs, whose withdrawals may arrive before their rows, and without a row.

The tests detect a withdrawn row that remains, a row that is withdrawn although it was never returned, and operations
of other systems that are read with the wrong sign.
"""

from collections import Counter
from random import Random

import pyarrow as pa
import pytest

from capture.errors import InputError
from highlevel.plan.nodes import Node
from highlevel.plan.pipeline import make_operator
from highlevel.plan.revision_nodes import ChangingNetRows, NetRows
from highlevel.speculation.consistency import Consistency
from lowlevel.punctuation import END, Punctuation
from tests.conftest import Rounds
from tests.references.graph_streams import added_up, check, feed, interleaved, item, stream
from tests.references.plan_references import ROWS, by_ts, schema_of


def change_log(random: Random) -> list[tuple]:
    """Rows `ts, other, g, weight`; some are inserted several times, and some withdrawn, in any order of arrival."""
    changes = []
    for _ in range(random.randint(1, 30)):
        row = (random.randrange(50), None, random.choice("ab"))
        weights = random.choice([[1], [1, -1], [1, -1, 1], [2, -1], [-1], [0]])
        changes += [(row[0] + random.random() * 40, (*row, weight)) for weight in weights]
    return [change for _, change in sorted(changes, key=lambda each: each[0])]


def net(changes: list[tuple]) -> Counter[tuple]:
    totals: Counter[tuple] = Counter()
    for *row, weight in changes:
        totals[tuple(row)] += weight
    return +totals


@pytest.mark.parametrize("wait", ["final", 0, 10, None])
def test_withdrawn_rows_are_left_out(wait: int | str | None, rounds: Rounds) -> None:
    node: Node = NetRows(ROWS, "n") if wait == "final" else ChangingNetRows(ROWS, "n", Consistency(wait))
    for seed in rounds(20):
        random = Random(f"change log {wait} {seed}")
        changes = change_log(random)
        events = interleaved(random, [stream(random, changes, by_ts, 1)])
        found = check(
            lambda: make_operator(node),
            events,
            schema_of(ROWS),
            node.time_columns,
            random,
            is_changing=wait != "final",
        )
        assert (found if wait == "final" else added_up(found)) == net(changes), seed


def test_no_row_is_withdrawn_that_was_not_returned(rounds: Rounds) -> None:
    for seed in rounds(20):
        random = Random(f"prefixes of a change log {seed}")
        operator = make_operator(ChangingNetRows(ROWS, "n", Consistency(random.choice([0, 5]))))
        totals: Counter[tuple] = Counter()
        for event in interleaved(random, [stream(random, change_log(random), by_ts, 1)]):
            for batch in feed(operator, event, schema_of(ROWS)):
                for *row, weight, _ in (row.values() for row in getattr(batch, "to_pylist", list)()):
                    totals[tuple(row)] += weight
            assert min(totals.values(), default=0) >= 0, seed


def test_withdrawals_without_a_row_are_counted() -> None:
    operator = make_operator(NetRows(ROWS, "n"))
    list(operator.process_rows(0, item([(1, 1, "a", -2), (1, 1, "b", 1), (2, 2, "a", -1)], schema_of(ROWS))))
    list(operator.punctuate(0, Punctuation("link", 2)))
    assert operator.absorbed == 2
    list(operator.punctuate(0, Punctuation("link", END)))
    assert operator.absorbed == 3


OPERATIONS = {
    "diff": ("+", "-"),
    "Flink": ("+I", "-D"),
    "Flink's updates": ("+U", "-U"),
    "Debezium": ("c", "d"),
    "Debezium's snapshot": ("r", "d"),
    "Delta Lake": ("insert", "delete"),
    "Delta Lake's updates": ("update_postimage", "update_preimage"),
    "capitals": ("INSERT", "DELETE"),
}


@pytest.mark.parametrize("system", OPERATIONS)
def test_operations_of_other_systems(system: str) -> None:
    insert, withdrawal = OPERATIONS[system]
    rows = [(1, 1, insert, 7), (2, 2, insert, 8), (2, 2, withdrawal, 8)]
    operator = make_operator(NetRows(ROWS, "g"))
    list(operator.process_rows(0, item(rows, schema_of(ROWS))))
    found = [item for item in operator.punctuate(0, Punctuation("link", END)) if isinstance(item, pa.RecordBatch)]
    assert [batch.to_pylist() for batch in found] == [[{"ts": 1, "other": 1, "n": 7}]]


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (
            "u",
            "column g: got 'u', expected a weight, or one of .*; an update is two rows, -U and",
        ),
        ("upsert", "column g: got 'upsert', expected a weight, or one of"),
        (None, "column g: got NULL, expected an operation or a weight in each row"),
    ],
)
def test_unknown_operations_are_errors(operation: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(make_operator(NetRows(ROWS, "g")).process_rows(0, item([(1, 1, operation, 7)], schema_of(ROWS))))


def test_a_wrong_column_as_weight_is_an_error() -> None:
    with pytest.raises(InputError, match="column n: got 10000000000, expected weights of at most 1,048,576"):
        list(make_operator(NetRows(ROWS, "n")).process_rows(0, item([(1, 1, "+", 10**10)], schema_of(ROWS))))
