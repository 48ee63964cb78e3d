"""Slow reference implementations of DISTINCT ON, MERGE and CHANGES BY: rows of a key are compared one by one.

The inputs have the columns `ts, other, g, n` of `tests.references.plan_references`. For flows `other` is the start,
`g` the key, and `n` the counter; a record with the number 4 ends its flow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from random import Random

from highlevel.plan.nodes import Node
from highlevel.plan.revision_nodes import (
    ChangingFirstCopies,
    ChangingFlowMerge,
    ChangingNetRows,
    FirstCopies,
    FlowMerge,
    NetRows,
    Role,
)
from highlevel.speculation.consistency import Consistency
from lowlevel.expressions.tree import Binary, Literal
from lowlevel.expressions.types import Op, Type
from tests.references.plan_references import NUMBER, ROWS, Reference

ENDS = Binary(Op.GE, NUMBER, Literal(4, Type.INT))
ROLES = (("ts", Role.GREATEST), ("g", Role.LAST), ("n", Role.SUM))


def draw_copies(random: Random) -> FirstCopies:
    keys = random.choice([("g",), ("g", "n")])
    return FirstCopies(ROWS, keys, random.choice([0, 1, 5, 20]))


def changing_copies(random: Random) -> ChangingFirstCopies:
    node = draw_copies(random)
    return ChangingFirstCopies(node.input, node.keys, node.within, Consistency(random.choice([0, 0, 5, 30, None])))


def in_order(row: tuple) -> tuple:
    """NULL is after all values."""
    return tuple((value is None, value) for value in row)


def of_keys(rows: Iterable[tuple], positions: Sequence[int]) -> Iterator[list[tuple]]:
    keys: dict[tuple, list[tuple]] = {}
    for row in rows:
        keys.setdefault(tuple(row[position] for position in positions), []).append(row)
    return iter(keys.values())


def first_copies(node: Node, inputs: Sequence[Sequence[tuple]]) -> Counter[tuple]:
    """Compare each row with every earlier row of its key."""
    assert isinstance(node, FirstCopies)
    found: Counter[tuple] = Counter()
    for rows in of_keys(inputs[0], [("ts", "other", "g", "n").index(name) for name in node.keys]):
        rows.sort(key=in_order)
        for number, row in enumerate(rows):
            found[row] += not any(row[0] - before[0] <= node.within for before in rows[:number])
    return +found


def draw_flows(random: Random) -> FlowMerge:
    idle = random.choice([None, 0, 3, 10])
    return FlowMerge(ROWS, ("g",), ROLES, random.choice([0, 1, 5, 20]), idle, "other", ENDS)


def changing_flows(random: Random) -> ChangingFlowMerge:
    node = draw_flows(random)
    parameters = (node.input, node.keys, node.roles, node.within, node.idle, node.start, node.ended)
    return ChangingFlowMerge(*parameters, Consistency(random.choice([0, 0, 5, 30, None])))


def flows(node: Node, inputs: Sequence[Sequence[tuple]]) -> Counter[tuple]:
    """Append each record to the last flow of its key, or begin another one."""
    assert isinstance(node, FlowMerge)
    found: Counter[tuple] = Counter()
    for rows in of_keys(inputs[0], [2]):
        runs: list[list[tuple]] = []
        for row in sorted(rows, key=lambda row: (row[0], row[3] >= 4, row[2] is None, row[2], row[3], row[1])):
            before = runs[-1][-1] if runs else None
            begins = before is None or before[3] >= 4 or row[0] - before[0] > node.within
            if begins or (node.idle is not None and row[1] - before[0] > node.idle):
                runs.append([])
            runs[-1].append(row)
        for run in runs:
            last = run[-1]
            found[last[0], last[2], sum(row[3] for row in run), len(run), last[3] < 4] += 1
    return found


def net_rows(node: Node, inputs: Sequence[Sequence[tuple]]) -> Counter[tuple]:
    """Add up the weights of equal rows, which are in the last column."""
    found: Counter[tuple] = Counter()
    for *row, weight in inputs[0]:
        found[tuple(row)] += weight
    return +found


REFERENCES = {
    NetRows: Reference(lambda random: NetRows(ROWS, "n"), net_rows),
    ChangingNetRows: Reference(
        lambda random: ChangingNetRows(ROWS, "n", Consistency(random.choice([0, 0, 5, 30, None]))), net_rows
    ),
    FirstCopies: Reference(draw_copies, first_copies),
    ChangingFirstCopies: Reference(changing_copies, first_copies),
    FlowMerge: Reference(draw_flows, flows),
    ChangingFlowMerge: Reference(changing_flows, flows),
}
"""The references of the nodes over sources that change their minds."""
