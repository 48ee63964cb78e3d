"""Counts and sums over changes equal those of the operator that computes each window again, step by step.

The tests detect a group that stays when its last row is withdrawn, a sum that a restart loses, sums of a window that
has ended, and a cost that grows with the groups of the window.
"""

from collections import Counter
from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest

from highlevel.aggregation import Aggregation, Output
from highlevel.plan.change_nodes import ChangingResults, RowsOfChanges, rows_as_changes
from highlevel.plan.nodes import Apply, TimeOutput, Windowed
from highlevel.plan.operators.changing_results import ChangingResultsOperator
from highlevel.plan.operators.changing_sums import ChangingSumsOperator, is_sum_of_integers
from highlevel.plan.operators.operator import NodeOperator
from highlevel.plan.pipeline import make_operator
from highlevel.plan.registry import entry_of
from highlevel.windows.kind import SlidingWindow
from lowlevel.expressions.tree import Binary, Column, Literal
from lowlevel.expressions.types import Op, Type
from lowlevel.plan import Key, LowLevelPlan
from lowlevel.punctuation import END, Punctuation
from lowlevel.subaggregates import Kind, SubAggregate
from queries.gsql import compile_query
from tests.conftest import Rounds
from tests.references.graph_streams import item
from tests.references.operator_contract import through_ipc
from tests.references.plan_references import LEAF, schema_of

GROUP, VALUE = Column("g", Type.TEXT, nullable=True), Column("x", Type.INT, nullable=True)
COLUMNS = (Column("ts", Type.INT), GROUP, VALUE)
ROWS = Apply(LEAF, tuple(Output(column.name, column) for column in COLUMNS), (TimeOutput("ts", "pane"),))
CHANGES = rows_as_changes(ROWS)


def sums(
    window: SlidingWindow, *, grouped: bool = True, having: bool = False, at_once: bool = False
) -> ChangingResults:
    """count(x), sum(x) and their quotient, for each group in windows over changes."""
    subaggregates = (SubAggregate("c", Kind.COUNT, VALUE), SubAggregate("s", Kind.SUM, VALUE))
    keys = (Key("g", GROUP),) if grouped else ()
    low = LowLevelPlan(None, keys, subaggregates, window.pane, window.origin)
    mean = Binary(Op.DIV, Binary(Op.MUL, Column("s", Type.INT), Literal(1.0, Type.FLOAT)), Column("c", Type.INT))
    select = (*((Output("g", GROUP),) if grouped else ()), Output("c", Column("c", Type.INT)),
              Output("s", Column("s", Type.INT)), Output("mean", mean))  # fmt: skip
    least = Binary(Op.GE, Column("c", Type.INT), Literal(2, Type.INT)) if having else None
    body = Windowed(RowsOfChanges(CHANGES), Aggregation(window, low, ("g",) if grouped else (), least, select), "ts")
    return ChangingResults(body, at_once)


def recomputing(node: ChangingResults) -> NodeOperator:
    return ChangingResultsOperator(node, lambda: entry_of(node.body).operator(node.body))


def feed(operator: NodeOperator, event: list[tuple] | int) -> tuple[Counter[tuple], list[int]]:
    """Return the changes and watermarks after an event."""
    if isinstance(event, int):
        items = list(operator.punctuate(0, Punctuation("l", event)))
    else:
        items = list(operator.process_rows(0, item(event, schema_of(CHANGES))))
    changes = Counter(tuple(row.values()) for each in items if isinstance(each, pa.RecordBatch)
                      for row in each.to_pylist())  # fmt: skip
    return changes, [each.watermark for each in items if isinstance(each, Punctuation)]


