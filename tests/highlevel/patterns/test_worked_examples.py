"""The worked examples of the paper about augmented automata (digest EX1 to EX10, features A01 to A18).

Finds: an arc that applies in the wrong state, a wrong list of runs after a late row or a retraction, a result with a
wrong lifetime, and a removal by a watermark that a later row still needed.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pytest

from highlevel.patterns.arc_places import ARC_WORDS
from highlevel.patterns.automaton import Arc, Automaton, Field, PatternError
from highlevel.patterns.compilation import compile_automaton
from highlevel.patterns.kernels.layout import (
    CREATED,
    NEXT_NODE,
    NODES,
    PROPAGATED,
    REMOVED,
    STATE,
    TIME,
)
from highlevel.patterns.operator import PatternOperator
from highlevel.speculation.lifetimes.model import canonical_history, change_schema, concat
from lowlevel.expressions.tree import Binary, Column, Expression, Literal, Unary
from lowlevel.expressions.types import Op, Type
from lowlevel.punctuation import BEGINNING, END

CHANGE = Column("change", Type.FLOAT)
R1, R2 = Column("r1", Type.INT), Column("r2", Type.INT)
ONE = Literal(1, Type.INT)
KIND, WHEN, HOST = Column("kind", Type.TEXT), Column("ts", Type.INT), Column("host", Type.TEXT)

BIG_DROP, DOWN, UP = -2.0, -0.5, 0.5


def integer(value: int) -> Literal:
    return Literal(value, Type.INT)


def all_of(first: Expression, *others: Expression) -> Expression:
    for other in others:
        first = Binary(Op.AND, first, other)
    return first


def is_kind(value: str) -> Expression:
    return Binary(Op.EQ, KIND, Literal(value, Type.TEXT))


def last_v(k: int, begin: int = BEGINNING, end: int = END) -> tuple[Arc, ...]:
    """The arcs a3, a4 and a5 of EX1, which contain k."""
    up = Binary(Op.GT, CHANGE, Literal(0.0, Type.FLOAT))
    fewer, last = Binary(Op.LT, R2, integer(k - 1)), Binary(Op.EQ, R2, integer(k - 1))
    less, more = ("r1", Binary(Op.SUB, R1, ONE)), ("r2", Binary(Op.ADD, R2, ONE))
    return (
        Arc("q2", "q2", all_of(up, Binary(Op.OR, fewer, Binary(Op.GT, R1, ONE))), (less,), begin=begin, end=end),
        Arc("q2", "q1", all_of(up, fewer), (less, more), begin=begin, end=end),
        Arc("q2", "q3", all_of(up, last, Binary(Op.EQ, R1, ONE)), (less, more), begin=begin, end=end),
    )


def vs_after_a_drop(last_arcs: Iterable[Arc], window: int | None) -> Automaton:
    """EX1: a drop of more than 1, then k times some downticks and upticks, as many upticks as downticks in total."""
    down, more = Binary(Op.LT, CHANGE, Literal(0.0, Type.FLOAT)), ("r1", Binary(Op.ADD, R1, ONE))
    drop = Binary(Op.LT, CHANGE, Literal(-1.0, Type.FLOAT))
    arcs = (Arc("q0", "q1", drop), Arc("q1", "q1", down, (more,)), Arc("q1", "q2", down, (more,)), *last_arcs)
    return Automaton("q0", ("q3",), arcs, (Field("r1", integer(0)), Field("r2", integer(0))), window)


class Stream:
    """An operator over rows of one partition, and the changes that it has returned."""

    def __init__(self, automaton: Automaton, types: Mapping[str, pa.DataType], number: str | None = None) -> None:
        self.schema = change_schema(pa.schema(list(types.items())))
        self.operator = PatternOperator(self.schema, automaton, number=number)
        self.fields = [field.name for field in automaton.register]
        self.returned: list[pa.RecordBatch] = []

    def add(self, time: int, stop: int = END, **values: Any) -> list[tuple[Any, ...]]:
        return self._process({"type": 0, "vs": time, "ve": stop, **values})

    def retract(self, time: int, stop: int = END, **values: Any) -> list[tuple[Any, ...]]:
        return self._process({"type": 1, "vs": time, "ve": stop, "vnew": time, **values})

    def punctuate(self, time: int) -> None:
        self._process({"type": 2, "vs": time})

    def _process(self, change: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Return the changes: 'insert' or 'retract', the lifetime, and the register."""
        changes = self.operator.process(pa.RecordBatch.from_pylist([change], self.schema))
        self.returned.append(changes)
        return [
            (("insert", "retract")[row["type"]], row["vs"], row["ve"], tuple(row[name] for name in self.fields))
            for row in changes.to_pylist()
            if row["type"] != 2
        ]

    def results(self) -> list[tuple[Any, ...]]:
        history = canonical_history(concat(self.returned, self.operator.schema)).to_pylist()
        return [(row["vs"], row["ve"], tuple(row[name] for name in self.fields)) for row in history]

    def runs(self) -> dict[int, list[tuple[Any, ...]]]:
        """Return the runs by the time of their last row: start, state, and the fields of the register."""
        lists: dict[int, list[tuple[Any, ...]]] = {}
        for run in self.operator.partial_matches().to_pylist():
            register = tuple(run[name] for name in self.fields)
            lists.setdefault(run["last"], []).append((run["match_start"], run["state"], *register))
        return lists

    def intervals(self) -> list[tuple[str, int, int]]:
        """Return each stored run: its state, the row that made it (the anchor), and the last row that it ignores."""
        tables = self.operator.matches.memory.snapshot(1)
        entries, nodes = ({int(name): tables[kind][name].to_pylist() for name in tables[kind].column_names[1:]}
            for kind in ("entries", "nodes"))  # fmt: skip
        found: dict[int, list[int]] = {}
        for time, node in sorted(zip(entries[TIME], entries[NODES], strict=True)):
            while node >= 0:
                found.setdefault(node, []).append(time)
                node = nodes[NEXT_NODE][node]
        states = self.operator.matches.compiled.states
        return sorted((states[nodes[STATE][node]], times[0], times[-1]) for node, times in found.items())

    def counters(self) -> list[int]:
        """Return the nodes that new rows made, those of later rows, and removed ones."""
        return [int(self.operator.matches.state[word]) for word in (CREATED, PROPAGATED, REMOVED)]


