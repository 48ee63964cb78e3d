"""AUTOMATON by the definition: all accepted runs over all ranges of rows, and the deadlines that no row precedes.

The rows of a result are found forwards: each node has the places of all its derivations so far.

The inputs have the columns `ts, other, g, n` of `tests.references.plan_references`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from random import Random
from typing import Any

import pyarrow as pa

from highlevel.patterns.automaton import Arc, Automaton, Field
from highlevel.plan.automaton_nodes import AcceptedRuns, DistinctRowsOfRuns, RowsOfRuns
from highlevel.plan.nodes import Node
from highlevel.plan.pattern_nodes import MATCH_END, MATCH_START
from lowlevel.expressions.tree import Binary, Column, Conditional, Expression, IsNull, Literal, Unary, columns_of
from lowlevel.expressions.types import Op, Type
from lowlevel.punctuation import BEGINNING, END
from tests.references.automata import Row, close, deadline_results, results, step, tie_of, value_of
from tests.references.plan_references import GROUP, NUMBER, OTHER, ROWS, Reference, schema_of

COLUMNS = ("ts", "other", "g", "n")
TIME = Column("ts", Type.TIME)


def accepted_runs(node: Node, inputs: Sequence[Sequence[tuple]]) -> Counter[tuple]:
    """Return the rows of an AcceptedRuns node."""
    assert isinstance(node, AcceptedRuns)
    found: Counter[tuple] = Counter()
    for key, rows in partitions_of(node, inputs[0]).items():
        ends = [each[:4] for each in results(node.automaton, rows)]
        ends += deadline_results(node.automaton, rows, BEGINNING, END)
        for first, last, stop, register in ends:
            until = [] if node.until is None else [None if stop == END else stop]
            found[(*key, first, last, *until, *register)] += 1
    return found


def partitions_of(node: AcceptedRuns, rows: Sequence[tuple]) -> dict[tuple, list[Row]]:
    """Return the rows of each partition in their order. Equal times are in the order of the columns that runs read."""
    partitions: dict[tuple, list[Row]] = {}
    read = schema_of(ROWS)
    read = read if not node.matched else pa.schema([read.field(name) for name in node.matched])
    for number, row in enumerate(rows):
        values = dict(zip(COLUMNS, row, strict=True))
        key = tuple(values[name] for name in node.keys)
        stop = END if node.until is None or values[node.until] is None else values[node.until]
        stop = max(stop, row[0] + 1) if stop == row[0] else stop
        if row[0] < stop:
            of_read = tie_of({name: values[name] for name in read.names}, read, 0)
            tie = of_read, tie_of(values, schema_of(ROWS), number)
            partitions.setdefault(key, []).append((row[0], tie, Row(row[0], 0, stop, values)))
    return {
        key: [replace(row, sequence=place) for place, (*_, row) in enumerate(sorted(rows, key=lambda each: each[:2]))]
        for key, rows in partitions.items()
    }


Place = tuple[int, str]
"""The place of a row in its partition, and the state after it."""

Nodes = dict[tuple[str, tuple[Any, ...]], tuple[set[Place], set[str]]]
"""The places of each state and register so far, and the states directly after the last row."""


def rows_of_runs(node: Node, inputs: Sequence[Sequence[tuple]]) -> Counter[tuple]:
    """Return the rows of a RowsOfRuns node."""
    assert isinstance(node, RowsOfRuns)
    found: Counter[tuple] = Counter()
    for key, rows in partitions_of(node, inputs[0]).items():
        for (first, last, stop, register, _), places in rows_of_results(node.automaton, rows).items():
            until = [] if node.until is None else [None if stop == END else stop]
            for place, state in places:
                shown = (rows[place].values[name] for name in node.shown)
                found[(*key, first, last, *until, *register, state, *shown)] += 1
    return found


def distinct_rows_of_runs(node: Node, inputs: Sequence[Sequence[tuple]]) -> Counter[tuple]:
    """Return the rows of a DistinctRowsOfRuns node."""
    assert isinstance(node, DistinctRowsOfRuns)
    names = [field.name for field in node.automaton.register]
    found: Counter[tuple] = Counter()
    for key, rows in partitions_of(node, inputs[0]).items():
        listed = set()
        for (first, last, _, register, _), places in rows_of_results(node.automaton, rows).items():
            values = dict(zip(names, register, strict=True)) | {MATCH_START: first, MATCH_END: last}
            if node.where is None or value_of(node.where, values):
                listed |= {place for place, _ in places}
        found.update((*key, *(rows[place].values[name] for name in node.shown)) for place in listed)
    return found


def rows_of_results(automaton: Automaton, rows: Sequence[Row], *, is_numbered: bool = False) -> dict[tuple, set[Place]]:
    """Return the places of each result: the times of the first row and the end, its lifetime, register, and last row.

    The last row of a result of a deadline is None. `rows` are in their order. With `is_numbered`, a run continues only
    with the next number.
    """
    found: dict[tuple, set[Place]] = {}
    names = [field.name for field in automaton.register]
    for begin, first in enumerate(rows):
        initial = tuple(field.initial.value for field in automaton.register)
        nodes: Nodes = {run: (set(), set()) for run in close(automaton, {(automaton.start, initial)}, first)}
        stop = END
        for at in range(begin, len(rows)):
            row = rows[at]
            if is_numbered and at > begin and row.sequence != rows[at - 1].sequence + 1:
                break
            stop = min(stop, row.stop, END if automaton.window is None else row.start + automaton.window)
            if row.start >= stop:
                break
            nodes = _after_row(automaton, nodes, row, at, is_first=at == begin)
            for (state, register), (places, lasts) in nodes.items():
                if state in automaton.finals:
                    result = first.start, row.start, stop, register, at
                    found.setdefault(result, set()).update(places | {(at, each) for each in lasts})
                limit = rows[at + 1].start if at + 1 < len(rows) else END
                for arc in automaton.arcs:
                    if arc.source == state and arc.deadline is not None:
                        time = value_of(arc.deadline, dict(zip(names, register, strict=True)))
                        if time is not None and row.start < time <= limit and time < stop:
                            found.setdefault((first.start, time, stop, register, None), set()).update(places)
    return found


def _after_row(automaton: Automaton, nodes: Nodes, row: Row, at: int, *, is_first: bool) -> Nodes:
    """Return the nodes after a row."""
    after: Nodes = {}
    for run, (places, _) in nodes.items():
        for arc in automaton.arcs:
            for target in step(
                replace(automaton, arcs=(arc,), other_states=automaton.states), {run}, row, is_silent=False
            ):
                has_changes = not all(isinstance(value, Column) and value.name == name for name, value in arc.transfer)
                changes = is_first or arc.source != arc.target or has_changes
                _unite(after, target, places | ({(at, arc.target)} if changes else set()), {arc.target})
    is_changed = True
    while is_changed:
        is_changed = False
        for run, (places, lasts) in list(after.items()):
            for target in step(automaton, {run}, row, is_silent=True):
                is_changed |= _unite(after, target, places, lasts)
    return after


def _unite(nodes: Nodes, run: tuple[str, tuple[Any, ...]], places: set[Place], lasts: set[str]) -> bool:
    """Add places to a node. Return whether it has changed."""
    known = nodes.get(run)
    before = (set(), set()) if known is None else known
    nodes[run] = before[0] | places, before[1] | lasts
    return known is None or nodes[run] != before


def draw_accepted_runs(random: Random) -> AcceptedRuns:
    """Return a node with a random automaton of 2 to 4 states, and sometimes a deadline."""
    states = [f"q{number}" for number in range(random.randint(2, 4))]
    fields = [
        Field("rows", Literal(0, Type.INT)),
        Field("total", Literal(None, Type.INT)),
        Field("group", Literal(None, Type.TEXT)),
        Field("asked", Literal(None, Type.TIME)),
    ]
    rows, total, _, asked = (field.column for field in fields)
    updates: list[tuple[str, Expression]] = [
        ("rows", Binary(Op.ADD, rows, Literal(1, Type.INT))),
        ("total", Conditional(IsNull(total), NUMBER, Binary(Op.ADD, total, NUMBER))),
        ("group", GROUP),
        ("asked", TIME),
    ]
    arcs = []
    for number in range(random.randint(3, 6)):
        source = states[0] if number == 0 else random.choice(states)
        target = random.choice(states[1:])
        changes = tuple(random.sample(updates, random.randint(0, 2)))
        if number and random.random() < 0.15 and source != target:
            few = Binary(Op.LT, rows, Literal(random.randint(1, 3), Type.INT))
            arcs.append(Arc(source, target, few, is_silent=True))
        else:
            arcs.append(Arc(source, target, _fence(random, rows, total), changes))
    reached = list(dict.fromkeys(arc.target for arc in arcs))
    finals = random.sample(reached, random.randint(1, min(2, len(reached))))
    if random.random() < 0.5:
        deadline = Binary(Op.ADD, asked, Literal(random.choice([1, 4, 15]), Type.INT))
        arcs.append(Arc(random.choice(reached), "over", deadline=deadline))
        finals.append("over")
    automaton = Automaton(states[0], tuple(finals), tuple(arcs), tuple(fields), random.choice([None, 5, 30]))
    keys = random.choice([("g",), (), ("g", "n")])
    return AcceptedRuns(ROWS, automaton, keys, random.choice([None, None, "other"]))


def _fence(random: Random, rows: Column, total: Column) -> Expression:
    parts: list[Expression] = [
        Binary(Op.LT, NUMBER, Literal(random.randint(1, 5), Type.INT)),
        Unary(Op.NOT, IsNull(OTHER)),
        Binary(Op.LT, rows, Literal(random.randint(1, 4), Type.INT)),
        Binary(Op.GT, total, Binary(Op.MUL, NUMBER, Literal(2, Type.INT))),
        Literal(True, Type.BOOL),
    ]
    one, other = random.sample(parts, 2)
    return random.choice([one, one, Binary(Op.AND, one, other), Binary(Op.OR, one, other)])


def draw_rows_of_runs(random: Random) -> RowsOfRuns:
    """Return a node over a random automaton, which shows some columns."""
    node = draw_accepted_runs(random)
    columns = {column.name for part in node.automaton.expressions for column in columns_of(part)}
    needed = {"ts", *node.keys, *([] if node.until is None else [node.until]), *columns.intersection(COLUMNS)}
    others = random.sample(COLUMNS, random.randint(0, len(COLUMNS)))
    shown = ("ts", *random.sample([name for name in COLUMNS if name != "ts" and name not in node.keys], 1))
    read = tuple(sorted(needed.union(others)))
    return RowsOfRuns(node.input, node.automaton, node.keys, node.until, None, None, shown, read)


def draw_distinct_rows_of_runs(random: Random) -> DistinctRowsOfRuns:
    """Return a node over a random automaton, which sometimes selects results by their register or their length."""
    node = draw_rows_of_runs(random)
    rows, total = (field.column for field in node.automaton.register[:2])
    length = Binary(Op.SUB, Column(MATCH_END, Type.TIME), Column(MATCH_START, Type.TIME))
    conditions: list[Expression | None] = [
        None,
        Binary(Op.GT, rows, Literal(random.randint(0, 2), Type.INT)),
        Binary(Op.GT, total, Literal(random.randint(0, 6), Type.INT)),
        Binary(Op.LT, length, Literal(random.randint(1, 10), Type.INT)),
    ]
    parameters = (getattr(node, field.name) for field in fields(node))
    return DistinctRowsOfRuns(*parameters, random.choice(conditions))


REFERENCES = {
    AcceptedRuns: Reference(draw_accepted_runs, accepted_runs),
    RowsOfRuns: Reference(draw_rows_of_runs, rows_of_runs),
    DistinctRowsOfRuns: Reference(draw_distinct_rows_of_runs, distinct_rows_of_runs),
}
