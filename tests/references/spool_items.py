"""Seeded items of spools: partials of plans, as the node makes them, and punctuation behind them."""

from __future__ import annotations

from random import Random

import pyarrow as pa

from lowlevel.expressions.types import Type
from lowlevel.plan import Key, LowLevelPlan
from lowlevel.punctuation import END, Item, Punctuation
from tests.references.random_plans import KEY_SHAPES, keys_of, random_plan

LINK = "eth0"


def random_plans(random: Random, count: int) -> list[LowLevelPlan]:
    """Plans over packets, of different schemas."""
    return [random_plan(random, random.choice(KEY_SHAPES)) for _ in range(count)]


def random_batch(random: Random, plan: LowLevelPlan, rows: int) -> pa.RecordBatch:
    """Partials of a plan: addresses of one version or of both, NULL keys, narrow and wide numbers."""
    pane = random.randrange(-3, 2**33)
    columns: list[pa.Array] = [pa.array([LINK] * rows), pa.array([pane + random.randrange(3) for _ in range(rows)])]
    columns += [
        pa.array(_keys(random, key, rows), field.type) for key, field in zip(plan.keys, _fields(plan), strict=True)
    ]
    for sub in plan.subaggregates:
        wide = random.choice([7, 15, 31, 62])
        values = [random.randrange(-(2**wide), 2**wide) for _ in range(rows)]
        columns.append(pa.array([value / 4 for value in values]) if sub.type is Type.FLOAT else pa.array(values))
    return pa.RecordBatch.from_arrays(columns, schema=plan.schema)


def _fields(plan: LowLevelPlan) -> list[pa.Field]:
    return list(plan.schema)[2 : 2 + len(plan.keys)]


def _keys(random: Random, key: Key, rows: int) -> list[object]:
    lengths = random.choice([[4], [16], [4, 16]])
    nulls = random.choice([0, 0, 0.3, 1])
    make = {
        Type.ADDRESS: lambda: random.randbytes(random.choice(lengths)),
        Type.MAC: lambda: random.randbytes(6),
        Type.TEXT: lambda: random.choice(["", "eth0", "wlan é"]),
        Type.BOOL: lambda: random.random() < 0.5,
        Type.FLOAT: lambda: random.randrange(-(2**40), 2**40) / 4,
        Type.INT: lambda: random.randrange(-(2**31), 2**33),
        Type.TIME: lambda: random.randrange(-(2**31), 2**33),
    }[key.expression.type]
    return [None if random.random() < nulls else make() for _ in range(rows)]


def random_items(random: Random, plans: list[LowLevelPlan], count: int, most_rows: int = 30) -> list[tuple[int, Item]]:
    """Items of all plans as a node gives them: each plan's punctuation grows, and may be END at last."""
    lows = [random.randrange(-5, 5) for _ in plans]
    items: list[tuple[int, Item]] = []
    for _ in range(count):
        number = random.randrange(len(plans))
        if random.random() < 0.3:
            lows[number] += random.randrange(1, 100)
            items.append((number, Punctuation(LINK, lows[number])))
        else:
            items.append((number, random_batch(random, plans[number], random.randrange(1, most_rows))))
    return items


def pairs_plan() -> LowLevelPlan:
    """Packets and bytes by pair of addresses."""
    from lowlevel.subaggregates import Kind, SubAggregate
    from tests.references.random_plans import PACKET

    subs = (SubAggregate("packets", Kind.COUNT), SubAggregate("bytes", Kind.SUM, PACKET["len"]))
    return LowLevelPlan(None, keys_of("srcIP", "destIP"), subs, 60 * 10**9)


ItemsOfPlans = dict[str, list[object]]
"""Of each plan, by name: its punctuations in order, and between them the sorted rows of partials."""


def items_of_plans(items: list[tuple[str, Item]]) -> ItemsOfPlans:
    """Return the items of each plan, independent of the batches: partials between two punctuations may mix.

    Punctuation without a new watermark is left out.
    """
    found: dict[str, list[object]] = {}
    lows: dict[str, int] = {}
    for name, item in items:
        of_plan = found.setdefault(name, [])
        if isinstance(item, Punctuation):
            if item.watermark > lows.get(name, -END):
                lows[name] = item.watermark
                of_plan.append(item.watermark)
        else:
            if not of_plan or not isinstance(of_plan[-1], list):
                of_plan.append([])
            rows = of_plan[-1]
            assert isinstance(rows, list)
            rows += [repr(tuple(row.values())) for row in item.to_pylist()]
    return {name: [sorted(each) if isinstance(each, list) else each for each in what] for name, what in found.items()}