TICKS = {1: BIG_DROP, 2: DOWN, 3: DOWN, 4: UP, 5: UP, 6: DOWN, 7: UP}
"""The change at each time of EX2, in which the row at 6 is late."""

BEFORE_LATE_ROW = {
    1: [(1, "q1", 0, 0)],
    2: [(1, "q1", 1, 0), (1, "q2", 1, 0)],
    3: [(1, "q1", 2, 0), (1, "q2", 2, 0)],
    4: [(1, "q2", 1, 0), (1, "q1", 1, 1)],
    5: [(1, "q2", 0, 0), (1, "q1", 0, 1)],
    7: [(1, "q2", -1, 0), (1, "q1", -1, 1)],
}
"""The lists of EX3 before the late row."""


def ticks(k: int = 2, window: int | None = 7) -> Stream:
    return Stream(vs_after_a_drop(last_v(k), window), {"change": pa.float64()})


def without_late_row(window: int = 7, times: Iterable[int] = (1, 2, 3, 4, 5, 7)) -> Stream:
    stream = ticks(window=window)
    for time in times:
        stream.add(time, change=TICKS[time])
    return stream


def as_digest(lists: Mapping[int, list[tuple[Any, ...]]]) -> dict[int, set[tuple[Any, ...]]]:
    """Return the lists as sets: the digest does not fix the order of the runs of one start."""
    return {time: set(runs) for time, runs in lists.items()}


def test_A01_an_arc_survives_pickling_and_its_compiled_form_has_the_types_of_the_register() -> None:
    automaton = vs_after_a_drop(last_v(2), 7)
    assert pickle.loads(pickle.dumps(automaton)) == automaton
    compiled = compile_automaton(automaton)
    assert compiled.states == ("q0", "q1", "q2", "q3")
    assert compiled.integers == ("r1", "r2")
    assert len(compiled.conditions) == 3  # drop, down, up: equal conditions are one
    assert compiled.row_integers == compiled.row_floats == ()


def test_EX1_EX2_A02_an_ordered_run_accepts_once_with_the_register_of_the_digest() -> None:
    stream = ticks()
    accepted = [change for time, change in TICKS.items() for change in stream.add(time, change=change)]
    assert accepted == [("insert", 7, 8, (0, 2))]
    assert stream.add(8, change=UP) == []  # no run spans the rows at 1 and 8


def test_EX3_A03_a_late_row_ends_two_runs_creates_two_and_makes_one_final() -> None:
    stream = without_late_row()
    assert as_digest(stream.runs()) == as_digest(BEFORE_LATE_ROW)
    before = stream.counters()
    assert stream.add(6, change=DOWN) == [("insert", 7, 8, (0, 2))]
    assert [now - then for now, then in zip(stream.counters(), before, strict=True)] == [2, 1, 2]
    after = BEFORE_LATE_ROW | {6: [(1, "q1", 1, 1), (1, "q2", 1, 1)], 7: [(1, "q3", 0, 2)]}
    assert as_digest(stream.runs()) == as_digest(after)


