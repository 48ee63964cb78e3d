"""Automata by the definition (Chandramouli et al., 2010, Definitions 1 and 2), and random automata.

The accepted runs of each contiguous sequence of rows, by trying all of them. Slow. Expressions are evaluated one value
at a time, with None for NULL.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from highlevel.operators.batch_columns import BatchColumns
from highlevel.patterns.automaton import Arc, Automaton, Field
from highlevel.patterns.operator import COPY_BITS
from lowlevel.expressions.hashing import hash_values
from lowlevel.expressions.tree import Binary, Column, Conditional, Expression, IsNull, Literal, Unary
from lowlevel.expressions.types import Op, Type
from lowlevel.punctuation import END

Run = tuple[int, int, str, tuple[Any, ...]]
"""Time and sequence of the first row, state, register."""


@dataclass(frozen=True)
class Row:
    """A row with its lifetime and its order among rows of its time."""

    start: int
    sequence: int
    stop: int
    values: Mapping[str, Any]


def tie_of(values: Mapping[str, Any], schema: pa.Schema, number: int) -> int:
    """Return the order among rows with equal times: a hash, and for equal rows their `number`."""
    columns = BatchColumns(pa.RecordBatch.from_pylist([dict(values)], schema))
    return int(hash_values([columns[name] for name in schema.names]).data[0]) & ~COPY_BITS | number


def value_of(expression: Expression, values: Mapping[str, Any]) -> Any:
    """Return the value of an expression, None for NULL."""
    match expression:
        case Column(name=name):
            return values[name]
        case Literal(value=value):
            return value
        case Unary(Op.NOT, operand):
            value = value_of(operand, values)
            return None if value is None else not value
        case Unary(Op.NEG, operand):
            value = value_of(operand, values)
            return None if value is None else -value
        case IsNull(operand):
            return value_of(operand, values) is None
        case Conditional(condition, value, otherwise):
            return value_of(value if value_of(condition, values) is True else otherwise, values)
        case Binary(op, left, right):
            return apply_operator(op, value_of(left, values), value_of(right, values))
    raise TypeError(expression)


def apply_operator(op: Op, left: Any, right: Any) -> Any:
    """Return the value of an operator with the NULL logic of SQL."""
    if op is Op.AND:
        return False if left is False or right is False else None if None in (left, right) else True
    if op is Op.OR:
        return True if left is True or right is True else None if None in (left, right) else False
    if left is None or right is None:
        return None
    match op:
        case Op.ADD:
            return left + right
        case Op.SUB:
            return left - right
        case Op.MUL:
            return left * right
        case Op.DIV | Op.MOD if right == 0:
            return None
        case Op.DIV if isinstance(left, float) or isinstance(right, float):
            return left / right
        case Op.DIV:
            return int(left / right)
        case Op.MOD:
            return left - int(left / right) * right
    return {
        Op.EQ: left == right, Op.NE: left != right, Op.LT: left < right, Op.LE: left <= right, Op.GT: left > right,
        Op.GE: left >= right,
    }[op]  # fmt: skip


def runs_by_row(
    automaton: Automaton,
    rows: Iterable[Row],
    *,
    is_numbered: bool = False,
    forgotten: Mapping[str, int] = MappingProxyType({}),
) -> list[tuple[Row, set[tuple[Run, int]]]]:
    """Return the rows in their order, each with the runs that end with it: start, state, register, and end.

    With `is_numbered`, a run continues only with the next number. `forgotten`: states with a time. A run that has this
    state after a row before the time does not continue with a row from the time on.
    """
    ordered = sorted(rows, key=lambda row: (row.start, row.sequence))
    ending: list[set[tuple[Run, int]]] = [set() for _ in ordered]
    for index, first in enumerate(ordered):
        initial = tuple(field.initial.value for field in automaton.register)
        runs = close(automaton, {(automaton.start, initial)}, first)
        stop = END
        for end in range(index, len(ordered)):
            row = ordered[end]
            if is_numbered and end > index and row.sequence != ordered[end - 1].sequence + 1:
                break
            stop = min(stop, row.stop, END if automaton.window is None else row.start + automaton.window)
            if row.start >= stop:
                break
            if end > index:
                last, times = ordered[end - 1].start, {state: forgotten.get(state, END) for state, _ in runs}
                runs = {(state, register) for state, register in runs if not last < times[state] <= row.start}
            runs = close(automaton, set(step(automaton, runs, row, is_silent=False)), row)
            if not runs:
                break
            ending[end] |= {((first.start, first.sequence, state, register), stop) for state, register in runs}
    return list(zip(ordered, ending, strict=True))


def results(
    automaton: Automaton,
    rows: Iterable[Row],
    *,
    is_numbered: bool = False,
    forgotten: Mapping[str, int] = MappingProxyType({}),
) -> set[tuple[int, int, int, tuple[Any, ...], int]]:
    """Return the results: the time of the first row, start, end, register, and the index of the last row.

    `forgotten`: as for `runs_by_row`.
    """
    return {
        (first, row.start, stop, register, index)
        for index, (row, runs) in enumerate(runs_by_row(automaton, rows, is_numbered=is_numbered, forgotten=forgotten))
        for (first, _, state, register), stop in runs
        if state in automaton.finals
    }


def deadline_results(
    automaton: Automaton, rows: Iterable[Row], low: int, high: int
) -> set[tuple[int, int, int, tuple[Any, ...]]]:
    """Return the results of deadlines in `(low, high]`: the time of the first row, the deadline, end, register."""
    lists, found = runs_by_row(automaton, rows), set()
    names = [field.name for field in automaton.register]
    for index, (row, runs) in enumerate(lists):
        limit = min([high, *(other.start for other, _ in lists[index + 1 : index + 2])])
        for (first, _, state, register), stop in runs:
            for arc in automaton.arcs:
                if arc.source == state and arc.deadline is not None:
                    time = value_of(arc.deadline, dict(zip(names, register, strict=True)))
                    if time is not None and row.start < time <= limit and low < time < stop:
                        found.add((first, time, stop, register))
    return found


def step(
    automaton: Automaton, runs: set[tuple[str, tuple[Any, ...]]], row: Row, *, is_silent: bool
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the runs to which arcs lead that consume a row, or silent arcs."""
    names = [field.name for field in automaton.register]
    for state, register in runs:
        values = dict(row.values) | dict(zip(names, register, strict=True))
        for arc in automaton.arcs:
            is_possible = (
                arc.source == state
                and arc.deadline is None
                and arc.is_silent is is_silent
                and arc.begin <= row.start < arc.end
            )
            if is_possible and value_of(arc.fence, values) is True:
                changed = values | {name: value_of(value, values) for name, value in arc.transfer}
                yield arc.target, tuple(_typed(changed[field.name], field) for field in automaton.register)


