"""Spark batch against plain Spark SQL over the same rows, and the cost of more groups and more queries.

Plain Spark SQL reads the columns of the question from a Parquet file, in a JVM with Spark's settings. The batch engine
reads the capture. Both have two cores, answer once before the measurement, and take turns. Both answers must have the
same groups, packets and bytes. A job of Spark without rows takes a constant time, which is most of the answer for 5 M
packets. So the capture is that of the bench `spark`, with 50 M packets.

The cost of more groups and queries is the processor time of all processes, because it hardly depends on other users of
the machine. A ratio of 1 means that the cost grows as fast as the number of groups or queries.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.parquet as pq

import wiretide
from bench.figure import figure, quotient
from bench.others import family_time, time_with_others
from bench.plain_spark import sums_of
from bench.query_text import MIXED, PAIRS
from bench.report import Report
from bench.setting import Setting
from bench.spark_session import CORES, open_session, run_queries
from bench.traffic import MILLION, address_pairs, generate_cached, read_into_cache

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

GROUPS = (1_000, 100_000, 1_000_000)
QUERIES = (1, 5, 20)


def run(setting: Setting) -> Report:
    """Measure both."""
    report = Report("spark_sql")
    with open_session() as spark:
        _plain(report, spark, setting)
        _costs(report, spark, setting)
    return report


def _plain(report: Report, spark: SparkSession, setting: Setting) -> None:
    packets = setting.packets(50 * MILLION)
    path = generate_cached(address_pairs(packets), setting.data)
    rows = _parquet_of(path)
    for file in (path, rows):
        read_into_cache(file)
    ours, plain = [], []
    with _plain_spark(rows) as answers:
        for turn in range(setting.runs(5) + 1):
            tables: list[pa.Table] = []
            taken = time_with_others(lambda tables=tables: tables.extend(run_queries(spark, path, [PAIRS])))  # type: ignore[misc]
            seconds, sums = next(answers)
            own = sums_of(tables[0])
            if own != sums or own[1] != packets:
                raise RuntimeError(f"got {own} and {sums} groups, packets and bytes, expected {packets:,} packets")
            if turn:  # the first run starts the workers
                ours.append(taken.seconds)
                plain.append(seconds)
    ratio = quotient(figure(plain), figure(ours))
    report.table(
        f"{packets:,} packets, packets and bytes of each address pair in each minute, {CORES} cores",
        ("engine", "seconds (min..max)", "seconds / batch"),
        [
            ("Spark batch over the capture", str(figure(ours)), "1"),
            ("plain Spark SQL over Parquet", str(figure(plain)), str(ratio)),
        ],
    )
    report.add_criterion("plain Spark SQL / batch, seconds", ratio.median, ">= 8", judged=not setting.quick)


def _parquet_of(path: Path) -> Path:
    """Return the Parquet file with the columns of the question, next to a capture. Write it if it does not exist."""
    rows = path.with_suffix(".parquet")
    if not rows.exists():
        table = wiretide.query("SELECT ts, srcIP, destIP, len FROM packets", path)
        incomplete = rows.with_suffix(".incomplete")
        pq.write_table(table.set_column(0, "ts", pc.cast(table["ts"], "int64")), incomplete)
        incomplete.replace(rows)
    return rows


@contextmanager
def _plain_spark(rows: Path) -> Iterator[Iterator[tuple[float, list[int]]]]:
    """Start plain Spark. Yield an iterator. Each element is a new answer: its seconds and its `sums_of`."""
    command = [sys.executable, "-m", "bench.plain_spark", str(rows)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        requests, lines = process.stdin, process.stdout
        assert requests is not None
        assert lines is not None

        def answers() -> Iterator[tuple[float, list[int]]]:
            while True:
                requests.write("\n")
                requests.flush()
                seconds, *sums = lines.readline().split()
                yield float(seconds), [int(value) for value in sums]

        yield answers()
        requests.close()


def _costs(report: Report, spark: SparkSession, setting: Setting) -> None:
    """Measure the processor time of the batch engine for each number of groups and queries."""
    packets = setting.packets(5 * MILLION)
    costs: dict[tuple[int, int], float] = {}
    for groups in GROUPS:
        path = generate_cached(replace(address_pairs(packets), groups=groups), setting.data)
        read_into_cache(path)
        for queries in QUERIES:
            costs[groups, queries] = min(_batch_cost(spark, path, queries) for _ in range(setting.runs(3)))
    report.table(
        f"{packets:,} packets, CPU seconds of the batch engine",
        ("address pairs", *(f"{queries} queries" for queries in QUERIES)),
        [(f"{groups:,}", *(f"{costs[groups, queries]:.2f}" for queries in QUERIES)) for groups in GROUPS],
    )
    fewest = {axis: values[0] for axis, values in (("groups", GROUPS), ("queries", QUERIES))}
    by_groups = max(
        cost / costs[fewest["groups"], queries] / (groups / fewest["groups"])
        for (groups, queries), cost in costs.items()
        if groups > fewest["groups"]
    )
    by_queries = max(
        cost / costs[groups, fewest["queries"]] / (queries / fewest["queries"])
        for (groups, queries), cost in costs.items()
        if queries > fewest["queries"]
    )
    judged = not setting.quick
    report.add_criterion("growth of CPU seconds / of groups, the most", by_groups, "<= 1", judged=judged)
    report.add_criterion("growth of CPU seconds / of queries, the most", by_queries, "<= 1", judged=judged)


def _batch_cost(spark: SparkSession, path: Path, queries: int) -> float:
    """Return the CPU seconds of all processes for the first queries of MIXED over a capture."""
    begin = family_time()
    run_queries(spark, path, MIXED[:queries])
    return family_time() - begin
