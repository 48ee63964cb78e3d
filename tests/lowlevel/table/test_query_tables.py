"""The tables of one query over rows made by hand, against a dictionary.

* Addresses of different headers and versions in one key detect a table that two versions share. They detect a row that
  is put into no table, and a NULL that becomes an address.
* A predicate that lets few rows pass catches a column that is not taken out with the others.
* Texts whose numbers grow from batch to batch catch a partial that is named by the wrong text.
"""

from collections import Counter
from random import Random

import numpy as np
import pytest

from lowlevel.expressions.columns import AddressVector, Vector
from lowlevel.expressions.tree import Binary, Literal
from lowlevel.expressions.types import Op, Type
from lowlevel.punctuation import END
from lowlevel.table.query_tables import QueryTables
from tests.references.lowlevel_oracle import groups, value
from tests.references.made_rows import MadeRows, made_rows
from tests.references.random_tables import COLUMNS, TYPES, partials, plan_of, random_rows

LARGE = Binary(Op.GT, COLUMNS["bytes"], Literal(1, Type.INT))
WHERE = (None, LARGE, Binary(Op.AND, LARGE, Binary(Op.LT, COLUMNS["ts"], Literal(15, Type.INT))))
"""All rows, a third, and so few that they are taken out of their batch."""


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
    rows = [row for batch in tables.advance_watermark(END) for row in batch.to_pylist()]
    found = {(len(row["srcIP"]), row["srcIP"][-1], row["destIP"][-1], row["exporter"][-1]): row["rows"] for row in rows}
    expected = [(16, 1, 2, 1), (16, 2, 1, 2), (4, 0, 3, 0), (4, 3, 0, 3), *((4, n, n, n) for n in range(4))]
    assert found == dict.fromkeys(expected, 1)


def test_more_rows_than_a_table_has_room_for_are_refused() -> None:
    tables = QueryTables("link", plan_of(), 16, 4)
    with pytest.raises(ValueError, match="got 5 rows at once, expected at most 4"):
        list(tables.add(made_rows(random_rows(Random(1), 5, 1), TYPES, [])))
