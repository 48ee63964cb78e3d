"""Totals of windows that slide by rows, of every way to merge; and the sorted runs that rows wait in.

* Random rows against a fold in plain Python detect a rule with a wrong start value or a wrong merge position. They
  detect a rule that mixes the two columns of a pair. The kernels' plain Python runs too, because it checks bounds.
* A number that no sum of floats survives, had it been subtracted, catches totals that take out.
* Groups that appear and disappear detect labels that are reused while rows of two stacks still have them.
"""

import math
from bisect import insort
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from highlevel.groups.merging import MergeFunction, MergeRule
from highlevel.slide_by_tuple import extent, kernels, runs
from highlevel.slide_by_tuple import rows as held_rows
from highlevel.slide_by_tuple.extent import Extent
from highlevel.slide_by_tuple.operator import SlideByTupleAggregate
from highlevel.slide_by_tuple.runs import Runs
from highlevel.windows.kind import SlideByTuple
from lowlevel.punctuation import END, Punctuation
from lowlevel.subaggregates import Kind, SubAggregate
from tests.conftest import Rounds
from tests.references.flat_groups import flat
from tests.references.operator_contract import feed, rows_of, through_ipc

NAN = math.nan
RULES: list[tuple[MergeFunction, bool]] = [(rule, False) for rule in MergeFunction] + [
    (MergeFunction.SUM, True),
    (MergeFunction.MIN, True),
    (MergeFunction.MAX, True),
    (MergeFunction.FIRST, True),
    (MergeFunction.LAST, True),
]


def fold(rule: MergeFunction, values: list[tuple]) -> tuple:
    """Return the result of a rule for values. A value is (time, value) for a pair and (value,) otherwise."""
    if rule in (MergeFunction.FIRST, MergeFunction.LAST):
        # A NaN is after every other value of its time.
        ordered = sorted(values, key=lambda pair: (pair[0], pair[1] != pair[1], 0 if pair[1] != pair[1] else pair[1]))
        return ordered[0 if rule is MergeFunction.FIRST else -1]
    numbers = [value for (value,) in values]
    if rule is MergeFunction.SUM:
        return (sum(numbers),)
    if rule in (MergeFunction.MIN, MergeFunction.MAX):
        known = [value for value in numbers if value == value]
        return ((min if rule is MergeFunction.MIN else max)(known) if known else NAN,)
    total = numbers[0]
    for value in numbers[1:]:
        total = (
            total & value if rule is MergeFunction.AND else total | value if rule is MergeFunction.OR else total ^ value
        )
    return (total,)


def random_value(random: Random, rule: MergeFunction, is_float: bool) -> tuple:
    value: float = random.randint(-9, 9)
    if is_float:
        # Halves add up exactly; a NaN is no part of a sum here, as it would be all of it.
        value = NAN if rule is not MergeFunction.SUM and random.random() < 0.2 else value / 2
    return (random.randint(0, 3), value) if rule in (MergeFunction.FIRST, MergeFunction.LAST) else (value,)


def word(value: float, is_float: bool) -> int:
    return int(np.array(value, np.float64).view(np.int64)) if is_float else int(value)


def text(values: tuple) -> str:
    """NaN equals itself."""
    return repr(tuple(float(value) for value in values))


def totals(random: Random, rule: MergeFunction, is_float: bool) -> None:
    """Two columns of some rows, one of them a count, in windows of three groups, some rows a step at a time."""
    reach = random.choice([1, 5, 20])
    pair = rule in (MergeFunction.FIRST, MergeFunction.LAST)
    floats = [False, is_float] if pair else [is_float]
    columns = ("t", "v") if pair else ("v",)
    held = Extent(reach, [(MergeRule(("n",), MergeFunction.SUM), [False]), (MergeRule(columns, rule), floats)])
    held.reserve(3)
    times = sorted(random.choices(range(60), k=random.randint(1, 40)))
    rows = [(time, random.randrange(3), random_value(random, rule, is_float)) for time in times]
    cut = random.randint(0, 60)
    wids = sorted(set(times))
    found = {}
    for part, low in (((0, cut), cut), ((cut, 60), 60)):
        mine = [row for row in rows if part[0] <= row[0] < part[1]]
        words = [[row[0], row[1], 1, *map(word, row[2], floats)] for row in mine]
        held.add(np.array(words, np.int64).reshape(len(mine), 3 + len(floats)).T.copy())
        for batch in held.windows(np.array([wid for wid in wids if part[0] <= wid < low], np.int64)):
            for wid, group, count, *values in batch.T.tolist():
                unpacked = [
                    float(np.array(value).view(np.float64)) if each else value
                    for value, each in zip(values, floats, strict=True)
                ]
                assert (wid, group) not in found
                found[wid, group] = count, text(tuple(unpacked))
        held.remove_until(low - reach)
    want: dict[tuple[int, int], Any] = {}
    for wid in wids:
        for group in range(3):
            values = [row[2] for row in rows if row[1] == group and wid - reach < row[0] <= wid]
            if values:
                want[wid, group] = len(values), text(fold(rule, values))
    assert found == want


