"""When generated packets happen, and who sends them: rate, disorder and its bound, lulls, skew, attacks, pairs.

arrival order ──►   ts:  5 3 6 4 | 9 7 10 8 |            |  25 23 26
                         band: high mark - ts < span       lull: no ts inside
"""

import socket
from collections import Counter
from dataclasses import replace
from pathlib import Path

import dpkt
import numpy as np
import pytest

from capture.generate import Attack, Profile, generate
from tests.references.generated import records

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND


def times(profile: Profile, folder: Path) -> np.ndarray:
    """Timestamps of the packets in the order of the file, ns from the start of the capture."""
    generate(profile, folder / "times.pcap")
    return np.array([record.ts for record in records(folder / "times.pcap")]) - START


@pytest.fixture(params=["us", "ns"])
def precision(request: pytest.FixtureRequest) -> str:
    return request.param


def test_packets_without_disorder_rise_evenly_at_the_rate(tmp_path: Path) -> None:
    ts = times(Profile(packets=10_000, rate=1000.0), tmp_path)
    assert (np.diff(ts) >= 0).all()
    # One packet in each slot of 1 ms.
    assert (ts // 1_000_000 == np.arange(10_000)).all()


def test_a_duration_holds_its_rate_times_its_length_without_the_lulls(tmp_path: Path) -> None:
    profile = Profile(duration=60 * SECOND, rate=100.0, lulls=((10 * SECOND, 20 * SECOND), (15 * SECOND, 30 * SECOND)))
    ts = times(profile, tmp_path)
    assert len(ts) == profile.total == 4000
    assert ts.max() < 60 * SECOND


def test_band_disorder_is_late_by_up_to_its_span_and_never_more(tmp_path: Path, precision: str) -> None:
    span = 2 * SECOND
    profile = Profile(packets=20_000, rate=1000.0, disorder="band", disorder_span=span, precision=precision)
    ts = times(profile, tmp_path)
    late = np.maximum.accumulate(ts) - ts
    assert 0.9 * span < late.max() < span
    assert ts.min() >= 0
    assert np.mean(late > 0) > 0.9
    # Late by U(0, span): half the span on average, once a whole span has passed. Packet i arrives in millisecond i.
    arrived = np.arange(20_000) * 1_000_000
    assert (arrived - ts)[4000:].mean() == pytest.approx(span / 2, rel=0.03)


def test_block_disorder_is_shuffled_inside_blocks_that_are_in_order(tmp_path: Path, precision: str) -> None:
    span = 3 * SECOND
    profile = Profile(packets=20_000, rate=1000.0, disorder="blocks", disorder_span=span, precision=precision)
    ts = times(profile, tmp_path)
    blocks = ts // span
    assert (np.diff(blocks) >= 0).all()
    assert set(np.bincount(blocks)[:-1]) == {3000}
    for block in range(6):
        inside = ts[blocks == block]
        assert abs(np.corrcoef(np.arange(len(inside)), inside)[0, 1]) < 0.1


@pytest.mark.parametrize("disorder, span", [("none", 0), ("band", 7 * SECOND), ("blocks", 7 * SECOND)])
def test_nothing_happens_in_a_lull_whatever_the_disorder(
    tmp_path: Path, disorder: str, span: int, precision: str
) -> None:
    lulls = ((5 * SECOND, 12 * SECOND), (33 * SECOND, 33 * SECOND + 500_000_000))
    profile = Profile(
        duration=60 * SECOND,
        rate=500.0,
        disorder=disorder,
        disorder_span=span,
        lulls=lulls,
        lull_every=20 * SECOND,
        lull_length=4 * SECOND,
        attacks=(Attack("syn-flood", 4 * SECOND, 18 * SECOND, 100.0),),
        precision=precision,
    )
    ts = times(profile, tmp_path)
    silent = [*lulls, *((start + 16 * SECOND, start + 20 * SECOND) for start in range(0, 60 * SECOND, 20 * SECOND))]
    for start, end in silent:
        assert not ((start <= ts) & (ts < end)).any()
        assert ((start - SECOND <= ts) & (ts < start)).any()
    if span:
        assert (np.maximum.accumulate(ts) - ts).max() < span


def test_a_clock_offset_moves_every_timestamp_and_changes_nothing_else(tmp_path: Path) -> None:
    profile = Profile(packets=1000, disorder="band", disorder_span=SECOND)
    generate(profile, tmp_path / "right.pcap")
    generate(replace(profile, clock_offset=-3 * SECOND), tmp_path / "behind.pcap")
    right, behind = list(records(tmp_path / "right.pcap")), list(records(tmp_path / "behind.pcap"))
    assert behind == [replace(record, ts=record.ts - 3 * SECOND) for record in right]


def test_microseconds_are_the_nanoseconds_cut(tmp_path: Path) -> None:
    profile = Profile(packets=1000)
    assert (times(replace(profile, precision="us"), tmp_path) == times(profile, tmp_path) // 1000 * 1000).all()


def test_a_file_has_as_many_distinct_pairs_as_groups_and_no_more(tmp_path: Path) -> None:
    profile = Profile(packets=20_000, groups=501, skew=0.0, ipv6=0.3)
    summary = generate(profile, tmp_path / "a.pcap")
    pairs = Counter()
    for record in records(tmp_path / "a.pcap"):
        packet = dpkt.ethernet.Ethernet(record.data).data
        pairs[packet.src, packet.dst] += 1
    assert len(pairs) == summary.groups == 501
    assert max(pairs.values()) < 3 * 20_000 / 501


def test_popularity_of_pairs_falls_with_rank_as_zipf_says(tmp_path: Path) -> None:
    summary = generate(Profile(packets=50_000, groups=1000, skew=1.0), tmp_path / "a.pcap")
    pairs = Counter()
    for record in records(tmp_path / "a.pcap"):
        packet = dpkt.ethernet.Ethernet(record.data).data
        pairs[packet.src, packet.dst] += 1
    assert len(pairs) == summary.groups <= 1000
    harmonic = sum(1 / rank for rank in range(1, 1001))
    for rank, (_, count) in enumerate(pairs.most_common(10), start=1):
        assert count / 50_000 == pytest.approx(1 / rank / harmonic, rel=0.15)


def test_a_syn_flood_has_its_interval_rate_victim_and_spoofed_sources(tmp_path: Path, precision: str) -> None:
    flood = Attack("syn-flood", 2 * SECOND, 4 * SECOND, 3000.0)
    profile = Profile(
        duration=6 * SECOND, rate=1000.0, attacks=(flood,), disorder="band", disorder_span=SECOND, precision=precision
    )
    summary = generate(profile, tmp_path / "a.pcap")
    sources, count = set(), 0
    for record in records(tmp_path / "a.pcap"):
        packet = dpkt.ethernet.Ethernet(record.data).data
        if len(packet.dst) == 16 or socket.inet_ntoa(packet.dst) != "198.19.0.1":
            continue
        assert flood.start <= record.ts - START < flood.end
        assert packet.data.flags == dpkt.tcp.TH_SYN
        assert packet.data.dport == 443
        assert 11 <= packet.src[0] < 127
        sources.add(packet.src)
        count += 1
    assert summary.packets == 12_000
    assert count == summary.attack_packets == pytest.approx(6000, rel=0.03)
    assert len(sources) > 0.99 * count


def test_a_port_scan_tries_many_ports_from_one_source(tmp_path: Path) -> None:
    scan = Attack("port-scan", 0, SECOND, 2000.0)
    generate(Profile(duration=SECOND, rate=100.0, attacks=(scan,)), tmp_path / "a.pcap")
    packets = [dpkt.ethernet.Ethernet(record.data).data for record in records(tmp_path / "a.pcap")]
    ports = Counter(packet.data.dport for packet in packets if packet.src == socket.inet_aton("198.19.0.2"))
    assert ports.total() == pytest.approx(2000, rel=0.05)
    assert len(ports) > 0.95 * ports.total()


def test_an_amplification_sends_large_answers_from_many_resolvers_beside_other_attacks(tmp_path: Path) -> None:
    attacks = (Attack("dns-amplification", 0, SECOND, 2000.0), Attack("syn-flood", 0, SECOND, 1000.0))
    generate(Profile(duration=SECOND, rate=100.0, attacks=attacks), tmp_path / "a.pcap")
    answers = []
    for record in records(tmp_path / "a.pcap"):
        packet = dpkt.ethernet.Ethernet(record.data).data
        if packet.dst == socket.inet_aton("198.19.0.1") and isinstance(packet.data, dpkt.udp.UDP):
            assert packet.data.sport == 53
            assert 1200 <= record.wire_length <= 1514
            answers.append(packet.src)
    assert len(answers) == pytest.approx(2000, rel=0.05)
    assert len(set(answers)) == 256
