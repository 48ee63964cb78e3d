"""softflowd, an exporter of another make, into the collector on loopback; nfcapd gets the same datagrams.

The exported flows must agree with the capture. For each pair of addresses and protocol, `FROM flows` over the
collector's folder returns the packets and bytes of `FROM packets` over the capture. It can catch fields that are read
at a wrong offset or width, records lost between datagrams, and templates taken for those of another version.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.nfcapd import queued_bytes
from capture.generate import Profile, generate
from dashboards.output.console import compile_kernels
from tests.harness import in_ns
from tests.harness.capture_process import POLL_SECONDS, POLLS, collector
from tests.harness.collected import recorded

pytestmark = pytest.mark.slow("real exporters and collectors")

CHROOT = Path("/var/run/softflowd/chroot")
"""The folder to which softflowd changes its root; its Debian package creates it."""

VERSIONS = ["5", "9", "10"]
SHOWN = "fmt:%sa|%da|%pr|%pkt|%byt"
FROM_PACKETS = """SELECT srcIP, destIP, protocol, count(*) AS packets, sum(len) AS bytes FROM packets
GROUP BY srcIP, destIP, protocol"""
FROM_FLOWS = """SELECT srcIP, destIP, protocol, sum(packets) AS packets, sum(bytes) AS bytes FROM flows
GROUP BY srcIP, destIP, protocol"""

Pairs = dict[tuple[str, str, int], tuple[int, int]]


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    compile_kernels()
    compile_kernels("capture")


def program(name: str) -> str:
    """Return the path of an installed program, or skip the test if it is missing."""
    found = shutil.which(name, path=os.pathsep.join([os.environ["PATH"], "/usr/sbin"]))
    if found is None:
        pytest.skip(f"{name} is not installed; `make servers` fetches it (Debian packages softflowd and nfdump)")
    return found


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both families, TCP, UDP, ICMP and ICMPv6. Raw IP, since softflowd counts the padding of Ethernet frames."""
    path = tmp_path_factory.mktemp("softflowd") / "traffic.pcap"
    generate(Profile(packets=20_000, rate=1000.0, groups=300, ipv6=0.3, link_type=101), path)
    return path


def export(capture: Path, port: int, version: str) -> int:
    """Let softflowd read a capture and export its flows. Return the number of datagrams that it reports as sent."""
    # As root it needs the folder of its package, and anybody else must be able to read the capture.
    more: dict[str, Any] = {"user": "nobody"} if os.geteuid() == 0 and not CHROOT.is_dir() else {}
    command = [program("softflowd"), "-d", "-r", "-", "-n", f"127.0.0.1:{port}", "-v", version]
    with capture.open("rb") as traffic:
        done = subprocess.run(command, stdin=traffic, capture_output=True, text=True, check=True, **more)
    said = re.search(
        r"^Flows exported: \d+ \(\d+ records\) in (\d+) packets \(0 failures\)$", done.stdout, re.MULTILINE
    )
    assert said, done
    return int(said[1])


def collected(capture: Path, folder: Path, version: str) -> Path:
    """The collector's folder with softflowd's datagrams of a capture."""
    with collector(folder) as running:
        sent = export(capture, running.port, version)
        status, out, err = running.end()
    assert (status, err) == (0, "")
    assert f"recorded {sent} datagrams" in out
    return folder


def pairs(sql: str, *paths: Path) -> Pairs:
    """Packets and bytes by addresses and protocol."""
    return {
        (row["srcIP"], row["destIP"], row["protocol"]): (row["packets"], row["bytes"])
        for row in in_ns.query(sql, *paths).to_pylist()
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_flows_in_the_collector_are_the_packets_of_the_capture(version: str, capture: Path, tmp_path: Path) -> None:
    folder = collected(capture, tmp_path / "exports", version)
    expected = pairs(FROM_PACKETS, capture)
    if version == "5":  # which knows IPv4 alone
        expected = {key: value for key, value in expected.items() if ":" not in key[0]}
    assert len(expected) > 200
    assert pairs(FROM_FLOWS, folder) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_nfcapd_has_the_same_flows_of_the_same_datagrams(version: str, capture: Path, tmp_path: Path) -> None:
    folder = collected(capture, tmp_path / "exports", version)
    theirs = nfdump(tmp_path / "nfcapd", [each.payload for each in recorded(folder)])
    assert pairs(FROM_FLOWS, folder) == theirs
    assert sum(packets for packets, _ in theirs.values()) > 10_000


def nfdump(folder: Path, payloads: list[bytes]) -> Pairs:
    """Return nfdump's output for datagrams that nfcapd has received on loopback."""
    folder.mkdir()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind(("127.0.0.1", 0))
        port = sender.getsockname()[1]
        sender.close()  # nfcapd takes no port 0
    command = [program("nfcapd"), "-b", "127.0.0.1", "-p", str(port), "-w", str(folder), "-t", "3600"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until(process, lambda: queued_bytes(port) is not None)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                for payload in payloads:
                    sender.sendto(payload, ("127.0.0.1", port))
                    until(process, lambda: not queued_bytes(port))
        finally:
            process.terminate()
    done = subprocess.run(
        [program("nfdump"), "-R", str(folder), "-q", "-N", "-6", "-A", "srcip,dstip,proto", "-o", SHOWN],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows = [[cell.strip() for cell in line.split("|")] for line in done.stdout.splitlines() if line]
    return {
        (source, destination, int(protocol)): (int(packets), int(octets))
        for source, destination, protocol, packets, octets in rows
    }


def until(process: subprocess.Popen[bytes], done: Callable[[], bool]) -> None:
    """Wait until a condition is true. Fail if time runs out or the process has ended."""
    for _ in range(POLLS):
        if done():
            return
        assert process.poll() is None
        time.sleep(POLL_SECONDS)
    raise AssertionError("nfcapd does not get on")
