"""Random correlated sub-queries have the rows of DuckDB, which evaluates them for each row.

Only these tests detect NULL on either side of NOT IN, a count over no row that is NULL, an outer row that a join
repeats or loses, a condition that is evaluated on the wrong side of an ANTI or LEFT JOIN, and rows of two windows.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import wiretide
from dashboards.inputs import Inputs
from tests.conformance.duckdb_rows import differences, normal_rows, open_database, rows_of
from tests.conformance.random_correlated import CorrelatedQuery
from tests.conformance.traffic import Row, generate_links
from tests.conftest import Rounds

PARTS = 4
QUERIES_PER_PART = 100


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], list[Row]]:
    return generate_links(tmp_path_factory.mktemp("links"), packets=100)


@pytest.fixture(scope="module")
def database(capture: tuple[list[Path], list[Row]]) -> duckdb.DuckDBPyConnection:
    return open_database(capture[1])


def check(seed: str, inputs: Inputs, database: duckdb.DuckDBPyConnection) -> int:
    """Compare one query with DuckDB. Return its number of rows."""
    query = CorrelatedQuery(seed)
    try:
        found = normal_rows(rows_of(inputs.query(query.ours).arrow()), ordered=False)
        expected = normal_rows(database.execute(query.duck).fetchall(), ordered=False)
    except Exception as error:
        error.add_note(f"seed {seed!r}: {query.ours}\nDuckDB: {query.duck}")
        raise
    assert differences(found, expected) == [], f"seed {seed!r}: {query.ours}\nDuckDB: {query.duck}"
    return len(found)


@pytest.mark.parametrize("part", range(PARTS))
def test_random_correlated_queries(
    part: int, rounds: Rounds, capture: tuple[list[Path], list[Row]], database: duckdb.DuckDBPyConnection
) -> None:
    with wiretide.open(*capture[0], threads=1) as inputs:
        rows = [check(f"{part} {number}", inputs, database) for number in rounds(QUERIES_PER_PART)]
    assert sum(map(bool, rows)) > len(rows) / 4


def test_random_correlated_queries_with_several_threads(
    rounds: Rounds, capture: tuple[list[Path], list[Row]], database: duckdb.DuckDBPyConnection
) -> None:
    with wiretide.open(*capture[0], threads=3) as inputs:
        assert any(check(f"threads {number}", inputs, database) for number in rounds(25))


@pytest.mark.spark
def test_random_correlated_queries_on_spark(
    spark: object, rounds: Rounds, capture: tuple[list[Path], list[Row]], database: duckdb.DuckDBPyConnection
) -> None:
    with wiretide.open(*capture[0], on="local") as inputs:
        assert any(check(f"spark {number}", inputs, database) for number in rounds(6))
