"""Faults of a machine with one master: `python -m tests.harness.fault_rounds --faults 20 --seed 7`.

`wiretide run` replays a capture into one folder. After random micro-batches a process is killed or stopped for longer
than the timeouts of Spark, or the capture is missing for some seconds, or the disk of the folder is full or does not
answer. A run that ends is started again. At the end the rows must be those of the inline engine. The disk is a small
file system in a file; it needs a mount namespace, and its faults are left out, visibly, if the system refuses one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

import pyarrow as pa

from capture.generate import Profile, generate
from highlevel.inline.engine import InlineRun, Input
from highlevel.spark.run_folder.result_files import read_results
from highlevel.spark.run_folder.totals import TotalsFiles
from queries.pipeline.file import read_pipeline

ROOT = Path(__file__).resolve().parents[2]

STOPPED_SECONDS = 15
"""Spark waits 10 seconds for the connection of a Python process."""

FULL_SECONDS = 3
MISSING_SECONDS = 3
DISK_BYTES = 64 << 20
DISK = "disk"
CAPTURE = "a.pcap"
RATE = 1000.0
PACKETS_PER_FAULT = 60_000
"""Packets of the capture for each fault: more than a run reads between two faults."""

PROCESSES = {
    "JVM": "org.apache.spark.deploy.SparkSubmit",
    "planner": "python_streaming_source_runner",
    "workers": "pyspark.daemon",
    "Python": "-m pyspark",
}
"""A word in the command of each process, by its name. `Python`: all Python processes of Spark."""

MISSING_CAPTURE = "capture missing"
FAULTS = (
    *("driver killed", "JVM killed", "planner killed", "workers killed", "Python killed"),
    *("planner stopped", "workers stopped"),
    MISSING_CAPTURE,
)
FULL_DISK = "full disk"
STOPPED_DISK = "disk stopped"

NAMESPACE = "WIRETIDE_FAULTS_NAMESPACE"
"""Variable of the environment that a process in its own namespace has."""

PIPELINE = """
folder = "disk/state"
speed = 2.0
[links.a]
capture = "a.pcap"
[queries.sources]
sql = "SELECT srcIP, count(*) AS n, sum(len) AS bytes FROM packets [RANGE 30 seconds, SLIDE 10 s] GROUP BY srcIP"
[queries.total]
sql = "SELECT count(*) AS n FROM packets [RANGE ALL, SLIDE 20 seconds]"
[metrics]
port = 0
[page]
enabled = false
[spark]
master = "local[2]"
"""


def list_descendants(process: int, words: str) -> list[int]:
    """Return the processes below one whose command contains `words`."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
    below = [process]
    for known in below:
        below += [child for child, parent in parents.items() if parent == known]
    found = []
    for known in below:
        with contextlib.suppress(OSError):
            if words in Path(f"/proc/{known}/cmdline").read_bytes().replace(b"\0", b" ").decode():
                found.append(known)
    return found


def cause(fault: str, run: subprocess.Popen[bytes], folder: Path) -> None:
    """Cause a fault, and end it after a time if it does not end by itself."""
    if fault == MISSING_CAPTURE:
        (folder / CAPTURE).rename(folder / "away")
        time.sleep(MISSING_SECONDS)
        (folder / "away").rename(folder / CAPTURE)
        return
    if fault == STOPPED_DISK:  # each write waits, as on a disk that is very slow
        subprocess.run(["fsfreeze", "--freeze", folder / DISK], check=True)
        try:
            time.sleep(STOPPED_SECONDS)
        finally:
            subprocess.run(["fsfreeze", "--unfreeze", folder / DISK], check=True)
        return
    if fault == FULL_DISK:
        filler = folder / DISK / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        time.sleep(FULL_SECONDS)
        filler.unlink()
        return
    name, _, action = fault.partition(" ")
    processes = [run.pid] if name == "driver" else list_descendants(run.pid, PROCESSES[name])
    first, second = (signal.SIGKILL, None) if action == "killed" else (signal.SIGSTOP, signal.SIGCONT)
    for wanted, pause in ((first, STOPPED_SECONDS), (second, 0)):
        for process in processes if wanted is not None else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, wanted)
        if second is not None and pause:
            time.sleep(pause)


