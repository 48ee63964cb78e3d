"""A pipeline of five queries over three live links, for minutes or hours: memory, lag, loss and latency.

    three feeders ──► named pipes ──► wiretide capture ──► spools ──► wiretide run

The node flushes tables at once, because gradual policies delay watermarks (`lowlevel.table.flushing`). Its tables are
small, so that all their pages are soon in use: with 256 MiB this takes hours, and looks like growth.

A feeder writes packets in real time, with silences and bursts (`bench.link_feeder`). A window closes when all links
have sent a packet after it, or are declared silent. Latency is the time from this moment to the line that the run
prints for the window. The first windows are left out, because the JVM compiles its code then.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from bench.command import wiretide
from bench.kills import list_process_tree
from bench.link_feeder import SECOND, FeedReport
from bench.report import Report
from bench.setting import Setting
from highlevel.inline.engine import InlineRun, Input
from highlevel.metrics import SPARK_BACKLOG
from highlevel.operators.window_operator import WINDOW_END
from highlevel.spark.run_folder.result_files import read_results
from queries.gsql import compile_query
from queries.pipeline.file import read_pipeline

LINKS = 3
RATE_PER_LINK = 200_000
LULL = SECOND
WARM_UP = 30 * SECOND
"""Time after the first packet, in ns, in which the latency of windows is not measured."""

SAMPLE_SECONDS = 2.0
JUDGED_MINUTES = 20
"""Minimum minutes of a run whose growth of memory is judged."""

PIPELINE = """
folder = "state"
[queries.total]
sql = "SELECT count(*) AS n FROM packets [RANGE 10 seconds]"
[queries.talkers]
sql = "SELECT srcIP, count(*) AS n, sum(len) AS bytes FROM packets [RANGE 10 seconds] GROUP BY srcIP"
[queries.pairs]
sql = "SELECT srcIP, destIP, count(*) AS n FROM packets [RANGE 10 seconds] GROUP BY srcIP, destIP"
[queries.ports]
sql = "SELECT destPort, count(*) AS n FROM packets [RANGE 30 seconds, SLIDE 10 seconds] GROUP BY destPort"
[queries.minutes]
sql = "SELECT srcIP, max(len) AS most FROM packets [RANGE 1 minute] GROUP BY srcIP"
[metrics]
port = 0
[page]
enabled = false
[node]
memory = "96 MiB"
flush = "at_once"
disorder = 0
segment_time = "200ms"
[spark]
master = "local[2]"
"""

INLINE_QUERY = "SELECT srcIP, count(*) AS n, sum(len) AS bytes FROM packets [RANGE 10 seconds] GROUP BY srcIP"

LINK = """
[links.{name}]
capture = "{name}.pipe"
spool = "spool-{name}"
promise = "ordered"
lull = "1s"
"""

RESULT_LINE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)Z  (\w+): ")
METRICS_LINE = re.compile(r"metrics at (http://\S+)/metrics")


@dataclass
class Exports:
    """The output of `wiretide run`: the wall time of each window and query, the address of its metrics, other lines."""

    times: dict[tuple[str, int], int] = field(default_factory=dict)
    address: str = ""
    lines: list[str] = field(default_factory=list)

    def read(self, output: Iterator[str]) -> None:
        """Read all lines."""
        for line in output:
            result, metrics = RESULT_LINE.match(line), METRICS_LINE.search(line)
            if result is not None:
                end = int(datetime.fromisoformat(f"{result[1]}+00:00").timestamp()) * SECOND
                self.times.setdefault((result[2], end), time.time_ns())
            else:
                self.lines.append(line.rstrip())
            if metrics is not None:
                self.address = metrics[1]


@dataclass
class Samples:
    """Anonymous memory of processes in bytes, and the backlog in segments, each by seconds since the start."""

    memory: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    backlog: list[tuple[float, int]] = field(default_factory=list)

    def add_memory(self, seconds: float, run: int, node: int) -> None:
        """Add the memory of the processes of both commands."""
        sums: dict[str, int] = defaultdict(int)
        for name, root in (("run", run), ("node", node)):
            for process in list_process_tree(root):
                with contextlib.suppress(OSError):
                    status = Path(f"/proc/{process}/status").read_text()
                    bytes_ = sum(int(kib) << 10 for kib in re.findall(r"RssAnon:\s+(\d+) kB", status))
                    is_jvm = status.startswith("Name:\tjava")
                    kind = name if process == root else "JVM" if is_jvm else f"workers of the {name}"
                    sums[kind] += bytes_
        for kind, bytes_ in sums.items():
            self.memory[kind].append((seconds, bytes_))

    def add_backlog(self, seconds: float, address: str) -> None:
        """Add the sum of the backlogs of all links, if the run answers."""
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(f"{address}/metrics", timeout=5) as answer:
                text = answer.read().decode()
            values = re.findall(rf"^{SPARK_BACKLOG.name}\{{.*\}} (\S+)$", text, re.MULTILINE)
            self.backlog.append((seconds, sum(int(float(value)) for value in values)))


def slope_of(samples: list[tuple[float, int]]) -> tuple[float, float]:
    """Return the mean, and the growth per hour, of the last two thirds of samples, by least squares."""
    last = np.array(samples[len(samples) // 3 :], float)
    if len(last) < 2:
        return float(last[0, 1]) if len(last) else 0.0, 0.0
    return float(last[:, 1].mean()), float(np.polyfit(last[:, 0], last[:, 1], 1)[0]) * 3600


def run(setting: Setting) -> Report:
    """Run the pipeline for `setting.minutes`."""
    report = Report("soak")
    seconds = 40 if setting.quick else round(setting.minutes * 60)
    rate = RATE_PER_LINK // 100 if setting.quick else RATE_PER_LINK
    with tempfile.TemporaryDirectory(prefix="wiretide-soak-") as name:
        folder = Path(name)
        names = [f"link{number}" for number in range(LINKS)]
        file = folder / "pipeline.toml"
        file.write_text(PIPELINE + "".join(LINK.format(name=name) for name in names))
        for link in names:
            os.mkfifo(folder / f"{link}.pipe")
        exports, samples, feeds = play(folder, file, names, rate, seconds)
        plan = next(plan for plan in read_pipeline(file).plans() if plan.name == "total")
        counted = pc.sum(read_results(folder / "state" / "output", plan)["n"]).as_py() or 0
    fed = sum(feed.packets for feed in feeds)
    delays = [delay / SECOND for delay in compute_latencies(exports, feeds)]
    judged = not setting.quick
    with tempfile.TemporaryDirectory(prefix="wiretide-soak-") as name:
        inline_delays = measure_inline(Path(name), rate, seconds // 4 + 20)
    report.table(
        f"{LINKS} links with {rate:,} packets/s each, five queries, {seconds} s",
        ("packets", "counted", "windows exported", "latency, median", "p99", "most"),
        [
            (
                f"{fed:,}",
                f"{counted:,}",
                f"{len(exports.times):,}",
                *(f"{np.percentile(delays, rank):.2f} s" if delays else "none" for rank in (50, 99, 100)),
            )
        ],
    )
    report.add_information("windows of the inline engine", len(inline_delays))
    rows, growths = [], []
    for kind, memory in samples.memory.items():
        mean, growth = slope_of(memory)
        growths.append(growth / mean if mean else 0.0)
        rows.append((kind, f"{mean / 1e6:.0f} MB", f"{growth / 1e6:+.1f} MB", f"{growth / mean if mean else 0:+.1%}"))
    report.table("memory in the last two thirds", ("process", "mean", "slope per hour", "of the mean"), rows)
    backlog = [count for _, count in samples.backlog] or [0]
    report.notes.append(f"backlog: at most {max(backlog)} segments of 0.2 s, {backlog[-1]} at the end")
    report.notes.append(f"the feeders were at most {max(feed.longest_delay for feed in feeds):.2f} s late")
    report.notes += [f"the run reported: {line}" for line in exports.lines if line.startswith("warning")]
    report.add_criterion("packets lost or counted twice", abs(fed - counted), "<= 0")
    report.add_criterion("latency from closing a window to its export, median, s", _rank(delays, 50), "<= 1", judged)
    report.add_criterion("latency from closing a window to its export, p99, s", _rank(delays, 99), "<= 2.5", judged)
    inline_ms = _rank([delay * 1000 for delay in inline_delays], 50)
    report.add_criterion("latency of the inline engine over one link, median, ms", inline_ms, "<= 20", judged)
    report.add_criterion("backlog, segments, the most", max(backlog), "<= 60", judged)
    is_long = judged and setting.minutes >= JUDGED_MINUTES
    report.add_criterion("growth of memory per hour / mean, the most of a process", max(growths), "<= 0.1", is_long)
    return report


def _rank(delays: list[float], rank: int) -> float | None:
    return float(np.percentile(delays, rank)) if delays else None


def play(
    folder: Path, file: Path, names: list[str], rate: int, seconds: int
) -> tuple[Exports, Samples, list[FeedReport]]:
    """Start all processes, wait until they end, and return their reports. Raises RuntimeError if one fails."""
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    exports, samples = Exports(), Samples()
    with contextlib.ExitStack() as stack:
        errors = stack.enter_context((folder / "errors").open("wb"))

        def start(command: list[str | Path], output: int | None) -> subprocess.Popen[str]:
            process = subprocess.Popen(command, stdout=output, stderr=errors, env=environment, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)  # if this fails
            return process

        pipeline = start([*wiretide("run"), file, "--until-done"], subprocess.PIPE)
        assert pipeline.stdout is not None
        reader = threading.Thread(target=exports.read, args=(pipeline.stdout,))
        reader.start()
        while pipeline.poll() is None and not is_ready(exports.address):
            time.sleep(0.2)
        node = start([*wiretide("capture"), file], subprocess.DEVNULL)
        feeders = [
            start(
                [
                    sys.executable,
                    "-m",
                    "bench.link_feeder",
                    folder / f"{name}.pipe",
                    *map(str, (number, rate, seconds)),
                ],
                subprocess.PIPE,
            )
            for number, name in enumerate(names)
        ]
        begin = time.monotonic()
        while pipeline.poll() is None:
            time.sleep(SAMPLE_SECONDS)
            if node.poll():  # the run would wait for it
                raise RuntimeError(f"got status {node.returncode} of the node, expected 0: {last_lines(folder)}")
            elapsed = time.monotonic() - begin
            if elapsed < seconds:
                samples.add_memory(elapsed, pipeline.pid, node.pid)
            samples.add_backlog(elapsed, exports.address)
        reader.join()
        if pipeline.returncode or node.wait():
            raise RuntimeError(f"got status {pipeline.returncode} of the run, expected 0: {last_lines(folder)}")
        feeds = [FeedReport(**json.loads(feeder.communicate()[0])) for feeder in feeders]
    return exports, samples, feeds


def last_lines(folder: Path) -> str:
    """Return the last three lines of the errors of all processes."""
    return "; ".join((folder / "errors").read_text(errors="replace").splitlines()[-3:])


def measure_inline(folder: Path, rate: int, seconds: int) -> list[float]:
    """Return the latency of each window of the inline engine over one link, in seconds, without the first window."""
    pipe = folder / "inline.pipe"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "bench.link_feeder", *map(str, (pipe, 0, rate, seconds))]
    exported: dict[int, int] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as feeder:
        inline = InlineRun([compile_query(INLINE_QUERY)], [Input("link", pipe)], slack=0)
        for _, rows in inline.results():
            exported.setdefault(rows.column(WINDOW_END)[0].as_py(), time.time_ns())
        report = FeedReport(**json.loads(feeder.communicate()[0]))
    _, *writes = report.first_writes
    return [(exported[end] - wall) / SECOND for end, wall in writes if end in exported]


def is_ready(address: str) -> bool:
    """Return whether the run computes."""
    if not address:
        return False
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/readyz", timeout=5) as answer:
        return bool(answer.status == 200)
    return False


def compute_latencies(exports: Exports, feeds: list[FeedReport]) -> Iterator[int]:
    """Yield the latency of each window and query in ns, from the time at which no link could add a row."""
    writes = [dict(feed.first_writes) for feed in feeds]
    first = max(min(link) for link in writes)
    last = min(max(link) for link in writes)
    for (_, end), exported in exports.times.items():
        if first + WARM_UP < end <= last:
            closed = max(min(link.get(end, end + LULL), end + LULL) for link in writes)
            yield exported - closed
