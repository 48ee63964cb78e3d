"""A live interface at rising rates: numbers of packets sent, counted, reported as dropped, and unaccounted for.

A process sends through a veth pair in network namespaces; `wiretide query interface:…` counts by address pair at the
other end. In a veth pair the sender's CPU time includes the receiver's work in the kernel. So the figure is the CPU
time of the query's process from its start of listening to its answer, minus the CPU time of a query without packets.
"""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.command import wiretide
from bench.report import Report
from bench.setting import Setting
from bench.veth import Pair, veth_obstacle, veth_pair

SQL = "SELECT srcIP, destIP, count(*) AS n, sum(len) AS bytes FROM packets GROUP BY srcIP, destIP"
SIZE = 128
"""Bytes of a frame."""

SHORT_RATE = 400_000
"""Packets per second in the README."""

RATES = (50_000, 100_000, 200_000, SHORT_RATE, 0)
"""Packets per second; 0: as fast as possible."""

SECONDS = 2.5
MAX_RATE_PACKETS = 1_500_000
"""Packets that are sent as fast as possible."""

SMALL_RING = "?ring=16MiB"
"""Option of the run in which the query is paused while packets arrive. This run must drop packets."""

STATISTIC = re.compile(r"^wiretide_interface_(\w+)\{.*\} (\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """Numbers of packets sent, lost by the veth pair, counted by the query and reported as dropped; and the cost.

    `seconds`: time of sending. `processor`: CPU seconds of the query.
    """

    sent: int
    before: int
    counted: int
    dropped: int
    seconds: float
    processor: float

    @property
    def unaccounted(self) -> int:
        """Packets that are neither counted nor reported as dropped."""
        return self.sent - self.before - self.counted - self.dropped


def run(setting: Setting) -> Report:
    """Measure rising rates, then a query that is paused while packets arrive."""
    report = Report("ring")
    reason = veth_obstacle()
    if reason is not None:
        report.add_criterion("neither counted nor told as dropped", None, "<= 0", why=reason)
        return report
    idle = measure(0, 0)
    rows = []
    for rate in RATES:
        packets = setting.packets(int(rate * SECONDS) if rate else MAX_RATE_PACKETS)
        found = measure(packets, rate)
        name = f"at {rate:,} packets/s" if rate else "as fast as possible"
        rows.append(_row(name, found, idle))
        report.add_criterion(f"neither counted nor told as dropped, {name}", abs(found.unaccounted), "<= 0")
        if rate == SHORT_RATE:
            told = f"{found.dropped:,} of {found.sent:,} dropped"
            report.add_headline("live interface, 400 000 packets/s through a veth pair", told)
        if rate == RATES[0]:
            report.add_criterion(f"dropped {name}", found.dropped, "<= 0", not setting.quick)
    stopped = measure(setting.packets(400_000), 0, SMALL_RING, stopped=True)
    rows.append(_row("query stopped meanwhile, ring of 16 MiB", stopped, idle))
    report.add_criterion("neither counted nor told as dropped, query stopped", abs(stopped.unaccounted), "<= 0")
    report.add_criterion("told as dropped, query stopped", stopped.dropped, ">= 1", not setting.quick)
    report.table(
        f"UDP frames of {SIZE} bytes through a veth pair, counted by 1,024 address pairs; ring of 64 MiB",
        (
            "packets", "offered/s", "sent", "lost before the interface", "counted", "dropped and told", "neither",
            "processor, ns per packet",
        ),
        rows,
    )  # fmt: skip
    report.notes.append("sender and query share the cores, and the kernel's part of receiving is the sender's time")
    report.notes.append(f"processor time is beyond the {idle.processor:.2f} s of a query that has nothing to count")
    return report


def _row(name: str, found: Outcome, idle: Outcome) -> tuple[str, ...]:
    processor = max(0.0, found.processor - idle.processor) / max(1, found.counted)
    return (
        name,
        f"{found.sent / found.seconds:,.0f}",
        f"{found.sent:,}",
        f"{found.before:,}",
        f"{found.counted:,}",
        f"{found.dropped:,}",
        f"{found.unaccounted:,}",
        f"{processor * 1e9:,.0f}",
    )


def measure(packets: int, rate: float, options: str = "", *, stopped: bool = False) -> Outcome:
    """Send `packets` to a query. If `stopped`, the query is paused while they are sent."""
    with veth_pair() as pair, run_query(pair, options) as process:
        before = processor_seconds(process.pid)
        if stopped:
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        sent = send(pair, packets, rate)
        if stopped:
            process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGINT)
        # The CPU time of an ended process is known only until the process is waited for. So it is read before.
        answer, told = _outputs(process)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        processor = processor_seconds(process.pid) - before
        if process.wait():
            raise RuntimeError(f"the query ended with status {process.returncode}: {told}")
        lost = pair.dropped_before()
    counted = sum(int(row["n"]) for row in csv.DictReader(answer.splitlines()))
    statistics = {name: int(value) for name, value in STATISTIC.findall(told)}
    return Outcome(int(sent["sent"]), lost, counted, statistics["dropped_total"], sent["seconds"], processor)


def send(pair: Pair, packets: int, rate: float) -> dict[str, float]:
    """Send from another process. Return the number of frames that it sent, and the seconds."""
    command = ["ip", "netns", "exec", pair.sending, sys.executable, "-m", "bench.frame_sender", pair.sender]
    done = subprocess.run([*command, *map(str, (packets, rate, SIZE))], check=True, capture_output=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


@contextmanager
def run_query(pair: Pair, options: str) -> Iterator[subprocess.Popen[str]]:
    """Run a query at the receiving end, and wait until it listens."""
    words = wiretide("query", "--stats", "--format", "csv", f"interface:{pair.receiver}{options}", SQL)
    command = ["ip", "netns", "exec", pair.receiving, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            # the query has a handler for the signal when its ring is open
            while not has_handler(process.pid, signal.SIGTERM):
                if process.poll() is not None:
                    raise RuntimeError(f"the query ended: {process.stderr.read() if process.stderr else ''}")
                time.sleep(0.02)
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def has_handler(process: int, number: int) -> bool:
    """Return whether a process has a handler for a signal."""
    status = Path(f"/proc/{process}/status").read_text()
    caught = next((line for line in status.splitlines() if line.startswith("SigCgt:")), "SigCgt: 0")
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def processor_seconds(process: int) -> float:
    """User and system time of a process so far, also of a process that has ended and was not waited for."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _outputs(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Read both outputs to their ends. The answer is small, so that reading one after the other cannot block."""
    assert process.stdout is not None
    assert process.stderr is not None
    return process.stdout.read(), process.stderr.read()