def test_EX3_with_a_row_at_8_in_a_longer_window_four_runs_end() -> None:
    stream = without_late_row(window=8)
    stream.add(8, change=UP)
    before = stream.counters()
    assert stream.add(6, change=DOWN) == [("insert", 7, 9, (0, 2))]
    assert [now - then for now, then in zip(stream.counters(), before, strict=True)] == [2, 1, 4]


def test_EX4_A04_a_retraction_removes_three_runs_and_returns_the_old_ones() -> None:
    stream = without_late_row()
    stream.add(6, change=DOWN)
    before = stream.counters()
    assert stream.retract(6, change=DOWN) == [("retract", 7, 8, (0, 2))]
    assert stream.counters()[2] - before[2] == 3
    assert as_digest(stream.runs()) == as_digest(BEFORE_LATE_ROW)


def test_EX4_every_order_of_arrival_has_the_same_result() -> None:
    schema = change_schema(pa.schema([("change", pa.float64())]))
    for order in itertools.permutations(TICKS):
        operator = PatternOperator(schema, vs_after_a_drop(last_v(2), 7))
        rows = [{"type": 0, "vs": time, "ve": END, "change": TICKS[time]} for time in order]
        history = canonical_history(operator.process(pa.RecordBatch.from_pylist(rows, schema)))
        assert history.to_pylist() == [{"vs": 7, "ve": 8, "match_start": 1, "r1": 0, "r2": 2}]


def test_EX4_A09_a_watermark_keeps_the_runs_of_one_row_and_the_late_row_still_matches() -> None:
    stream = without_late_row()
    stream.punctuate(6)
    assert sorted(stream.runs()) == [5, 7]
    assert stream.operator.matches.entry_count == 2
    assert stream.add(6, change=DOWN) == [("insert", 7, 8, (0, 2))]
    stream.punctuate(END)
    assert stream.operator.matches.entry_count == stream.operator.matches.node_count == 0


def test_A09_a_row_below_the_watermark_is_late_and_a_retraction_of_an_unknown_row_is_counted() -> None:
    stream = without_late_row()
    stream.punctuate(6)
    assert stream.add(5, change=DOWN) == []
    assert stream.retract(7, change=DOWN) == []
    assert (stream.operator.late, stream.operator.missing) == (1, 1)


def test_A09_memory_is_bounded_while_watermarks_follow_the_rows() -> None:
    stream = ticks(window=100)
    for time in range(1, 400):
        stream.add(time, change=[BIG_DROP, DOWN, UP][time % 3])
        stream.punctuate(time - 5)
    assert stream.operator.matches.entry_count <= 7


def test_EX3_A11_with_numbers_a_late_row_fills_its_gap_and_nothing_is_removed() -> None:
    stream = Stream(vs_after_a_drop(last_v(2), 7), {"change": pa.float64(), "number": pa.int64()}, "number")
    for number, time in enumerate((1, 2, 3, 4, 5, 7), 1):
        stream.add(time, change=TICKS[time], number=number + (time == 7))
    assert 7 not in stream.runs()  # the row waits for number 6
    before = stream.counters()
    assert stream.add(6, change=DOWN, number=6) == [("insert", 7, 8, (0, 2))]
    assert [after - count for after, count in zip(stream.counters(), before, strict=True)] == [2, 1, 0]


@pytest.mark.parametrize("k_changes", [True, False])
def test_EX4_EX5_A07_arcs_that_change_after_5_apply_to_later_rows_only(k_changes: bool) -> None:
    arcs = (*last_v(2, end=6), *last_v(3, begin=6)) if k_changes else last_v(2)
    stream = Stream(vs_after_a_drop(arcs, 20), {"change": pa.float64()})
    for time, change in {**TICKS, 8: DOWN, 9: UP}.items():
        stream.add(time, change=change)
    assert stream.results() == ([(9, 21, (0, 3))] if k_changes else [(7, 21, (0, 2))])


def test_A05_a_result_is_true_while_all_its_rows_are_true() -> None:
    arcs = (Arc("q0", "q1", is_kind("a")), Arc("q1", "q2", is_kind("b")))
    stream = Stream(Automaton("q0", ("q2",), arcs), {"kind": pa.string()})
    stream.add(1, 50, kind="a")
    assert stream.add(10, 40, kind="b") == [("insert", 10, 40, ())]
    assert stream.add(20, 60, kind="a") == []
    assert stream.add(30, kind="b") == [("insert", 30, 60, ())]
    assert stream.retract(20, 60, kind="a") == [("retract", 30, 60, ())]


