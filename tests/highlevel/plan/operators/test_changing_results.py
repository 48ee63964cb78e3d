"""Results over changes: the cases in which other systems return wrong corrections, each also after a restart.

The tests detect half of a correction, results that stay after their withdrawal, withdrawals that do not find their row
(-0.0, NaN, NULL, sums of FLOAT), and many changes of one row that are not added up.
"""

from collections import Counter
from math import nan
from random import Random

import pyarrow as pa
import pytest

from highlevel.aggregation import Aggregation, Output
from highlevel.plan.answer_nodes import Fill, Frame, Over, RowFunction, RowFunctionKind, Sort, SortKey
from highlevel.plan.change_nodes import ChangingResults, NetChanges, RowsOfChanges, rows_as_changes, time_step
from highlevel.plan.fragments import FragmentInput
from highlevel.plan.nodes import Apply, Node, TimeOutput, Windowed
from highlevel.plan.operators import changing_history
from highlevel.plan.operators.operator import NodeOperator
from highlevel.plan.pipeline import make_operator
from highlevel.windows.kind import SlidingWindow
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.plan import Key, LowLevelPlan
from lowlevel.punctuation import END, Punctuation
from lowlevel.subaggregates import Kind, SubAggregate
from tests.references.graph_streams import item
from tests.references.operator_contract import through_ipc
from tests.references.plan_references import LEAF, schema_of

GROUP, VALUE = Column("g", Type.TEXT, nullable=True), Column("x", Type.FLOAT, nullable=True)
COLUMNS = (Column("ts", Type.INT), GROUP, VALUE)
ROWS = Apply(LEAF, tuple(Output(column.name, column) for column in COLUMNS), (TimeOutput("ts", "pane"),))
CHANGES = rows_as_changes(ROWS)


def windows(kind: Kind = Kind.MAX, length: int = 100) -> ChangingResults:
    """The aggregate `kind` of x, for each group in windows over changes, at once."""
    window = SlidingWindow(length, length)
    low = LowLevelPlan(None, (Key("g", GROUP),), (SubAggregate("v", kind, VALUE),), window.pane)
    select = (Output("g", GROUP), Output("v", Column("v", Type.FLOAT, nullable=True)))
    body = Windowed(RowsOfChanges(CHANGES), Aggregation(window, low, ("g",), None, select), "ts")
    return ChangingResults(body, at_once=True)


def first(limit: int) -> ChangingResults:
    """The `limit` largest x of each time."""
    return ChangingResults(Sort(RowsOfChanges(CHANGES), (SortKey("x", True),), ("ts",), limit))