def _typed(value: Any, field: Field) -> Any:
    return float(value) if field.initial.type is Type.FLOAT and value is not None else value


def close(automaton: Automaton, runs: set[tuple[str, tuple[Any, ...]]], row: Row) -> set[tuple[str, tuple[Any, ...]]]:
    """Add the runs that silent arcs lead to."""
    while True:
        added = set(step(automaton, runs, row, is_silent=True)) - runs
        if not added:
            return runs
        runs = runs | added


KIND, SIZE, LEVEL = (
    Column("kind", Type.TEXT, nullable=True),
    Column("size", Type.INT, nullable=True),
    Column("level", Type.FLOAT, nullable=True),
)
"""The columns of rows for random automata."""


def random_automaton(draw: random.Random) -> Automaton:
    """Return an automaton with 2 to 4 states, 3 to 7 arcs and up to two fields."""
    states = [f"q{number}" for number in range(draw.randint(2, 4))]
    fields = draw.sample(
        [
            Field("count", Literal(0, Type.INT)),
            Field("most", Literal(draw.choice([0, None]), Type.INT)),
            Field("share", Literal(draw.choice([0.5, None]), Type.FLOAT)),
            Field("seen", Literal(draw.choice(["a", None]), Type.TEXT)),
        ],
        draw.randint(0, 2),
    )
    arcs = []
    for number in range(draw.randint(3, 7)):
        source = states[0] if number == 0 else draw.choice(states)
        is_silent = number > 0 and draw.random() < 0.15
        target = draw.choice(states)
        if is_silent and target == source:
            is_silent = False
        fence = _random_fence(draw, fields, is_silent=is_silent)
        changed = [field for field in fields if draw.random() < 0.4] if not is_silent else []
        transfer = tuple((field.name, _random_value(draw, field)) for field in changed)
        arcs.append(Arc(source, target, fence, transfer, is_silent))
    if draw.random() < 0.5 and fields and fields[0].name == "count":  # a silent arc to a state of its own changes it
        arcs.append(
            Arc(states[0], "last", _random_fence(draw, fields, is_silent=True), (("count", _more(fields[0])),), True)
        )
    reached = dict.fromkeys(name for arc in arcs for name in (arc.source, arc.target))
    finals = tuple(draw.sample(list(reached), draw.randint(1, min(2, len(reached)))))
    return Automaton(states[0], finals, tuple(arcs), tuple(fields), draw.choice([None, 3, 8, 30]))


def random_waiting_automaton(draw: random.Random) -> Automaton:
    """Return an automaton as `random_automaton`, in which runs wait in most states for some kinds of rows.

    Most runs stay the same over the other rows, such as those of kind c.
    """
    automaton = random_automaton(draw)
    awaited = {name: draw.choice("ab") for name in automaton.states}
    arcs = []
    for arc in automaton.arcs:
        if not arc.is_silent and draw.random() < 0.8:
            is_awaited = Binary(Op.EQ, KIND, Literal(awaited[arc.source], Type.TEXT))
            arc = replace(arc, fence=Binary(Op.AND, is_awaited, arc.fence))
        arcs.append(arc)
    for name, kind in awaited.items():
        others: Expression = Binary(Op.OR, IsNull(KIND), Binary(Op.NE, KIND, Literal(kind, Type.TEXT)))
        if automaton.register and draw.random() < 0.3:
            field = draw.choice(automaton.register)
            others = Binary(Op.AND, others, _random_condition(draw, field, is_silent=False))
        if draw.random() < (0.2 if name in automaton.finals else 0.9):
            kept = draw.choice([(), tuple((field.name, field.column) for field in automaton.register)])
            arcs.insert(draw.randint(0, len(arcs)), Arc(name, name, others, kept))
    return replace(automaton, arcs=tuple(arcs), window=draw.choice([None, 10, 30]))