def test_A06_runs_with_equal_results_are_one_result() -> None:
    arcs = (Arc("q0", "q1", is_kind("a")), Arc("q0", "q2", is_kind("a")))
    stream = Stream(Automaton("q0", ("q1", "q2"), arcs), {"kind": pa.string()})
    assert stream.add(1, kind="a") == [("insert", 1, END, ())]
    assert stream.retract(1, kind="a") == [("retract", 1, END, ())]


def test_A06_silent_arcs_consume_no_row_and_their_final_states_accept() -> None:
    more = ("n", Binary(Op.ADD, Column("n", Type.INT), ONE))
    at_least_two = Binary(Op.GE, Column("n", Type.INT), integer(2))
    arcs = (Arc("q0", "q0", is_kind("a"), (more,)), Arc("q0", "end", at_least_two, is_silent=True))
    stream = Stream(Automaton("q0", ("end",), arcs, (Field("n", integer(0)),)), {"kind": pa.string()})
    assert stream.add(1, kind="a") == []
    assert stream.add(2, kind="a") == [("insert", 2, END, (2,))]
    assert stream.add(3, kind="a") == [("insert", 3, END, (3,)), ("insert", 3, END, (2,))]


def test_EX7_A15_probabilities_multiply_and_a_threshold_drops_unlikely_runs() -> None:
    chance, row_chance = Column("chance", Type.FLOAT), Column("p", Type.FLOAT)
    happened = Binary(Op.MUL, chance, row_chance)
    missing = Binary(Op.MUL, chance, Binary(Op.SUB, Literal(1.0, Type.FLOAT), row_chance))
    likely = Binary(Op.GE, missing, Literal(0.3, Type.FLOAT))
    arcs = (
        Arc("q0", "q1", is_kind("a"), (("chance", happened),)),
        Arc("q1", "q1", likely, (("chance", missing),)),
        Arc("q1", "q2", is_kind("b"), (("chance", happened),)),
    )
    automaton = Automaton("q0", ("q2",), arcs, (Field("chance", Literal(1.0, Type.FLOAT)),))
    stream = Stream(automaton, {"kind": pa.string(), "p": pa.float64()})
    for time, (kind, probability) in enumerate([("a", 0.9), ("x", 0.5), ("b", 0.8)]):
        changes = stream.add(time, kind=kind, p=probability)
    ((_, _, _, (result,)),) = changes
    assert result == pytest.approx(0.36)
    assert (0, "q1", pytest.approx(0.45)) in stream.runs()[1]
    assert [state for _, state, _ in stream.runs()[2]] == ["q2"]  # 0.45 * 0.2 is below 0.3


def test_EX7_A15_a_multi_event_carries_a_probability_for_each_value() -> None:
    chance, blue = Column("chance", Type.FLOAT), Column("p_blue", Type.FLOAT)
    is_possible = Binary(Op.GT, blue, Literal(0.0, Type.FLOAT))
    arcs = (Arc("q0", "q1", is_possible, (("chance", Binary(Op.MUL, chance, blue)),)),)
    automaton = Automaton("q0", ("q1",), arcs, (Field("chance", Literal(1.0, Type.FLOAT)),))
    stream = Stream(automaton, {"p_blue": pa.float64()})
    assert stream.add(1, p_blue=0.7) == [("insert", 1, END, (0.7,))]
    assert stream.add(2, p_blue=0.0) == []


def awaited(kind: str = "b", *others: Arc, window: int | None = None, finals: tuple[str, ...] = ("q2",)) -> Stream:
    """Return a stream of: a, then any rows, then `kind`."""
    waits = Arc("q1", "q1", Unary(Op.NOT, is_kind(kind)))
    arcs = (Arc("q0", "q1", is_kind("a")), waits, Arc("q1", "q2", is_kind(kind)), *others)
    return Stream(Automaton("q0", finals, arcs, (), window), {"kind": pa.string()})


def with_ignored_rows() -> Stream:
    """Return the stream of EX6 before the row at 15: the rows at 11 to 14 are ignored."""
    stream = awaited()
    for time, kind in zip(range(10, 15), "axxxx", strict=True):
        assert stream.add(time, kind=kind) == []
    return stream


def test_EX6_A12_a_run_over_ignored_rows_is_one_anchor_with_an_interval() -> None:
    stream = with_ignored_rows()
    assert stream.intervals() == [("q1", 10, 14)]
    assert stream.counters() == [1, 0, 0]
    assert stream.add(15, kind="b") == [("insert", 15, END, ())]
    assert stream.intervals() == [("q1", 10, 14), ("q2", 15, 15)]
    assert stream.operator.matches.node_count == 2
    assert stream.runs() == {**{time: [(10, "q1")] for time in range(10, 15)}, 15: [(10, "q2")]}


