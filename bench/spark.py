"""The engines on Spark with two threads, compared with the inline engine on the same two cores and on one core.

The JVM, the session and the Python workers are started before the measurement, by a small query. The inline engine
takes turns with Spark. It runs with two threads in this process, and with one thread in a process bound to one core,
after its kernels were loaded. A second session, all of whose processes are bound to one core, takes turns too. Every
answer must contain all packets.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from bench.figure import figure, quotient
from bench.one_core import process_on_one_core
from bench.others import time_with_others
from bench.query_text import MIXED, PAIRS
from bench.report import Report
from bench.setting import Setting
from bench.spark_session import CORES, OneCore, open_session, run_queries
from bench.traffic import MILLION, address_pairs, generate_cached, read_into_cache
from bench.undisturbed import StepTime, run_undisturbed, time_step
from highlevel.inline.engine import InlineRun, Input
from queries.gsql import compile_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(setting: Setting) -> Report:
    """Measure the batch engine with the long capture, and both engines with several queries over the short capture."""
    report = Report("spark")
    with open_session() as spark:
        _batch(report, spark, setting)
        _several(report, spark, setting)
    return report


def _batch(report: Report, spark: SparkSession, setting: Setting) -> None:
    small = generate_cached(address_pairs(setting.packets(MILLION)), setting.data)
    packets = setting.packets(50 * MILLION)
    path = generate_cached(address_pairs(packets), setting.data)
    read_into_cache(path)
    run_queries(spark, small, [PAIRS])
    batch: list[float] = []
    inline: list[float] = []
    both: list[float] = []
    single: list[float] = []
    again = [0, 0]
    with process_on_one_core() as core, OneCore() as one_core:
        core.submit(inline_engine, small).result()
        one_core.run_query(small, PAIRS)
        for _ in range(setting.runs(5)):
            seconds, repeats = _time_undisturbed(lambda: run_queries(spark, path, [PAIRS])[0], packets)
            batch.append(seconds)
            again[1] += repeats
            seconds, repeats = _time_undisturbed(lambda: inline_answer(path, CORES), packets)
            both.append(seconds)
            again[0] += repeats
            step_time, repeats = run_undisturbed(lambda: core.submit(inline_engine, path).result())
            inline.append(step_time.seconds)
            again[0] += repeats
            seconds, repeats = _time_undisturbed(lambda: one_core.run_query(path, PAIRS), packets)
            single.append(seconds)
            again[1] += repeats
    rates = {
        "inline, one core": figure(inline).rate(packets / MILLION),
        f"inline, {CORES} threads": figure(both).rate(packets / MILLION),
        f"Spark batch, {CORES} cores": figure(batch).rate(packets / MILLION),
        "Spark batch, one core": figure(single).rate(packets / MILLION),
    }
    one, same, ours, alone = rates.values()
    report.table(
        f"{packets:,} packets, JVM and session started before",
        ("engine", "M packets/s (min..max)", "of inline on one core", f"of inline, {CORES} threads"),
        [
            (name, str(rate), *(f"{quotient(rate, each).median:.2f} x" for each in (one, same)))
            for name, rate in rates.items()
        ],
    )
    report.notes.append(f"repeated because of other processes: {again[0]} inline runs, {again[1]} batch runs")
    ratio = quotient(ours, same).median
    report.add_criterion(f"batch / inline, both on {CORES} cores", ratio, ">= 0.9", judged=not setting.quick)
    growth = quotient(ours, alone).median
    report.add_criterion(f"batch on {CORES} cores / on one", growth, ">= 1.7", judged=not setting.quick)
    told = f"{ours.median:.3g} M packets/s, {ratio:.2f} of the inline engine"
    report.add_headline("Spark batch, 50 M packets, two cores, JVM started", told)


def inline_engine(path: Path) -> StepTime:
    """Measure the whole inline engine over one capture, in this process."""
    return time_step(lambda: inline_answer(path, 1))


def inline_answer(path: Path, threads: int) -> pa.Table:
    """Answer with the inline engine."""
    plan = compile_query(PAIRS)
    run = InlineRun([plan], [Input("link", path)], threads=threads)
    return pa.Table.from_batches([rows for _, rows in run.results()], plan.schema)


def _time_undisturbed(answer: Callable[[], pa.Table], packets: int) -> tuple[float, int]:
    """Return the seconds of an undisturbed answer, and the number of repeated runs. Checks the answer."""
    tables: list[pa.Table] = []
    step_time, again = run_undisturbed(lambda: time_with_others(lambda: tables.append(answer())))
    counted = {pc.sum(table["packets"]).as_py() for table in tables}
    if counted != {packets}:
        raise RuntimeError(f"got {counted} packets in the answers, expected {packets}")
    return step_time.seconds, again


def _several(report: Report, spark: SparkSession, setting: Setting) -> None:
    """Measure both engines with one query and with MIXED, by turns. The first query is in both."""
    packets = setting.packets(20 * MILLION)
    path = generate_cached(address_pairs(packets), setting.data)
    read_into_cache(path)
    engines = {"batch": _batch_answer, "stream": _stream_answer}
    works = {(engine, count): MIXED[:count] for count in (1, len(MIXED)) for engine in engines}
    seconds: dict[tuple[str, int], list[float]] = {work: [] for work in works}
    for turn in range(setting.runs(3) + 1):
        for (engine, count), queries in works.items():
            answer = engines[engine]
            step_time, _ = _time_undisturbed(
                lambda answer=answer, queries=queries: answer(spark, path, queries),  # type: ignore[misc]
                packets,
            )
            if turn:  # the first run starts the workers
                seconds[engine, count].append(step_time)
    rates = {work: figure(each).rate(packets / MILLION) for work, each in seconds.items()}
    report.table(
        f"several queries, {packets:,} packets; stream: index, micro-batches, checkpoints and result files included",
        ("engine", "queries", "M packets/s (min..max)", "seconds / one query"),
        [
            (engine, str(count), str(rate), str(quotient(rates[engine, 1], rate)))
            for (engine, count), rate in rates.items()
        ],
    )
    for engine in engines:
        ratio = quotient(rates[engine, 1], rates[engine, len(MIXED)]).median
        criterion = f"{len(MIXED)} queries / one, seconds of the {engine}"
        report.add_criterion(criterion, ratio, "<= 4", judged=not setting.quick)


def _batch_answer(spark: SparkSession, path: Path, queries: Sequence[str]) -> pa.Table:
    """Run the batch engine over a capture. Return the results of the first query."""
    return run_queries(spark, path, queries)[0]


def _stream_answer(spark: SparkSession, path: Path, queries: Sequence[str]) -> pa.Table:
    """Run the streaming engine over a whole capture, in a new folder. Return the results of the first query."""
    from highlevel.spark.stream import StreamRun

    plans = [compile_query(sql, f"q{number}") for number, sql in enumerate(queries)]
    tables: list[pa.Table] = []
    with tempfile.TemporaryDirectory() as folder:
        stream = StreamRun(
            spark,
            plans,
            [Input("link", path)],
            Path(folder),
            partitions=CORES,
            on_batch=lambda _, results, __: tables.append(results[plans[0].name]),
        )
        stream.start()
        try:
            stream.wait()
        finally:
            stream.stop()
    return pa.concat_tables(tables)
