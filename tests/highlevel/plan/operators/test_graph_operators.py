"""Operators of a graph's nodes against slow twins, on seeded random disordered streams of a few rows each.

They detect a watermark that a later row contradicts: wrong floors, joint watermarks reduced to one number, a window's
end used as a strict bound. They detect keys and groups that outlive their watermark or leave before it, NULLs used as
times, and state that a restart loses.
"""

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from highlevel.aggregation import Output
from highlevel.plan.nodes import Apply, Distinct, Filter, Node, TimeGroups, TimeOutput, Union, Windowed
from highlevel.plan.operators.distinct import DistinctOperator
from highlevel.plan.operators.operator import bounds_of, single_bound
from highlevel.plan.operators.time_groups import TimeGroupsOperator
from highlevel.plan.operators.union import UnionOperator
from highlevel.plan.operators.windowed import WindowedOperator
from highlevel.plan.pipeline import make_operator
from highlevel.windows.kind import WHOLE_INPUT, SlidingWindow
from lowlevel.expressions.tree import Binary, Expression
from lowlevel.expressions.types import Op
from lowlevel.plan import Key
from lowlevel.punctuation import BEGINNING, END, JointPunctuation, Punctuation
from tests.references.graph_streams import check, feed, interleaved, is_covered, rows_of, stream
from tests.references.plan_references import (
    GROUP,
    NUMBER,
    OTHER,
    PAIRS,
    ROWS,
    TS,
    by_both,
    by_ts,
    made_rows,
    plan_of,
    schema_of,
    seconds,
    summary,
)
from tests.references.windows_oracle import Spec


@pytest.mark.parametrize("seed", range(16))
def test_select_keeps_rows_for_which_its_condition_is_true(seed: int) -> None:
    random = Random(seed)
    where = Binary(Op.LT, OTHER, TS)
    node: Node = Filter(PAIRS if seed % 2 else ROWS, where)
    rows = made_rows(random, nulls=True)
    events = [(0, each) for each in stream(random, rows, by_both if seed % 2 else by_ts, 1 + seed % 2)]
    found = check(lambda: make_operator(node), events, schema_of(ROWS), node.time_columns, random)
    assert found == Counter(row for row in rows if row[1] is not None and row[1] < row[0])


