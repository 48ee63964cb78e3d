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
from highlevel.plan.pattern_nodes import FIRST_ROW, ROW_NUMBER, MatchedRows, Matches, Neighbour, SkipRule
from lowlevel.expressions.tree import Binary, Column, Conditional, Expression, IsNull, Literal, Unary
from lowlevel.expressions.types import Op, Type
from tests.references.automata import value_of
from tests.references.plan_references import GROUP, NUMBER, OTHER, ROWS, Reference

COLUMNS = ("ts", "other", "g", "n")
FIRST = Column(FIRST_ROW, Type.BOOL)
NEIGHBOURS = [Neighbour("n before", "n", -1), Neighbour("n 3 before", "n", -3), Neighbour("n after", "n", 1)]
NEIGHBOURS += [Neighbour("n 2 after", "n", 2)]
PLACE = Column(ROW_NUMBER, Type.INT)

Register = tuple[Any, ...]
Step = tuple[str, Register]
"""The state and the register after a row."""


def matches(node: Node, inputs: Sequence[Sequence[tuple]]) -> Counter[tuple]:
    """Return the rows of a Matches or MatchedRows node."""
    assert isinstance(node, Matches)
    partitions: dict[tuple, list[tuple]] = {}
    order = [COLUMNS.index(name) for name in dict.fromkeys(("ts", *node.matched, *COLUMNS))]
    for row in sorted(inputs[0], key=lambda row: [(row[place] is None, row[place]) for place in order]):
        key = tuple(row[COLUMNS.index(name)] for name in node.keys)
        partitions.setdefault(key, []).append(row)
    found: Counter[tuple] = Counter()
    names = [field.name for field in node.automaton.register]
    initial = tuple(field.initial.value for field in node.automaton.register)
    for key, rows in partitions.items():
        unmatched = set(range(len(rows)))
        values = [
            dict(zip(COLUMNS, row, strict=True))
            | {each.name: _neighbour(rows, place + each.distance, each.column) for each in node.neighbours}
            | {ROW_NUMBER: place, FIRST_ROW: place == 0}
            for place, row in enumerate(rows)
        ]
        start = number = 0
        while start < len(rows):
            steps = _preferred(node.automaton, values, start)
            if steps is None:
                start += 1
                continue
            end = start + len(steps) - 1
            register = steps[-1][1] if steps else initial
            number += 1
            numbers = [number] if node.is_numbered else []
            of_match = (rows[start][0], rows[max(start, end)][0], *numbers)
            if isinstance(node, MatchedRows):
                unmatched -= {start, *range(start, end + 1)}
                for place, (state, after) in enumerate(steps or [("no row", initial)], start):
                    if state not in node.excluded and (steps or node.has_empty):
                        found[(*_shown(node, rows[place]), *of_match, *_fields(node, after, register))] += 1
            else:
                found[(*key, *of_match, *_fields(node, register, register))] += 1
            start = _continue(node, start, end, dict(zip(names, register, strict=True)))
        if isinstance(node, MatchedRows) and node.has_unmatched:
            nulls = [None] * (3 if node.is_numbered else 2)
            for place in unmatched:
                found[(*_shown(node, rows[place]), *nulls, *_fields(node, initial, initial))] += 1
    return found


def _neighbour(rows: Sequence[tuple], place: int, column: str) -> Any:
    return rows[place][COLUMNS.index(column)] if 0 <= place < len(rows) else None


def _shown(node: MatchedRows, row: tuple) -> list[Any]:
    return [row[COLUMNS.index(name)] for name in node.shown]


def _fields(node: Matches, after: Register, final: Register) -> list[Any]:
    """Return the fields after a row, and those of FINAL."""
    names = [field.name for field in node.automaton.register]
    shown = [value for name, value in zip(names, after, strict=True) if name != node.skip_field]
    return shown + [final[names.index(name)] for name in (node.final if isinstance(node, MatchedRows) else ())]