def play(folder: Path, faults: list[str], random: Random) -> Counter[str]:
    """Play a run with faults to its end, and return the number of starts by the status of their ends."""
    remaining = list(faults)
    ends: Counter[str] = Counter()
    totals = TotalsFiles(folder / DISK / "state" / "totals")
    command = [sys.executable, "-m", "wiretide", "run", str(folder / "pipeline.toml"), "--until-done"]
    while True:
        with (folder / "log").open("ab") as log, subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log) as run:
            try:
                while remaining and run.poll() is None:
                    _wait(run, totals, random.randrange(1, 3))
                    if run.poll() is None:
                        fault = remaining.pop()
                        print(f"micro-batch {totals.last_batch_id()}: {fault}", flush=True)
                        cause(fault, run, folder)
                run.wait()
            finally:
                run.kill()
        ends[str(run.returncode)] += 1
        if run.returncode == 0:
            assert not remaining, f"the input ended before the faults {remaining}"
            return ends
        if run.returncode not in (1, -signal.SIGKILL):
            raise AssertionError((folder / "log").read_text()[-3000:])


def _wait(run: subprocess.Popen[bytes], totals: TotalsFiles, batches: int) -> None:
    """Wait for some micro-batches, or the end of the run."""
    until = totals.last_batch_id() + batches
    while run.poll() is None and totals.last_batch_id() < until:
        time.sleep(0.05)


def check_rows(folder: Path) -> None:
    """Compare the results with those of the inline engine."""
    for plan in read_pipeline(folder / "pipeline.toml").plans():
        run = InlineRun([plan], [Input("a", folder / CAPTURE)])
        expected = pa.Table.from_batches([batch for _, batch in run.results()], plan.schema)
        run.close()
        found = read_results(folder / DISK / "state" / "output", plan)
        rows = [Counter(str(row) for row in table.to_pylist()) for table in (found, expected)]
        assert rows[0] == rows[1], f"{plan.name}: {rows[0] - rows[1]} instead of {rows[1] - rows[0]}"
        assert expected.num_rows > 3


def make_small_disk(path: Path) -> str | None:
    """Mount a small file system in this mount namespace. Return the reason if that is not possible."""
    image = path.with_name("disk.img")
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    for command in (["mkfs.ext4", "-q", image], ["mount", "-o", "loop", image, path]):
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError as error:
            return str(error)
        if done.returncode:
            return done.stderr.strip()
    path.chmod(0o700)
    return None


def has_own_namespace() -> bool:
    """Return whether this process has its own mount namespace. If possible, replace it by a process that has."""
    is_allowed = subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0
    if NAMESPACE not in os.environ and is_allowed:
        words = ["unshare", "--mount", sys.executable, "-m", "tests.harness.fault_rounds", *sys.argv[1:]]
        os.execvpe("unshare", words, os.environ | {NAMESPACE: "1"})
    return is_allowed


def main() -> None:
    parser = argparse.ArgumentParser(description="Cause faults while wiretide run works, and compare the rows.")
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    has_namespace = has_own_namespace()
    random = Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="wiretide-faults-") as name:
        folder = Path(name)
        (folder / DISK).mkdir(mode=0o700)
        reason = make_small_disk(folder / DISK) if has_namespace else "unshare refuses a mount namespace"
        kinds = [*FAULTS, *([FULL_DISK, STOPPED_DISK] if reason is None else [])]
        if reason is not None:
            print(f"no faults of the disk: {reason}")
        faults = [kinds[number % len(kinds)] for number in range(options.faults)]
        random.shuffle(faults)
        packets = PACKETS_PER_FAULT * (options.faults + 1)
        generate(Profile(packets=packets, rate=RATE, seed=options.seed), folder / CAPTURE)
        (folder / "pipeline.toml").write_text(PIPELINE)
        print(f"seed {options.seed}: {options.faults} faults", flush=True)
        try:
            ends = play(folder, faults, random)
            check_rows(folder)
        finally:
            if reason is None:
                subprocess.run(["umount", folder / DISK], check=False)
    print(f"{options.faults} faults, {ends.total()} starts: all rows equal those of the inline engine")


if __name__ == "__main__":
    main()
