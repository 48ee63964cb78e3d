"""Kill -9 of `wiretide run` in every phase of a micro-batch, many times with the same folder and a spool as input.

A thread writes segments into the spool of a link and deletes committed segments, while the run is killed and started
again. Most kills wait for the file that marks the start of a phase, and kill the whole process tree: driver, JVM and
Python workers. The others kill the driver during its start. In the end the rows must be equal to the rows of the inline
engine over the capture, and each written segment must have been read once.
"""

from __future__ import annotations

import contextlib
import os
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
from bench.traffic import generate_cached
from capture.files.scan import scan
from capture.generate import Profile
from capture.open import open_mapped
from highlevel.inline.engine import InlineRun, Input
from highlevel.metrics import SPOOL_SEGMENTS_READ
from highlevel.plan.plan import Plan
from highlevel.results.stored_files import list_files
from highlevel.spark.run_folder.result_files import batches_of, read_results
from highlevel.spark.run_folder.totals import TotalsFiles
from lowlevel.node.node import Node
from lowlevel.spool.fingerprint import fingerprint
from lowlevel.spool.writer import SpoolWriter
from lowlevel.watermarks.rule import EXACT, WatermarkRule
from queries.pipeline.file import read_pipeline

KILLS = 60
PACKETS = 1_000_000
"""More packets than the runs read between the kills: after the end of the input there are no micro-batches to kill."""

QUICK_PACKETS = 200_000

STARTING = "starting"
PHASES: dict[str, str] = {
    "planned": "checkpoint/offsets/{}",
    "state half written": "state/0/{}.json",
    "results written": "output/sizes",
    "before the commit": "totals/{}.json",
}
"""The file that marks the beginning of each phase; the number of the micro-batch is its argument. Results are a folder:
its newest file contains the numbers of its micro-batches. The query `sizes` has windows of a second. Micro-batches
without results of it are skipped.
"""

MAX_KILL_DELAY = 0.15
"""Maximum seconds between the file and the kill. The phases last longer than this."""

TRAFFIC = Profile(packets=PACKETS, rate=1000.0, groups=2000, seed=1)
SLOTS = 64
"""Slots of the tables: so few that each block produces partials."""

BLOCK_RECORDS = 64
SEGMENT_PAUSE = 0.2
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
    """Writes `capture` into `spool`: slowly at first, and as fast as possible when `hurry` is set."""

    capture: Path
    spool: Path
    plans: list[Plan]
    rule: WatermarkRule = EXACT
    hurry: threading.Event = field(default_factory=threading.Event)
    segments: int = 0

    def run(self) -> None:
        """Write the whole capture."""
        file = open_mapped(self.capture, "a low-level node")
        plans = [plan.leaves[0].low for plan in self.plans]
        node = Node("eth0", file, plans, SLOTS, BLOCK_RECORDS, self.rule)
        writer = SpoolWriter(self.spool, "eth0", [(plan.name, fingerprint(plan.leaves[0].low)) for plan in self.plans])
        for number, block in enumerate(scan(file, BLOCK_RECORDS).blocks):
            for plan, item in node.process(block):
                writer.append(plan, item)
            if not self.hurry.wait(SEGMENT_PAUSE) or number % 100 == 0:
                writer.tick(time.time_ns())
                writer.flush()
        writer.close(has_ended=True)
        self.segments = writer.counts.segments


