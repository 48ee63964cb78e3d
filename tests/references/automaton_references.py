"""AUTOMATON by the definition: all accepted runs over all ranges of rows, and the deadlines that no row precedes.

The inputs have the columns `ts, other, g, n` of `tests.references.plan_references`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from highlevel.patterns.automaton import Arc, Automaton, Field
from highlevel.plan.automaton_nodes import AcceptedRuns
from highlevel.plan.nodes import Node
from lowlevel.expressions.tree import Binary, Column, Conditional, Expression, IsNull, Literal, Unary
from lowlevel.expressions.types import Op, Type
from lowlevel.punctuation import BEGINNING, END
from tests.references.automata import Row, deadline_results, results, tie_of
from tests.references.plan_references import GROUP, NUMBER, OTHER, ROWS, Reference, schema_of

COLUMNS = ("ts", "other", "g", "n")
TIME = Column("ts", Type.TIME)


def accepted_runs(node: Node, inputs: Sequence[Sequence[tuple]]) -> Counter[tuple]:
    """Return the rows of an AcceptedRuns node."""
    assert isinstance(node, AcceptedRuns)
    partitions: dict[tuple, list[Row]] = {}
    for number, row in enumerate(inputs[0]):
        values = dict(zip(COLUMNS, row, strict=True))
        key = tuple(values[name] for name in node.keys)
        stop = END if node.until is None or values[node.until] is None else values[node.until]
        stop = max(stop, row[0] + 1) if stop == row[0] else stop
        if row[0] < stop:
            partitions.setdefault(key, []).append(Row(row[0], tie_of(values, schema_of(ROWS), number), stop, values))
    found: Counter[tuple] = Counter()
    for key, rows in partitions.items():
        ends = [each[:4] for each in results(node.automaton, rows)]
        ends += deadline_results(node.automaton, rows, BEGINNING, END)
        for first, last, stop, register in ends:
            until = [] if node.until is None else [None if stop == END else stop]
            found[(*key, first, last, *until, *register)] += 1
    return found


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


REFERENCES = {AcceptedRuns: Reference(draw_accepted_runs, accepted_runs)}
