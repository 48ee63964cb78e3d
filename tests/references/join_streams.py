"""Random runs of joins: two streams out of order, what they promise, and the columns they have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from random import Random

import pyarrow as pa

from highlevel.joins.oa_join import OAJoin
from highlevel.joins.spec import Band, Boundary, JoinKind, JoinSpec, Side, Tumbling, WatermarkForm
from lowlevel.expressions.tree import Binary, Column
from lowlevel.expressions.types import Op, Type
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import END, GraphItem, JointPunctuation, Punctuation
from tests.references.joins_oracle import Row

KEYS: dict[Type, list[object]] = {
    Type.INT: [0, -1, 2**40, None],
    Type.FLOAT: [0.0, 1.5, float("nan"), None],
    Type.BOOL: [True, False, None],
    Type.ADDRESS: [bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]), bytes(range(16)), None],
    Type.MAC: [bytes(6), bytes(range(6)), None],
    Type.TEXT: ["", "http", "a name of more than sixteen bytes", None],
}
"""Types of keys, and their values; NULL and NaN equal nothing."""

VALUE = Type.INT


@dataclass(frozen=True)
class Run:
    """A join and its input: batches of rows and watermarks, each with its port."""

    spec: JoinSpec
    types: tuple[Type, ...]
    plain: bool
    events: list[tuple[int, list[Row] | int]]

    def rows(self, port: int) -> list[Row]:
        return [row for side, each in self.events if side == port and isinstance(each, list) for row in each]


@cache
def schema(types: tuple[Type, ...], plain: bool) -> pa.Schema:
    keys = [pa.field(f"k{place}", ARROW_TYPES[each]) for place, each in enumerate(types)]
    fields = [pa.field("ts", pa.int64()), *keys, pa.field("n", pa.int64())]
    if not plain:
        fields += [pa.field("v", ARROW_TYPES[VALUE]), pa.field("name", pa.string()), pa.field("no", pa.int8())]
    return pa.schema(fields)


def batch_of(rows: list[Row], types: tuple[Type, ...], plain: bool) -> pa.RecordBatch:
    """Return the batch of some rows. If not `plain`, it also has a value, a text, and an unused column."""
    made = schema(types, plain)
    columns = [[row.ts for row in rows]]
    columns += [[row.keys[place] for row in rows] for place in range(len(types))]
    columns += [[row.number for row in rows]]
    if not plain:
        columns += [[row.value for row in rows], [name_of(row) for row in rows], [1] * len(rows)]
    return pa.record_batch(
        [pa.array(values, field.type) for values, field in zip(columns, made, strict=True)], schema=made
    )


def name_of(row: Row) -> str | None:
    """A text that follows from the number of a row: none, short, or long."""
    return None if row.number % 7 == 0 else "n" * (row.number % 23) + str(row.number)


def side(prefix: str, types: tuple[Type, ...], plain: bool) -> Side:
    """Columns that leave: `ts` and `n` of plain rows, of others all that somebody wants, and one twice."""
    if plain:
        return Side(schema(types, plain), "ts", (("ts", f"{prefix}ts"), ("n", f"{prefix}n")))
    kept = ["ts", *(f"k{place}" for place in range(len(types))), "n", "v", "name"]
    return Side(schema(types, plain), "ts", (*((name, prefix + name) for name in kept), ("n", f"{prefix}again")))


def spec_of(
    window: Band | Tumbling,
    kind: JoinKind = JoinKind.INNER,
    types: tuple[Type, ...] = (),
    residual: bool = False,
    plain: bool = False,
) -> JoinSpec:
    """A join of sides with keys of these types; the residual is `l_v < r_v`."""
    keys = tuple((Column(f"k{place}", each, True), Column(f"k{place}", each, True)) for place, each in enumerate(types))
    condition = Binary(Op.LT, Column("l_v", VALUE, True), Column("r_v", VALUE, True)) if residual else None
    return JoinSpec(side("l_", types, plain), side("r_", types, plain), window, keys, condition, kind)


def passes(spec: JoinSpec, left: Row, right: Row) -> bool:
    """Return the result of the residual condition."""
    if spec.residual is None:
        return True
    return left.value is not None and right.value is not None and left.value < right.value  # type: ignore[operator]


def arrivals(random: Random, count: int, span: int, disorder: int) -> list[int]:
    """Times in the order of their arrival."""
    times = [random.randrange(span) for _ in range(count)]
    return [time for _, time in sorted((time + random.random() * disorder, time) for time in times)]


def lows(times: list[int]) -> list[int]:
    """The low watermark after each prefix: the least time that is still to come."""
    found = [END]
    for time in reversed(times):
        found.append(min(found[-1], time))
    return found[::-1]


def random_run(random: Random, window: Band | Tumbling, plain: bool) -> Run:
    """The streams of the digest that exposed its errata, with silent sides and sides that never speak or end alone.

    Plain ones have no key or an integer, and no other column.
    """
    kind = random.choice(list(JoinKind))
    types = tuple(random.choice(list(KEYS)) for _ in range(random.choice([0, 1, 1, 2])))
    if plain:
        types = (Type.INT,)[: random.randrange(2)]
    span = random.randint(60, 200)
    inputs: list[list[Row | int]] = []
    for port in range(2):
        times = arrivals(random, random.randint(1, 20), span, random.choice([0, 10, 80]))
        often = random.choice([0.05, 0.05, 0.05, 0.3, 0.8, 0, 0])
        events: list[Row | int] = []
        newest = None
        for place, (time, low) in enumerate(zip(times, lows(times)[1:], strict=True)):
            keys = tuple(random.choice(KEYS[each]) for each in types)
            events.append(Row(2 * place + port, time, keys, random.choice([None, 1, 2, 3])))
            if random.random() < often and low != END:
                mark = low - random.randint(0, 6)
                if newest is None or mark > newest:
                    newest = mark
                    events.append(mark)
        if random.random() < 0.85:
            events.append(END)
        inputs.append(events)
    weight = random.choice([0.5, 0.5, 0.85, 0.15])
    steps = random.choice(
        [1.0, 0.1, 0.1, 0.05, 0.05, 0.05]
    )  # sides by turns at each row, or some rows of a side in a batch
    order: list[tuple[int, Row | int]] = []
    port = 0
    while any(inputs):
        if random.random() < steps or not inputs[port]:
            port = 0 if inputs[0] and (not inputs[1] or random.random() < weight) else 1
        order.append((port, inputs[port].pop(0)))
    spec = spec_of(window, kind, types, not plain and random.random() < 0.3, plain)
    return Run(spec, types, plain, list(cut(random, order)))


def cut(random: Random, order: list[tuple[int, Row | int]]) -> Iterator[tuple[int, list[Row] | int]]:
    """Put neighbouring rows of a port into batches of random lengths."""
    waiting: list[Row] = []
    longest = random.choice([0.02, 0.02, 0.02, 0.4])
    port = 0
    for next_port, each in order:
        if waiting and (next_port != port or isinstance(each, int) or random.random() < longest):
            yield port, waiting
            waiting = []
        port = next_port
        if isinstance(each, int):
            yield port, each
        else:
            waiting.append(each)
    if waiting:
        yield port, waiting


def random_window(random: Random, form: Boundary | None) -> Band | Tumbling:
    """A band of a form with ranges that differ, or tumbling windows."""
    if form is not None:
        return Band(random.randint(0, 15), random.randint(0, 15), form)
    return Tumbling(random.randint(1, 30), random.randint(-40, 40), random.choice([0, 0, 0, 1, -1, 3]))


def feed(operator: OAJoin, run: Run, event: tuple[int, list[Row] | int]) -> list[GraphItem]:
    port, each = event
    if isinstance(each, int):
        return list(operator.punctuate(port, Punctuation(f"link{port}", each)))
    return list(operator.process_rows(port, batch_of(each, run.types, run.plain)))


def covers(item: Punctuation | JointPunctuation, progress: WatermarkForm, row: dict[str, object]) -> bool:
    """Return whether a watermark covers this row."""
    left, right = row.get("l_ts"), row.get("r_ts")
    if isinstance(item, JointPunctuation):
        return left is not None and right is not None and left < item.bounds[0] and right < item.bounds[1]
    value = {WatermarkForm.LEFT: left, WatermarkForm.RIGHT: right}.get(progress, row.get(f"{progress}_ts"))
    return value is not None and value < item.watermark