def _continue(node: Matches, start: int, end: int, register: Mapping[str, Any]) -> int:
    if node.skip is SkipRule.PAST_LAST_ROW:
        return max(start, end) + 1
    if node.skip is SkipRule.TO_FIELD:
        target = register[node.skip_field]
        return start + 1 if target is None else max(start + 1, target)
    return start + 1


def _preferred(automaton: Automaton, values: Sequence[Mapping[str, Any]], start: int) -> list[Step] | None:
    """Return the steps of the preferred run from a row, or None."""
    names = [field.name for field in automaton.register]
    failed: set[tuple[str, int, Register]] = set()

    def run(state: str, place: int, register: Register) -> list[Step] | None:
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
                    after = tuple(changed[name] for name in names)
                    steps = run(arc.target, place + 1, after)
                    if steps is not None:
                        return [(arc.target, after), *steps]
        is_empty = place == start
        if is_empty and state in automaton.finals and value_of(automaton.empty_fence, values[start]) is True:
            return []
        if not is_empty and (state in automaton.finals or (state in automaton.last_finals and place == len(values))):
            return []
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
    neighbours = tuple(NEIGHBOURS[: random.choice([0, 1, 2, 4])])
    arcs = []
    for number in range(random.randint(3, 7)):
        source = "start" if number == 0 else random.choice(states)
        transfer = tuple(pair for update in random.sample(updates[:3], random.randint(0, 2)) for pair in update)
        arcs.append(Arc(source, random.choice(states[1:]), _fence(random, neighbours, rows, total), transfer))
    reached = list(dict.fromkeys(arc.target for arc in arcs))
    random.shuffle(reached)
    count = random.randint(0, min(2, len(reached)))
    finals, last_finals = tuple(reached[:count]), tuple(reached[count : max(1, count + random.randint(0, 1))])
    if random.random() < 0.2:
        finals = (*finals, "start")
    skip = random.choice(list(SkipRule))
    window, empty_fence = random.choice([None, 5, 30]), random.choice([Literal(True, Type.BOOL), FIRST])
    automaton = Automaton("start", finals, tuple(arcs), tuple(fields), window, last_finals, empty_fence)
    return Matches(
        ROWS,
        automaton,
        random.choice([("g",), (), ("g", "n")]),
        skip,
        "place",
        neighbours,
        random.random() < 0.5,
    )


def _fence(random: Random, neighbours: Sequence[Neighbour], rows: Column, total: Column) -> Expression:
    parts: list[Expression] = [
        Binary(Op.LT, NUMBER, Literal(random.randint(1, 5), Type.INT)),
        *(Binary(Op.GE, NUMBER, Column(each.name, Type.INT, nullable=True)) for each in neighbours),
        FIRST,
        Unary(Op.NOT, FIRST),
        Unary(Op.NOT, IsNull(OTHER)),
        Binary(Op.LT, rows, Literal(random.randint(1, 4), Type.INT)),
        Binary(Op.GT, total, Binary(Op.MUL, NUMBER, Literal(2, Type.INT))),
        Literal(True, Type.BOOL),
    ]
    one, other = random.sample(parts, 2)
    return random.choice([one, one, Binary(Op.AND, one, other), Binary(Op.OR, one, other)])


def draw_matched_rows(random: Random) -> MatchedRows:
    """Return a node with the automaton of `draw_matches`."""
    node = draw_matches(random)
    states = [state for state in node.automaton.states if state != "start"]
    has_unmatched = random.random() < 0.3
    return MatchedRows(
        node.input,
        node.automaton,
        node.keys,
        node.skip,
        node.skip_field,
        node.neighbours,
        node.is_numbered,
        shown=(*node.keys, "ts", *random.sample(["other"], random.randint(0, 1))),
        final=tuple(random.sample(["rows", "total", "group"], random.randint(0, 2))),
        excluded=() if has_unmatched else tuple(random.sample(states, random.randint(0, 1))),
        has_empty=has_unmatched or random.random() < 0.5,
        has_unmatched=has_unmatched,
    )


REFERENCES = {
    Matches: Reference(draw_matches, matches),
    MatchedRows: Reference(draw_matched_rows, matches),
}
