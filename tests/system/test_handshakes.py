"""How long connections take to set up, from SYN to SYN-ACK: one join, against dpkt and tshark over the same captures.

A SYN-ACK answers a SYN of the opposite direction whose sequence number it acknowledges, within three seconds. If the
join handles a key, a time, a window or a flag wrongly, the number of handshakes or a latency changes.
"""

from __future__ import annotations

import random
import struct
import subprocess
from collections import Counter
from decimal import Decimal
from ipaddress import ip_address
from pathlib import Path

import dpkt
import pytest

from tests.harness import in_ns
from tests.references import small_captures
from tests.references.tshark_oracle import require_tshark

NS = 10**9
SYN, SYN_ACK, SIX = 2, 18, 63
MOST = 3 * NS

LATENCIES = """
WITH syn AS (SELECT ts, srcIP, destIP, srcPort, destPort, (tcp_seq + 1) & 4294967295 AS next FROM packets
             WHERE flag = SYN)
SELECT S.ts, A.ts - S.ts AS latency, S.srcIP, S.srcPort, S.destIP, S.destPort
FROM syn S [RANGE 3 s, WA ts] JOIN packets A [RANGE 0 s, WA ts]
ON A.flag = SYN_ACK AND S.srcIP = A.destIP AND S.destIP = A.srcIP AND S.srcPort = A.destPort
   AND S.destPort = A.srcPort AND S.next = A.tcp_ack
"""

REAL = {"teams.pcap": 30, "reddit.pcap": 55, "http_ipv6.pcap": 6, "netflix.pcap": 40}
"""Captures with handshakes, and how many there are at least."""


def tcp(source: tuple[str, int], destination: tuple[str, int], flags: int, seq: int, ack: int) -> bytes:
    segment = struct.pack(">HHIIBBHHH", source[1], destination[1], seq, ack, 5 << 4, flags, 100, 0, 0)
    length = 40 if ip_address(source[0]).version == 4 else 60
    return small_captures.ip(source[0], destination[0], 6, segment, length)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Handshakes with repeated SYNs, answers that are repeated, late or missing, reused ports, and disorder."""
    chosen = random.Random(7)
    packets: list[tuple[float, bytes]] = []
    for number in range(400):
        at = chosen.randrange(120_000)
        net = "10.0.0." if number % 4 else "2001:db8::"
        client = f"{net}{chosen.randrange(1, 9)}", chosen.randrange(1000, 1020)
        server = f"{net}{chosen.randrange(10, 14)}", chosen.choice([80, 443])
        seq = chosen.choice([chosen.randrange(2**32), 2**32 - 1, 77])
        flags = chosen.choice([SYN, SYN, SYN | 0xC0])
        times = [at, at + 1000] if number % 7 == 0 else [at]
        packets += [(each / 1000, tcp(client, server, flags, seq, 0)) for each in times]
        if number % 5:
            answered = at + chosen.choice([1, 20, 180, 2999, 3000, 3001, 9000])
            answers = [answered, answered + 300] if number % 11 == 0 else [answered]
            reply = tcp(server, client, SYN_ACK, 5, (seq + 1) % 2**32)
            packets += [(each / 1000, reply) for each in answers]
    packets.sort(key=lambda packet: packet[0] + chosen.choice([0, 0, 0, 0.7]))
    return small_captures.write(tmp_path_factory.mktemp("made") / "made.pcap", packets)


def found(path: Path) -> Counter[tuple]:
    table = in_ns.query(LATENCIES, path)
    return Counter(tuple(row.values()) for row in table.to_pylist())


def by_dpkt(path: Path) -> Counter[tuple]:
    """The same by a dictionary over all segments that dpkt reads."""
    syns: list[tuple[int, tuple]] = []
    answers: dict[tuple, list[int]] = {}
    with path.open("rb") as file:
        reader = dpkt.pcap.Reader(file)
        for seconds, frame in reader:
            packet = dpkt.ethernet.Ethernet(frame).data if reader.datalink() == 1 else raw(frame)
            if not isinstance(packet, dpkt.ip.IP | dpkt.ip6.IP6) or not isinstance(packet.data, dpkt.tcp.TCP):
                continue
            segment, ts = packet.data, round(Decimal(str(seconds)) * 10**6) * 1000
            ends = (str(ip_address(packet.src)), segment.sport), (str(ip_address(packet.dst)), segment.dport)
            if segment.flags & SIX == SYN:
                syns.append((ts, (*ends[0], *ends[1], (segment.seq + 1) % 2**32)))
            elif segment.flags & SIX == SYN_ACK:
                answers.setdefault((*ends[1], *ends[0], segment.ack), []).append(ts)
    return Counter(
        (ts, answer - ts, *key[:4]) for ts, key in syns for answer in answers.get(key, []) if 0 <= answer - ts <= MOST
    )


def raw(frame: bytes) -> dpkt.ip.IP | dpkt.ip6.IP6:
    return dpkt.ip.IP(frame) if frame[0] >> 4 == 4 else dpkt.ip6.IP6(frame)


def by_tshark(path: Path) -> Counter[tuple[str, int]]:
    """Return tshark's latency of the first SYN-ACK of each connection, by the client's end.

    Unit: ns, rounded to 1 µs.
    """
    fields = ("ip.dst", "ipv6.dst", "tcp.dstport", "tcp.analysis.ack_rtt")
    command = ["tshark", "-n", "-r", str(path), "-Y", "tcp.flags.syn == 1 && tcp.flags.ack == 1", "-T", "fields"]
    for name in fields:
        command += ["-e", name]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    answer: Counter[tuple[str, int]] = Counter()
    for line in lines:
        four, six, port, rtt = line.split("\t")
        if rtt and Decimal(rtt) * NS <= MOST:
            answer[f"{four or six}:{port}", round(Decimal(rtt) * 10**6)] += 1
    return answer


def test_every_handshake_of_a_made_capture_is_found_with_its_latency(made: Path) -> None:
    answer = found(made)
    assert answer == by_dpkt(made)
    assert sum(answer.values()) > 200
    assert {3 * NS, 2_999_000_000, 1_000_000} <= {latency for _, latency, *_ in answer}
    assert max(latency for _, latency, *_ in answer) == MOST


@pytest.mark.parametrize("name", REAL)
def test_every_handshake_of_a_real_capture_is_found_with_its_latency(name: str, captures: Path) -> None:
    path = captures / "pcap" / name
    answer = found(path)
    assert answer == by_dpkt(path)
    assert sum(answer.values()) >= REAL[name]


@pytest.mark.parametrize("name", REAL)
def test_tshark_measures_the_same_handshakes(name: str, captures: Path) -> None:
    require_tshark()
    path = captures / "pcap" / name
    ours = Counter((f"{source}:{port}", round(latency / 1000)) for _, latency, source, port, _, _ in found(path))
    # tshark measures from the last repeated SYN and counts each SYN-ACK once. The join returns all pairs.
    theirs = by_tshark(path)
    assert theirs - ours == Counter()
    assert sum(theirs.values()) >= REAL[name] * 3 // 4
