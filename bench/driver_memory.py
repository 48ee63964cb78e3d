"""The memory of the driver of a run on Spark, over the number of result rows.

A run replays captures of one length with more and more packets. One query returns each packet, and one the windows of
address pairs that occur about once. So most micro-batches of the largest run return more rows than the driver may
receive. The executors are separate processes (`local-cluster`), so the driver is the process of the command and its
JVM. The judged memory is the maximum of its anonymous pages.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from bench.command import wiretide
from bench.kills import list_process_tree
from bench.process import read_anonymous_memory
from bench.report import Report
from bench.setting import Setting
from bench.traffic import generate_cached
from capture.generate import Profile
from capture.generate.profile import MAX_GROUPS
from highlevel.results.stored_files import list_files, query_folder

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
"""Result rows of each run."""

QUICK_SIZES = (1_000, 10_000)
CAPTURE_SECONDS = 60
SPEED = 2
SAMPLE_SECONDS = 0.02
DRIVER_JVM = "org.apache.spark.deploy.SparkSubmit"

QUERIES = {
    "rows": "SELECT ts, srcIP, destIP, len FROM packets",
    "pairs": "SELECT srcIP, destIP, count(*) AS n, sum(len) AS bytes FROM packets [RANGE 10 seconds] "
    "GROUP BY srcIP, destIP",
}

PIPELINE = """
folder = "state"
speed = {speed}
[links.a]
capture = "{capture}"
[metrics]
port = 0
[page]
enabled = false
[spark]
master = "local-cluster[1,2,2048]"
"""


@dataclass(frozen=True)
class DriverMemory:
    """Maximum anonymous memory of the processes of the driver, in bytes, and the result rows of the run."""

    rows: int
    python: int
    jvm: int


def run(setting: Setting) -> Report:
    """Run each size, and compare the memory of the drivers."""
    report = Report("driver_memory")
    measured = [measure(size, setting.data) for size in (QUICK_SIZES if setting.quick else SIZES)]
    report.table(
        f"replay of {CAPTURE_SECONDS} s at speed {SPEED}, two queries",
        ("result rows", "driver, Python", "driver, JVM"),
        [(f"{one.rows:,}", f"{one.python / 1e6:.0f} MB", f"{one.jvm / 1e6:.0f} MB") for one in measured],
    )
    judged = not setting.quick
    python, jvm = (find_farthest(values) for values in zip(*((one.python, one.jvm) for one in measured), strict=True))
    report.add_criterion("memory of the driver, Python, farthest from the mean", python, "<= 0.1", judged)
    report.add_criterion("memory of the driver, JVM, farthest from the mean", jvm, "<= 0.1", judged)
    return report


def find_farthest(values: Sequence[int]) -> float:
    """Return the largest difference from the mean, as a part of the mean."""
    mean = sum(values) / len(values)
    return max(abs(value - mean) for value in values) / mean


def measure(size: int, data: Path) -> DriverMemory:
    """Run a pipeline with about `size` result rows. Raises RuntimeError if it fails or returns other rows."""
    packets = size // len(QUERIES)
    traffic = Profile(packets=packets, rate=packets / CAPTURE_SECONDS, groups=min(20 * packets, MAX_GROUPS), skew=0.0)
    capture = generate_cached(traffic, data)
    with tempfile.TemporaryDirectory(prefix="wiretide-driver-memory-") as name:
        folder = Path(name)
        file = folder / "pipeline.toml"
        texts = "".join(f'[queries.{query}]\nsql = "{sql}"\n' for query, sql in QUERIES.items())
        file.write_text(PIPELINE.format(capture=capture, speed=SPEED) + texts)
        python, jvm = sample_driver([*wiretide("run"), file, "--until-done"], folder)
        rows = sum(
            pq.read_metadata(path).num_rows
            for query in QUERIES
            for path in list_files(query_folder(folder / "state" / "output", query))
        )
    if not 0.9 * size <= rows <= size:
        raise RuntimeError(f"got {rows:,} result rows, expected almost {size:,}")
    return DriverMemory(rows, python, jvm)


def sample_driver(command: list[str | Path], folder: Path) -> tuple[int, int]:
    """Run a command to its end. Return the maximum memory of its process and of its JVM, in bytes."""
    python = jvm = 0
    jvm_process: int | None = None
    with (folder / "errors").open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        try:
            while process.poll() is None:
                python = max(python, read_anonymous_memory(process.pid) or 0)
                if jvm_process is None:
                    jvm_process = find_driver_jvm(process.pid)
                else:
                    jvm = max(jvm, read_anonymous_memory(jvm_process) or 0)
                time.sleep(SAMPLE_SECONDS)
        finally:
            process.kill()
            process.wait()
    if process.returncode:
        reason = (folder / "errors").read_text(errors="replace").strip()[-2000:]
        raise RuntimeError(f"got status {process.returncode} of the run, expected 0: {reason}")
    return python, jvm


def find_driver_jvm(process: int) -> int | None:
    """Return the JVM of the driver among the descendants of a process, or None if it has not started."""
    for descendant in list_process_tree(process)[1:]:
        try:
            command = Path(f"/proc/{descendant}/cmdline").read_text("utf-8", "replace")
        except OSError:
            continue
        if DRIVER_JVM in command:
            return descendant
    return None