def random_arc(draw: random.Random, states: list[str], fields: Sequence[Field]) -> Arc:
    """Return an arc between two states that consumes a row."""
    transfer = tuple((field.name, _random_value(draw, field)) for field in fields if draw.random() < 0.4)
    fence = _random_fence(draw, list(fields), is_silent=False)
    return Arc(draw.choice(states), draw.choice(states), fence, transfer)


def _random_fence(draw: random.Random, fields: list[Field], *, is_silent: bool) -> Expression:
    parts: list[Expression] = []
    if not is_silent and draw.random() < 0.7:
        parts.append(
            draw.choice(
                [
                    Binary(Op.EQ, KIND, Literal(draw.choice("abc"), Type.TEXT)),
                    Binary(Op.NE, KIND, Literal(draw.choice("abc"), Type.TEXT)),
                    Binary(Op.GT, SIZE, Literal(draw.randint(0, 3), Type.INT)),
                    Unary(Op.NOT, Binary(Op.LE, SIZE, Literal(draw.randint(0, 3), Type.INT))),
                    Binary(Op.LT, LEVEL, Literal(draw.choice([0.25, 0.75]), Type.FLOAT)),
                    Binary(Op.OR, IsNull(KIND), Binary(Op.EQ, SIZE, Literal(1, Type.INT))),
                ]
            )
        )
    parts += [_random_condition(draw, field, is_silent=is_silent) for field in fields if draw.random() < 0.5]
    fence: Expression = Literal(True, Type.BOOL)
    for part in parts:
        op = Op.OR if draw.random() < 0.15 else Op.AND
        fence = part if fence == Literal(True, Type.BOOL) else Binary(op, fence, part)
    return fence


def _random_condition(draw: random.Random, field: Field, *, is_silent: bool) -> Expression:
    column = field.column
    if column.type is Type.TEXT:
        other: Expression = Literal("a", Type.TEXT) if is_silent else draw.choice([KIND, Literal("b", Type.TEXT)])
        return draw.choice([Binary(Op.EQ, column, other), Unary(Op.NOT, IsNull(column)), Binary(Op.NE, column, other)])
    if column.type is Type.FLOAT:
        limit: Expression = Literal(0.5, Type.FLOAT) if is_silent else draw.choice([LEVEL, SIZE])
        return draw.choice([Binary(Op.LE, column, limit), IsNull(column), Binary(Op.GT, column, limit)])
    bound: Expression = Literal(draw.randint(0, 3), Type.INT)
    if not is_silent and draw.random() < 0.5:
        bound = Binary(Op.SUB, SIZE, Literal(1, Type.INT))
    op = draw.choice([Op.LT, Op.LE, Op.EQ, Op.NE, Op.GE])
    return draw.choice([Binary(op, column, bound), Unary(Op.NOT, Binary(op, column, bound)), IsNull(column)])


def _more(field: Field) -> Expression:
    return Binary(Op.ADD, field.column, Literal(1, Type.INT))


def _random_value(draw: random.Random, field: Field) -> Expression:
    column = field.column
    if column.type is Type.TEXT:
        return draw.choice([KIND, Literal("b", Type.TEXT), Literal(None, Type.TEXT)])
    if column.type is Type.FLOAT:
        half = Binary(Op.DIV, column, Literal(2.0, Type.FLOAT))
        return draw.choice([LEVEL, half, SIZE, Binary(Op.MUL, LEVEL, column), Binary(Op.DIV, SIZE, column)])
    larger = Conditional(Binary(Op.GT, SIZE, column), SIZE, column)
    quotient = Binary(draw.choice([Op.DIV, Op.MOD]), column, Binary(Op.SUB, SIZE, Literal(2, Type.INT)))
    return draw.choice([_more(field), SIZE, larger, Binary(Op.MUL, column, SIZE), Unary(Op.NEG, column), quotient])


def random_row(draw: random.Random, time: int, sequence: int) -> Row:
    """Return a row with some NULLs, and a lifetime that may end before those of earlier rows."""
    values = {
        "kind": draw.choice(["a", "b", "c", "a", "b", None]),
        "size": draw.choice([0, 1, 2, 3, 4, None]),
        "level": draw.choice([0.0, 0.25, 0.5, 1.0, None]),
    }
    stop = draw.choice([END, END, time + draw.randint(1, 25)])
    return Row(time, sequence, stop, values)