@pytest.mark.parametrize(("rule", "is_float"), RULES)
def test_totals_are_those_of_a_fold(rule: MergeFunction, is_float: bool, rounds: Rounds) -> None:
    for seed in rounds(100):
        totals(Random(f"{rule} {is_float} {seed}"), rule, is_float)


@pytest.mark.parametrize(("rule", "is_float"), RULES)
def test_and_so_are_those_of_plain_kernels(
    rule: MergeFunction, is_float: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sweep", "enter_rows", "leave_rows"):
        monkeypatch.setattr(extent, name, flat(getattr(kernels, name).function))
    for seed in range(5):
        monkeypatch.setattr(extent, "OUTPUT_ROWS", 1 + seed)
        totals(Random(f"{rule} {is_float} {seed}"), rule, is_float)


def test_a_sum_of_floats_holds_nothing_of_a_row_that_left() -> None:
    schema = pa.schema([("pane", pa.int64()), ("s", pa.float64())])
    operator = SlideByTupleAggregate(SlideByTuple(10), [], [SubAggregate("s", Kind.SUM)])
    rows = [{"pane": 0, "s": 1e300}, *({"pane": 5 + number, "s": 0.1} for number in range(6))]
    feed(operator, (0, pa.RecordBatch.from_pylist(rows, schema=schema)))
    found = {end - 1: total for _, end, total in rows_of(feed(operator, (0, Punctuation("M", END))))}
    assert found[9] == 1e300
    assert found[10] == sum([0.1] * 6)


def test_groups_that_come_and_go_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_rows, "MAX_EMPTY_GROUPS", 4)
    schema = pa.schema([("pane", pa.int64()), ("k0", pa.string()), ("k1", pa.float64()), ("s0", pa.int64())])
    for seed in range(20):
        random = Random(seed)
        operator = SlideByTupleAggregate(SlideByTuple(7), ["k0", "k1"], [SubAggregate("s0", Kind.COUNT)])
        rows: list[tuple[int, str, float]] = []
        found = []
        most = 0
        for step in range(60):
            names = ["here always", f"name of step {step}", str(step % 7), ""]
            some = [(step * 3 + random.randint(0, 9), random.choice(names), random.choice([0.5, step / 2]))]
            some *= random.choice([1, 1, 5])
            rows += some
            dicts = [dict(zip(schema.names, (*row, 1), strict=True)) for row in some]
            feed(operator, (0, pa.RecordBatch.from_pylist(dicts, schema=schema)))
            found += feed(operator, (0, Punctuation("M", step * 3)))
            most = max(most, operator._rows.keys.count if operator._rows else 0)
            if random.random() < 0.1:
                again = SlideByTupleAggregate(operator.window, operator.groups, [SubAggregate("s0", Kind.COUNT)])
                again.restore(through_ipc(operator.snapshot()))
                operator = again
        found += feed(operator, (0, Punctuation("M", END)))
        want = set()
        for wid in {ts for ts, _, _ in rows}:
            inside = [row[1:] for row in rows if wid - 7 < row[0] <= wid]
            want |= {(wid - 6, wid + 1, *group, inside.count(group)) for group in set(inside)}
        assert set(rows_of(found)) == want
        assert most < 45


def test_runs_give_what_is_below_a_time_in_order_and_hold_little_more(
    monkeypatch: pytest.MonkeyPatch, rounds: Rounds
) -> None:
    for seed in rounds(200):
        random = Random(seed)
        monkeypatch.setattr(runs, "MAX_SMALL_ROWS", random.choice([2, 8, 1000]))
        held = Runs(2)
        want: list[tuple[int, int]] = []
        for number in range(40):
            times = random.choices(range(number, number + 30), k=random.choice([0, 1, 3, 40]))
            held.add(np.array([times, [number] * len(times)], np.int64))
            for time in times:
                insort(want, (time, number))
            low = random.randint(number - 10, number + 10)
            found = held.take(low)
            assert sorted(zip(*found.tolist(), strict=True)) == [row for row in want if row[0] < low]
            assert (np.diff(found[0]) >= 0).all()
            want = [row for row in want if row[0] >= low]
            assert held.rows == len(want)
            assert held.bytes <= 2 * 16 * len(want)
            assert sorted(zip(*held.all().tolist(), strict=True)) == want
