"""Slow reference implementations of the nodes over changes, and the references of all nodes.

The inputs of these nodes have the columns `ts, other, g, n, weight, final`. A reference adds up the weights of its
inputs, and computes the rows from them by the definition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from highlevel.aggregation import Output
from highlevel.joins.spec import Band, JoinKind, JoinSpec, Port, Side, Tumbling, WatermarkForm
from highlevel.plan.answer_nodes import Fill, Over, Running, Sort
from highlevel.plan.automaton_nodes import ChangingAcceptedRuns
from highlevel.plan.change_nodes import (
    ChangingJoin,
    ChangingRepeat,
    ChangingResults,
    ChangingUnion,
    NetChanges,
    RowsOfChanges,
    WatchedColumns,
    is_changing,
    rows_as_changes,
)
from highlevel.plan.lifetime_nodes import ChangingInstantRanks, ChangingOverlapJoin, ChangingSnapshots
from highlevel.plan.nodes import Apply, Distinct, Node, TimeGroups, Windowed
from highlevel.plan.result_windows import result_windows
from highlevel.speculation.consistency import Consistency
from lowlevel.expressions.tree import Binary, Literal
from lowlevel.expressions.types import Op, Type
from tests.references.automaton_references import REFERENCES as AUTOMATON_REFERENCES
from tests.references.automaton_references import accepted_runs, draw_accepted_runs
from tests.references.graph_streams import added_up
from tests.references.pattern_references import REFERENCES as PATTERN_REFERENCES
from tests.references.plan_references import (
    GROUP,
    LEAF,
    NUMBER,
    ROWS,
    TS,
    Reference,
    at_each_instant,
    instant_ranks,
    made_rows,
    overlap_join,
    overlapping,
    ranked_at_instants,
    schema_of,
    snapshots,
)
from tests.references.plan_references import REFERENCES as ROW_REFERENCES
from tests.references.revision_references import REFERENCES as REVISION_REFERENCES

CHANGES = Apply(LEAF, (*ROWS.outputs, *rows_as_changes(ROWS).outputs[-2:]), ROWS.time_outputs)
"""A plan with changes of rows `ts, other, g, n`. Tests never run it."""

BODIES = (Windowed, TimeGroups, Distinct, Sort, Over, Fill, Running)


def made_changes(random: Random) -> list[tuple]:
    """Rows as changes. Some are returned twice, and some of these are withdrawn later."""
    changes: list[tuple] = []
    withdrawn: list[tuple] = []
    for row in made_rows(random)[:20]:
        weight = random.choice([1, 1, 1, 2])
        changes.append((*row, weight, False))
        if random.random() < 0.3:
            withdrawn.append((*row, -random.randint(1, weight), False))
        if withdrawn and random.random() < 0.5:
            changes.append(withdrawn.pop(random.randrange(len(withdrawn))))
    return [*changes, *withdrawn]


def content_of(changes: Sequence[tuple]) -> list[tuple]:
    """Return the rows that changes add up to. Rows of other nodes are returned unchanged."""
    totals: Counter[tuple] = Counter()
    for *row, weight, _ in changes:
        totals[tuple(row)] += weight
    return list(totals.elements())


def net(node: Node, rows: Counter[tuple]) -> Counter[tuple]:
    """Return the rows of a node; for changes the rows that they add up to."""
    if not is_changing(node):
        return rows
    return added_up(rows)


def _changing_results(random: Random) -> ChangingResults:
    """Draw a node of BODIES that has results before the end of the input."""
    while True:
        kind = random.choice(BODIES)
        body = ROW_REFERENCES[kind].node(random)
        columns = len(body.inputs[0].columns)
        source: Node = CHANGES
        if columns < len(ROWS.columns):
            source = Apply(LEAF, (*ROWS.outputs[:columns], *CHANGES.outputs[-2:]), ROWS.time_outputs)
        if len(body.inputs[0].time_columns) != 1:
            continue
        body = body.with_inputs([RowsOfChanges(source)])
        is_limited = not isinstance(body, Sort) or body.window_columns
        if len(body.time_columns) == 1 and is_limited and (result_windows(body) or kind in (Over, Fill, Running)):
            return ChangingResults(body, random.random() < 0.5)


def _in_changing_results(node: Node, inputs: Sequence[Sequence[tuple]]) -> Counter[tuple]:
    assert isinstance(node, ChangingResults)
    return ROW_REFERENCES[type(node.body)].rows(node.body, [content_of(inputs[0])])


def _changing_join(random: Random) -> ChangingJoin:
    columns = [("ts", "ts"), ("g", "g"), ("n", "n")]
    left, right = (Side(schema_of(ROWS), "ts", tuple((name, f"{side}.{name}") for name, _ in columns)) for side in "lr")
    band = Band(random.choice([0, 0, 7, 20]), random.choice([0, 0, 20]))
    window = random.choice([band, Tumbling(random.randint(1, 30), random.randint(-5, 5), random.choice([-1, 0, 2]))])
    keys = random.choice([((GROUP, GROUP),), ((GROUP, GROUP), (NUMBER, NUMBER)), ()])
    kind = random.choice(list(JoinKind))
    form = {
        JoinKind.LEFT: WatermarkForm.LEFT,
        JoinKind.RIGHT: WatermarkForm.RIGHT,
        JoinKind.FULL: random.choice([WatermarkForm.MIN, WatermarkForm.MAX]),
        JoinKind.INNER: random.choice([WatermarkForm.LEFT, WatermarkForm.RIGHT, WatermarkForm.MIN, WatermarkForm.MAX]),
    }.get(kind, WatermarkForm.LEFT)
    spec = JoinSpec(left, right, window, keys, None, kind)
    consistency = Consistency(random.choice([0, 0, 5, 30, None]))
    return ChangingJoin(CHANGES, CHANGES, spec, form, consistency, random.random() < 0.3)


def _in_changing_join(node: Node, inputs: Sequence[Sequence[tuple]]) -> Counter[tuple]:
    """Compare every row with every row of the other side."""
    assert isinstance(node, ChangingJoin)
    spec, (left, right) = node.spec, (content_of(changes) for changes in inputs)
    columns = [{TS: 0, GROUP: 2, NUMBER: 3}[key] for key, _ in spec.keys]

    def match(one: tuple, other: tuple) -> bool:
        window = spec.window
        if isinstance(window, Tumbling):
            first, second = ((ts - window.origin) // window.length for ts in (one[0], other[0]))
            near = second == first + window.shift
        else:
            near = window.low <= other[0] - one[0] <= window.high
        return near and all(one[column] is not None and one[column] == other[column] for column in columns)

    def shown(one: tuple | None, other: tuple | None) -> tuple:
        parts = (one, other) if not spec.kind.is_left_only else (one,)
        row = tuple(value for part in parts for value in ((part[0], *part[2:]) if part else (None,) * 3))
        times = [part[0] for part in (one, other) if part is not None]
        extra = {WatermarkForm.MIN: (min(times),), WatermarkForm.MAX: (max(times),)}
        return (*row, *extra.get(node.watermark_form, ()))

    found: Counter[tuple] = Counter()
    pairs = [(one, other) for one in left for other in right if match(one, other)]
    if not spec.kind.is_left_only:
        found.update(shown(one, other) for one, other in pairs)
    if spec.kind is JoinKind.SEMI:
        found.update(shown(one, None) for one in left if any(match(one, other) for other in right))
    if spec.kind.keeps(Port.LEFT):
        found.update(shown(one, None) for one in left if not any(match(one, other) for other in right))
    if spec.kind.keeps(Port.RIGHT):
        found.update(shown(None, other) for other in right if not any(match(one, other) for one in left))
    return found


def _changing_snapshots(random: Random) -> ChangingSnapshots:
    """Draw snapshots of rows, or of changes."""
    node = snapshots(random)
    source = random.choice([ROWS, CHANGES])
    consistency = Consistency(random.choice([0, 0, 5, 40, None]))
    return ChangingSnapshots(source, node.aggregation, node.time, node.end, node.late_by, consistency)


def _in_changing_snapshots(node: Node, inputs: Sequence[Sequence[tuple]]) -> Counter[tuple]:
    return at_each_instant(node, [_rows(below, rows) for below, rows in zip(node.inputs, inputs, strict=True)])


def _changing_accepted_runs(random: Random) -> ChangingAcceptedRuns:
    node = draw_accepted_runs(random)
    consistency = Consistency(random.choice([0, 0, 5, 30, None]))
    source = random.choice([ROWS, CHANGES])
    return ChangingAcceptedRuns(source, node.automaton, node.keys, node.until, None, None, consistency)


def _in_changing_accepted_runs(node: Node, inputs: Sequence[Sequence[tuple]]) -> Counter[tuple]:
    return accepted_runs(node, [content_of(inputs[0]) if is_changing(node.inputs[0]) else inputs[0]])


def _changing_overlap_join(random: Random) -> ChangingOverlapJoin:
    """Draw a join of rows, or of changes."""
    node = overlap_join(random, random.choice([ROWS, CHANGES]))
    consistency = Consistency(random.choice([0, 0, 5, 40, None]))
    parameters = (node.sides, node.keys, node.time, node.kind, node.residual)
    return ChangingOverlapJoin(node.left, node.right, *parameters, consistency)


def _in_changing_overlap_join(node: Node, inputs: Sequence[Sequence[tuple]]) -> Counter[tuple]:
    return overlapping(node, [_rows(below, rows) for below, rows in zip(node.inputs, inputs, strict=True)])


def _changing_instant_ranks(random: Random) -> ChangingInstantRanks:
    """Draw ranks of rows, or of changes."""
    node = instant_ranks(random, random.choice([ROWS, CHANGES]))
    consistency = Consistency(random.choice([0, 0, 5, 40, None]))
    parameters = (node.ranks, node.lifetime, node.hidden, consistency, random.random() < 0.3)
    return ChangingInstantRanks(node.input, *parameters)


def _in_changing_instant_ranks(node: Node, inputs: Sequence[Sequence[tuple]]) -> Counter[tuple]:
    return ranked_at_instants(node, [_rows(below, rows) for below, rows in zip(node.inputs, inputs, strict=True)])


def _rows(node: Node, rows: Sequence[tuple]) -> Sequence[tuple]:
    """Return the rows of an input that may have changes."""
    return content_of(rows) if is_changing(node) else rows


def _watched_columns(random: Random) -> WatchedColumns:
    twice = Output("twice", Binary(Op.MUL, NUMBER, Literal(2, Type.INT)))
    return WatchedColumns(ROWS, (twice,), Consistency(random.choice([0, 0, 7, 40, None])))


def _with_watched_columns(node: Node, inputs: Sequence[Sequence[tuple]]) -> Counter[tuple]:
    return Counter((*row, 2 * row[3]) for row in inputs[0])


def _repeated_changes(node: Node, inputs: Sequence[Sequence[tuple]]) -> Counter[tuple]:
    return Counter(row for row in content_of(inputs[0]) for _ in range(row[3]))


def _all_changes(node: Node, inputs: Sequence[Sequence[tuple]]) -> Counter[tuple]:
    return Counter(row for changes in inputs for row in content_of(changes))


REFERENCES = {
    **ROW_REFERENCES,
    **REVISION_REFERENCES,
    **PATTERN_REFERENCES,
    **AUTOMATON_REFERENCES,
    ChangingResults: Reference(_changing_results, _in_changing_results),
    ChangingJoin: Reference(_changing_join, _in_changing_join),
    ChangingUnion: Reference(lambda random: ChangingUnion((CHANGES,) * random.randint(1, 4)), _all_changes),
    ChangingRepeat: Reference(lambda random: ChangingRepeat(CHANGES, "n"), _repeated_changes),
    ChangingSnapshots: Reference(_changing_snapshots, _in_changing_snapshots),
    ChangingInstantRanks: Reference(_changing_instant_ranks, _in_changing_instant_ranks),
    ChangingAcceptedRuns: Reference(_changing_accepted_runs, _in_changing_accepted_runs),
    ChangingOverlapJoin: Reference(_changing_overlap_join, _in_changing_overlap_join),
    WatchedColumns: Reference(_watched_columns, _with_watched_columns),
    NetChanges: Reference(lambda random: NetChanges(CHANGES), _all_changes),
}
"""The references of all entries of the registry."""
