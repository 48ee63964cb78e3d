"""Random queries have the rows that DuckDB computes over the generated rows, on every engine.

A failure names the seed of its query: `RandomQuery(seed)` draws it again. These tests detect wrong values of NULL,
integer division, conditions with three values, aggregates of no value, groups by expressions, filters and windows.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import wiretide
from dashboards.inputs import Inputs
from highlevel.inline.engine import Input
from highlevel.results.user_types import readable
from queries.gsql import compile_query
from queries.plans.subquery_values import has_subqueries
from queries.text.parser import parse_query
from tests.conformance.duckdb_rows import differences, normal_rows, open_database, rows_of
from tests.conformance.random_queries import RandomQuery
from tests.conformance.traffic import Row, generate_links
from tests.conftest import Rounds
from tests.harness.spark_results import read_results

PARTS = 10
QUERIES_PER_PART = 500
STREAM_QUERIES = 40


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], list[Row]]:
    return generate_links(tmp_path_factory.mktemp("links"))


@pytest.fixture(scope="module")
def database(capture: tuple[list[Path], list[Row]]) -> duckdb.DuckDBPyConnection:
    return open_database(capture[1])


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


@pytest.mark.spark
def test_random_queries_on_a_spark_stream(
    spark: object,
    rounds: Rounds,
    capture: tuple[list[Path], list[Row]],
    database: duckdb.DuckDBPyConnection,
    tmp_path: Path,
) -> None:
    """All queries are in one run. Queries with sub-queries outside FROM need files, so a stream refuses them."""
    from highlevel.spark.stream import StreamRun

    drawn = [RandomQuery(f"stream {number}") for number in rounds(STREAM_QUERIES)]
    queries = [query for query in drawn if not has_subqueries(parse_query(query.ours))]
    plans = [compile_query(query.ours, f"q{number}") for number, query in enumerate(queries)]
    inputs = [Input(path.stem, path) for path in capture[0]]
    run = StreamRun(spark, plans, inputs, tmp_path, block_records=50)
    run.start()
    try:
        assert run.wait()
    finally:
        run.stop()
    for query, plan in zip(queries, plans, strict=True):
        found = normal_rows(rows_of(readable(read_results(tmp_path, plan), plan.times)), ordered=False)
        expected = normal_rows(database.execute(query.duck).fetchall(), ordered=False)
        assert differences(found, expected) == [], f"{plan.name}: {query.ours}\nDuckDB: {query.duck}"