def test_A12_a_late_row_that_is_ignored_changes_nothing() -> None:
    stream = with_ignored_rows()
    stream.add(16, kind="b")
    before = stream.counters()
    assert stream.add(15, kind="x") == []
    assert stream.add(11, kind="x") == []
    assert stream.retract(13, kind="x") == []
    assert stream.retract(14, kind="x") == []
    assert stream.counters() == before
    assert stream.intervals() == [("q1", 10, 15), ("q2", 16, 16)]


def test_A12_a_late_row_ends_an_interval_and_its_retraction_restores_it() -> None:
    stream = with_ignored_rows()
    stream.add(15, kind="b")
    assert stream.add(12, kind="b") == [("insert", 12, END, ()), ("retract", 15, END, ())]
    assert [run for run in stream.intervals() if run[0] == "q1"] == [("q1", 10, 11)]
    assert stream.retract(12, kind="b") == [("retract", 12, END, ()), ("insert", 15, END, ())]
    assert stream.intervals() == [("q1", 10, 14), ("q2", 15, 15)]
    assert stream.retract(10, kind="a") == [("retract", 15, END, ())]
    assert stream.intervals() == []


def test_A12_results_before_a_late_row_survive_although_their_run_ends() -> None:
    """q1 ignores each row apart from the last kind, so each b is a result of the same anchor (§3.8 of the digest)."""
    stream = awaited("z", Arc("q1", "q2", is_kind("b")))
    for time, kind in [(1, "a"), (2, "b"), (3, "x"), (5, "b")]:
        stream.add(time, kind=kind)
    before = stream.results()
    assert before == [(2, END, ()), (5, END, ())]
    assert stream.add(4, kind="z") == [("insert", 4, END, ()), ("retract", 5, END, ())]
    assert stream.retract(4, kind="z") == [("retract", 4, END, ()), ("insert", 5, END, ())]
    assert stream.results() == before


def test_A12_a_watermark_keeps_the_anchor_while_its_interval_lasts() -> None:
    stream = with_ignored_rows()
    stream.punctuate(14)
    assert stream.intervals() == [("q1", 13, 14)]  # the rows before 13 are forgotten, not the run
    assert stream.add(15, kind="b") == [("insert", 15, END, ())]
    stream.punctuate(END)
    assert stream.operator.matches.node_count == 0


def test_A12_an_interval_ends_with_the_window() -> None:
    stream = awaited(window=4)
    for time, kind in [(1, "a"), (2, "x"), (4, "x"), (5, "x"), (6, "b")]:
        assert stream.add(time, kind=kind) == []
    assert stream.runs() == {time: [(1, "q1")] for time in (1, 2, 4)}
    assert stream.intervals() == [("q1", 1, 4)]


def test_A12_a_run_that_has_ended_has_no_result_that_a_late_row_withdraws() -> None:
    """The list of the row at 9 shares the nodes of both starts, also the final node of the start at 1."""
    stream = awaited("z", Arc("q1", "q2", is_kind("b")), Arc("q0", "q1", is_kind("b")))
    stream.add(1, 6, kind="a")
    assert stream.add(3, kind="b") == [("insert", 3, 6, ())]
    stream.add(9, kind="x")
    assert stream.add(8, kind="z") == [("insert", 8, END, ())]


def test_A12_a_final_state_ignores_nothing_because_each_row_is_a_result() -> None:
    stream = awaited("b", Arc("q2", "q2", is_kind("x")))
    for time, kind in [(1, "a"), (2, "b"), (3, "x")]:
        changes = stream.add(time, kind=kind)
    assert changes == [("insert", 3, END, ())]
    assert stream.intervals() == [("q1", 1, 1), ("q2", 2, 2), ("q2", 3, 3)]


def test_A12_a_row_that_ends_earlier_than_the_run_is_not_ignored() -> None:
    stream = awaited()
    stream.add(1, 90, kind="a")
    stream.add(2, 95, kind="x")
    stream.add(3, 50, kind="x")
    stream.add(4, 60, kind="x")
    assert stream.intervals() == [("q1", 1, 2), ("q1", 3, 4)]
    assert stream.add(5, kind="b") == [("insert", 5, 50, ())]


