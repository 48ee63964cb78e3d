"""Attacks in stages: their packets by kind, as dpkt reads them, in order and inside the interval.

Finds: a stage that is missing or at the wrong time, packets outside the interval, packets of other traffic that move.
"""

import socket
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import dpkt
import pytest

from capture.generate import Attack, Conversations, Profile, generate
from capture.generate.attacks import STAGED_KINDS
from tests.references.generated import records

SECOND = 1_000_000_000
START, END = 10 * SECOND, 50 * SECOND
PROFILE = Profile(duration=60 * SECOND, rate=50.0, groups=20)
SCANNER, HOST, SERVER, DATABASE, OUTSIDE = "198.19.0.2", "198.19.0.3", "198.19.0.4", "198.19.0.5", "198.51.100.66"


def packets(path: Path) -> list[tuple[float, str, str, Any]]:
    """Return the packets of attacks: seconds from the start of the capture, both addresses, and the TCP segment."""
    found = []
    for record in records(path):
        packet = dpkt.ethernet.Ethernet(record.data).data
        if isinstance(packet, dpkt.ip.IP):
            ends = socket.inet_ntoa(packet.src), socket.inet_ntoa(packet.dst)
            if any(end.startswith("198.19.0.") for end in ends):
                found.append(((record.ts - PROFILE.start) / SECOND, *ends, packet.data))
    return found


def staged(folder: Path, kind: str, rate: float) -> list[tuple[float, str, str, Any]]:
    profile = Profile(
        duration=60 * SECOND, rate=50.0, groups=20, snap_length=65535, attacks=(Attack(kind, START, END, rate),)
    )
    summary = generate(profile, folder / "a.pcap")
    made = packets(folder / "a.pcap")
    assert summary.attack_packets == len(made) > 0
    assert summary.packets == 3000 + len(made)
    assert all(10 <= at < 50 for at, *_ in made)
    times = [record.ts for record in records(folder / "a.pcap")]
    assert times == sorted(times)
    return made


def syns(made: list[tuple[float, str, str, Any]], source: str, target: str) -> list[float]:
    return [at for at, src, dst, tcp in made if (src, dst, tcp.flags) == (source, target, dpkt.tcp.TH_SYN)]


def test_a_scan_precedes_a_large_packet_and_a_call_back(tmp_path: Path) -> None:
    made = staged(tmp_path, "scan-and-call-back", 1.0)
    assert len(syns(made, SCANNER, HOST)) == 21  # 20 probes, and the connection of the large packet
    assert max(syns(made, SCANNER, HOST)) == 40
    large = [at for at, src, dst, tcp in made if len(tcp.data) > 1000]
    assert large == [40.003]
    assert syns(made, HOST, SCANNER) == [45]


def test_a_beacon_connects_at_nearly_equal_intervals(tmp_path: Path) -> None:
    times = syns(staged(tmp_path, "beacon", 0.5), HOST, OUTSIDE)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert len(times) == 20
    assert all(1.8 <= gap <= 2.2 for gap in gaps)
    assert len(set(gaps)) > 10


def test_short_sessions_precede_a_long_one(tmp_path: Path) -> None:
    made = staged(tmp_path, "password-guessing", 1.0)
    last: dict[int, float] = {}
    for at, src, _, tcp in made:
        last[tcp.sport if src == SCANNER else tcp.dport] = at
    lengths = [last[tcp.sport] - at for at, src, _, tcp in made if src == SCANNER and tcp.flags == dpkt.tcp.TH_SYN]
    assert len(lengths) == 21
    assert all(length < 1 for length in lengths[:-1])
    assert lengths[-1] > 19


def test_as_much_is_sent_as_was_read(tmp_path: Path) -> None:
    made = staged(tmp_path, "exfiltration", 5.0)
    read = [at for at, src, dst, tcp in made if (src, dst) == (DATABASE, HOST)]
    sent = [at for at, src, dst, tcp in made if (src, dst) == (HOST, OUTSIDE)]
    assert len(read) == len(sent) == 100
    assert max(read) < 30 <= min(sent)


def test_pulses_change_the_load_each_second(tmp_path: Path) -> None:
    loads = Counter(int(at) for at, *_ in staged(tmp_path, "pulses", 50.0))
    assert [loads[second] for second in range(10, 50)] == [50] * 10 + [20, 10] * 15


def test_a_server_stops_answering(tmp_path: Path) -> None:
    made = staged(tmp_path, "silent-server", 1.0)
    answers = [at for at, src, _, tcp in made if src == SERVER]
    assert len(syns(made, HOST, SERVER)) == 40
    assert len(answers) == 20
    assert max(answers) < 30


def test_each_fifth_contact_is_lost(tmp_path: Path) -> None:
    times = syns(staged(tmp_path, "lost-contacts", 1.0), HOST, SERVER)
    assert [round(each) for each in times] == [10 + second for second in range(40) if second % 5 != 4]


@pytest.mark.parametrize("link_type", [0, 101, 113, 276])
def test_other_link_types_have_the_same_attacks(tmp_path: Path, link_type: int) -> None:
    attacks = tuple(Attack(kind, 0, 20 * SECOND, 1.0) for kind in STAGED_KINDS)
    made = generate(Profile(duration=60 * SECOND, rate=10.0, link_type=link_type, attacks=attacks), tmp_path / "a.pcap")
    ethernet = generate(Profile(duration=60 * SECOND, rate=10.0, attacks=attacks), tmp_path / "b.pcap")
    assert made.attack_packets == ethernet.attack_packets > 100


def test_staged_attacks_conversations_and_floods_are_counted_separately(tmp_path: Path) -> None:
    attacks = (Attack("syn-flood", 0, 10 * SECOND, 10.0), Attack("beacon", 0, 20 * SECOND, 1.0))
    made = generate(
        Profile(duration=20 * SECOND, rate=10.0, attacks=attacks, conversations=(Conversations("dns", 1.0),)),
        tmp_path / "a.pcap",
    )
    flood = made.attack_packets - 20 * 6
    assert flood == pytest.approx(100, abs=30)
    assert made.conversation_packets == 40
    assert made.packets == 300 + 20 * 6 + 40
