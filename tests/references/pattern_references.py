"""MATCH_RECOGNIZE by the definition: from each row the preferred run, found by trying all runs in their order.

The inputs have the columns `ts, other, g, n` of `tests.references.plan_references`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from highlevel.patterns.automaton import Arc, Automaton, Field
from highlevel.plan.nodes import Node
from highlevel.plan.pattern_nodes import ROW_NUMBER, Matches, SkipRule
from lowlevel.expressions.tree import Binary, Column, Conditional, Expression, IsNull, Literal, Unary
from lowlevel.expressions.types import Op, Type
from tests.references.automata import value_of
from tests.references.plan_references import GROUP, NUMBER, OTHER, ROWS, Reference

COLUMNS = ("ts", "other", "g", "n")
BEFORE = Column("n before", Type.INT, nullable=True)
PLACE = Column(ROW_NUMBER, Type.INT)

Register = tuple[Any, ...]


def matches(node: Node, inputs: Sequence[Sequence[tuple]]) -> Counter[tuple]:
    """Return the rows of a Matches node."""
    assert isinstance(node, Matches)
    partitions: dict[tuple, list[tuple]] = {}
    for row in sorted(inputs[0], key=lambda row: tuple((value is None, value) for value in row)):
        key = tuple(row[COLUMNS.index(name)] for name in node.keys)
        partitions.setdefault(key, []).append(row)
    found: Counter[tuple] = Counter()
    names = [field.name for field in node.automaton.register]
    for key, rows in partitions.items():
        values = [
            dict(zip(COLUMNS, row, strict=True))
            | {BEFORE.name: rows[place - 1][3] if place else None, ROW_NUMBER: place}
            for place, row in enumerate(rows)
        ]
        start = number = 0
        while start < len(rows):
            match = _preferred(node.automaton, values, start)
            if match is None:
                start += 1
                continue
            end, register = match
            number += 1
            shown = [value for name, value in zip(names, register, strict=True) if name != node.skip_field]
            numbers = [number] if node.is_numbered else []
            found[(*key, rows[start][0], rows[end][0], *numbers, *shown)] += 1
            start = _continue(node, start, end, dict(zip(names, register, strict=True)))
    return found


def _continue(node: Matches, start: int, end: int, register: Mapping[str, Any]) -> int:
    if node.skip is SkipRule.PAST_LAST_ROW:
        return end + 1
    if node.skip is SkipRule.TO_FIELD:
        target = register[node.skip_field]
        return start + 1 if target is None else max(start + 1, target)
    return start + 1


def _preferred(automaton: Automaton, values: Sequence[Mapping[str, Any]], start: int) -> tuple[int, Register] | None:
    """Return the last row and the register of the preferred run from a row, or None."""
    names = [field.name for field in automaton.register]
    failed: set[tuple[str, int, Register]] = set()

    def run(state: str, place: int, register: Register) -> tuple[int, Register] | None:
        if (state, place, register) in failed:
            return None
        is_inside = place < len(values) and (
            automaton.window is None or values[place]["ts"] < values[start]["ts"] + automaton.window
        )
        if is_inside:
            row = dict(values[place]) | dict(zip(names, register, strict=True))
            for arc in automaton.arcs:
                if arc.source == state and value_of(arc.fence, row) is True:
                    changed = row | {name: value_of(value, row) for name, value in arc.transfer}
                    match = run(arc.target, place + 1, tuple(changed[name] for name in names))
                    if match is not None:
                        return match
        if state in automaton.finals:
            return place - 1, register
        failed.add((state, place, register))
        return None

    return run(automaton.start, start, tuple(field.initial.value for field in automaton.register))


def draw_matches(random: Random) -> Matches:
    """Return a node with a random automaton of 2 to 4 states besides its start."""
    states = ["start", *(f"q{number}" for number in range(random.randint(2, 4)))]
    fields = [
        Field("rows", Literal(0, Type.INT)),
        Field("total", Literal(None, Type.INT)),
        Field("group", Literal(None, Type.TEXT)),
        Field("place", Literal(None, Type.INT)),
    ]
    rows, total = fields[0].column, fields[1].column
    updates: list[tuple[tuple[str, Expression], ...]] = [
        (("rows", Binary(Op.ADD, rows, Literal(1, Type.INT))),),
        (("total", Conditional(IsNull(total), NUMBER, Binary(Op.ADD, total, NUMBER))),),
        (("group", GROUP), ("place", PLACE)),
        (("place", Conditional(IsNull(fields[3].column), PLACE, fields[3].column)),),
        (),
    ]
    arcs = []
    for number in range(random.randint(3, 7)):
        source = "start" if number == 0 else random.choice(states)
        transfer = tuple(pair for update in random.sample(updates[:3], random.randint(0, 2)) for pair in update)
        arcs.append(Arc(source, random.choice(states[1:]), _fence(random, rows, total), transfer))
    reached = dict.fromkeys(arc.target for arc in arcs)
    finals = tuple(random.sample(list(reached), random.randint(1, min(2, len(reached)))))
    skip = random.choice(list(SkipRule))
    automaton = Automaton("start", finals, tuple(arcs), tuple(fields), random.choice([None, 5, 30]))
    return Matches(
        ROWS,
        automaton,
        random.choice([("g",), (), ("g", "n")]),
        skip,
        "place",
        ((BEFORE.name, "n"),),
        random.random() < 0.5,
    )


def _fence(random: Random, rows: Column, total: Column) -> Expression:
    parts: list[Expression] = [
        Binary(Op.LT, NUMBER, Literal(random.randint(1, 5), Type.INT)),
        Binary(Op.GE, NUMBER, BEFORE),
        Unary(Op.NOT, IsNull(OTHER)),
        Binary(Op.LT, rows, Literal(random.randint(1, 4), Type.INT)),
        Binary(Op.GT, total, Binary(Op.MUL, NUMBER, Literal(2, Type.INT))),
        Literal(True, Type.BOOL),
    ]
    one, other = random.sample(parts, 2)
    return random.choice([one, one, Binary(Op.AND, one, other), Binary(Op.OR, one, other)])


REFERENCES = {Matches: Reference(draw_matches, matches)}