class Stepwise:
    """An operator that is restarted from its snapshot before each step."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.operator = make_operator(node)

    def feed(self, event: list[tuple] | int) -> list[dict]:
        """Process changes or a watermark. Return the changes of the result, which are one batch at most."""
        snapshot = through_ipc(self.operator.snapshot())
        self.operator = make_operator(self.node)
        self.operator.restore(snapshot)
        if isinstance(event, int):
            items = list(self.operator.punctuate(0, Punctuation("l", event)))
        else:
            items = list(self.operator.process_rows(0, item(event, schema_of(self.node.inputs[0]))))
        batches = [each for each in items if isinstance(each, pa.RecordBatch)]
        assert len(batches) <= 1, "a correction is one batch"
        return [row for batch in batches for row in batch.to_pylist()]


def test_a_maximum_that_rises_for_an_hour_leaves_one_row() -> None:
    operator, total = Stepwise(windows()), Counter[float]()
    for number in range(60):
        changes = [(1, "a", float(number), 1, False)]
        for row in operator.feed(changes):
            total[row["v"]] += row["weight"]
        assert +total == Counter({float(number): 1}), "one result after each batch"


def test_a_withdrawn_maximum_returns_the_one_before() -> None:
    operator = Stepwise(windows())
    operator.feed([(1, "a", 5.0, 1, False), (2, "a", 9.0, 1, False)])
    changes = operator.feed([(2, "a", 9.0, -1, False)])
    assert [(row["v"], row["weight"]) for row in changes] == [(9.0, -1), (5.0, 1)]
    (last,) = operator.feed([(1, "a", 5.0, -1, False)])
    assert (last["v"], last["weight"]) == (5.0, -1)
    assert operator.feed(END) == []
    assert operator.operator.bytes == 0


def test_a_thousand_changes_of_one_row_in_a_batch_are_one_correction() -> None:
    operator = Stepwise(windows())
    operator.feed([(1, "a", 0.0, 1, False)])
    changes: list[tuple] = []
    for number in range(1000):
        changes += [(1, "a", float(number), -1, False), (1, "a", float(number + 1), 1, False)]
    assert [(row["v"], row["weight"]) for row in operator.feed(changes)] == [(0.0, -1), (1000.0, 1)]
    added_up = Stepwise(NetChanges(CHANGES)).feed(changes)
    assert [(row["x"], row["weight"]) for row in added_up] == [(0.0, -1), (1000.0, 1)]


@pytest.mark.parametrize(("returned", "withdrawn"), [(0.0, -0.0), (-0.0, 0.0), (nan, -nan), (None, None)])
def test_a_withdrawal_finds_rows_with_equal_values(returned: float | None, withdrawn: float | None) -> None:
    for node in (windows(Kind.COUNT), first(3)):
        operator = Stepwise(node)
        assert [row["weight"] for row in operator.feed([(1, None, returned, 1, False)])] == [1]
        assert [row["weight"] for row in operator.feed([(1, None, withdrawn, -1, False)])] == [-1]
        assert operator.feed(END) == []


def test_sums_of_floats_are_withdrawn_as_they_were_returned() -> None:
    random = Random("sums of floats")
    operator, total = Stepwise(windows(Kind.SUM)), Counter[tuple]()
    stored: list[tuple] = []
    for _ in range(40):
        row = (random.randrange(100), random.choice("ab"), random.uniform(-1e9, 1e9) ** 3)
        gone = [stored.pop(random.randrange(len(stored)))] if stored and random.random() < 0.5 else []
        stored.append(row)
        for change in operator.feed([(*row, 1, False), *((*each, -1, False) for each in gone)]):
            total[change["g"], change["v"].hex()] += change["weight"]
        assert set(total.values()) <= {0, 1}
        assert {group for group, _ in +total} == {group for _, group, _ in stored}


def test_a_displaced_row_is_withdrawn_and_returns_when_there_is_room() -> None:
    operator = Stepwise(first(2))
    operator.feed([(1, "a", 1.0, 1, False), (1, "b", 2.0, 1, False)])
    displacing = operator.feed([(1, "c", 3.0, 1, False)])
    assert [(row["g"], row["weight"]) for row in displacing] == [("a", -1), ("c", 1)]
    returning = operator.feed([(1, "b", 2.0, -1, False)])
    assert [(row["g"], row["weight"]) for row in returning] == [("b", -1), ("a", 1)]


def test_final_rows_make_results_final_before_the_watermark() -> None:
    operator = Stepwise(first(1))
    assert [row["final"] for row in operator.feed([(1, "a", 1.0, 1, False)])] == [False]
    assert [row["final"] for row in operator.feed([(2, "a", 1.0, 1, True)])] == [True]
    assert operator.feed([(1, "b", 9.0, 1, False)]) == [], "a late row"
    assert operator.operator.late == 1
    assert [row["final"] for row in operator.feed([(3, "a", 1.0, 1, False)])] == [False]


def test_a_window_is_returned_when_the_inputs_have_reached_its_end() -> None:
    changes = Apply(CHANGES, CHANGES.outputs, (TimeOutput("ts", "ts", step=10),))
    node = windows(length=30).with_inputs([changes])
    operator = Stepwise(ChangingResults(node.body, step=time_step(changes)))
    assert operator.feed([(0, "a", 1.0, 1, False)]) == []
    assert operator.feed([(10, "a", 1.0, 1, False)]) == []
    assert [row["weight"] for row in operator.feed([(20, "a", 4.0, 1, False)])] == [1]
    assert [(row["v"], row["weight"]) for row in operator.feed([(0, "a", 7.0, 1, False)])] == [(4.0, -1), (7.0, 1)]


def test_final_rows_of_one_of_several_operators_do_not_end_a_window() -> None:
    united = FragmentInput("q", (), LEAF.low, LEAF.layer, (), 0, CHANGES.columns, ("ts",))
    operator = Stepwise(first(2).with_inputs([united]))
    operator.feed([(1, "a", 1.0, 1, True)])
    operator.feed([(1, "b", 2.0, 1, True)])
    assert [(row["g"], row["weight"], row["final"]) for row in operator.feed(2)] == [("b", 1, True), ("a", 1, True)]


def before_in_group() -> ChangingResults:
    """The last x of the group, and the largest of its last three x."""
    order = (SortKey("ts"),)
    frame = Frame(-2, 0, by_values=False)
    functions = (
        RowFunction("before", RowFunctionKind.LAG, Type.FLOAT, "x", ("g",), order),
        RowFunction("most", RowFunctionKind.MAX, Type.FLOAT, "x", ("g",), order, frame=frame),
    )
    columns = (Column("ts", Type.INT), *(Column(each.name, Type.FLOAT, nullable=True) for each in functions))
    outputs = tuple(Output(column.name, column) for column in columns)
    return ChangingResults(Over(RowsOfChanges(CHANGES), functions, outputs))


def computed_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that receives the number of rows of each computation."""
    computed: list[int] = []
    compute = changing_history.compute

    def counting(operator: NodeOperator, inputs: list[pa.Table], schema: pa.Schema) -> pa.Table:
        computed.append(sum(table.num_rows for table in inputs))
        return compute(operator, inputs, schema)

    monkeypatch.setattr(changing_history, "compute", counting)
    return computed


