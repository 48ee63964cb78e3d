"""Random queries have the rows that DuckDB computes over the generated rows, on every engine.

A failure names the seed of its query: `RandomQuery(seed)` draws it again. These tests detect wrong values of NULL,
integer division, conditions with three values, aggregates of no value, groups by expressions, filters and windows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import wiretide
from dashboards.inputs import Inputs
from tests.conformance.random_queries import RandomQuery
from tests.conformance.traffic import Row, generate_links
from tests.conftest import Rounds

PARTS = 10
QUERIES_PER_PART = 500


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], list[Row]]:
    return generate_links(tmp_path_factory.mktemp("links"))


@pytest.fixture(scope="module")
def database(capture: tuple[list[Path], list[Row]]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET error_on_division_by_zero = false")  # NULL, as here
    connection.register("packets", pa.Table.from_pylist(capture[1]))
    return connection


def normal(value: Any) -> Any:
    """Return a value that Python compares with that of the other system: times as ns, conditions as 0 and 1."""
    if hasattr(value, "value"):  # a pandas Timestamp
        return value.value
    if isinstance(value, bool | Decimal):
        return int(value) if value == int(value) else float(value)
    return value


def in_order(row: tuple) -> list[tuple]:
    """Sort rows of all types. Floats are rounded, because sums of floats depend on the order of the rows."""
    return [
        ("", 0) if value is None else ("n", round(value, 6)) if isinstance(value, int | float) else ("t", value)
        for value in row
    ]


def normal_rows(rows: Sequence[Sequence[Any]], ordered: bool) -> list[tuple]:
    normalised = [tuple(map(normal, row)) for row in rows]
    return normalised if ordered else sorted(normalised, key=in_order)


def differences(found: list[tuple], expected: list[tuple]) -> list[tuple]:
    """Return the first rows that differ, with a tolerance for floats."""
    if len(found) != len(expected):
        return [(f"{len(found)} rows", f"{len(expected)} rows in DuckDB")]
    pairs = zip(found, expected, strict=True)
    return [(ours, theirs) for ours, theirs in pairs if not all(map(is_equal, ours, theirs))][:3]


def is_equal(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float) and isinstance(theirs, int | float):
        return math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-9) or (math.isnan(ours) and math.isnan(theirs))
    return bool(ours == theirs)


def rows_of(table: pa.Table) -> list[tuple]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def check(seed: str, inputs: Inputs, database: duckdb.DuckDBPyConnection) -> int:
    """Compare one query with DuckDB. Return its number of rows."""
    query = RandomQuery(seed)
    found = normal_rows(rows_of(inputs.query(query.ours).arrow()), query.ordered)
    expected = normal_rows(database.execute(query.duck).fetchall(), query.ordered)
    assert differences(found, expected) == [], f"seed {seed!r}: {query.ours}\nDuckDB: {query.duck}"
    return len(found)


@pytest.mark.parametrize("part", range(PARTS))
def test_random_queries(
    part: int, rounds: Rounds, capture: tuple[list[Path], list[Row]], database: duckdb.DuckDBPyConnection
) -> None:
    with wiretide.open(*capture[0], threads=1) as inputs:
        rows = [check(f"{part} {number}", inputs, database) for number in rounds(QUERIES_PER_PART)]
    assert sum(map(bool, rows)) > len(rows) / 2


def test_random_queries_with_several_threads(
    rounds: Rounds, capture: tuple[list[Path], list[Row]], database: duckdb.DuckDBPyConnection
) -> None:
    with wiretide.open(*capture[0], threads=3) as inputs:
        assert any(check(f"threads {number}", inputs, database) for number in rounds(100))


@pytest.mark.spark
def test_random_queries_on_spark(
    spark: object, rounds: Rounds, capture: tuple[list[Path], list[Row]], database: duckdb.DuckDBPyConnection
) -> None:
    with wiretide.open(*capture[0], on="local") as inputs:
        assert any(check(f"spark {number}", inputs, database) for number in rounds(25))
