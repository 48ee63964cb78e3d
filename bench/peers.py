"""Other tools that answer the same question, or a part of it, over the same capture.

Each is measured as a whole process on all cores, from its start to its end, with an answer in a file. Tools that are
not installed are skipped, and the report lists them. Slow tools get fewer packets, because their rates do not depend
on the number of packets. The rate of Wiretide rises with the number of packets.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.command import wiretide
from bench.figure import Figure, figure, quotient
from bench.plots import bars
from bench.process import run_timed
from bench.query_text import PAIRS
from bench.report import Report
from bench.setting import Setting
from bench.traffic import MILLION, address_pairs, generate_cached, read_into_cache

Commands = list[list[str | Path]]


@dataclass(frozen=True)
class Peer:
    """A tool. `does`: the part of the question that it answers.

    `commands` returns its commands for (capture, folder).
    """

    name: str
    does: str
    programs: tuple[str, ...]
    packets: int
    commands: Callable[[Path, Path], Commands]


OURS = Peer(
    "wiretide query",
    "packets and bytes per pair and minute",
    (),
    5 * MILLION,
    lambda path, folder: [wiretide("query", path, PAIRS, "--format", "csv", "-o", folder / "answer.csv")],
)

DPKT = """
import collections, dpkt, sys
pairs = collections.defaultdict(lambda: [0, 0])
with open(sys.argv[1], "rb") as file:
    for seconds, frame in dpkt.pcap.Reader(file):
        ip = dpkt.ethernet.Ethernet(frame).data
        if isinstance(ip, (dpkt.ip.IP, dpkt.ip6.IP6)):
            pair = pairs[int(seconds) // 60, ip.src, ip.dst]
            pair[0] += 1
            pair[1] += len(frame)
print(len(pairs))
"""
SCAPY = """
import collections, sys
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.utils import PcapReader
pairs = collections.defaultdict(lambda: [0, 0])
with PcapReader(sys.argv[1]) as reader:
    for packet in reader:
        ip = packet.getlayer(IP) or packet.getlayer(IPv6)
        if ip is not None:
            pair = pairs[int(packet.time) // 60, ip.src, ip.dst]
            pair[0] += 1
            pair[1] += packet.wirelen
print(len(pairs))
"""
"""The question in Python with both libraries, as users write it: a loop over packets and a dictionary of pairs."""

NFDUMP = Peer(
    "nfpcapd + nfdump",
    "packets and bytes per pair (flows, then pairs)",
    ("nfpcapd", "nfdump"),
    5 * MILLION,
    lambda path, folder: [
        ["nfpcapd", "-r", path, "-l", folder, "-t", "60"],
        ["nfdump", "-R", folder, "-A", "srcip,dstip", "-o", "csv", "-n", "0", "-q"],
    ],
)
PEERS = (
    NFDUMP,
    Peer(
        "tshark -z conv,ip",
        "packets and bytes per pair, both ways together",
        ("tshark",),
        MILLION // 5,
        lambda path, _: [["tshark", "-n", "-r", path, "-q", "-z", "conv,ip"]],
    ),
    Peer(
        "tcpdump -q",
        "prints a line per packet, adds nothing up",
        ("tcpdump",),
        MILLION,
        lambda path, _: [["tcpdump", "-nn", "-q", "-r", path]],
    ),
    Peer(
        "tcpstat",
        "packets and bytes per minute, no pairs",
        ("tcpstat",),
        5 * MILLION,
        lambda path, _: [["tcpstat", "-r", path, "-o", "%S %n %N\\n", "60"]],
    ),
    Peer(
        "dpkt, a loop",
        "packets and bytes per pair and minute",
        (),
        MILLION // 5,
        lambda path, _: [[sys.executable, "-c", DPKT, path]],
    ),
    Peer(
        "scapy, a loop",
        "packets and bytes per pair and minute",
        (),
        MILLION // 50,
        lambda path, _: [[sys.executable, "-c", SCAPY, path]],
    ),
)


def run(setting: Setting) -> Report:
    """Measure Wiretide and all installed tools in turns, so that a disturbance affects all of them."""
    report = Report("peers")
    seconds: dict[Peer, list[float]] = {}
    for peer in (OURS, *PEERS):
        missing = [program for program in peer.programs if shutil.which(program) is None]
        if missing:
            report.notes.append(f"{peer.name}: left out, {' and '.join(missing)} not installed")
        else:
            seconds[peer] = []
    paths = {peer: generate_cached(address_pairs(setting.packets(peer.packets)), setting.data) for peer in seconds}
    for _ in range(setting.runs(5)):
        for peer, path in paths.items():
            read_into_cache(path)
            seconds[peer].append(_seconds(peer, path))
    rates = {peer: figure(values).rate(setting.packets(peer.packets) / MILLION) for peer, values in seconds.items()}
    rows = [_row(peer, setting.packets(peer.packets), figure(seconds[peer]), rates) for peer in seconds]
    report.table(
        "the same traffic, whole processes on all cores",
        ("tool", "what it does", "packets", "seconds (min..max)", "M packets/s (min..max)", "ours is"),
        rows,
    )
    judge(report, seconds, not setting.quick)
    if setting.plots:
        bars(
            setting.plots / "peers.svg",
            "M packets/s, whole process",
            {peer.name: each.median for peer, each in rates.items()},
        )
    return report


def judge(report: Report, seconds: dict[Peer, list[float]], judged: bool) -> None:
    """Compare the query with installed tools that answer the same question over the same number of packets."""
    measured = figure(seconds[NFDUMP]) if NFDUMP in seconds else None
    ratio = None if measured is None else quotient(measured, figure(seconds[OURS])).median
    missing = "" if measured else "nfpcapd and nfdump are not installed"
    report.add_criterion("nfpcapd + nfdump / wiretide query, seconds", ratio, ">= 3", judged, missing)
    if ratio is not None:
        report.add_headline("nfpcapd + nfdump, the same question, 5 M packets", f"{ratio:.1f} times as long")


def _row(peer: Peer, packets: int, seconds: Figure, rates: dict[Peer, Figure]) -> tuple[str, ...]:
    ratio = quotient(rates[OURS], rates[peer]).median
    return peer.name, peer.does, f"{packets:,}", str(seconds), str(rates[peer]), f"{ratio:.1f} x"


def _seconds(peer: Peer, path: Path) -> float:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        total = 0.0
        for command in peer.commands(path, folder):
            with tempfile.TemporaryFile() as output:
                total += run_timed(command, output=output).seconds
        return total
