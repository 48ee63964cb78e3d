"""Random queries with calls of users' functions have the rows of DuckDB, which calls plain references.

Only these tests detect a function whose results are in wrong rows after another condition has removed rows, NULL that
does not reach a parameter `int | None` or reaches another one, and texts of functions that are mixed up as groups.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path

import duckdb
import pytest

import wiretide
from dashboards.inputs import Inputs
from lowlevel.expressions.user_functions import load
from tests.conformance import user_functions
from tests.conformance.duckdb_rows import differences, normal_rows, open_database, rows_of
from tests.conformance.random_queries import RandomQuery
from tests.conformance.traffic import Row, generate_links
from tests.conftest import Rounds


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], list[Row]]:
    return generate_links(tmp_path_factory.mktemp("links"))


@pytest.fixture(scope="module")
def database(capture: tuple[list[Path], list[Row]]) -> duckdb.DuckDBPyConnection:
    connection = open_database(capture[1])
    for name, (reference, parameters, result) in user_functions.REFERENCES.items():
        connection.create_function(name, reference, parameters, result, null_handling="special")  # type: ignore[arg-type]
    return connection


@pytest.fixture(autouse=True)
def _loaded() -> None:
    load(Path(user_functions.__file__))


def check(seed: str, inputs: Inputs, database: duckdb.DuckDBPyConnection) -> bool:
    """Compare one query with a call with DuckDB. Return whether it has rows."""
    queries = (RandomQuery(f"{seed} {number}", calls=True) for number in count())
    query = next(query for query in queries if any(f"{name}(" in query.ours for name in user_functions.REFERENCES))
    found = normal_rows(rows_of(inputs.query(query.ours).arrow()), query.ordered)
    expected = normal_rows(database.execute(query.duck).fetchall(), query.ordered)
    assert differences(found, expected) == [], f"seed {seed!r}: {query.ours}\nDuckDB: {query.duck}"
    return bool(found)


@pytest.mark.parametrize("threads", [1, 3])
def test_random_calls(
    threads: int, rounds: Rounds, capture: tuple[list[Path], list[Row]], database: duckdb.DuckDBPyConnection
) -> None:
    with wiretide.open(*capture[0], threads=threads) as inputs:
        compared = [check(f"calls {threads} {number}", inputs, database) for number in rounds(300)]
    assert sum(compared) > len(compared) / 2


@pytest.mark.spark
def test_random_calls_on_spark(
    spark: object, rounds: Rounds, capture: tuple[list[Path], list[Row]], database: duckdb.DuckDBPyConnection
) -> None:
    with wiretide.open(*capture[0], on="local") as inputs:
        assert any(check(f"spark calls {number}", inputs, database) for number in rounds(12))
