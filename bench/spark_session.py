"""The session of the benchmarks on Spark, and their runs of the batch engine, with two cores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from highlevel.inline.engine import Input
from queries.gsql import compile_query

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

CORES = 2


@contextmanager
def open_session() -> Iterator[SparkSession]:
    """Start Spark on this machine, and stop it at the end."""
    from highlevel.spark.session.session import close_session, start_session

    spark = start_session(f"local[{CORES}]", CORES)
    try:
        yield spark
    finally:
        close_session(spark)


def run_queries(spark: SparkSession, path: Path, queries: Sequence[str]) -> list[pa.Table]:
    """Compile queries, run the batch engine over a capture, and return the results of each query."""
    from highlevel.spark.batch import BatchRun

    plans = [compile_query(sql, f"q{number}") for number, sql in enumerate(queries)]
    return BatchRun(spark, plans, [Input("link", path)]).run()