def feed(operator: Stepwise, event: list[tuple] | int, total: Counter[tuple]) -> None:
    """Add the changes that follow from an event to the sums of the weights."""
    for *row, weight, _ in (change.values() for change in operator.feed(event)):
        total[tuple(row)] += weight
        assert total[tuple(row)] >= 0


def test_a_change_costs_its_partition_of_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result does not contain the partition, so results of several partitions are equal."""
    random, computed = Random("partitions"), computed_rows(monkeypatch)
    run, total = Stepwise(before_in_group()), Counter[tuple]()
    rows = [(ts, f"g{ts % 20}", float(ts % 3)) for ts in range(400)]
    feed(run, [(*row, 1, False) for row in rows], total)
    assert computed == [400]
    for step in range(30):
        added, removed = (
            (random.randrange(200, 400), f"g{random.randrange(20)}", float(step)),
            random.choice(rows[200:]),
        )
        rows.append(added)
        rows.remove(removed)
        feed(run, [(*added, 1, False), (*removed, -1, False)], total)
        assert computed[-1] <= 2 * 25, "at most 2 of 20 partitions have changed"
        if step % 10 == 9:
            feed(run, 40 + 5 * step, total)
    feed(run, END, total)
    expected: Counter[tuple] = Counter()
    whole = Stepwise(before_in_group())
    feed(whole, [(*row, 1, False) for row in rows], expected)
    feed(whole, END, expected)
    assert +total == +expected


@pytest.mark.parametrize("repeats", [False, True])
def test_a_change_costs_its_group_of_fill(repeats: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups that begin late, windows without rows, and a last window that is withdrawn."""
    random, computed = Random(f"groups {repeats}"), computed_rows(monkeypatch)
    body = Fill(RowsOfChanges(CHANGES), SlidingWindow(1, 1), ("g",), (), 0, repeats, ("g",), end="ts", start=None)
    run, total = Stepwise(ChangingResults(body)), Counter[tuple]()
    rows = [(random.randrange(60), f"g{number % 20}", float(number)) for number in range(200)] + [(60, "g3", 7.0)]
    feed(run, [(*row, 1, False) for row in rows], total)
    small = 0
    for step in range(40):
        added, removed = (random.randrange(25, 60), f"g{random.randrange(22)}", float(step)), random.choice(rows)
        if removed[0] < 25:
            continue
        rows.append(added)
        rows.remove(removed)
        feed(run, [(*added, 1, False), (*removed, -1, False)], total)
        small += computed[-1] < len(rows) / 2
        if step in (15, 30):
            feed(run, step // 2 + 5, total)
    assert small > 10, "changes of a group have computed all groups"
    feed(run, END, total)
    expected, whole = Counter[tuple](), Stepwise(ChangingResults(body))
    feed(whole, [(*row, 1, False) for row in rows], expected)
    feed(whole, END, expected)
    assert +total == +expected


TS = SortKey("ts")
BY_ROWS, BY_TIME = Frame(-3, 0, by_values=False), Frame(-5, 0)
BOUNDED = {
    "lag": [RowFunction("f", RowFunctionKind.LAG, Type.FLOAT, "x", (), (TS,), 2)],
    "rows": [RowFunction("f", RowFunctionKind.MAX, Type.FLOAT, "x", (), (TS,), frame=BY_ROWS)],
    "range": [RowFunction("f", RowFunctionKind.MAX, Type.FLOAT, "x", (), (TS,), frame=BY_TIME)],
    "range before the row": [RowFunction("f", RowFunctionKind.MIN, Type.FLOAT, "x", (), (TS,), frame=Frame(-7, -3))],
    "peers": [RowFunction("f", RowFunctionKind.LAST_VALUE, Type.FLOAT, "x", (), (TS,), frame=Frame(0, 0))],
    "all": [
        RowFunction("f", RowFunctionKind.LAG, Type.FLOAT, "x", (), (TS,), 4),
        RowFunction("h", RowFunctionKind.MAX, Type.FLOAT, "x", ("g",), (TS,), frame=BY_TIME),
        RowFunction("i", RowFunctionKind.FIRST_VALUE, Type.FLOAT, "x", (), (TS, SortKey("x")), frame=BY_ROWS),
        RowFunction("j", RowFunctionKind.RANK, Type.INT, None, ("ts", "g"), (SortKey("x"),)),
    ],
}


def over(functions: list[RowFunction]) -> ChangingResults:
    """The columns of the rows and the functions."""
    columns = [*COLUMNS, *(Column(each.name, each.type, nullable=True) for each in functions)]
    return ChangingResults(
        Over(RowsOfChanges(CHANGES), tuple(functions), tuple(Output(column.name, column) for column in columns))
    )


@pytest.mark.parametrize("name", BOUNDED)
def test_a_change_costs_the_rows_whose_bounded_frames_it_is_in(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each step the results are those of all rows at once. Rows have equal times, and some become final."""
    random, computed = Random(f"bounded {name}"), computed_rows(monkeypatch)
    run, total, small = Stepwise(over(BOUNDED[name])), Counter[tuple](), 0
    rows = [(random.randrange(300), random.choice("abc"), float(number)) for number in range(400)]
    feed(run, [(*row, 1, False) for row in rows], total)
    low = 0
    for step in range(60):
        if step % 12 == 11:
            low += random.randrange(1, 25)
            feed(run, low, total)
        near = random.randrange(low, 300)
        added = [(min(299, near + random.randrange(4)), random.choice("abc"), random.uniform(0, 400)) for _ in range(2)]
        removed = [row for row in rows if near <= row[0] <= near + 3][: random.randrange(3)]
        rows = [row for row in rows if row not in removed] + added
        feed(run, [*((*row, 1, False) for row in added), *((*row, -1, False) for row in removed)], total)
        small += computed[-1] <= 60
        if step % 5 == 0:
            expected = Counter[tuple]()
            feed(Stepwise(over(BOUNDED[name])), [(*row, 1, False) for row in rows], expected)
            assert +total == +expected, step
    assert small > 50, "changes have computed all rows"
    feed(run, END, total)
    expected, whole = Counter[tuple](), Stepwise(over(BOUNDED[name]))
    feed(whole, [(*row, 1, False) for row in rows], expected)
    feed(whole, END, expected)
    assert +total == +expected


def test_frames_without_a_bound_compute_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    computed = computed_rows(monkeypatch)
    whole = RowFunction("f", RowFunctionKind.LAG, Type.FLOAT, "x", ("g",), (TS,))
    other = RowFunction("h", RowFunctionKind.LAG, Type.FLOAT, "x", (), (TS,))
    run, total = Stepwise(over([whole, other])), Counter[tuple]()
    feed(run, [(ts, "a", 1.0, 1, False) for ts in range(100)], total)
    feed(run, [(50, "b", 1.0, 1, False)], total)
    assert computed == [100, 101], "rows of a partition may be far apart"