def events_of(random: Random) -> list[list[tuple] | int]:
    """Batches of changes, in which rows are withdrawn that were returned before, and watermarks."""
    events: list[list[tuple] | int] = []
    stored: list[tuple] = []
    now, low = 0, -100
    for _ in range(random.randint(3, 15)):
        now += random.choice([0, 1, 8, 25])
        changes = []
        for _ in range(random.randint(1, 6)):
            alive = [row for row in stored if row[0] >= low]
            if alive and random.random() < 0.45:
                row = random.choice(alive)
                stored.remove(row)
                changes.append((*row, -1, False))
            else:
                row = (
                    max(0, now - random.randint(0, 30)),
                    random.choice(["a", "b", None]),
                    random.choice([None, 3, -2]),
                )
                weight = random.choice([1, 1, 3])
                stored += [row] * weight
                changes.append((*row, weight, False))
        events.append(changes)
        if random.random() < 0.4:
            low = max(low, now - random.choice([0, 10, 25]))
            events.append(low)
    return [*events, END]


def test_each_step_equals_that_of_computing_windows_again_also_after_a_restart(rounds: Rounds) -> None:
    for seed in rounds(15):
        random = Random(f"changing sums {seed}")
        window = SlidingWindow(*random.choice([(10, 10), (20, 5), (30, 10), (5, 10)]), origin=random.choice([0, 3]))
        node = sums(window, grouped=random.random() < 0.8, having=random.random() < 0.3, at_once=random.random() < 0.5)
        operator, other = make_operator(node), recomputing(node)
        assert isinstance(operator, ChangingSumsOperator)
        for step, event in enumerate(events_of(random)):
            if random.random() < 0.3:
                tables = through_ipc(operator.snapshot())
                operator = make_operator(node)
                operator.restore(tables)
            assert feed(operator, event) == feed(other, event), (seed, step)
        assert operator.bytes == 0, seed


def test_a_change_computes_only_its_own_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    node = sums(SlidingWindow(100, 100), at_once=True)
    operator = make_operator(node)
    assert isinstance(operator, ChangingSumsOperator)
    feed(operator, [(1, f"g{number}", 5, 1, False) for number in range(3000)])
    computed: list[int] = []
    rows_of = operator._rows_of

    def counted(*arguments):
        computed.append(len(arguments[1]))
        return rows_of(*arguments)

    monkeypatch.setattr(operator, "_rows_of", counted)
    changes, _ = feed(operator, [(1, "g7", 5, -1, False), (1, "g7", 6, 1, False)])
    assert sorted(row[-2] for row in changes) == [-1, 1]
    assert computed == [1, 1]


def test_rows_that_where_leaves_out_are_in_no_window() -> None:
    node = sums(SlidingWindow(100, 100))
    assert isinstance(node.body, Windowed)
    low = replace(node.body.aggregation.low, where=Binary(Op.GE, VALUE, Literal(5, Type.INT)))
    node = ChangingResults(replace(node.body, aggregation=replace(node.body.aggregation, low=low)))
    operator = make_operator(node)
    feed(operator, [(1, "a", 4, 1, False)])
    restarted = make_operator(node)
    restarted.restore(through_ipc(operator.snapshot()))
    feed(restarted, [(2, "a", 6, 1, False)])
    changes, _ = feed(restarted, END)
    assert [row[2:5] for row in changes] == [("a", 1, 6)]


def test_groups_without_rows_are_forgotten() -> None:
    operator = make_operator(sums(SlidingWindow(100, 100), at_once=True))
    for number in range(300):
        feed(operator, [(1, f"g{number}", 5, 1, False)])
        feed(operator, [(1, f"g{number}", 5, -1, False)])
    assert operator.rows_held < 200


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ("count(*) AS c, sum(n) AS s, avg(n) AS a", True),
        ("count(*) AS c HAVING", True),
        ("max(n) AS m", False),
        ("sum(a) AS s", False),
        ("count(DISTINCT n) AS d", False),
    ],
)
def test_only_counts_and_sums_of_integers_add_up(select: str, expected: bool) -> None:
    inner = "SELECT srcIP, count(*) AS n, avg(len) AS a FROM packets [RANGE 5 s] GROUP BY srcIP"
    having = " HAVING count(*) > 2" if "HAVING" in select else ""
    sql = f"SELECT {select.removesuffix(' HAVING')} FROM ({inner}) [RANGE 20 s]{having} EMIT CHANGES"
    (node,) = [node for node in compile_query(sql).nodes if isinstance(node, ChangingResults)]
    assert is_sum_of_integers(node.body) == expected
