"""Joins by their definition: every pair of rows is looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random

import pyarrow as pa

from highlevel.joins.spec import JoinKind, JoinSpec, Side
from highlevel.joins.window import Band, Boundary, JoinWindow, Tumbling
from lowlevel.expressions.tree import Binary, Column
from lowlevel.expressions.types import Op, Type
from lowlevel.punctuation import Item
from tests.references.windows_oracle import Arrival

SCHEMA = pa.schema([("ts", pa.int64()), ("arrival", pa.int64()), ("key", pa.int64()), ("number", pa.int64())])
LEFT = Side(SCHEMA, "ts", (("ts", "left_ts"), ("number", "left_number")))
RIGHT = Side(SCHEMA, "ts", (("number", "right_number"), ("ts", "right_ts")))
KEY = Column("key", Type.INT, nullable=True)
SMALLER = Binary(Op.LT, Column("left_number", Type.INT), Column("right_number", Type.INT))


def spec_of(
    window: JoinWindow, keyed: bool = True, residual: bool = False, kind: JoinKind = JoinKind.INNER
) -> JoinSpec:
    return JoinSpec(LEFT, RIGHT, window, ((KEY, KEY),) if keyed else (), SMALLER if residual else None, kind)


def random_window(random: Random) -> JoinWindow:
    if random.random() < 0.3:
        return Tumbling(random.randint(1, 30), random.randint(-20, 20), random.choice([0, 0, -1, 2]))
    limits = [random.choice([None] * 5 + [random.randint(-18, 18)]) for _ in range(2)]
    return Band(random.randint(0, 15), random.randint(0, 15), random.choice(list(Boundary)), *limits)


def random_spec(random: Random, kind: JoinKind = JoinKind.INNER) -> JoinSpec:
    return spec_of(random_window(random), random.random() < 0.7, random.random() < 0.3, kind)


def meet(window: JoinWindow, left: int, right: int) -> bool:
    """Return whether each of two row times is in the window of the other, by the definition."""
    if isinstance(window, Tumbling):
        return (left - window.origin) // window.length + window.shift == (right - window.origin) // window.length
    distance = right - left
    if window.least is not None and distance < window.least:
        return False
    if window.greatest is not None and distance > window.greatest:
        return False
    low = distance > -window.right_range if window.boundary is Boundary.OPEN else distance >= -window.right_range
    return low and (
        distance <= window.left_range if window.boundary is Boundary.CLOSED else distance < window.left_range
    )


def pairs(
    spec: JoinSpec,
    lefts: Iterable[Arrival],
    rights: Sequence[Arrival],
    clock: Callable[[Arrival], int] = lambda each: each.ts,
) -> Counter[tuple]:
    """All pairs, as rows of the output."""
    found: Counter[tuple] = Counter()
    for left in lefts:
        for right in rights:
            same = not spec.keys or (left.group is not None and left.group == right.group)
            passed = spec.residual is None or left.number < right.number
            if same and passed and meet(spec.window, clock(left), clock(right)):
                found[left.ts, left.number, right.number, right.ts] += 1
    return found


def rows(arrivals: Sequence[Arrival], clock: Callable[[Arrival], int] = lambda each: each.ts) -> pa.RecordBatch:
    columns = [
        [each.ts for each in arrivals],
        [clock(each) for each in arrivals],
        [each.group for each in arrivals],
        [each.number for each in arrivals],
    ]
    return pa.RecordBatch.from_arrays([pa.array(column, pa.int64()) for column in columns], schema=SCHEMA)


def rows_of(items: Iterable[Item]) -> list[tuple]:
    """The rows of some items, in their order."""
    batches = [item for item in items if isinstance(item, pa.RecordBatch)]
    return [row for batch in batches for row in zip(*(each.to_pylist() for each in batch.columns), strict=True)]
