"""The rows of results of random automata are those of all their derivations, by the definition.

Finds: a row of another derivation, start or result; a missing row where equal runs were one; a row that is ignored;
a wrong state after a row; and results that the runs forwards do not have. If each row is listed once, also: a row that
is listed twice, a row of a result that is not selected, and a result that is skipped although it has a new row.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from highlevel.patterns import memory, store
from highlevel.patterns.automaton import Arc, Automaton, Field
from highlevel.patterns.derivations import Derivations, Requests, SelectedRegisters, StoredRows
from highlevel.patterns.kernels import derivations, distinct_rows, ignored_rows
from lowlevel.expressions.tree import Binary, Column, IsNull, Literal
from lowlevel.expressions.types import Op, Type
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import END
from tests.harness.plain_kernels import plain
from tests.references.automata import Row, random_automaton, random_row, random_waiting_automaton, tie_of
from tests.references.automaton_references import rows_of_results

PARTS = 4

PAYLOAD = pa.schema(
    [("kind", pa.string()), ("size", pa.int64()), ("level", pa.float64()), ("number", pa.int64()), ("time", pa.int64())]
)

Result = tuple[bool, tuple[int, int, int], int, tuple[Any, ...]]
"""A result: whether it is that of a deadline, partition and times, the end of its lifetime, and its register."""


def compare(seed: int, most_rows: int = 16) -> int:
    """Compare the rows of all results of a random automaton over rows of two partitions. Return their number."""
    draw = random.Random(seed)
    automaton = draw.choice([random_automaton, random_waiting_automaton])(draw)
    if draw.random() < 0.4:
        automaton = with_deadline(draw, automaton)
    is_numbered = draw.random() < 0.2
    arrived = [(draw.randrange(2), row) for row in random_rows(draw, most_rows, is_numbered=is_numbered)]
    return compare_rows(automaton, arrived, f"seed {seed}", is_numbered=is_numbered)


def compare_rows(automaton: Automaton, arrived: list[tuple[int, Row]], name: str, *, is_numbered: bool = False) -> int:
    """Compare the rows of all results over rows, given with their partitions (0 or 1). Return their number."""
    parts: list[list[tuple[int, Row]]] = [[], []]
    for place, (partition, row) in enumerate(arrived):
        parts[partition].append((place, row))
    if not is_numbered:
        for part in parts:
            part.sort(key=lambda each: (each[1].start, tie_of(each[1].values, PAYLOAD, each[0])))
            part[:] = [(place, replace(row, sequence=at)) for at, (place, row) in enumerate(part)]
    else:
        for part in parts:
            part.sort(key=lambda each: (each[1].start, each[1].sequence))
    stored = StoredRows(
        pa.RecordBatch.from_pylist([dict(row.values) for _, row in arrived], PAYLOAD),
        np.array([partition for partition, _ in arrived], np.int64),
        np.array([row.start for _, row in arrived], np.int64),
        np.array([row.stop for _, row in arrived], np.int64),
    )
    expected: Counter[Any] = Counter()
    requests: dict[bool, set[tuple[int, int, int]]] = {False: set(), True: set()}
    of_results: dict[Result, set[int]] = {}
    for partition, part in enumerate(parts):
        rows = [row for _, row in part]
        for (first, last, *result, at), places in rows_of_results(automaton, rows, is_numbered=is_numbered).items():
            requests[at is None].add((partition, first, last))
            key = at is None, (partition, first, last), *result
            of_results.setdefault(key, set()).update(part[place][0] for place, _ in places)
            for place, state in places:
                expected[partition, first, last, *result, at is None, part[place][0], state] += 1
    compare_distinct_rows(automaton, stored, of_results, name, is_numbered=is_numbered)
    found: Counter[Any] = Counter()
    largest = 0
    for by_deadline, times in requests.items():
        table = np.array(sorted(times), np.int64).reshape(-1, 3)
        parts_of_trace = Derivations(automaton, number="number" if is_numbered else None).trace(
            stored, PAYLOAD.names, Requests(*table.T, by_deadline)
        )
        for traced in parts_of_trace:
            registers = [column.to_pylist() for column in traced.registers]
            sizes: Counter[Any] = Counter()
            for index, request in enumerate(traced.requests.tolist()):
                register = tuple(column[index] for column in registers)
                sizes[request, int(traced.stops[index]), register] += 1
                place, state = int(traced.rows[index]), traced.states[index].as_py()
                found[*table[request].tolist(), int(traced.stops[index]), register, by_deadline, place, state] += 1
            largest = max(largest, *sizes.values())
            assert len(traced.rows) <= max(store.PLACE_ROOM, 2 * largest), name
    assert found == expected, f"{name}: {automaton}"
    return sum(expected.values())


def compare_distinct_rows(
    automaton: Automaton, stored: StoredRows, of_results: dict[Result, set[int]], name: str, *, is_numbered: bool
) -> None:
    """Compare the rows of any of several results: of all, of random ones, and of random ones if some rows are listed.

    `of_results`: the rows of each result.
    """
    draw = random.Random(name)
    derivations_of = Derivations(automaton, number="number" if is_numbered else None)
    registers = pa.schema([(field.name, ARROW_TYPES[field.initial.type]) for field in automaton.register])
    for is_selecting, share in ((False, 0.0), (True, 0.0), (True, 0.6)):
        is_listed = np.array([draw.random() < share for _ in stored.starts], np.bool_)
        for by_deadline in (False, True):
            results = [each for each in of_results if each[0] == by_deadline]
            times = sorted({each[1] for each in results})
            if is_selecting:  # then no result of some requests is selected
                results = draw.sample(results, (len(results) + 1) // 2)
            results.sort(key=lambda each: each[1])
            columns = list(zip(*(each[3] for each in results), strict=True)) or [()] * len(registers)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, registers, strict=True)]
            selected = SelectedRegisters(
                np.array([times.index(each[1]) for each in results], np.int64),
                np.array([each[2] for each in results], np.int64),
                pa.RecordBatch.from_arrays(arrays, schema=registers),
            )
            requests = Requests(*np.array(times, np.int64).reshape(-1, 3).T, by_deadline)
            before = set(np.flatnonzero(is_listed).tolist())
            expected = set().union(*(of_results[each] for each in results)) - before
            found = derivations_of.list_rows(
                stored, PAYLOAD.names, requests, selected if is_selecting else None, is_listed
            )
            assert found.tolist() == sorted(expected), f"{name}: {automaton}"
            assert set(np.flatnonzero(is_listed).tolist()) == before | expected


def random_rows(draw: random.Random, most_rows: int, *, is_numbered: bool) -> list[Row]:
    """Return rows in any order. If they are numbered, some numbers are missing; otherwise some times are equal."""
    count = draw.randint(1, most_rows)
    end = 40 * most_rows // 16 if is_numbered else most_rows - 1
    times = sorted(draw.sample(range(end), count) if is_numbered else draw.choices(range(end), k=count))
    rows, number = [], 0
    for time in times:
        number += draw.choice([1, 1, 1, 1, 2])
        row = random_row(draw, time, number)
        rows.append(replace(row, values={**row.values, "number": number if is_numbered else None, "time": time}))
    return draw.sample(rows, count)


def with_deadline(draw: random.Random, automaton: Automaton) -> Automaton:
    """Return an automaton that also waits for a time after a row of the run, and accepts the run then."""
    asked = Field("asked", Literal(None, Type.TIME))
    time = Column("time", Type.TIME)
    arcs = [
        replace(arc, transfer=(*arc.transfer, ("asked", time))) if not arc.is_silent and draw.random() < 0.4 else arc
        for arc in automaton.arcs
    ]
    deadline = Binary(Op.ADD, asked.column, Literal(draw.choice([1, 3, 8]), Type.INT))
    arcs.append(Arc(draw.choice(automaton.states), "over", deadline=deadline))
    register = (*automaton.register, asked)
    return replace(automaton, arcs=tuple(arcs), register=register, finals=(*automaton.finals, "over"))


def random_ignoring_automaton(draw: random.Random) -> Automaton:
    """Return an automaton whose runs often ignore rows of kind c and of no kind, whatever their state is."""
    kind = Column("kind", Type.TEXT)
    count = Field("count", Literal(0, Type.INT))
    counted = (("count", Binary(Op.ADD, count.column, Literal(1, Type.INT))),)
    few = Binary(Op.LT, count.column, Literal(draw.randint(1, 2), Type.INT))
    sees_a, sees_b = (Binary(Op.EQ, kind, Literal(name, Type.TEXT)) for name in "ab")
    others = Binary(Op.OR, IsNull(kind), Binary(Op.EQ, kind, Literal("c", Type.TEXT)))
    waiting = ["one", "two", "three"][: draw.randint(1, 3)]
    arcs = [Arc("idle", name, draw.choice([sees_a, sees_b]), draw.choice([(), counted])) for name in waiting]
    for name in waiting:
        conditions = [sees_a, sees_b, Binary(Op.AND, sees_a, few), Binary(Op.AND, sees_b, few)]
        chosen = draw.sample(conditions, draw.randint(1, 3))
        arcs += [Arc(name, draw.choice([*waiting, "done"]), each, draw.choice([(), counted])) for each in chosen]
        has_limit = draw.random() < 0.2  # then whether a run ignores the row also depends on its register
        arcs.append(Arc(name, name, Binary(Op.AND, others, few) if has_limit else others))
    arcs.append(Arc(draw.choice(waiting), "done", draw.choice(conditions)))
    exceptions = [
        Arc("idle", waiting[0], is_silent=True),
        Arc("done", waiting[0], others),
        Arc(waiting[0], "idle", sees_a),
        Arc(waiting[0], "done", Binary(Op.AND, others, few)),
    ]
    arcs += draw.sample(exceptions, draw.random() < 0.3)
    draw.shuffle(arcs)
    return Automaton("idle", ("done",), tuple(arcs), (count,), draw.choice([None, 10, 30]))


def test_rows_that_all_runs_ignore_are_left_out_and_change_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with lifetimes, which end a run that ignores the row."""
    left_out = 0
    find = store.PartialMatches.ignored_rows

    def count(runs: store.PartialMatches, *arguments: Any) -> store.Mask:
        nonlocal left_out
        is_ignored = find(runs, *arguments)
        left_out += int(is_ignored.sum())
        return is_ignored

    monkeypatch.setattr(store.PartialMatches, "ignored_rows", count)
    assert sum(map(compare_ignoring, range(200))) > 1000
    assert left_out > 500