def run(setting: Setting) -> Report:
    """Kill and restart the run many times. Then let it finish, and compare the results."""
    report = Report("kills")
    kills = len(PHASES) + 1 if setting.quick else KILLS
    capture = generate_cached(replace(TRAFFIC, packets=QUICK_PACKETS if setting.quick else PACKETS), setting.data)
    with tempfile.TemporaryDirectory(prefix="wiretide-kills-") as folder:
        base = Path(folder)
        file = base / "pipeline.toml"
        file.write_text(PIPELINE.format(capture=capture))
        plans = read_pipeline(file).plans()
        writing = SpoolThread(capture, base / "spool", plans)
        begin = time.monotonic()
        killed, finished = kill_and_finish(file, writing, kills)
        took = time.monotonic() - begin
        wrong = sum(count_differences(plan, base / "state" / "output", capture) for plan in plans)
        totals = TotalsFiles(base / "state" / "totals")
        read = int(totals.load(totals.last_batch_id()).samples.total(SPOOL_SEGMENTS_READ))
        batches = totals.last_batch_id() + 1
    rows = [(f"{killed.total()}", f"{took:,.0f} s", f"{batches:,}", f"{writing.segments:,}", f"{read:,}")]
    report.table("one folder, again and again", ("kills", "took", "micro-batches", "segments", "read"), rows)
    report.table("by phase of the micro-batch", ("phase", "kills"), [(name, f"{killed[name]}") for name in killed])
    report.add_criterion("kill -9 of the run, while it ran", killed.total(), ">= 50", judged=not setting.quick)
    for phase in PHASES:
        report.add_criterion(f"kills of the process tree, {phase}", killed[phase], ">= 10", judged=not setting.quick)
    report.add_criterion("micro-batches per kill", batches / kills, ">= 0.5", judged=not setting.quick)
    report.add_criterion("exit status of the last run", finished, "<= 0")
    report.add_criterion("segments read twice or not at all", abs(read - writing.segments), "<= 0")
    report.add_criterion("rows that differ from the undisturbed answer", wrong, "<= 0")
    return report


def kill_and_finish(file: Path, writing: SpoolThread, kills: int) -> tuple[Counter[str], int]:
    """Kill runs of a pipeline while its spool is written, then finish. Return the kills by phase and the exit status.

    The folder of the run is `state` beside the pipeline file. Raises RuntimeError if the spool ends too early.
    """
    random, begin = Random(1), time.monotonic()
    killed: Counter[str] = Counter()
    with ThreadPoolExecutor(1) as thread:
        written = thread.submit(writing.run)
        try:
            for number in range(kills):
                if written.done():
                    written.result()
                    raise RuntimeError(f"the spool has ended after {number} kills, expected {kills} before")
                phase = [*PHASES, STARTING][number % (len(PHASES) + 1)]
                killed[phase] += kill(file, file.parent / "state", phase, random, written.done)
                took = time.monotonic() - begin
                print(f"bench: kill {number + 1} of {kills}, {phase}, {took:,.0f} s", file=sys.stderr, flush=True)
        finally:
            writing.hurry.set()
        written.result()
    return killed, subprocess.run([*wiretide("run"), file, "--until-done"], stdout=subprocess.DEVNULL).returncode


def kill(file: Path, folder: Path, phase: str, random: Random, ended: Callable[[], bool]) -> bool:
    """Start a run and kill it in a phase. Return whether the run was still active.

    If the spool has `ended`, do not wait for it. The phase belongs to a micro-batch that no earlier run has begun, so
    new work precedes each kill.
    """
    following = 1 + max((int(path.name) for path in (folder / "checkpoint" / "offsets").glob("[0-9]*")), default=-1)
    with subprocess.Popen([*wiretide("run"), file], stdout=subprocess.DEVNULL) as process:
        try:
            if phase == STARTING:
                time.sleep(random.random() * 8)
            else:
                numbers = range(following, following + 10)
                while not has_begun(folder, phase, numbers) and process.poll() is None and not ended():
                    time.sleep(0.001)
                if phase in ("planned", "state half written"):
                    time.sleep(random.random() * MAX_KILL_DELAY)
        finally:
            ran = process.poll() is None
            for each in [process.pid] if phase == STARTING else list_process_tree(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
    return ran


def has_begun(folder: Path, phase: str, numbers: range) -> bool:
    """Return whether a phase of one of these micro-batches has begun."""
    if phase != "results written":
        return any((folder / PHASES[phase].format(number)).exists() for number in numbers)
    files = list_files(folder / PHASES[phase])
    return bool(files) and batches_of(files[-1])[-1][0] in numbers


def list_process_tree(process: int) -> list[int]:
    """Return a process and all its descendants."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.name))
    found = [process]
    for each in found:
        found += children.get(each, [])
    return found


def count_differences(plan: Plan, output: Path, capture: Path) -> int:
    """Return the number of rows that are only in the result files, or only in the inline engine's answer."""
    received = read_results(output, plan)
    inline = InlineRun([plan], [Input("eth0", capture)])
    want = pa.Table.from_batches([batch for _, batch in inline.results()], plan.schema)
    found, expected = ([str(row) for row in table.to_pylist()] for table in (received, want))
    return (Counter(found) - Counter(expected)).total() + (Counter(expected) - Counter(found)).total()
