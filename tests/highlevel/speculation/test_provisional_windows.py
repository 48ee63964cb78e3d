"""The changes of windows equal those of the reference, step by step, also after a restart at any step."""

from collections import Counter
from random import Random

import pyarrow as pa
import pytest

from highlevel.aggregation import Aggregation, Output
from highlevel.plan.nodes import ChangingWindows, Windowed
from highlevel.plan.pipeline import make_operator
from highlevel.spark.run_folder.state import value_addresses
from highlevel.speculation.consistency import Consistency
from highlevel.windows.kind import SlidingWindow
from lowlevel.expressions.tree import Binary, Column, Literal
from lowlevel.expressions.types import Op, Type
from lowlevel.plan import NEWEST_COLUMN, Key, LowLevelPlan
from lowlevel.punctuation import END, Punctuation
from lowlevel.subaggregates import Kind, SubAggregate
from tests.conftest import Rounds
from tests.references.operator_contract import through_ipc
from tests.references.plan_references import GROUP, NUMBER, ROWS, TS, schema_of
from tests.references.provisional_windows import ProvisionalReference


def aggregation_of(window: SlidingWindow, having: int = 0) -> Aggregation:
    subaggregates = (
        SubAggregate("c", Kind.COUNT),
        SubAggregate("s", Kind.SUM, NUMBER),
        SubAggregate(NEWEST_COLUMN, Kind.MAX, TS),
    )
    low = LowLevelPlan(None, (Key("g", GROUP),), subaggregates, window.pane, window.origin)
    least = Binary(Op.GE, Column("c", Type.INT), Literal(having, Type.INT)) if having else None
    select = tuple(
        Output(name, Column(name, kind)) for name, kind in (("g", Type.TEXT), ("c", Type.INT), ("s", Type.INT))
    )
    return Aggregation(window, low, ("g",), least, select)


def batch_of(rows: list[tuple]) -> pa.RecordBatch:
    whole = [(ts, None, group, number) for ts, group, number in rows]
    schema = schema_of(ROWS)
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(zip(*whole, strict=True), schema, strict=True)],
        schema=schema,
    )


def changes_in(items: list) -> Counter:
    rows = [row for item in items if isinstance(item, pa.RecordBatch) for row in item.to_pylist()]
    changes: Counter = Counter()
    for row in rows:
        *result, weight, final = row.values()
        changes[tuple(result), 1 if weight > 0 else -1, final] += abs(weight)
    return changes


def events_of(random: Random) -> list:
    """Batches of rows, and watermarks, which some rows contradict."""
    events: list = []
    now, low = 0, -1000
    for _ in range(random.randint(1, 14)):
        now += random.choice([0, 1, 5, 30])
        late = random.choice([0, 3, 40])
        times = [max(0, now - random.randint(0, late)) for _ in range(random.randint(1, 5))]
        events.append([(ts, random.choice(["a", "b", None]), random.randint(-2, 3)) for ts in times])
        if random.random() < 0.4:
            low = max(low, now - random.choice([0, 10, 25]))
            events.append(low)
    return [*events, END]


def consistency_of(random: Random) -> Consistency:
    wait = random.choice([None, 0, 0, 4, 20])
    return Consistency(wait, None, None if wait is None else random.choice([None, None, 3, 15]))


def feed(operator, event) -> list:
    return list(
        operator.process_rows(0, batch_of(event))
        if isinstance(event, list)
        else operator.punctuate(0, Punctuation("l", event))
    )


def test_each_step_has_the_changes_of_the_reference_also_after_a_restart(rounds: Rounds) -> None:
    for seed in rounds(150):
        random = Random(f"provisional {seed}")
        range_ = random.choice([5, 10])
        slide = random.choice([range_, 5, 15])
        consistency, having = consistency_of(random), random.choice([0, 0, 2])
        node = ChangingWindows(ROWS, aggregation_of(SlidingWindow(range_, slide), having), "ts", consistency)
        reference = ProvisionalReference(range_, slide, consistency.wait, consistency.early, having)
        operator = make_operator(node)
        events = events_of(random)
        restart = random.randrange(len(events))
        late_before = 0
        for step, event in enumerate(events):
            if step == restart:
                late_before = operator.late
                snapshot = through_ipc(operator.snapshot())
                operator = make_operator(node)
                operator.restore(snapshot)
            expected = reference.add(event) if isinstance(event, list) else reference.watermark(event)
            assert changes_in(feed(operator, event)) == expected, (seed, step)
        assert (operator.late + late_before > 0) == (reference.late > 0), seed
        assert operator.open_windows() == []
        assert operator.bytes == 0


def test_the_random_streams_have_corrections() -> None:
    withdrawn = 0
    for seed in range(20):
        operator = make_operator(ChangingWindows(ROWS, aggregation_of(SlidingWindow(10, 5)), "ts", Consistency()))
        for event in events_of(Random(seed)):
            changes = changes_in(feed(operator, event))
            withdrawn += sum(count for (_, weight, _), count in changes.items() if weight < 0)
    assert withdrawn > 20


