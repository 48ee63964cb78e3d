"""Slow reference implementations of the plan's operators, one for each entry of `highlevel.plan.registry`.

A reference draws a node for a seed and computes the node's rows from the rows of its inputs, by the definition. Inputs
have the columns `ts, other, g, n` and one or two time columns.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

import pyarrow as pa

from highlevel.aggregation import Aggregation, Detail, DetailFunction, Output
from highlevel.joins.spec import Band, JoinKind, JoinSpec, Port, Side, WatermarkForm
from highlevel.plan.answer_nodes import (
    FRAMED,
    Fill,
    Frame,
    Over,
    RowFunction,
    RowFunctionKind,
    Running,
    RunningFunction,
    Sort,
    SortKey,
)
from highlevel.plan.lifetime_nodes import (
    RANK_FUNCTIONS,
    InstantRanks,
    JoinedSide,
    Lifetime,
    OverlapJoin,
    Ranks,
    Snapshots,
    TouchedWindows,
)
from highlevel.plan.nodes import (
    Apply,
    ChangingWindows,
    Distinct,
    Filter,
    Join,
    Leaf,
    Node,
    Repeat,
    TimeGroups,
    TimeOutput,
    Union,
    Windowed,
)
from highlevel.plan.sample_node import Sample, SampleAggregate, SampleKind
from highlevel.speculation.consistency import Consistency
from highlevel.windows.kind import WHOLE_INPUT, LifetimeWindow, SlidingWindow
from lowlevel.expressions.tree import Binary, Column, Literal
from lowlevel.expressions.types import Op, Type
from lowlevel.plan import ARROW_TYPES, NEWEST_COLUMN, Key, LowLevelPlan
from lowlevel.subaggregates import Kind, SubAggregate
from tests.references.instant_ranks import ranked_rows
from tests.references.row_functions import NAMES, function_values
from tests.references.windows_oracle import Spec

TS, OTHER = Column("ts", Type.INT), Column("other", Type.INT, nullable=True)
GROUP, NUMBER = Column("g", Type.TEXT, nullable=True), Column("n", Type.INT)
LEAF = Leaf("q", ("a",), LowLevelPlan(None, (Key("g", GROUP),), (), 1, reduced=False))
ROWS = Apply(LEAF, tuple(Output(each.name, each) for each in (TS, OTHER, GROUP, NUMBER)), (TimeOutput("ts", "pane"),))
"""A plan with rows `ts, other, g, n` that progress by ts. Tests never run it."""


class Pairs(Apply):
    """The same rows, with promises about both times: what a join gives."""

    @property
    def time_columns(self) -> tuple[str, ...]:
        return ("ts", "other")


PAIRS = Pairs(LEAF, ROWS.outputs, ())


def schema_of(node: Node) -> pa.Schema:
    return pa.schema([pa.field(column.name, ARROW_TYPES[column.type]) for column in node.columns])


def seconds(value: int) -> Literal:
    return Literal(value, Type.INT)


def made_rows(random: Random, *, nulls: bool = False) -> list[tuple]:
    """Rows `ts, other, g, n` over few times, so that ties are common, each up to 0, 10 or 80 late."""
    late = random.choice([0, 10, 80])
    rows = []
    for number in range(random.randint(1, 40)):
        ts = random.randrange(100)
        other = None if nulls and random.random() < 0.2 else max(0, ts + random.randint(-9, 9))
        rows.append((ts + random.random() * late, (ts, other, random.choice(["a", "b", None]), number % 5)))
    return [row for _, row in sorted(rows, key=lambda each: each[0])]


def by_ts(row: tuple) -> tuple[int]:
    return (row[0],)


def by_both(row: tuple) -> tuple[int, int | None]:
    return row[0], row[1]


def plan_of(window: SlidingWindow, group: tuple[Key, ...]) -> Aggregation:
    """Count, sum, least and last of the rows of each group."""
    total, least, last = (
        SubAggregate("s", Kind.SUM, NUMBER),
        SubAggregate("m", Kind.MIN, NUMBER),
        (SubAggregate("t", Kind.LATEST, NUMBER), SubAggregate("l", Kind.LAST, NUMBER)),
    )
    low = LowLevelPlan(None, group, (SubAggregate("c", Kind.COUNT), total, least, *last), window.pane, window.origin)
    names = [key.name for key in group]
    kinds = {key.name: key.expression.type for key in group}
    shown = (*names, "c", "s", "m", "l")
    select = tuple(Output(name, Column(name, kinds.get(name, Type.INT), nullable=True)) for name in shown)
    return Aggregation(window, low, tuple(names), None, select)


def summary(rows: list[tuple]) -> tuple:
    return len(rows), sum(n for *_, n in rows), min(n for *_, n in rows), max((ts, n) for ts, _, _, n in rows)[1]


Inputs = Sequence[Sequence[tuple]]


@dataclass(frozen=True)
class Reference:
    """Draws a node of one type; computes its rows from the rows of its inputs."""

    node: Callable[[Random], Node]
    rows: Callable[[Node, Inputs], Counter[tuple]]


def _input(random: Random) -> Node:
    return random.choice([ROWS, PAIRS])


def _selected(node: Node, inputs: Inputs) -> Counter[tuple]:
    return Counter(row for row in inputs[0] if row[1] is not None and row[1] < row[0])


def _applied(node: Node, inputs: Inputs) -> Counter[tuple]:
    return Counter((ts, g, 2 * n) for ts, _, g, n in inputs[0])


def _united(node: Node, inputs: Inputs) -> Counter[tuple]:
    return Counter(row for rows in inputs for row in rows)


def _distinct(node: Node, inputs: Inputs) -> Counter[tuple]:
    return Counter(set(inputs[0]))


def _repeated(node: Node, inputs: Inputs) -> Counter[tuple]:
    return Counter(row for row in inputs[0] for _ in range(row[3]))


def _join(random: Random) -> Join:
    columns = [("ts", "ts"), ("g", "g"), ("n", "n")]
    left, right = (Side(schema_of(ROWS), "ts", tuple((name, f"{side}.{name}") for name, _ in columns)) for side in "lr")
    spec = JoinSpec(
        left,
        right,
        Band(random.randint(0, 20), random.randint(0, 20), least=random.choice([None, random.randint(-25, 25)])),
        ((GROUP, GROUP),),
    )
    return Join(ROWS, ROWS, spec, random.choice([WatermarkForm.LEFT, WatermarkForm.RIGHT, WatermarkForm.JOINT]))


def _joined(node: Node, inputs: Inputs) -> Counter[tuple]:
    assert isinstance(node, Join)
    window = node.spec.window
    assert isinstance(window, Band)
    return Counter(
        (*(left[0], left[2], left[3]), *(right[0], right[2], right[3]))
        for left in inputs[0]
        for right in inputs[1]
        if left[2] is not None and left[2] == right[2] and window.low <= right[0] - left[0] <= window.high
    )


def _windowed(random: Random) -> Windowed:
    window = SlidingWindow(random.randint(1, 100), random.randint(1, 30), random.randint(-100, 100))
    return Windowed(ROWS, plan_of(window, (Key("g", GROUP),)), "ts")


def _in_windows(node: Node, inputs: Inputs) -> Counter[tuple]:
    assert isinstance(node, Windowed)
    window, groups = node.aggregation.window, dict[tuple, list[tuple]]()
    spec = Spec(window.range, window.slide, window.origin)
    for row in inputs[0]:
        for wid in spec.wids(row[0]):
            groups.setdefault((*spec.extent(wid), row[2]), []).append(row)
    return Counter((*key, *summary(rows)) for key, rows in groups.items())


def _changing(random: Random) -> ChangingWindows:
    """Strong consistency: every change is final, so the rows do not depend on the order of arrival."""
    node = _windowed(random)
    low = node.aggregation.low
    low = replace(low, subaggregates=(*low.subaggregates, SubAggregate(NEWEST_COLUMN, Kind.MAX, TS)))
    return ChangingWindows(ROWS, replace(node.aggregation, low=low), "ts", Consistency(wait=None))


def _in_final_changes(node: Node, inputs: Inputs) -> Counter[tuple]:
    return _in_windows(node, inputs)


def snapshots(random: Random) -> Snapshots:
    """Rows that are true for a length from ts, or from ts to `other`; some are not used because they end too early."""
    window = LifetimeWindow(random.choice([None, random.randint(1, 30)]))
    tenths = SubAggregate("f", Kind.SUM, Binary(Op.MUL, NUMBER, Literal(0.1, Type.FLOAT)))
    subs = (SubAggregate("c", Kind.COUNT), SubAggregate("s", Kind.SUM, NUMBER), SubAggregate("m", Kind.MIN, NUMBER))
    subs = (*subs, tenths)
    details = (Detail("d", DetailFunction.COUNT_DISTINCT, "k", Type.INT, "c"),)
    low = LowLevelPlan(None, (Key("g", GROUP), Key("k", Binary(Op.MOD, NUMBER, seconds(3)))), subs, 1, reduced=False)
    kinds = {"g": Type.TEXT, "f": Type.FLOAT}
    select = tuple(Output(name, Column(name, kinds.get(name, Type.INT), nullable=True)) for name in ("g", *"csmdf"))
    having = random.choice([None, Binary(Op.LT, Column("c", Type.INT), seconds(3))])
    aggregation = Aggregation(window, low, ("g",), having, select, details=details)
    end = None if window.length is not None else "other"
    return Snapshots(ROWS, aggregation, "ts", end, random.choice([0, 0, 5, None]))


def at_each_instant(node: Node, inputs: Inputs) -> Counter[tuple]:
    """Look at the rows of a group that are true between two neighbouring starts or ends."""
    assert isinstance(node, Snapshots)
    window, groups = node.aggregation.window, dict[str | None, list[tuple[int, int, int]]]()
    assert isinstance(window, LifetimeWindow)
    for start, other, g, n in inputs[0]:
        end = start + window.length if window.length is not None else max(other, start + (other == start))
        if end > start:
            groups.setdefault(g, []).append((start, end, n))
    found: Counter[tuple] = Counter()
    for g, rows in groups.items():
        times = sorted({time for start, end, _ in rows for time in (start, end)})
        for start, end in pairwise(times):
            values = [n for first, last, n in rows if first <= start and end <= last]
            if values and (node.aggregation.having is None or len(values) < 3):
                distinct = len({n % 3 for n in values})
                tenths = math.fsum(n * 0.1 for n in values)
                found[start, end, g, len(values), sum(values), min(values), distinct, tenths] += 1
    return found


def instant_ranks(random: Random, source: Node) -> InstantRanks:
    """Ranks or the first rows at each instant, of rows that are true for a length from ts, or from ts to `other`."""
    length = random.choice([None, random.randint(1, 30)])
    end = "other" if length is None else None
    names = [column for column in ("other", "g", "n") if column != end]
    keys = tuple(
        SortKey(name, random.random() < 0.5, random.random() < 0.5)
        for name in random.sample(names, random.randint(1, len(names)))
    )
    partition = ("g",) if random.random() < 0.3 else ()
    limits = random.choice([(None, 0), (0, 0), (1, 0), (1, 0), (3, 0), (2, 1), (None, 2)])
    function = random.choice([None, *RANK_FUNCTIONS])
    if function is not None:
        limits = (None, 0)
    ranks = Ranks(keys, partition, function, "r", *limits)
    return InstantRanks(source, ranks, Lifetime("ts", end, length, random.choice([0, 0, 5, None])))


def ranked_at_instants(node: Node, inputs: Inputs) -> Counter[tuple]:
    """Sort the rows that are true between two neighbouring starts or ends, and join neighbouring results."""
    assert isinstance(node, InstantRanks)
    ranks, lifetime = node.ranks, node.lifetime
    assert lifetime is not None
    names = [name for name in ("other", "g", "n") if name != lifetime.end]
    rows = []
    for ts, other, g, n in inputs[0]:
        end = ts + lifetime.length if lifetime.length is not None else max(other, ts + (other == ts))
        if end > ts:
            rows.append((ts, end, {"other": other, "g": g, "n": n}))
    order = [*ranks.keys, *(SortKey(name) for name in names if name not in [key.column for key in ranks.keys])]
    rows.sort(key=lambda row: row[0])
    for key in reversed(order):
        present = [row for row in rows if row[2][key.column] is not None]
        absent = [row for row in rows if row[2][key.column] is None]
        values = [row[2][key.column] for row in present]
        groups = [[row for row in present if row[2][key.column] == value] for value in sorted(set(values))]
        present = [row for group in (groups[::-1] if key.descending else groups) for row in group]
        rows = [*absent, *present] if key.nulls_first else [*present, *absent]
    return ranked_rows(
        [(start, end, tuple(values[name] for name in names)) for start, end, values in rows],
        lambda values: [values[names.index(key.column)] for key in ranks.keys],
        partition=lambda values: tuple(values[names.index(name)] for name in ranks.partition),
        function=ranks.function,
        limit=ranks.limit,
        offset=ranks.offset,
    )


def _touched_windows(random: Random) -> TouchedWindows:
    length = random.choice([None, random.randint(1, 30)])
    end = "other" if length is None else None
    return TouchedWindows(ROWS, "ts", end, length, random.randint(1, 20), random.choice([0, 0, 5, None]))


def _in_each_touched_window(node: Node, inputs: Inputs) -> Counter[tuple]:
    assert isinstance(node, TouchedWindows)
    found: Counter[tuple] = Counter()
    for row in inputs[0]:
        start, other = row[:2]
        end = start + node.length if node.length is not None else other
        for time in {
            instant // node.window_length * node.window_length for instant in range(start, max(end, start + 1))
        }:
            found[(*row, time)] += end >= start
    return +found


def overlap_join(random: Random, source: Node) -> OverlapJoin:
    """A side is true for a length from ts, or from ts to `other`. Sometimes there is no key."""

    def side(name: str) -> JoinedSide:
        length = random.choice([None, random.randint(1, 30)])
        lifetime = Lifetime("ts", "other" if length is None else None, length, random.choice([0, 0, 5, None]))
        return JoinedSide(lifetime, tuple((column, f"{name}.{column}") for column in ("ts", "g", "n")))

    keys = random.choice([((GROUP, GROUP),), ((GROUP, GROUP), (NUMBER, NUMBER)), ()])
    kind = random.choice([JoinKind.INNER, *JoinKind])
    larger = Binary(Op.LT, Column("l.n", Type.INT), Column("r.n", Type.INT))
    residual = random.choice([None, larger])
    time = random.choice(["window_start", "window_end"])
    return OverlapJoin(source, source, (side("l"), side("r")), keys, time, kind, residual)


def overlapping(node: Node, inputs: Inputs) -> Counter[tuple]:
    """Compare every row with every row of the other side. Collect the instants of a row with or without a pair."""
    assert isinstance(node, OverlapJoin)
    columns = [{GROUP: 2, NUMBER: 3}[key] for key, _ in node.keys]
    lifetimes_of_sides = [side.lifetime for side in node.sides]

    def ends(row: tuple, lifetime: Lifetime) -> int:
        if lifetime.length is not None:
            return row[0] + lifetime.length
        return row[0] + 1 if row[1] == row[0] else row[1]

    found: Counter[tuple] = Counter()
    pairs: list[tuple[int, int, tuple, tuple]] = []
    for one in inputs[0]:
        for other in inputs[1]:
            lifetimes = [(row[0], ends(row, side.lifetime)) for row, side in zip((one, other), node.sides, strict=True)]
            start, end = max(start for start, _ in lifetimes), min(end for _, end in lifetimes)
            is_equal = all(one[column] is not None and one[column] == other[column] for column in columns)
            satisfies = node.residual is None or one[3] < other[3]
            if is_equal and satisfies and start < end and all(first < last for first, last in lifetimes):
                pairs.append((start, end, one, other))
    if not node.kind.is_left_only:
        found.update((start, end, one[0], *one[2:], other[0], *other[2:]) for start, end, one, other in pairs)
    for port in Port:
        if not node.kind.keeps(port) and not (node.kind is JoinKind.SEMI and port is Port.LEFT):
            continue
        for row in inputs[port]:
            covered = {at for pair in pairs if pair[2 + port] == row for at in range(*pair[:2])}
            last = ends(row, lifetimes_of_sides[port])
            part = [at for at in range(row[0], last) if (at in covered) == (node.kind is JoinKind.SEMI)]
            starts = [at for at in part if at - 1 not in part]
            stops = [at + 1 for at in part if at + 1 not in part]
            nulls = () if node.kind.is_left_only else (None,) * 3
            for start, stop in zip(starts, stops, strict=True):
                shown = (row[0], *row[2:])
                found[(start, stop, *shown, *nulls) if port is Port.LEFT else (start, stop, *nulls, *shown)] += 1
    return found


def _time_groups(random: Random) -> TimeGroups:
    interval = random.choice([1, 7, 20])
    key = Key("k", TS if interval == 1 else Binary(Op.DIV, TS, seconds(interval)))
    return TimeGroups(_input(random), plan_of(WHOLE_INPUT, (Key("g", GROUP), key)), (("ts", interval, "k"),))


def _in_time_groups(node: Node, inputs: Inputs) -> Counter[tuple]:
    assert isinstance(node, TimeGroups)
    ((_, interval, _),) = node.times
    groups: dict[tuple, list[tuple]] = {}
    for row in inputs[0]:
        groups.setdefault((row[2], row[0] // interval), []).append(row)
    return Counter((*key, *summary(rows)) for key, rows in groups.items())


def _sort(random: Random) -> Sort:
    keys = tuple(
        SortKey(name, random.random() < 0.5, random.random() < 0.5)
        for name in random.sample(["ts", "other", "g", "n"], random.randint(0, 4))
    )
    limit = random.choice([None, 0, 1, 5, 20]) if keys else None
    per = ("ts",) if random.random() < 0.3 else ()
    return Sort(_input(random), keys, per, limit, random.choice([0, 0, 3]) if keys else 0)


def in_order(node: Sort, rows: Sequence[tuple]) -> list[tuple]:
    """Rows `ts, other, g, n` in the order of a Sort, sorted by one key after the other, the weakest first."""
    names = ["ts", "other", "g", "n"]
    of_keys = [SortKey(name) for name in node.window_columns] + list(node.keys)
    rest = [SortKey(name) for name in names if name not in {key.column for key in of_keys}]
    ordered = list(rows)
    for key in reversed([*of_keys, *rest]):
        place = names.index(key.column)
        values = sorted((row for row in ordered if row[place] is not None), key=lambda row: row[place])
        if key.descending:  # stable: equal rows keep the order of the weaker keys
            values = sorted(values, key=lambda row: -ordinal(ordered, row, place))
        nulls = [row for row in ordered if row[place] is None]
        ordered = nulls + values if key.nulls_first else values + nulls
    shown, counts = [], Counter[tuple]()
    for row in ordered:
        group = tuple(row[names.index(name)] for name in node.window_columns)
        counts[group] += 1
        if counts[group] > node.offset and (node.limit is None or counts[group] <= node.offset + node.limit):
            shown.append(row)
    return shown


def ordinal(rows: Sequence[tuple], row: tuple, place: int) -> int:
    """Number of different values below that of a row."""
    return len({other[place] for other in rows if other[place] is not None and other[place] < row[place]})


def _in_order(node: Node, inputs: Inputs) -> Counter[tuple]:
    assert isinstance(node, Sort)
    return Counter(in_order(node, inputs[0]))


ARGUMENTS = {
    RowFunctionKind.SUM: ["n", "other"],
    RowFunctionKind.AVG: ["n", "other"],
    RowFunctionKind.MIN: ["n", "other"],
    RowFunctionKind.MAX: ["n", "other"],
    RowFunctionKind.COUNT: [None, "other", "g"],
    RowFunctionKind.LAG: NAMES,
    RowFunctionKind.LEAD: NAMES,
    RowFunctionKind.FIRST_VALUE: NAMES,
    RowFunctionKind.LAST_VALUE: NAMES,
}
FRAMED_KINDS = sorted(FRAMED)
RATIOS = (RowFunctionKind.AVG, RowFunctionKind.PERCENT_RANK, RowFunctionKind.CUME_DIST)


def _over(random: Random) -> Over:
    """Draw up to three window functions. The outputs are the time, the number, and the functions."""
    functions = []
    windows = random.choice([(), (), ("ts",)])
    streams = random.random() < 0.6  # rows are final by the watermark
    for number in range(random.randint(1, 3)):
        in_window = random.random() < 0.5
        follows = streams and not in_window
        kind = random.choice([*FRAMED_KINDS, RowFunctionKind.LAG] if follows else list(RowFunctionKind))
        argument = random.choice(ARGUMENTS[kind]) if kind in ARGUMENTS else None
        value = Type.TEXT if argument == "g" else Type.INT
        value = Type.INT if kind is RowFunctionKind.COUNT else Type.FLOAT if kind in RATIOS else value
        keys = tuple(
            SortKey(name, random.random() < 0.5, random.random() < 0.5)
            for name in random.sample(NAMES, random.randint(0, 2))
        )
        partition = tuple(random.sample(["other", "g", "n"], random.choice([0, 1, 1, 2])))
        partition = ("ts", *partition) if in_window else partition
        keys = (SortKey("ts"), *keys) if follows else keys
        frame = _frame(random, keys, partition, follows) if kind in FRAMED else Frame()
        functions.append(RowFunction(f"f{number}", kind, value, argument, partition, keys, random.randint(0, 3), frame))
    columns = [TS, NUMBER, *(Column(each.name, each.type, nullable=True) for each in functions)]
    outputs = tuple(Output(column.name, column) for column in columns if column.name != "ts")
    return Over(ROWS, tuple(functions), outputs if windows else (Output("ts", TS), *outputs), windows)


def _frame(random: Random, keys: tuple[SortKey, ...], partition: tuple[str, ...], follows: bool) -> Frame:
    """Draw a frame: the default, or bounds of rows, or of values if a number is the only key.

    With `follows` it has finitely many earlier rows and no later one.
    """
    if not keys or (random.random() < 0.2 and not follows):
        return Frame()
    has_values = len(keys) == 1 and keys[0].column in ("ts", "other", "n") and keys[0].column not in partition
    by_values = has_values and random.random() < 0.6
    first, last = sorted(random.choice([-3, -2, -1, 0, 0, *(() if follows else (1, 2))]) for _ in range(2))
    if follows:
        return Frame(first, last, by_values)
    return Frame(random.choice([first, first, None]), random.choice([last, last, None]), by_values)


def _in_over(node: Node, inputs: Inputs) -> Counter[tuple]:
    assert isinstance(node, Over)
    rows = inputs[0]
    values = [function_values(each, rows) for each in node.functions]
    return Counter((row[0], row[3], *of_row) for row, *of_row in zip(rows, *values, strict=True))


def _sample(random: Random) -> Sample:
    """Draw conditions for which the order of arrival does not matter: they test keys only."""
    aggregates = (
        SampleAggregate("c", SampleKind.COUNT, Type.INT),
        SampleAggregate("s", SampleKind.SUM, Type.INT, OTHER),
        SampleAggregate("m", SampleKind.MAX, Type.INT, NUMBER),
        SampleAggregate("all", SampleKind.COUNT, Type.INT, None, of_supergroup=True),
        SampleAggregate("f", SampleKind.FIRST, Type.INT, seconds(7)),
    )
    cleans = random.random() < 0.7
    when = Literal(True, Type.BOOL) if cleans else None
    by = Binary(Op.LT, NUMBER, seconds(3)) if cleans else None
    having = random.choice([None, Binary(Op.GE, aggregates[0].column, seconds(2))])
    columns = [TS, GROUP, NUMBER, *(each.column for each in aggregates)]
    outputs = tuple(Output(column.name, column) for column in columns[random.randint(0, 1) :])
    supergroup = random.choice([(), ("g",), ("ts", "n")])
    return Sample(ROWS, ("ts", "g", "n"), supergroup, aggregates, when, by, having, outputs)


def _in_samples(node: Node, inputs: Inputs) -> Counter[tuple]:
    assert isinstance(node, Sample)

    def supergroup_of(row: tuple) -> tuple:
        values = dict(zip(("ts", "other", "g", "n"), row, strict=True))
        return (row[0], *(values[name] for name in node.supergroup))

    groups: dict[tuple, list[tuple]] = {}
    for row in inputs[0]:
        groups.setdefault((row[0], row[2], row[3]), []).append(row)
    totals = Counter(map(supergroup_of, inputs[0]))
    found: Counter[tuple] = Counter()
    for key, rows in groups.items():
        if (node.by is None or key[2] < 3) and (node.having is None or len(rows) >= 2):
            whole = (*key, len(rows), sum(row[1] for row in rows), key[2], totals[supergroup_of(rows[0])], 7)
            found[whole[len(whole) - len(node.outputs) :]] += 1
    return found


def _fill(random: Random) -> Fill:
    """Draw a Fill over windows of one time unit, so that every time of a row is the end of a window."""
    keys = tuple(random.choice([(), ("g",), ("g", "n"), ("n",)]))
    twice = (Output("other", Binary(Op.MUL, TS, seconds(2))),) if random.random() < 0.4 else ()
    value, repeats = random.choice([(0, False), (-7, False), (None, False), (None, True)])
    hidden = random.choice([(), keys[:1]])
    return Fill(ROWS, SlidingWindow(1, 1), keys, twice, value, repeats, hidden, end="ts", start=None)


def _in_fill(node: Node, inputs: Inputs) -> Counter[tuple]:
    """Walk over all windows; look up the last row of each known group."""
    assert isinstance(node, Fill)
    names = ["ts", "other", "g", "n"]

    def group_of(row: tuple) -> tuple:
        return tuple(row[names.index(key)] for key in node.keys)

    def filled(row: tuple, ts: int) -> tuple:
        _, other, g, n = row
        if not node.repeats:
            other, g, n = node.value, g if "g" in node.keys else None, n if "n" in node.keys else node.value
        return (ts, 2 * ts if node.computed else other, g, n)

    def order(row: tuple) -> tuple:  # within a window and a group
        return tuple(
            (value is None, value or 0) if name != "g" else (value is None, value or "")
            for name, value in zip(names, row, strict=True)
        )

    rows = list(inputs[0])
    times, last = [row[0] for row in rows], dict[tuple, tuple]()
    found: list[tuple] = list(rows)
    for ts in range(min(times), max(times) + 1) if times else ():
        present = {group_of(row): row for row in sorted((row for row in rows if row[0] == ts), key=order)}
        last |= present
        found += [filled(row, ts) for group, row in last.items() if group not in present]
    kept = [place for place, name in enumerate(names) if name not in node.hidden]
    return Counter(tuple(row[place] for place in kept) for row in found)


def _running(random: Random) -> Running:
    """Draw a Running over windows of one time unit, so that every time of a row is the end of a window."""
    keys = tuple(random.choice([(), ("g",), ("g",)]))
    functions = (
        RunningFunction("all", "n", Type.INT),
        RunningFunction("last", "n", Type.INT, random.randint(1, 5)),
        RunningFunction("decayed", "n", Type.FLOAT, random.randint(1, 5), 0.5),
    )
    bound = seconds(random.choice([0, 3, 8]))
    closing = Binary(random.choice([Op.LE, Op.GE]), Column("last", Type.INT), bound)
    having = random.choice([None, Binary(Op.GT, Column("all", Type.INT), seconds(4))])
    columns = (*((Column("g", Type.TEXT, nullable=True),) if keys else ()), Column("n", Type.INT, nullable=True))
    outputs = tuple(Output(f"{each.name}2", each) for each in columns)
    outputs += tuple(Output(f"{each.name}2", Column(each.name, each.type)) for each in functions)
    counts = random.choice([(), ("n",)])
    return Running(ROWS, SlidingWindow(1, 1), keys, functions, outputs, closing, having, counts, end="ts", start=None)


def _in_running(node: Node, inputs: Inputs) -> Counter[tuple]:
    """Walk over all windows; add up the values of each group from the beginning of the group."""
    assert isinstance(node, Running)
    _, last, decayed = node.functions
    assert last.length is not None
    assert decayed.length is not None
    assert isinstance(node.closing, Binary)
    assert isinstance(node.closing.right, Literal)
    rows = inputs[0]
    values: dict[tuple, list[int]] = {}
    found: Counter[tuple] = Counter()
    for ts in range(min(row[0] for row in rows), max(row[0] for row in rows) + 1):
        present: dict[tuple, list[tuple]] = {}
        for row in rows:
            if row[0] == ts:
                present.setdefault((row[2],) if node.keys else (), []).append(row)
        for group in {*values, *present}:
            mine = present.get(group, [])
            history = [*values.pop(group, []), sum(row[3] for row in mine)]
            missing = (True, 0)
            shown = max(
                ((row[1] is None, row[1] or 0, row[2] is None, row[2] or "", row[3]) for row in mine),
                default=(missing, None if not node.counts else 0),
            )[-1]
            sums = (
                sum(history),
                sum(history[-last.length :]),
                sum(value * 0.5**age for age, value in enumerate(history[: -decayed.length - 1 : -1])),
            )
            if node.having is None or sums[0] > 4:
                found[(ts, *group, shown, *sums)] += 1
            limit = node.closing.right.value
            assert isinstance(limit, int)
            if not (sums[1] <= limit if node.closing.op is Op.LE else sums[1] >= limit):
                values[group] = history
    return found


REFERENCES: Mapping[type[Node], Reference] = {
    Union: Reference(lambda random: Union((_input(random),) * random.randint(1, 4)), _united),
    Filter: Reference(lambda random: Filter(_input(random), Binary(Op.LT, OTHER, TS)), _selected),
    Apply: Reference(
        lambda random: Apply(
            ROWS,
            (Output("ts", TS), Output("g", GROUP), Output("twice", Binary(Op.MUL, NUMBER, seconds(2)))),
            (TimeOutput("ts", "ts"),),
        ),
        _applied,
    ),
    Distinct: Reference(
        lambda random: Distinct(Apply(LEAF, ROWS.outputs[:3], ROWS.time_outputs), ("ts", "other", "g")), _distinct
    ),
    Repeat: Reference(lambda random: Repeat(_input(random), "n"), _repeated),
    Join: Reference(_join, _joined),
    Windowed: Reference(_windowed, _in_windows),
    ChangingWindows: Reference(_changing, _in_final_changes),
    TouchedWindows: Reference(_touched_windows, _in_each_touched_window),
    Snapshots: Reference(snapshots, at_each_instant),
    InstantRanks: Reference(lambda random: instant_ranks(random, ROWS), ranked_at_instants),
    OverlapJoin: Reference(lambda random: overlap_join(random, ROWS), overlapping),
    TimeGroups: Reference(_time_groups, _in_time_groups),
    Over: Reference(_over, _in_over),
    Sample: Reference(_sample, _in_samples),
    Running: Reference(_running, _in_running),
    Fill: Reference(_fill, _in_fill),
    Sort: Reference(_sort, _in_order),
}
