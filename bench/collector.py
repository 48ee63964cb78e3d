"""The UDP collector on loopback: the NetFlow datagrams that it loses in bursts, and its counters of lost datagrams.

Another process sends; `wiretide capture` receives and writes. The scan of captures counts the recorded datagrams in the
files. The collector reports the lost datagrams at its end. The sum must be the number of sent datagrams; otherwise the
collector has lost datagrams without counting them.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.command import wiretide
from bench.datagram_sender import RECORDS, datagram
from bench.nfcapd import count_received
from bench.report import Report
from bench.setting import Setting
from bench.traffic import MILLION

HOST = "127.0.0.1"
PROMISED_RATE = 100_000
RATE = 102_000
"""Datagrams per second: 2 % more than the criterion requires, because pauses between bursts are slightly too long."""

BURSTS = (1_000, 10_000)
BUFFER = "32Mi"
LOST = re.compile(r"lost before they could be received: ([\d,]+) datagrams")


@dataclass(frozen=True)
class Outcome:
    """Numbers of datagrams sent, recorded and reported as lost; seconds of sending; CPU seconds of the collector."""

    sent: int
    recorded: int
    lost: int
    seconds: float
    processor: float

    @property
    def rate(self) -> float:
        """Datagrams offered per second."""
        return self.sent / self.seconds


def run(setting: Setting) -> Report:
    """Measure bursts that fit the buffer, the highest rate of the sender, and a paused collector."""
    report = Report("collector")
    if not sys.platform.startswith("linux"):
        report.notes.append("this system does not count the datagrams that its sockets drop")
        return report
    count = setting.packets(MILLION)
    setting.data.mkdir(parents=True, exist_ok=True)
    rows = []
    lost = 0
    for burst in BURSTS:
        found = measure(setting.data, count, burst, RATE)
        rows.append(_row(f"bursts of {burst:,}", found))
        short = f"the sender reached {found.rate:,.0f} datagrams/s only" if found.rate < PROMISED_RATE else ""
        name = f"lost at 100 000 datagrams/s in bursts of {burst:,}"
        report.add_criterion(name, found.lost, "<= 0", not setting.quick and not short, short)
        lost = max(lost, found.lost)
    report.add_headline("UDP collector, 100 000 datagrams/s in bursts", f"at most {lost:,} of {count:,} lost")
    fastest = measure(setting.data, count, BURSTS[0], 0)
    rows.append(_row("as fast as possible", fastest))
    stopped = measure(setting.data, min(count, 200_000), BURSTS[0], 0, stopped=True)
    rows.append(_row("collector stopped meanwhile", stopped))
    if nfcapd := shutil.which("nfcapd"):
        rows.append(_measure_nfcapd(nfcapd, setting.data, count))
    else:
        report.notes.append("nfcapd is not installed; `make servers` fetches it")
    report.table(
        f"NetFlow v5, {RECORDS} records, {len(datagram())} bytes per datagram; receive buffer {BUFFER} asked for",
        ("offered", "datagrams/s", "sent", "recorded", "lost and counted", "neither", "processor, us per datagram"),
        rows,
    )
    for name, found in (("as fast as possible", fastest), ("stopped", stopped)):
        unknown = abs(found.sent - found.recorded - found.lost)
        report.add_criterion(f"neither recorded nor counted as lost, {name}", unknown, "<= 0")
    report.add_criterion("lost and counted, collector stopped", stopped.lost, ">= 1", not setting.quick)
    report.notes.append("sender and collector share the cores; files go to the folder of the generated captures")
    return report


def _row(name: str, found: Outcome) -> tuple[str, ...]:
    return (
        name,
        f"{found.rate:,.0f}",
        f"{found.sent:,}",
        f"{found.recorded:,}",
        f"{found.lost:,}",
        f"{found.sent - found.recorded - found.lost:,}",
        f"{found.processor / found.recorded * 1e6:.2f}",
    )


def measure(data: Path, count: int, burst: int, rate: float, *, stopped: bool = False) -> Outcome:
    """Send `count` datagrams to a collector. If `stopped`, the collector is paused while they are sent."""
    with recording(data) as (process, port, folder):
        if stopped:
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        sent = send(port, count, burst, rate)
        if stopped:
            process.send_signal(signal.SIGCONT)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        process.terminate()
        output, _ = process.communicate()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        told = LOST.search(output)
        if process.returncode or not told:
            raise RuntimeError(f"the collector ended with status {process.returncode}: {output}")
        recorded = sum(map(count_records, folder.glob("*.pcap")))
    spent = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
    return Outcome(int(sent["sent"]), recorded, int(told[1].replace(",", "")), sent["seconds"], spent)


def send(port: int, count: int, burst: int, rate: float) -> dict[str, float]:
    """Send from another process. Return the number of datagrams that it sent, and the seconds."""
    command = [sys.executable, "-m", "bench.datagram_sender", HOST, *map(str, (port, count, burst, rate))]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


def _measure_nfcapd(program: str, data: Path, count: int) -> tuple[str, ...]:
    """Send the larger bursts to nfcapd, which does not report its losses."""
    sent: dict[str, float] = {}
    got = count_received(program, data, lambda port: sent.update(send(port, count, BURSTS[-1], RATE)))
    rate = sent["sent"] / sent["seconds"]
    return f"nfcapd, bursts of {BURSTS[-1]:,}", f"{rate:,.0f}", f"{count:,}", f"{got:,}", "-", f"{count - got:,}", "-"


def count_records(path: Path) -> int:
    """Count the records of a capture."""
    from capture.files.capture import Capture
    from capture.files.scan import scan
    from capture.open import open_capture

    opened = open_capture(path)
    assert isinstance(opened, Capture), "what a collector writes can be mapped"
    return scan(opened).records


@contextmanager
def recording(data: Path) -> Iterator[tuple[subprocess.Popen[str], int, Path]]:
    """Run a collector on a free port. Yield its process, its port and its folder, which is deleted at the end."""
    folder = Path(tempfile.mkdtemp(prefix="collected-", dir=data))
    command = wiretide("capture", "--udp", f"{HOST}:0", "-o", folder, "--buffer", BUFFER)
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            port = 0
            for line in process.stdout:
                if found := re.search(r"listening on .*:(\d+),", line):
                    port = int(found[1])
                if line.startswith("memory of buffers"):
                    break
            try:
                yield process, port, folder
            finally:
                if process.poll() is None:
                    process.kill()
    finally:
        shutil.rmtree(folder)
