"""Random queries have the rows that DuckDB computes over the generated rows, on every engine.

A failure names the seed of its query: `RandomQuery(seed)` draws it again. These tests detect wrong values of NULL,
integer division, conditions with three values, aggregates of no value, groups by expressions, filters and windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import wiretide
from dashboards.inputs import Inputs
from highlevel.inline.engine import Input
from highlevel.results.user_types import readable
from queries.gsql import compile_query
from tests.conformance.duckdb_rows import differences, normal_rows, open_database, rows_of
from tests.conformance.random_queries import RandomQuery
from tests.conformance.traffic import Row, generate_links
from tests.conftest import Rounds
from tests.harness.spark_results import read_results

PARTS = 10
QUERIES_PER_PART = 500
BATCH_QUERIES = 200
STREAM_QUERIES = 50
"""Queries of one run on Spark. With `--soak` there are runs for all queries of all parts."""


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], list[Row]]:
    return generate_links(tmp_path_factory.mktemp("links"))


@pytest.fixture(scope="module")
def database(capture: tuple[list[Path], list[Row]]) -> duckdb.DuckDBPyConnection:
    return open_database(capture[1])


def compare(
    seed: str, query: RandomQuery, rows: pa.Table, database: duckdb.DuckDBPyConnection, ordered: bool | None = None
) -> int:
    """Compare the rows of a query with those of DuckDB. Return their number. `ordered`: by default as the query."""
    ordered = query.ordered if ordered is None else ordered
    found = normal_rows(rows_of(rows), ordered)
    expected = normal_rows(database.execute(query.duck).fetchall(), ordered)
    assert differences(found, expected) == [], f"seed {seed!r}: {query.ours}\nDuckDB: {query.duck}"
    return len(found)


def check(seed: str, inputs: Inputs, database: duckdb.DuckDBPyConnection) -> int:
    """Compare one query of the inline engine with DuckDB. Return its number of rows."""
    query = RandomQuery(seed)
    return compare(seed, query, inputs.query(query.ours).arrow(), database)


def spark_queries(soak: bool, rounds: Rounds, size: int) -> Iterator[dict[str, RandomQuery]]:
    """Yield the queries of each run on Spark by their seeds: `size` queries of part 0, with `soak` of all parts."""
    seeds = [f"{part} {number}" for part in range(PARTS) for number in rounds(QUERIES_PER_PART)]
    for begin in range(0, len(seeds) if soak else 1, size):
        yield {seed: RandomQuery(seed) for seed in seeds[begin : begin + size]}


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
    spark: object,
    soak: bool,
    rounds: Rounds,
    capture: tuple[list[Path], list[Row]],
    database: duckdb.DuckDBPyConnection,
) -> None:
    """The queries of `test_random_queries`, many in one job."""
    count = 0
    with wiretide.open(*capture[0], on="local") as inputs:
        for queries in spark_queries(soak, rounds, BATCH_QUERIES):
            results = inputs.query_all({seed: query.ours for seed, query in queries.items()})
            for seed, query in queries.items():
                count += bool(compare(seed, query, results[seed].arrow(), database))
    assert count > BATCH_QUERIES / 2


@pytest.mark.spark
def test_random_queries_on_a_spark_stream(
    spark: object,
    soak: bool,
    rounds: Rounds,
    capture: tuple[list[Path], list[Row]],
    database: duckdb.DuckDBPyConnection,
    tmp_path: Path,
) -> None:
    """Many queries in one run, of several micro-batches. A stream does not keep the order of ORDER BY."""
    from highlevel.spark.stream import StreamRun

    inputs = [Input(path.stem, path) for path in capture[0]]
    count = 0
    for number, queries in enumerate(spark_queries(soak, rounds, STREAM_QUERIES)):
        plans = [compile_query(query.ours, seed) for seed, query in queries.items()]
        folder = tmp_path / str(number)
        run = StreamRun(spark, plans, inputs, folder, block_records=50, max_blocks=3)
        run.start()
        try:
            assert run.wait()
        finally:
            run.stop()
        for (seed, query), plan in zip(queries.items(), plans, strict=True):
            rows = readable(read_results(folder, plan), plan.times)
            count += bool(compare(seed, query, rows, database, ordered=False))
    assert count > STREAM_QUERIES / 2
