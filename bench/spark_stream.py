"""A replay of three captures through the streaming engine: its rate, and the time outside of its job.

Each capture is a link with 100,000 groups per minute. The run includes the index, micro-batches, checkpoints and result
files. The answers must contain all packets.

The time outside of the job is the part of the micro-batches that Spark spends on planning, offsets and its log, while
the cores wait. The first micro-batch is left out, because the index is made in it.

The rate depends on other users of the machine. The processor time of all processes of the run hardly depends on them.
So it is printed too, divided by the processor time of the inline engine for the same captures. The start of a session
is measured in separate processes.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from bench.figure import figure, quotient
from bench.others import family_time
from bench.process import run_timed
from bench.query_text import PAIRS
from bench.report import Report
from bench.setting import Setting
from bench.spark_session import CORES, open_session
from bench.traffic import MILLION, address_pairs, generate_cached, read_into_cache
from highlevel.inline.engine import InlineRun, Input
from queries.gsql import compile_query

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from capture.metrics import Samples

LINKS = 3
START = (
    "import time; begin = time.perf_counter(); "
    "from highlevel.spark.session.session import close_session, start_session; "
    f"spark = start_session('local[{CORES}]', {CORES}); seconds = time.perf_counter() - begin; close_session(spark); "
    "print(seconds)"
)
"""A program that prints the seconds of the start of a session, the import of pyspark included."""


@dataclass(frozen=True)
class Replay:
    """Wall and processor seconds of a replay, and the milliseconds of each micro-batch: in total, and of its job."""

    seconds: float
    processor: float
    batches: list[tuple[int, int]]

    @property
    def outside(self) -> float:
        """Percent of the micro-batches after the first in which no job ran."""
        total, work = map(sum, zip(*(self.batches[1:] or self.batches), strict=True))
        return 100 * (1 - work / total)


def run(setting: Setting) -> Report:
    """Measure the session's start in separate processes, then the replay and the inline engine in turns."""
    report = Report("spark_stream")
    starts = figure(_session_start() for _ in range(setting.runs(3)))
    packets = setting.packets(20 * MILLION)
    path = generate_cached(address_pairs(packets), setting.data)
    read_into_cache(path)
    inputs = [Input(f"tap{number}", path) for number in range(LINKS)]
    with open_session() as spark:
        replay(spark, [Input("tap0", generate_cached(address_pairs(setting.packets(MILLION)), setting.data))])
        turns = [(replay(spark, inputs, LINKS * packets), _inline_seconds(inputs)) for _ in range(setting.runs(3))]
    replays = [replayed for replayed, _ in turns]
    rate = figure(replayed.seconds for replayed in replays).rate(LINKS * packets / MILLION)
    processor = figure(replayed.processor for replayed in replays)
    ratio = quotient(processor, figure(seconds for _, seconds in turns))
    outside = figure(replayed.outside for replayed in replays)
    report.table(
        f"{LINKS} captures of {packets:,} packets, {CORES} cores, JVM and session started before",
        ("M packets/s (min..max)", "micro-batches", "outside of the job, %", "CPU seconds", "CPU / inline"),
        [(str(rate), str(len(replays[0].batches)), str(outside), str(processor), str(ratio))],
    )
    report.add_information("start of a session, s", starts)
    judged = not setting.quick
    report.add_criterion("replay of three captures, M packets/s", rate.median, ">= 10", judged=judged)
    report.add_criterion("outside of the job, % of a micro-batch", outside.median, "<= 15", judged=judged)
    report.add_criterion("start of a session, s", starts.median, "<= 6", judged=judged)
    return report


def _session_start() -> float:
    """Return the seconds of the start of a session in a new process."""
    with tempfile.TemporaryFile() as output:
        run_timed([sys.executable, "-c", START], output=output)
        output.seek(0)
        return float(output.read())


def _inline_seconds(inputs: list[Input]) -> float:
    """Return the CPU seconds of the inline engine."""
    begin = time.process_time()
    for _ in InlineRun([compile_query(PAIRS)], inputs, threads=CORES).results():
        pass
    return time.process_time() - begin


def replay(spark: SparkSession, inputs: list[Input], packets: int | None = None) -> Replay:
    """Run the streaming engine in a new folder. Raises RuntimeError if the answer does not contain all packets."""
    from highlevel.spark.stream import StreamRun

    plan = compile_query(PAIRS)
    counted: list[int] = []

    def count(_: int, results: dict[str, pa.Table], __: Samples) -> None:
        counted.append(pc.sum(results[plan.name]["packets"]).as_py() or 0)

    with tempfile.TemporaryDirectory() as folder:
        stream = StreamRun(spark, [plan], inputs, Path(folder), partitions=CORES, on_batch=count)
        begin, spent = time.perf_counter(), family_time()
        stream.start()
        try:
            stream.wait()
            seconds, processor = time.perf_counter() - begin, family_time() - spent
            progress = [json.loads(each.json) for query in spark.streams.active for each in query.recentProgress]
        finally:
            stream.stop()
    if packets is not None and sum(counted) != packets:
        raise RuntimeError(f"got {sum(counted):,} packets in the answers, expected {packets:,}")
    durations = [document["durationMs"] for document in progress if "addBatch" in document["durationMs"]]
    return Replay(seconds, processor, [(parts["triggerExecution"], parts["addBatch"]) for parts in durations])
