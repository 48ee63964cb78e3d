"""Random plans and rows for the tables of the low level."""

from collections import Counter
from ipaddress import IPv4Address, IPv6Address
from random import Random
from typing import Any

from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.plan import Key, LowLevelPlan
from lowlevel.punctuation import END
from lowlevel.subaggregates import Kind, SubAggregate
from lowlevel.table.query_tables import QueryTables
from tests.references.made_rows import made_rows

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
    for batch in [*items, *tables.advance_watermark(END)]:
        batch.validate(full=True)
        assert batch.schema == tables.plan.schema
        for row in batch.to_pylist():
            key = (row["pane"], *(row[each.name] for each in tables.plan.keys))
            found[*key, "rows"] += row["rows"]
            found[*key, "sum"] += row["sum"]
    return found
