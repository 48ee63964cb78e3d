"""The sessions of the benchmarks on Spark, and their runs of the batch engine.

The benchmarks use two cores. For comparison, `OneCore` is a session in a process that is bound to one core, with its
JVM and its Python workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from bench.one_core import process_on_one_core
from highlevel.inline.engine import Input
from queries.gsql import compile_query

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

CORES = 2


@contextmanager
def open_session() -> Iterator[SparkSession]:
    """Start Spark with CORES cores of this machine, and stop it at the end."""
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


class OneCore:
    """A session with one core, in a process of its own."""

    def __enter__(self) -> OneCore:
        """Start the process and the session."""
        self._process = process_on_one_core()
        self._process.submit(_start_session).result()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        """Stop the session and the process."""
        self._process.submit(_stop_session).result()
        self._process.shutdown()

    def run_query(self, path: Path, query: str) -> pa.Table:
        """Answer a query over a capture with the batch engine."""
        return self._process.submit(_run_query, path, query).result()


def _start_session() -> None:
    from highlevel.spark.session.session import start_session

    start_session("local[1]", 1)


def _stop_session() -> None:
    from highlevel.spark.session.session import close_session

    close_session(_session())


def _run_query(path: Path, query: str) -> pa.Table:
    (answer,) = run_queries(_session(), path, [query])
    return answer


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate()