def test_the_weights_add_up_to_the_results_of_ordinary_windows(rounds: Rounds) -> None:
    for seed in rounds(60):
        random = Random(f"sums {seed}")
        aggregation = aggregation_of(SlidingWindow(10, 5))
        changing = make_operator(ChangingWindows(ROWS, aggregation, "ts", consistency_of(random)))
        ordinary = make_operator(Windowed(ROWS, aggregation, "ts"))
        total: Counter = Counter()
        expected: Counter = Counter()
        for event in events_of(random):
            for (row, weight, _), times in changes_in(feed(changing, event)).items():
                total[row] += weight * times
                assert total[row] >= 0, "a row was withdrawn that had not been returned"
            for item in feed(ordinary, event):
                if isinstance(item, pa.RecordBatch):
                    expected.update(tuple(row.values()) for row in item.to_pylist())
        assert +total == expected, seed
        assert (changing.late, changing.late) == (ordinary.late, ordinary.late), seed


def test_rows_in_order_cause_no_correction() -> None:
    node = ChangingWindows(ROWS, aggregation_of(SlidingWindow(10, 10)), "ts", Consistency())
    operator = make_operator(node)
    changes = [changes_in(feed(operator, [(ts, "a", 1)])) for ts in range(0, 31, 2)]
    assert sum(changes, Counter()) == Counter({((start, start + 10, "a", 5, 5), 1, False): 1 for start in (0, 10, 20)})
    assert [number for number, each in enumerate(changes) if each] == [5, 10, 15], "at the first row after the end"


def test_a_late_row_corrects_its_group_only() -> None:
    node = ChangingWindows(ROWS, aggregation_of(SlidingWindow(10, 10)), "ts", Consistency())
    operator = make_operator(node)
    feed(operator, [(1, "a", 1), (2, "b", 1), (12, "a", 1)])
    assert changes_in(feed(operator, [(3, "a", 5)])) == {
        ((0, 10, "a", 1, 1), -1, False): 1,
        ((0, 10, "a", 2, 6), 1, False): 1,
    }


def test_a_restored_window_without_new_rows_is_the_same_table_in_the_next_snapshot() -> None:
    """So a host does not write it again (`highlevel.spark.run_folder.state`)."""
    node = ChangingWindows(ROWS, aggregation_of(SlidingWindow(10, 10)), "ts", Consistency())
    operator = make_operator(node)
    feed(operator, [(ts, group, 1) for ts in (1, 11, 21, 35) for group in ("a", "b")])
    stored = through_ipc(operator.snapshot())
    operator = make_operator(node)
    operator.restore(stored)
    feed(operator, [(12, "a", 1)])
    changed = {
        name
        for name, table in operator.snapshot().items()
        if value_addresses(table) != value_addresses(stored[name]) and not name.endswith(("state", "windows"))
    }
    assert len([name for name in stored if "published" in name]) == 3
    assert [name.partition(".")[2] for name in changed] == ["published 1"]


def test_early_results_are_returned_once_in_each_interval() -> None:
    node = ChangingWindows(ROWS, aggregation_of(SlidingWindow(10, 10)), "ts", Consistency(early=4))
    operator = make_operator(node)
    published = [ts for ts in range(10) if feed(operator, [(ts, "a", 1)])]
    assert published == [4, 8]


def test_a_watermark_advances_the_clock_by_what_is_remembered() -> None:
    node = ChangingWindows(ROWS, aggregation_of(SlidingWindow(10, 10)), "ts", Consistency(wait=2, remember=20))
    operator = make_operator(node)
    assert feed(operator, [(3, "a", 1)]) == []
    assert feed(operator, -9) == [], "the newest row has the time 11"
    assert changes_in(feed(operator, -8)) == {((0, 10, "a", 1, 1), 1, False): 1}


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("consistency", [Consistency(2, 20), Consistency(5, 20, early=6)], ids=["WAIT", "EARLY"])
def test_a_result_that_waits_comes_after_a_restore_without_further_rows(
    consistency: Consistency, restart: bool
) -> None:
    """A lull of the link raises the watermark by the clock, so it is the only event after the restore."""
    node = ChangingWindows(ROWS, aggregation_of(SlidingWindow(10, 10)), "ts", consistency)
    operator = make_operator(node)
    assert feed(operator, [(5, "a", 1)]) == []
    if restart:
        tables = through_ipc(operator.snapshot())
        operator = make_operator(node)
        operator.restore(tables)
    assert feed(operator, -15) == [], "the newest packet of the link has the time 5"
    due = -14 if consistency.early is not None else -8
    assert changes_in(feed(operator, due)) == {((0, 10, "a", 1, 1), 1, False): 1}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"wait": -1}, "got wait -1 ns, expected at least 0"),
        ({"early": 0}, "got early 0 ns, expected at least 1"),
        ({"wait": 2, "remember": 1}, "got wait 2 ns, expected at most remember 1 ns"),
        ({"wait": None, "early": 1}, "got early 1 ns without a limit of wait"),
    ],
)
def test_contradicting_values_are_refused(values: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Consistency(**values)