def compare_ignoring(seed: int) -> int:
    """Compare the rows of all results of a random automaton whose runs often ignore rows. Return their number."""
    draw = random.Random(seed)
    automaton = random_ignoring_automaton(draw)
    if draw.random() < 0.4:
        automaton = with_deadline(draw, automaton)
    is_numbered = draw.random() < 0.1
    rows = random_rows(draw, 20, is_numbered=is_numbered)
    if draw.random() < 0.6:
        rows = [replace(row, stop=END) for row in rows]
    arrived = [(draw.randrange(2), row) for row in rows]
    return compare_rows(automaton, arrived, f"ignored rows {seed}", is_numbered=is_numbered)


def test_a_row_that_some_runs_of_a_start_do_not_ignore_is_not_left_out() -> None:
    """Two runs begin with the first row, and the second row ends the one with another register."""
    kind, count = Column("kind", Type.TEXT), Field("count", Literal(0, Type.INT))
    is_a, is_b, is_c = (Binary(Op.EQ, kind, Literal(name, Type.TEXT)) for name in "abc")
    arcs = (
        Arc("idle", "one", is_a),
        Arc("idle", "one", is_a, (("count", Literal(1, Type.INT)),)),
        Arc("one", "one", Binary(Op.AND, is_c, Binary(Op.LT, count.column, Literal(1, Type.INT)))),
        Arc("one", "done", is_b),
    )
    automaton = Automaton("idle", ("done",), arcs, (count,))
    rows = [(0, Row(time, time, END, {"kind": each, "time": time})) for time, each in enumerate("acb")]
    assert compare_rows(automaton, rows, "a limit") == 2


