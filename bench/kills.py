"""Kill -9 of `wiretide run` at random moments of a spooled run, a hundred times on one folder.

A thread writes the spool of a link, a segment at a time, and deletes what was committed, while the run is killed and
started again. In the end its rows must be those of the inline engine over the capture, its segments those written.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pyarrow as pa

from bench.command import wiretide
from bench.report import Report
from bench.setting import Setting
from bench.traffic import cached
from capture.files.capture import open_mapped
from capture.files.scan import scan
from capture.generate import Profile
from highlevel.inline import InlineRun, Input
from highlevel.metrics import SPOOL_SEGMENTS_READ
from highlevel.plan import QueryPlan
from highlevel.spark.result_files import read_results
from highlevel.spark.totals import TotalsFiles
from lowlevel.node import Node
from lowlevel.spool.fingerprint import fingerprint
from lowlevel.spool.writer import SpoolWriter
from queries.pipeline_file import read_pipeline

KILLS = 100
PACKETS = 1_000_000
"""More than is read between a hundred kills: where nothing is left to be read, no run can be killed in its midst."""

TRAFFIC = Profile(packets=PACKETS, rate=1000.0, groups=2000, seed=1)
SLOTS = 64
"""Of the tables: so few that each block leaves partials."""

BLOCK_RECORDS = 64
PACE = 0.2
"""Seconds between two segments while the run is being killed."""

PIPELINE = """
folder = "state"
[links.eth0]
capture = "{capture}"
spool = "spool"
[queries.talkers]
sql = "SELECT srcIP, count(*) AS n FROM packets [RANGE 30 seconds, SLIDE 10 seconds] GROUP BY srcIP"
[queries.sizes]
sql = "SELECT len / 100 AS size, count(*) AS n FROM packets [RANGE 1 second] GROUP BY len / 100"
[metrics]
port = 0
[spark]
master = "local[2]"
"""


@dataclass
class SpoolThread:
    """Writes `capture` into `spool`: slowly, and what is left at once when `hurry` is set."""

    capture: Path
    spool: Path
    plans: list[QueryPlan]
    hurry: threading.Event = field(default_factory=threading.Event)
    segments: int = 0

    def run(self) -> None:
        """Write to the end."""
        file = open_mapped(self.capture, "a low-level node")
        node = Node("eth0", file, [plan.low for plan in self.plans], SLOTS, BLOCK_RECORDS)
        writer = SpoolWriter(self.spool, "eth0", [(plan.name, fingerprint(plan.low)) for plan in self.plans])
        for number, block in enumerate(scan(file, BLOCK_RECORDS).blocks):
            for plan, item in node.process(block):
                writer.append(plan, item)
            if not self.hurry.wait(PACE) or number % 100 == 0:
                writer.tick(time.time_ns())
                writer.flush()
        writer.close(ended=True)
        self.segments = writer.counts.segments


def run(setting: Setting) -> Report:
    """Kill, start again, kill, and in the end let it finish and compare."""
    report = Report("kills")
    kills = 2 if setting.quick else KILLS
    capture = cached(replace(TRAFFIC, packets=setting.packets(PACKETS)), setting.data)
    with tempfile.TemporaryDirectory(prefix="wiretide-kills-") as folder:
        base = Path(folder)
        file = base / "pipeline.toml"
        file.write_text(PIPELINE.format(capture=capture))
        plans = [plan for plan in read_pipeline(file).plans() if isinstance(plan, QueryPlan)]
        writing = SpoolThread(capture, base / "spool", plans)
        with ThreadPoolExecutor(1) as thread:
            written = thread.submit(writing.run)
            begin = time.monotonic()
            random = Random(1)
            killed = 0
            try:
                for number in range(kills):
                    if written.done():
                        written.result()
                        raise RuntimeError(f"the spool has ended after {number} kills, expected {kills} before")
                    killed += kill(file, TotalsFiles(base / "state" / "totals"), random, written.done)
                    if number % 10 == 9:
                        took = time.monotonic() - begin
                        print(f"bench: {number + 1} of {kills} kills, {took:,.0f} s", file=sys.stderr, flush=True)
            finally:
                writing.hurry.set()
            written.result()
        finished = subprocess.run([*wiretide("run"), file, "--until-done"], stdout=subprocess.DEVNULL).returncode
        took = time.monotonic() - begin
        wrong = sum(differing(plan, base / "state" / "output", capture) for plan in plans)
        totals = TotalsFiles(base / "state" / "totals")
        read = int(totals.load(totals.last()).samples.total(SPOOL_SEGMENTS_READ))
        batches = totals.last() + 1
    rows = [(f"{killed}", f"{took:,.0f} s", f"{batches:,}", f"{writing.segments:,}", f"{read:,}")]
    report.table("one folder, again and again", ("kills", "took", "micro-batches", "segments", "read"), rows)
    report.require("kill -9 of the run, while it ran", killed, ">= 100", judged=not setting.quick)
    report.require("micro-batches per kill", batches / kills, ">= 0.5", judged=not setting.quick)
    report.require("exit status of the last run", finished, "<= 0")
    report.require("segments read twice or not at all", abs(read - writing.segments), "<= 0")
    report.require("rows that differ from the undisturbed answer", wrong, "<= 0")
    return report


def kill(file: Path, totals: TotalsFiles, random: Random, ended: Callable[[], bool]) -> bool:
    """Start a run and kill it at a random moment; return whether it still ran.

    A fifth of the moments are in its start. The others are after it has begun to read, most of them after it has done a
    micro-batch, however long that takes: in the midst of one of those that follow. When the spool has `ended` it is not
    waited for.
    """
    before = totals.last()
    with subprocess.Popen([*wiretide("run"), file], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None, "it was asked for"
        try:
            moment = random.random()
            if moment < 0.2:
                time.sleep(random.random() * 8)
            else:
                next((line for line in process.stdout if "reading the spool" in line), None)
                while moment > 0.4 and totals.last() == before and process.poll() is None and not ended():
                    time.sleep(0.02)
                time.sleep(random.random() * 2)
        finally:
            process.kill()
    return process.returncode == -signal.SIGKILL


def differing(plan: QueryPlan, output: Path, capture: Path) -> int:
    """Rows of a query that are in its result files and not in the inline engine's answer, or the other way round."""
    got = read_results(output, plan)
    inline = InlineRun([plan], [Input("eth0", capture)])
    want = pa.Table.from_batches([batch for _, batch in inline.results()], plan.schema)
    found, expected = ([str(row) for row in table.to_pylist()] for table in (got, want))
    return (Counter(found) - Counter(expected)).total() + (Counter(expected) - Counter(found)).total()
