"""Rows that go up one by one, against the rows themselves.

The tests detect a row that is lost, doubled or moved, and a WHERE that keeps NULL. They detect a sub-aggregate with
another row's value, and a NULL that counts.
"""

from ipaddress import IPv4Address, IPv6Address
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lowlevel.expressions.tree import Binary, Column, Literal
from lowlevel.expressions.types import Op, Type
from lowlevel.plan import Key, LowLevelPlan
from lowlevel.punctuation import BEGINNING, END
from lowlevel.subaggregates import INT_MAX, INT_MIN, Kind, SubAggregate
from lowlevel.table.reducer import QueryRows
from tests.references.made_rows import made_rows

SOURCE = Column("srcIP", Type.ADDRESS, True, 128)
NAME = Column("name", Type.TEXT, True)
BYTES = Column("bytes", Type.INT, True)
TYPES = {"ts": Type.INT, "srcIP": Type.ADDRESS, "name": Type.TEXT, "bytes": Type.INT}
HALF = Binary(Op.MUL, BYTES, Literal(0.5, Type.FLOAT))
SUBS = (
    SubAggregate("rows", Kind.COUNT),
    SubAggregate("known", Kind.COUNT, BYTES),
    SubAggregate("sum", Kind.SUM, BYTES),
    SubAggregate("least", Kind.MIN, BYTES),
    SubAggregate("most", Kind.MAX, BYTES),
    SubAggregate("half", Kind.SUM, HALF),
)
SMALL = Binary(Op.LT, BYTES, Literal(50, Type.INT))


def plan(where: Any = None) -> LowLevelPlan:
    return LowLevelPlan(where, (Key("k0", SOURCE), Key("k1", NAME)), SUBS, 1, reduced=False)


def random_rows(random: Random) -> list[dict[str, Any]]:
    addresses = [None, IPv4Address(1), IPv4Address(2), IPv6Address(1), IPv6Address(2**127)]
    return [
        {
            "ts": random.randrange(20),
            "srcIP": random.choice(addresses),
            "name": random.choice([None, "a", "b"]),
            "bytes": random.choice([None, *range(0, 100, 7)]),
        }
        for _ in range(random.randrange(1, 40))
    ]


def partial(row: dict[str, Any]) -> tuple:
    known = row["bytes"] is not None
    values = (row["bytes"],) * 3 if known else (0, INT_MAX, INT_MIN)
    packed = None if row["srcIP"] is None else row["srcIP"].packed
    return ("M", row["ts"], packed, row["name"], 1, int(known), *values, row["bytes"] / 2 if known else 0.0)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("where", [None, SMALL])
def test_every_row_that_where_keeps_leaves_once_and_in_its_order(seed: int, where: Any) -> None:
    random = Random(seed)
    query, names = QueryRows("M", plan(where)), list[str]()
    found, expected, filtered = [], [], 0
    for _ in range(random.randrange(1, 5)):
        rows = random_rows(random)
        kept = [row for row in rows if where is None or (row["bytes"] is not None and row["bytes"] < 50)]
        filtered += len(rows) - len(kept)
        expected += [partial(row) for row in kept]
        for batch in query.add(made_rows(rows, TYPES, names)):
            assert isinstance(batch, pa.RecordBatch)
            assert batch.schema == query.plan.schema
            assert batch.num_rows > 0
            found += [tuple(row.values()) for row in batch.to_pylist()]
    assert found == expected
    assert (query.accepted, query.filtered, query.tally.partials) == (len(expected), filtered, len(expected))


def test_promises_pass_at_once_and_nothing_is_held() -> None:
    query = QueryRows("M", plan())
    assert query.watermark == BEGINNING
    for low, after in ((5, 5), (3, 5), (END, END)):
        assert list(query.advance_watermark(low)) == []
        assert query.watermark == after
    assert list(query.flush_all()) == []
    assert query.bytes == 0


def test_plans_of_tables_are_refused() -> None:
    with pytest.raises(ValueError, match="single rows"):
        QueryRows("M", LowLevelPlan(None, (), SUBS, 10))