@pytest.mark.parametrize("seed", range(24))
def test_apply_computes_columns_and_maps_promises_through_floors(seed: int) -> None:
    random = Random(seed)
    length, shift = random.randint(1, 12), random.randint(-9, 9)
    floor = Binary(Op.DIV, Binary(Op.SUB, Binary(Op.ADD, TS, seconds(120 * length)), seconds(shift)), seconds(length))
    outputs = (Output("tb", floor), Output("twice", Binary(Op.MUL, NUMBER, seconds(2))), Output("b", OTHER))
    time_outputs = (TimeOutput("tb", "ts", shift - 120 * length, length), TimeOutput("b", "other"))
    joint = bool(seed % 3)
    kept: tuple[TimeOutput, ...] = time_outputs if joint else time_outputs[:1]
    if random.random() < 0.3:
        kept = kept[1:]
    if random.random() < 0.3:
        kept = kept[::-1]
    node = Apply(PAIRS if joint else ROWS, outputs, kept)
    rows = made_rows(random)
    events = [(0, each) for each in stream(random, rows, by_both if joint else by_ts, 1 + joint)]
    found = check(lambda: make_operator(node), events, schema_of(ROWS), node.time_columns, random)
    expected = ((120 + (ts - shift) // length, 2 * n, other) for ts, other, _, n in rows)
    assert found == Counter(expected)


def test_a_floor_of_a_promise_is_as_strong_as_it_can_be() -> None:
    tb = Output("tb", Binary(Op.DIV, TS, seconds(60)))
    operator = make_operator(Apply(ROWS, (tb,), (TimeOutput("tb", "ts", 0, 60),)))
    lows = [59, 60, 119, 120, END]
    assert [list(operator.punctuate(0, Punctuation("a", low))) for low in lows] == [
        [Punctuation("a", low)] for low in [0, 1, 1, 2, END]
    ]


def test_a_promise_about_ends_of_windows_reaches_the_next_end() -> None:
    """Ends are 3, 13, 23, …; after the window that ends at 13 the next one begins at 13, without a wait for it."""
    start = TimeOutput("start", "window_end", 10, step=10, origin=3)
    assert [start.convert(low) for low in (3, 4, 13, 14, 23, -7, -6)] == [-7, 3, 3, 13, 13, -17, -7]
    random = Random(0)
    for _ in range(300):
        step, low = random.randint(1, 9), random.randint(-40, 40)
        output = TimeOutput("b", "a", random.randint(-9, 9), random.randint(1, 4), step, random.randint(-9, 9))
        later = range(low, low + step)
        end = next(each for each in later if (each - output.origin) % step == 0)
        assert output.convert(low) == (end - output.shift) // output.length


@pytest.mark.parametrize("seed", range(24))
def test_union_promises_the_smaller_of_each_bound(seed: int) -> None:
    random = Random(seed)
    joint = bool(seed % 2)
    each: Node = PAIRS if joint else ROWS
    node = Union((each,) * random.randint(1, 4))
    inputs = [made_rows(random, nulls=joint) for _ in node.inputs]
    streams = [stream(random, rows, by_both if joint else by_ts, 1 + joint) for rows in inputs]
    bounds = [(BEGINNING,) * (1 + joint) for _ in inputs]

    def watermark(operator: UnionOperator, event: tuple) -> None:
        if isinstance(event[1], tuple):
            bounds[event[0]] = event[1]
        lowest = tuple(map(min, zip(*bounds, strict=True)))
        assert operator.watermark == (lowest if BEGINNING not in lowest else (BEGINNING,) * len(lowest))

    events = interleaved(random, streams)
    found = check(lambda: make_operator(node), events, schema_of(ROWS), node.time_columns, random, watermark)
    assert found == Counter(row for rows in inputs for row in rows)


def test_a_union_promises_no_more_than_the_least_of_its_inputs_can() -> None:
    silent = Apply(ROWS, ROWS.outputs, ())
    node = Union((PAIRS, silent))
    assert node.time_columns == ()
    operator = make_operator(node)
    assert list(operator.punctuate(0, JointPunctuation("a", (5, 6)))) == []
    assert list(operator.punctuate(1, Punctuation("b", END))) == []
    assert list(operator.punctuate(0, JointPunctuation("a", (7, 8)))) == []
    assert list(operator.punctuate(0, JointPunctuation("a", (END, END)))) == [Punctuation("*", END)]


def test_what_is_no_union_is_refused() -> None:
    with pytest.raises(ValueError, match="a union needs equal columns"):
        Union((ROWS, Apply(ROWS, ROWS.outputs[1:], ())))
    with pytest.raises(ValueError, match="the same time columns"):
        Union((ROWS, PAIRS))


@pytest.mark.parametrize("seed", range(30))
def test_distinct_passes_the_first_row_of_each_key_and_forgets_it(seed: int) -> None:
    random = Random(seed)
    joint = bool(seed % 2)
    input_: Node = PAIRS if joint else ROWS
    node = Distinct(input_, ("ts", "other", "g"))
    of_keys = Apply(input_, tuple(Output(each.name, each) for each in (TS, OTHER, GROUP)), ())
    rows = [row[:3] for row in made_rows(random, nulls=True)]
    events = [(0, each) for each in stream(random, rows, by_both if joint else by_ts, 1 + joint)]
    seen: set[tuple] = set()
    watermark = (BEGINNING,) * (1 + joint)

    def held(operator: DistinctOperator, event: tuple) -> None:
        nonlocal watermark, seen
        if isinstance(event[1], tuple):
            watermark = event[1]
        else:
            seen |= set(event[1])
        seen = {row for row in seen if not is_covered((by_both if joint else by_ts)(row), watermark)}
        assert operator.rows_held == len(seen)
        assert operator.snapshot()["keys"].num_rows == len(seen)

    found = check(lambda: make_operator(node), events, schema_of(of_keys), node.time_columns, random, held)
    assert found == Counter(set(rows))


def test_a_row_whose_key_may_have_been_seen_is_late() -> None:
    operator = make_operator(Distinct(ROWS, ("ts", "g")))
    assert isinstance(operator, DistinctOperator)
    schema = schema_of(ROWS)
    assert rows_of(feed(operator, (0, [(5, 0, "a", 1), (5, 1, "a", 2)]), schema)) == {(5, 0, "a", 1): 1}
    feed(operator, (0, (6,)), schema)
    assert feed(operator, (0, [(5, 0, "a", 1)]), schema) == []
    assert rows_of(feed(operator, (0, [(5, 0, "b", 1), (6, 0, "a", 1)]), schema)) == {(6, 0, "a", 1): 1}
    assert (operator.received, operator.late, operator.results) == (5, 2, 2)


@pytest.mark.parametrize("seed", range(24))
def test_windows_over_any_node_are_those_of_the_definition(seed: int) -> None:
    random = Random(seed)
    spec = Spec(random.randint(1, 100), random.randint(1, 30), random.choice([0, random.randint(-100, 100)]))
    plan = plan_of(SlidingWindow(spec.range, spec.slide, spec.origin), (Key("g", GROUP),))
    node = Windowed(Filter(ROWS, Binary(Op.GE, TS, seconds(0))), plan, "ts")
    rows = made_rows(random)
    events = [(0, each) for each in stream(random, rows, by_ts, 1)]

    def closed(operator: WindowedOperator, event: tuple) -> None:
        low = event[1]
        if isinstance(low, tuple):  # none that ends by the watermark is left
            ranges = operator.open_windows()
            assert isinstance(ranges, list)
            wids = [wid for first, end in ranges for wid in range(first, end)]
            assert all(spec.extent(wid)[1] > low[0] for wid in wids)

    found = check(lambda: make_operator(node), events, schema_of(ROWS), node.time_columns, random, closed)
    groups: dict[tuple, list[tuple]] = {}
    for row in rows:
        for wid in spec.wids(row[0]):
            groups.setdefault((*spec.extent(wid), row[2]), []).append(row)
    assert found == Counter((*key, *summary(of)) for key, of in groups.items())


def test_rows_without_a_time_are_in_no_window() -> None:
    by_other = Apply(ROWS, tuple(Output(each.name, each) for each in (TS, OTHER, GROUP, NUMBER)), ())
    operator = make_operator(Windowed(by_other, plan_of(SlidingWindow(10, 10), ()), "other"))
    assert isinstance(operator, WindowedOperator)
    feed(operator, (0, [(1, None, "a", 1), (2, 3, "a", 7)]), schema_of(ROWS))
    assert rows_of(feed(operator, (0, (END,)), schema_of(ROWS))) == {(0, 10, 1, 7, 7, 7): 1}
    assert (operator.received, operator.outside) == (2, 1)


def test_a_box_says_nothing_of_windows_until_one_side_is_at_its_end() -> None:
    node = Windowed(PAIRS, plan_of(SlidingWindow(10, 10), ()), "ts")
    operator = make_operator(node)
    schema = schema_of(ROWS)
    feed(operator, (0, [(1, 3, "a", 1)]), schema)
    assert feed(operator, (0, (50, 60)), schema) == []
    batch, mark = feed(operator, (0, (55, END)), schema)
    assert rows_of([batch]) == {(0, 10, 1, 1, 1, 1): 1}
    assert mark == Punctuation("link", 51)  # the last window that is final ends at 50, and no later row has 50 or less
    assert bounds_of(JointPunctuation("a", (END, END)), 1) == (END,)
    assert single_bound((3, END), 1) == BEGINNING


def test_windows_over_the_whole_input_promise_nothing_but_their_end() -> None:
    operator = make_operator(Windowed(ROWS, plan_of(WHOLE_INPUT, ()), "ts"))
    schema = schema_of(ROWS)
    assert feed(operator, (0, [(1, 3, "a", 1)]), schema) + feed(operator, (0, (50,)), schema) == []
    assert rows_of(items := feed(operator, (0, (END,)), schema)) == {(1, 1, 1, 1): 1}
    assert items[-1] == Punctuation("link", END)


def time_groups(random: Random, joint: bool) -> tuple[TimeGroups, dict[str, tuple[int, int]]]:
    """Groups by one or both times, plain or by intervals. For each time: its position in a row and its interval."""
    times: list[tuple[str, int, str]] = []
    chosen = {"ts": 0, "other": 1} if joint and random.random() < 0.7 else {"ts": 0}
    keys, numbers = [Key("g", GROUP)], {}
    for name, place in chosen.items():
        interval = random.choice([1, 1, 7, 20])
        column: Expression = (TS, OTHER)[place]
        keys.append(Key(f"k{name}", column if interval == 1 else Binary(Op.DIV, column, seconds(interval))))
        times.append((name, interval, f"k{name}"))
        numbers[f"k{name}"] = (place, interval)
    plan = plan_of(WHOLE_INPUT, tuple(keys))
    return TimeGroups(PAIRS if joint else ROWS, plan, tuple(times)), numbers


@pytest.mark.parametrize("seed", range(50))
def test_time_groups_leave_as_soon_as_a_watermark_covers_them(seed: int) -> None:
    random = Random(seed)
    joint = bool(seed % 3)
    node, numbers = time_groups(random, joint)
    rows = made_rows(random, nulls=joint and seed % 2 == 1)
    events = [(0, each) for each in stream(random, rows, by_both if joint else by_ts, 1 + joint)]

    def key_of(row: tuple) -> tuple:
        counted = (None if row[at] is None else row[at] // interval for at, interval in numbers.values())
        return (row[2], *counted)

    def ends_of(row: tuple) -> tuple:
        """Return the last instant of a row's group in each progressing column, or None if it has none."""
        ends: list[int | None] = [None] * (1 + joint)
        for at, interval in numbers.values():
            ends[at] = None if row[at] is None else (row[at] // interval + 1) * interval - 1
        return tuple(ends)

    waiting: dict[tuple, tuple] = {}

    def held(operator: TimeGroupsOperator, event: tuple) -> None:
        what = event[1]
        if isinstance(what, list):
            waiting.update({key_of(row): ends_of(row) for row in what})
        else:
            for key in [key for key, ends in waiting.items() if is_covered(ends, what)]:
                del waiting[key]
        assert operator.rows_held == len(waiting)
        assert operator.snapshot()["groups"].num_rows == len(waiting)

    found = check(lambda: make_operator(node), events, schema_of(ROWS), node.time_columns, random, held)
    groups: dict[tuple, list[tuple]] = {}
    for row in rows:
        groups.setdefault(key_of(row), []).append(row)
    assert found == Counter((*key, *summary(of)) for key, of in groups.items())


def test_the_box_of_a_pair_lets_its_group_leave_before_single_promises_do() -> None:
    plan = plan_of(WHOLE_INPUT, (Key("S", TS), Key("A", OTHER)))
    operator = make_operator(TimeGroups(PAIRS, plan, (("ts", 1, "S"), ("other", 1, "A"))))
    assert isinstance(operator, TimeGroupsOperator)
    schema = schema_of(ROWS)
    feed(operator, (0, [(0, 1, "a", 1), (1, 0, "a", 1)]), schema)
    left = [rows_of(feed(operator, (0, box), schema)) for box in [(1, 1), (2, 1), (2, 2), (3, 2)]]
    assert left == [{}, {(1, 0, 1, 1, 1, 1): 1}, {(0, 1, 1, 1, 1, 1): 1}, {}]
    assert feed(operator, (0, [(1, 1, "a", 1)]), schema) == []
    assert (operator.late, operator.rows_held) == (1, 0)


def test_groups_promise_the_numbers_that_their_results_show() -> None:
    tens = Key("left", Binary(Op.DIV, TS, seconds(10)))
    plan = plan_of(WHOLE_INPUT, (tens, Key("right", OTHER)))
    operator = make_operator(TimeGroups(PAIRS, plan, (("ts", 10, "left"), ("other", 1, "right"))))
    told = [list(operator.punctuate(0, JointPunctuation("a", box))) for box in [(25, 7), (29, 7), (30, 7), (30, END)]]
    boxes = [(2, 7), None, (3, 7), (3, END)]
    assert told == [[] if box is None else [JointPunctuation("a", box)] for box in boxes]
    one = make_operator(TimeGroups(PAIRS, plan_of(WHOLE_INPUT, (tens,)), (("ts", 10, "left"),)))
    told = [list(one.punctuate(0, JointPunctuation("a", box))) for box in [(25, 7), (29, END), (END, END)]]
    assert told == [[], [Punctuation("a", 2)], [Punctuation("a", END)]]
    hidden = replace(plan, select=plan.select[1:])
    unshown = TimeGroups(PAIRS, hidden, (("ts", 10, "left"), ("other", 1, "right")))
    assert unshown.time_columns == ()
    silent = make_operator(unshown)
    told = [list(silent.punctuate(0, JointPunctuation("a", box))) for box in [(25, 7), (29, END), (END, END)]]
    assert told == [[], [], [Punctuation("a", END)]]


def test_many_groups_that_left_are_taken_out_of_the_table() -> None:
    plan = plan_of(WHOLE_INPUT, (Key("S", TS),))
    operator = make_operator(TimeGroups(ROWS, plan, (("ts", 1, "S"),)))
    assert isinstance(operator, TimeGroupsOperator)
    sizes = []
    for first in range(0, 20_000, 1000):
        feed(operator, (0, [(ts, 0, "a", 1) for ts in range(first, first + 1000)]), schema_of(ROWS))
        feed(operator, (0, (first + 900,)), schema_of(ROWS))
        sizes.append(operator.bytes)
        assert operator.rows_held == 100
    assert np.diff(sizes[5:]).max() == 0
