"""The tables of one query over rows made by hand, against a dictionary.

* Addresses of different headers and versions in one key catch a table that two versions share, a row that is put into
  no table, and a NULL that becomes an address.
* A predicate that lets few rows pass catches a column that is not taken out with the others.
* Texts whose numbers grow from batch to batch catch a partial that is named by the wrong text.
"""

from collections import Counter
from ipaddress import IPv4Address, IPv6Address
from random import Random
from typing import Any

import numpy as np
import pytest

from lowlevel.expressions.columns import AddressVector, Vector
from lowlevel.expressions.tree import Binary, Column, Literal
from lowlevel.expressions.types import Op, Type
from lowlevel.plan import Key, LowLevelPlan
from lowlevel.punctuation import END
from lowlevel.subaggregates import Kind, SubAggregate
from lowlevel.table.query_tables import QueryTables
from tests.lowlevel_oracle import groups, value
from tests.made_rows import MadeRows, made_rows

COLUMNS = {
    "ts": Column("ts", Type.INT),
    "srcIP": Column("srcIP", Type.ADDRESS, True, 128),
    "destIP": Column("destIP", Type.ADDRESS, True, 128),
    "exporter": Column("exporter", Type.ADDRESS, False, 128),
    "nextHop": Column("nextHop", Type.ADDRESS, True, 128),
    "srcMAC": Column("srcMAC", Type.MAC, True, 48),
    "name": Column("name", Type.TEXT, True),
    "bytes": Column("bytes", Type.INT, True),
}
TYPES = {name: column.type for name, column in COLUMNS.items()}
COUNT = SubAggregate("rows", Kind.COUNT)
LARGE = Binary(Op.GT, COLUMNS["bytes"], Literal(1, Type.INT))
WHERE = (None, LARGE, Binary(Op.AND, LARGE, Binary(Op.LT, COLUMNS["ts"], Literal(15, Type.INT))))
"""All rows, a third, and so few that they are taken out of their batch."""


def plan_of(*names: str, where: Any = None) -> LowLevelPlan:
    keys = tuple(Key(name, COLUMNS[name]) for name in names)
    return LowLevelPlan(where, keys, (COUNT, SubAggregate("sum", Kind.SUM, COLUMNS["bytes"])), 10)


def address(random: Random, nullable: bool = True) -> IPv4Address | IPv6Address | None:
    choices: list[Any] = [IPv4Address(random.randrange(2)), IPv6Address(random.randrange(2) << 64 | 1), IPv6Address(1)]
    return random.choice([*choices, None] if nullable else choices)


def random_rows(random: Random, count: int, texts: int) -> list[dict[str, Any]]:
    rows = []
    for _ in range(count):
        version_pair = random.choice([(IPv4Address, 32), (IPv6Address, 128)])
        pair = [version_pair[0](random.choice([0, 5, 2 ** version_pair[1] - 1])) for _ in range(2)]
        source, target = pair if random.random() < 0.8 else (None, None)
        rows.append(
            {
                "ts": random.randrange(50),
                "srcIP": source,
                "destIP": target,
                "exporter": address(random, nullable=False),
                "nextHop": address(random),
                "srcMAC": random.choice([None, 0, 2**48 - 1, 0x0200DEADBEEF]),
                "name": random.choice([None, "", *(f"eth{number}" for number in range(texts))]),
                "bytes": random.choice([None, 1, 2**40]),
            }
        )
    return rows


def partials(tables: QueryTables, batches: list[list[dict[str, Any]]]) -> Counter[tuple]:
    """(pane, keys…, name of the sub-aggregate) to its merged value."""
    names: list[str] = []
    found: Counter[tuple] = Counter()
    items = [batch for rows in batches for batch in tables.add(made_rows(rows, TYPES, names))]
    for batch in [*items, *tables.complete(END)]:
        batch.validate(full=True)
        assert batch.schema == tables.plan.schema
        for row in batch.to_pylist():
            key = (row["pane"], *(row[each.name] for each in tables.plan.keys))
            found[*key, "rows"] += row["rows"]
            found[*key, "sum"] += row["sum"]
    return found


@pytest.mark.parametrize(
    "names",
    [
        ("nextHop",),
        ("srcIP", "destIP"),
        ("srcIP", "destIP", "nextHop"),
        ("exporter", "srcIP", "nextHop", "destIP"),
        ("name",),
        ("name", "srcMAC", "nextHop"),
    ],
    ids="+".join,
)
@pytest.mark.parametrize("slots", [8, 64])
def test_every_row_is_counted_under_its_own_addresses_macs_and_texts(names: tuple[str, ...], slots: int) -> None:
    for seed in range(2 * len(WHERE)):
        random = Random(f"{names}{slots}{seed}")
        batches = [random_rows(random, 40, texts) for texts in range(5)]
        where = WHERE[seed % len(WHERE)]
        plan = plan_of(*names, where=where)
        tables = QueryTables("link", plan, slots, 64)
        expected: Counter[tuple] = Counter()
        for key, (count, total) in groups(plan, [row for rows in batches for row in rows]).items():
            expected[*key, "rows"] += count
            expected[*key, "sum"] += total or 0
        assert partials(tables, batches) == expected
        addresses = [name for name in names if TYPES[name] is Type.ADDRESS]
        versions = {
            tuple(0 if row[name] is None else row[name].version for name in addresses)
            for rows in batches
            for row in rows
            if where is None or value(where, row)
        }
        assert set(tables.tables) == versions


def test_addresses_of_one_header_are_parted_once_and_of_one_version_not_at_all() -> None:
    """The two shortcuts must not change where rows go: shared columns of versions, and a constant one."""
    low = np.arange(4, dtype=np.uint64)
    shared = np.array([4, 6, 6, 4])
    numbers = {"ts": Vector(np.zeros(4, np.int64)), "bytes": Vector(np.ones(4, np.int64))}
    source, target = (AddressVector(shared, np.zeros(4, np.uint64), each) for each in (low, low[::-1].copy()))
    four = AddressVector(np.array(4), np.zeros((), np.uint64), low)
    tables = QueryTables("link", plan_of("srcIP", "destIP", "exporter"), 16, 4)
    for columns in ({"srcIP": source, "destIP": target}, {"srcIP": four, "destIP": four}):
        list(tables.add(MadeRows(4, 0, numbers | columns | {"exporter": four})))
    assert sorted(tables.tables) == [(4, 4, 4), (6, 6, 4)]
    rows = [row for batch in tables.complete(END) for row in batch.to_pylist()]
    found = {(len(row["srcIP"]), row["srcIP"][-1], row["destIP"][-1], row["exporter"][-1]): row["rows"] for row in rows}
    expected = [(16, 1, 2, 1), (16, 2, 1, 2), (4, 0, 3, 0), (4, 3, 0, 3), *((4, n, n, n) for n in range(4))]
    assert found == dict.fromkeys(expected, 1)


def test_more_rows_than_a_table_has_room_for_are_refused() -> None:
    tables = QueryTables("link", plan_of(), 16, 4)
    with pytest.raises(ValueError, match="got 5 rows at once, expected at most 4"):
        list(tables.add(made_rows(random_rows(Random(1), 5, 1), TYPES, [])))
