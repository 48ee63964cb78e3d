"""Differences of results, as rows with weights."""

from collections import Counter
from random import Random

import pyarrow as pa

from highlevel.speculation.changes import net_changes
from tests.conftest import Rounds


def table_of(rows: list[tuple]) -> pa.Table:
    names, floats = zip(*rows, strict=True) if rows else ((), ())
    return pa.table({"g": pa.array(names, pa.binary()), "x": pa.array(floats, pa.float64())})


def test_differences_equal_those_of_multisets(rounds: Rounds) -> None:
    for seed in rounds(200):
        random = Random(f"changes {seed}")
        old, new = (
            [(random.choice([b"a", b"b", None]), random.choice([None, 0.5, 1.0])) for _ in range(random.randint(0, 8))]
            for _ in range(2)
        )
        rows, weights = net_changes(table_of(old), table_of(new))
        found = dict(zip((tuple(row.values()) for row in rows.to_pylist()), weights.tolist(), strict=True))
        expected = Counter(new)
        expected.subtract(old)
        assert found == {row: weight for row, weight in expected.items() if weight}, seed
        assert weights.tolist() == [
            *(each for each in weights.tolist() if each < 0),
            *(each for each in weights if each > 0),
        ]


def test_equal_nans_are_no_change() -> None:
    rows, _ = net_changes(table_of([(b"a", float("nan"))]), table_of([(b"a", float("nan"))]))
    assert rows.num_rows == 0