@pytest.mark.parametrize("part", range(PARTS))
def test_rows_of_results_are_those_of_all_derivations(part: int, soak: bool) -> None:
    """400 automata, with --soak 40,000."""
    assert sum(compare(seed) for seed in range(part, 40_000 if soak else 400, PARTS)) > 1000


@pytest.mark.parametrize("part", range(PARTS))
def test_rows_of_results_over_up_to_60_rows_are_those_of_all_derivations(part: int, soak: bool) -> None:
    """20 automata, with --soak 2,000."""
    assert sum(compare(seed, 60) for seed in range(part, 2_000 if soak else 20, PARTS)) > 100


def test_the_rows_of_many_runs_that_end_with_one_row_are_returned_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each row, there is a run for each number of the rows that it has counted, and each is a result.

    The cost is that of the derivations of the results. If all pairs of runs were compared for each result, the test
    would take minutes. All rows together would be more than memory for large inputs.
    """
    monkeypatch.setattr(store, "PLACE_ROOM", 100)
    number, kind = Field("number_of_rows", Literal(0, Type.INT)), Column("kind", Type.TEXT)
    counted = (("number_of_rows", Binary(Op.ADD, number.column, Literal(1, Type.INT))),)
    is_first = Binary(Op.EQ, kind, Literal("first", Type.TEXT))
    arcs = (
        Arc("idle", "counting", is_first),
        Arc("counting", "counting"),
        Arc("counting", "counting", transfer=counted),
        Arc("counting", "over", transfer=counted),
    )
    automaton = Automaton("idle", ("over",), arcs, (number,))
    rows = [(0, Row(time, time, END, {"kind": "first" if time < 1 else "other", "time": time})) for time in range(40)]
    assert compare_rows(automaton, rows, "many runs") > 1000


def test_the_kernel_reads_and_writes_within_its_arrays_and_continues_without_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(derivations, "trace_runs", plain(derivations.trace_runs))
    monkeypatch.setattr(distinct_rows, "list_rows", plain(distinct_rows.list_rows))
    mark_ignored_rows, left_out = plain(ignored_rows.mark_ignored_rows), []

    def count(*arguments: Any) -> int:
        left_out.append(mark_ignored_rows(*arguments))
        return left_out[-1]

    monkeypatch.setattr(ignored_rows, "mark_ignored_rows", count)
    for module in (memory, store):
        monkeypatch.setattr(module, "MIN_ROOM", 2)
    monkeypatch.setattr(store, "PLACE_ROOM", 2)
    assert sum(map(compare, range(40))) > 100
    assert sum(map(compare_ignoring, range(10))) > 20
    assert len(left_out) > 0
    assert sum(left_out) > 0