def test_A12_deadlines_of_many_runs_over_many_ignored_rows_are_found_once() -> None:
    """More pairs of a run and a row than there is room for results."""
    arcs = (
        Arc("q0", "q1", is_kind("a"), (("due", Binary(Op.ADD, Column("ts", Type.TIME), integer(2_500))),)),
        Arc("q1", "q1", Unary(Op.NOT, is_kind("b"))),
        Arc("q1", "q2", deadline=Column("due", Type.TIME)),
    )
    automaton = Automaton("q0", ("q2",), arcs, (Field("due", Literal(None, Type.TIME)),))
    stream = Stream(automaton, {"kind": pa.string(), "ts": pa.int64()})
    rows = [{"type": 0, "vs": time, "ve": END, "kind": "a" if time < 50 else "x", "ts": time} for time in range(2_000)]
    stream.operator.process(pa.RecordBatch.from_pylist(rows, stream.schema))
    assert stream.operator.matches.node_count == 50
    stream.punctuate(2_400)
    assert stream.results() == []
    stream.punctuate(3_000)
    assert [start for start, _, _ in stream.results()] == list(range(2_500, 2_550))


def test_A12_the_bound_of_a_list_does_not_grow_with_runs_that_have_ended() -> None:
    """Each row begins a run of 100 rows that all later rows leave as it is. A retraction needs room for its list."""
    arcs = (Arc("q0", "q1"), Arc("q1", "q1"), Arc("q1", "q2", is_kind("b")))
    stream = Stream(Automaton("q0", ("q2",), arcs, (), 100), {"kind": pa.string()})
    for begin in range(0, 12_000, 3_000):
        rows = [{"type": 0, "vs": time, "ve": END, "kind": "x"} for time in range(begin, begin + 3_000)]
        stream.operator.process(pa.RecordBatch.from_pylist([*rows, {"type": 2, "vs": begin + 2_990}], stream.schema))
    before = stream.operator.bytes
    assert stream.retract(11_995, kind="x") == []
    assert stream.operator.matches.node_count < 200
    assert stream.operator.bytes <= before


def head_and_shoulders() -> Automaton:
    """EX8. `change` is the difference to the previous price."""
    price = Column("price", Type.FLOAT)
    before = Binary(Op.SUB, price, CHANGE)
    zero = Literal(0.0, Type.FLOAT)
    up, down = Binary(Op.GT, CHANGE, zero), Binary(Op.LT, CHANGE, zero)
    p1, p2, p4 = (Column(name, Type.FLOAT) for name in ("p1", "p2", "p4"))
    above, below = Binary(Op.GT, price, p1), Binary(Op.LT, price, p4)
    arcs = (
        Arc("q0", "q1", up, (("p1", before),)),
        Arc("q1", "q1", up),
        Arc("q1", "q2", all_of(down, above), (("p2", before),)),
        Arc("q2", "q2", all_of(down, above)),
        Arc("q2", "q3", up),
        Arc("q3", "q3", up),
        Arc("q3", "q4", all_of(down, Binary(Op.GT, before, p2), above), (("p4", before),)),
        Arc("q4", "q4", all_of(down, above)),
        Arc("q4", "q5", all_of(up, below)),
        Arc("q5", "q5", all_of(up, below)),
        Arc("q5", "q6", all_of(down, Unary(Op.NOT, Binary(Op.LT, price, p1)))),
        Arc("q6", "q6", all_of(down, Unary(Op.NOT, Binary(Op.LT, price, p1)))),
        Arc("q5", "q7", all_of(down, Binary(Op.LT, price, p1))),
        Arc("q6", "q7", all_of(down, Binary(Op.LT, price, p1))),
    )
    nothing = Literal(None, Type.FLOAT)
    return Automaton("q0", ("q7",), arcs, tuple(Field(name, nothing) for name in ("p1", "p2", "p4")))


@pytest.mark.parametrize(("head", "matches"), [(30.0, True), (19.0, False)])
def test_EX8_head_and_shoulders_need_a_head_above_the_first_shoulder(head: float, matches: bool) -> None:
    prices = [10.0, 15.0, 20.0, 12.0, 18.0, head, 14.0, 17.0, 13.0, 9.0]
    stream = Stream(head_and_shoulders(), {"price": pa.float64(), "change": pa.float64()})
    rows = [(time, price, price - before) for time, (before, price) in enumerate(itertools.pairwise(prices))]
    for time, price, change in reversed(rows):
        stream.add(time, price=price, change=change)
    expected = [(8, END, (10.0, 20.0, head))] if matches else []
    assert stream.results() == expected


def trailing_negation() -> Automaton:
    """EX9: A, then no B within 300. A row of kind `end` is the end-of-window indicator."""
    deadline = Column("deadline", Type.INT)
    is_over = Binary(Op.GE, WHEN, deadline)
    arcs = (
        Arc("q0", "q1", is_kind("A"), (("deadline", Binary(Op.ADD, WHEN, integer(300))),)),
        Arc("q1", "q1", all_of(Unary(Op.NOT, is_kind("B")), Unary(Op.NOT, is_over))),
        Arc("q1", "q2", all_of(is_kind("end"), is_over)),
    )
    return Automaton("q0", ("q2",), arcs, (Field("deadline", Literal(None, Type.INT)),))


@pytest.mark.parametrize(("time_of_b", "matches"), [(200, False), (None, True), (450, True)])
def test_EX9_A14_a_match_without_a_reply_is_found_at_the_end_of_the_window(
    time_of_b: int | None, matches: bool
) -> None:
    stream = Stream(trailing_negation(), {"kind": pa.string(), "ts": pa.int64()})
    rows = [(100, "A"), (150, "C"), (400, "end"), *([(time_of_b, "B")] if time_of_b is not None else [])]
    for time, kind in sorted(rows):
        stream.add(time, kind=kind, ts=time)
    assert stream.results() == ([(400, END, (400,))] if matches else [])
    assert all(batch.column("type").to_pylist() != [1] for batch in stream.returned)  # nothing is withdrawn


def test_EX10_A16_a_pattern_with_a_hole_gives_the_missing_row() -> None:
    """Begin and end of a transfer without its middle: the result is the row that is missing, half-way."""
    begun = Column("begun", Type.INT)
    half = Binary(Op.DIV, Binary(Op.ADD, begun, WHEN), integer(2))
    arcs = (
        Arc("q0", "q1", is_kind("begin"), (("begun", WHEN),)),
        Arc("q1", "q2", is_kind("end"), (("begun", half),)),
    )
    automaton = Automaton("q0", ("q2",), arcs, (Field("begun", Literal(None, Type.INT)),))
    stream = Stream(automaton, {"kind": pa.string(), "ts": pa.int64()})
    stream.add(10, kind="begin", ts=10)
    assert stream.add(30, kind="end", ts=30) == [("insert", 30, END, (20,))]
    assert stream.add(15, kind="middle", ts=15) == [("retract", 30, END, (20,))]


def test_A13_the_counter_example_of_section_3_9_keeps_the_run_that_a_row_between_needs() -> None:
    arcs = tuple(
        Arc(source, target, is_kind(kind))
        for source, target, kind in [("q0", "q", "0"), ("q", "q2", "1"), ("q2", "q3", "2"), ("q3", "q4", "3")]
    )
    stream = Stream(Automaton("q0", ("q4",), arcs), {"kind": pa.string()})
    for time, kind in [(5, "0"), (8, "2"), (12, "3")]:
        stream.add(time, kind=kind)
    stream.punctuate(6)
    assert stream.add(6, kind="1") == [("insert", 12, END, ())]


def test_partitions_do_not_share_runs_and_the_addresses_of_registers_are_returned() -> None:
    target, address = Column("target", Type.ADDRESS), Column("destIP", Type.ADDRESS)
    arcs = (
        Arc("q0", "q1", is_kind("a"), (("target", address),)),
        Arc("q1", "q2", all_of(is_kind("b"), Binary(Op.EQ, address, target))),
    )
    automaton = Automaton("q0", ("q2",), arcs, (Field("target", Literal(None, Type.ADDRESS)),))
    schema = change_schema(pa.schema([("host", pa.string()), ("kind", pa.string()), ("destIP", pa.binary())]))
    operator = PatternOperator(schema, automaton, by=["host"])
    one, other = bytes(4), bytes(16)
    rows = [("x", "a", one), ("y", "a", other), ("y", "b", one), ("x", "b", one), ("y", "a", other), ("y", "b", other)]
    changes = [
        {"type": 0, "vs": time, "ve": END, "host": host, "kind": kind, "destIP": value}
        for time, (host, kind, value) in enumerate(rows)
    ]
    returned = operator.process(pa.RecordBatch.from_pylist(changes, schema)).to_pylist()
    assert [(row["host"], row["vs"], row["target"]) for row in returned] == [("x", 3, one), ("y", 5, other)]


def test_partitions_without_runs_are_forgotten() -> None:
    arcs = (Arc("q0", "q1", is_kind("a")), Arc("q1", "q2", is_kind("b")))
    schema = change_schema(pa.schema([("host", pa.int64()), ("kind", pa.string())]))
    operator = PatternOperator(schema, Automaton("q0", ("q2",), arcs, (), 100), by=["host"])
    for start in range(0, 40_000, 2_000):
        hosts = pa.array(range(start, start + 2_000))
        times = pa.array([start] * 2_000)
        columns = [pa.array([0] * 2_000, pa.uint8()), times, pa.array([END] * 2_000), pa.nulls(2_000, pa.int64())]
        operator.process(pa.RecordBatch.from_arrays([*columns, hosts, pa.array(["a"] * 2_000)], schema=schema))
        operator.process(pa.RecordBatch.from_pylist([{"type": 2, "vs": start}], schema))
    row = {"type": 0, "vs": 38_000, "ve": END, "host": 39_999, "kind": "b"}
    (found,) = operator.process(pa.RecordBatch.from_pylist([row], schema)).to_pylist()
    assert found["host"] == 39_999
    assert operator.matches.entry_count <= 4_001
    assert operator.bytes < 8_000_000


def test_values_that_no_run_has_are_forgotten_and_the_others_stay() -> None:
    name, seen = Column("name", Type.TEXT), Column("seen", Type.TEXT)
    same = Binary(Op.EQ, name, seen)
    arcs = (Arc("q0", "q1", is_kind("a"), (("seen", name),)), Arc("q1", "q1", is_kind("c")), Arc("q1", "q2", same))
    automaton = Automaton("q0", ("q2",), arcs, (Field("seen", Literal("", Type.TEXT)),))
    schema = change_schema(pa.schema([("kind", pa.string()), ("name", pa.string())]))
    operator = PatternOperator(schema, automaton)

    def add(time: int, kind: str, text: str) -> list[Any]:
        row = {"type": 0, "vs": time, "ve": END, "kind": kind, "name": text}
        return operator.process(pa.RecordBatch.from_pylist([row, {"type": 2, "vs": time}], schema)).to_pylist()

    add(0, "a", "first")
    bytes_after = []
    for start in range(1, 60_000, 6_000):
        rows = [
            {"type": 0, "vs": time, "ve": END, "kind": "c", "name": f"host{time}.example.net"}
            for time in range(start, start + 6_000)
        ]
        operator.process(pa.RecordBatch.from_pylist([*rows, {"type": 2, "vs": start + 6_000}], schema))
        bytes_after.append(operator.bytes)
    assert bytes_after[-1] <= bytes_after[2]
    assert [(row["vs"], row["seen"]) for row in add(70_000, "b", "first") if row["type"] == 0] == [(70_000, "first")]


def test_the_arcs_of_an_operator_are_part_of_its_memory() -> None:
    level = Column("level", Type.INT)
    arcs = tuple(Arc("q0", "q1", Binary(Op.EQ, level, Literal(number, Type.INT))) for number in range(2_000))
    operator = PatternOperator(change_schema(pa.schema([("level", pa.int64())])), Automaton("q0", ("q1",), arcs[:1]))
    before = operator.bytes
    operator.change_arcs([], arcs[1:])
    assert operator.bytes - before > 2_000 * 8 * ARC_WORDS
    operator.change_arcs(arcs[1:], [])
    operator.change_arcs([], arcs[1:2])
    assert operator.bytes - before < 20_000


WRONG = {
    "a final state without arc": (lambda: Automaton("q0", ("q9",), (Arc("q0", "q1"),)), "'q9'"),
    "an unknown field": (lambda: Automaton("q0", ("q1",), (Arc("q0", "q1", transfer=(("n", ONE),)),)), "'n'"),
    "a fence that is no condition": (
        lambda: Automaton("q0", ("q1",), (Arc("q0", "q1", ONE),)),
        "fence of type integer",
    ),
    "a silent arc over a row": (
        lambda: Automaton("q0", ("q1",), (Arc("q0", "q1", is_kind("a"), is_silent=True),)),
        "'kind'",
    ),
    "an endless silent cycle": (
        lambda: Automaton(
            "q0", ("q0",), (Arc("q0", "q0", transfer=(("n", ONE),), is_silent=True),), (Field("n", integer(0)),)
        ),
        "cycle of silent arcs",
    ),
    "no time for a row": (lambda: Automaton("q0", ("q1",), (Arc("q0", "q1"),), (), 0), "window of 0 ns"),
    "a lifetime that is empty": (lambda: Automaton("q0", ("q1",), (Arc("q0", "q1", begin=5, end=5),)), "[5, 5)"),
    "a text in place of a number": (
        lambda: Automaton("q0", ("q1",), (Arc("q0", "q1", transfer=(("n", KIND),)),), (Field("n", integer(0)),)),
        "n of type text",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_automaton_is_refused_with_the_value_and_the_place(name: str) -> None:
    make, text = WRONG[name]
    with pytest.raises(PatternError, match="expected") as error:
        make()
    assert text in str(error.value)
